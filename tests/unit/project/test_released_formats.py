"""What a released Cairn wrote, this one reads (docs/reference/formats.md, "What is promised").

A folder for each released version: files that it wrote, and the shapes of its formats.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cairn import datafile
from cairn.errors import UsageError
from cairn.release.index.names import FlatGeneration
from cairn.testing import record

ROOT = Path(__file__).parents[3]
RELEASED = Path(__file__).with_name("released")
FILES = sorted(path for path in RELEASED.glob("*/*") if path.name != "shapes.json")
# The classes that read what a format was before it got a new number.
EARLIER: dict[str, type[datafile.Value]] = {"cairn.generation/1": FlatGeneration}
# What commands print is none of a store's, nor of a repository's.
PRINTED = {"audit.json", "bisect.json", "compat.json", "doctor.json", "legs.json", "notice.json"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_file_of_each_release_is_read(path: Path, generator: ModuleType) -> None:
    if path.name.startswith("record"):
        assert record.read(path).set_id
        return
    text = path.read_text(encoding="utf-8")
    data = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    cls = EARLIER.get(data["schema"], generator.formats()[path.name])
    value = datafile.from_plain(data, cls, name=path.name)
    assert datafile.to_plain(value)["schema"] == data["schema"]
    with pytest.raises(UsageError, match=r"expected 'cairn\."):
        datafile.from_plain({**data, "schema": data["schema"].replace("/", "/9")}, cls, name=path.name)


def broken(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    """What keeps a reader of the new shapes from files of the old, where both have the same number."""
    for name in old.keys() - PRINTED:
        if name not in new:
            yield f"{name} is gone"
        elif new[name]["schema"] == old[name]["schema"]:
            for inner in old[name].keys() - {"schema"}:
                before, after = old[name][inner], new[name].get(inner)
                if after is None:
                    yield f"{name}: {inner} is gone"
                    continue
                yield from (f"{name}: {inner}.{k} is gone" for k in set(before["keys"]) - set(after["keys"]))
                added = set(after["required"]) - set(before["required"])
                yield from (f"{name}: {inner}.{k} must be there" for k in added)


@pytest.mark.parametrize("version", sorted(path.parent.name for path in RELEASED.glob("*/shapes.json")))
def test_formats_only_grow(version: str, generator: ModuleType) -> None:
    old = json.loads((RELEASED / version / "shapes.json").read_text(encoding="utf-8"))
    assert list(broken(old, generator.shapes())) == []


def test_a_change_that_breaks_is_seen(generator: ModuleType) -> None:
    new = generator.shapes()
    old = json.loads(json.dumps(new))
    (inner,) = (key for key in old["set.json"] if key == "WheelSet")
    old["set.json"][inner]["required"].remove("line")
    old["set.json"][inner]["keys"].append("colour")
    assert sorted(broken(old, new)) == [
        "set.json: WheelSet.colour is gone",
        "set.json: WheelSet.line must be there",
    ]
    assert not list(broken({**old, "set.json": {**old["set.json"], "schema": "cairn.set/1"}}, new))


def test_the_releases_are_those_of_the_changelog() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    for path in RELEASED.iterdir():
        assert f"## [{path.name}]" in text
