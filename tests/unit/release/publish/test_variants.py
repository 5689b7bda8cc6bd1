"""Wheel variants in an index: beside plain wheels, which stay as they are, with one file about them all."""

from __future__ import annotations

import hashlib
import json
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from cairn import datafile
from cairn.errors import GateError, StoreError, WheelError
from cairn.release.gc import collect
from cairn.release.index import keys
from cairn.release.index.generation import MIRRORED
from cairn.release.index.snapshot import Index
from cairn.release.publish import distribution
from cairn.release.publish.compatibility import Platform, overlap
from cairn.release.publish.files import publish, publish_dists
from cairn.store.memory import MemoryStore
from cairn.wheels.metadata import variants, wheel_info
from cairn.wheels.metadata.variants import Variants
from cairn.wheels.rewrite.wheel import Edit, edit_wheel
from cairn.wheels.split.join import variant_for, write_variant
from cairn.wheels.split.split import split
from helpers.formats import make_bundle, make_code_object
from helpers.hip_library import make_hip_library
from helpers.release import audit, contents, keys_of, make_set, stage_set
from helpers.wheels import build_wheel, members_of

TARGETS = ("gfx942", "gfx1100")
TAG = "cp311-cp311-manylinux_2_28_x86_64"


class Made:
    """Host and device wheels of one version, and their variants."""

    def __init__(self, folder: Path, seed: bytes = b"") -> None:
        codes = {target: make_code_object(target, target.encode() * 99 + seed) for target in TARGETS}
        whole = build_wheel(
            folder / "whole",
            name="torch",
            version="2.9.0",
            tags=[TAG],
            requires=[],
            pure=False,
            files={"torch/lib/x.so": make_hip_library([make_bundle(codes)])},
        )
        self.plain = split(whole, folder)
        host, *devices = self.plain
        self.variants = tuple(write_variant(host, device, folder) for device in devices)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Wheels that no test changes."""
    return Made(tmp_path_factory.mktemp("made"))


def files_of(store: MemoryStore, index: str = "dev") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(store.read(f"{index}/simple/torch/index.json").data)["files"]
    return found


def said(store: MemoryStore) -> dict[str, Any]:
    """What the index says of its variants, through the link that its pages have."""
    (file,) = (file for file in files_of(store) if file["filename"].endswith(".json"))
    page = store.read("dev/simple/torch/index.html").data.decode()
    assert f'href="{file["url"]}#sha256={file["hashes"]["sha256"]}"' in page
    data = store.read(file["url"].removeprefix("../../../")).data
    assert file["size"] == len(data)
    found: dict[str, Any] = json.loads(data)
    return found


def test_an_index_says_what_all_variants_of_a_version_are_for(store: MemoryStore, made: Made) -> None:
    publish(store, "dev", [*made.plain, *made.variants])
    whole = said(store)
    jsonschema.validate(whole, datafile.json_schema(Variants))
    assert whole["variants"] == {name: {"amd": {"gfx_arch": [name]}} for name in sorted(TARGETS)}
    assert whole["providers"]["amd"]["requires"] == ["rocm-bootstrap"]
    names = [file["filename"] for file in files_of(store)]
    assert names == [*sorted(f.name for f in (made.plain[0], *made.variants)), "torch-2.9.0-variants.json"]
    assert audit(store, "dev", hashes=True) == ()
    before = contents(store, "")
    again = publish(store, "dev", [*made.plain, *made.variants])
    assert (again.added, contents(store, "")) == ((), before)


def test_plain_wheels_are_listed_as_they_are_without_variants(store: MemoryStore, made: Made) -> None:
    alone = MemoryStore()
    publish(alone, "dev", made.plain)
    publish(store, "dev", [*made.plain, *made.variants])

    def neutral(there: MemoryStore) -> list[dict[str, Any]]:
        plain = (file for file in files_of(there) if file["filename"] == made.plain[0].name)
        return [{key: value for key, value in file.items() if key != "upload-time"} for file in plain]

    assert neutral(store) == neutral(alone)
    assert b"variants" not in b"".join(contents(alone, "dev/parts/").values())


def test_a_variant_that_comes_later_joins_the_others(store: MemoryStore, made: Made) -> None:
    first, second = made.variants
    (entry,) = publish(store, "dev", [first]).added
    assert list(said(store)["variants"]) == ["gfx942"]
    (entry,) = publish(store, "dev", [second]).added
    assert entry.filename == second.name
    assert sorted(said(store)["variants"]) == sorted(TARGETS)
    assert audit(store, "dev", hashes=True) == ()
    # However old it is, what a page leads to stays.
    for key in keys_of(store):
        store.modified[key] -= timedelta(days=365)
    collect(store, older_than=timedelta(days=30))
    assert sorted(said(store)["variants"]) == sorted(TARGETS)


def test_variants_that_contradict_each_other_are_refused(
    store: MemoryStore, made: Made, tmp_path: Path
) -> None:
    publish(store, "dev", [made.variants[0]])
    before = contents(store, "")
    second = made.variants[1]
    info_folder = "torch-2.9.0.dist-info"
    data = json.loads(datafile.dumps(variant_for("gfx1100")))
    data["providers"]["amd"]["requires"] = ["another-provider"]
    plain = shutil.copy(second, tmp_path / f"torch-2.9.0-{TAG}.whl")
    changed = edit_wheel(
        plain,
        Edit(replace_files={f"{info_folder}/variant.json": json.dumps(data).encode()}),
        tmp_path / "changed",
    )
    changed = changed.rename(changed.parent / variants.with_label(changed.name, "gfx1100"))
    with pytest.raises(StoreError, match="different things of the provider amd"):
        publish(store, "dev", [changed])
    assert contents(store, "") == before
    with pytest.raises(WheelError, match="is of gfx1100, and its name has the label gfx90a"):
        publish(store, "dev", [changed.rename(changed.parent / variants.with_label(plain.name, "gfx90a"))])


def test_a_variant_that_is_not_all_that_was_split_is_refused(
    store: MemoryStore, made: Made, tmp_path: Path
) -> None:
    archive = "torch/.kpack/torch_gfx942.kpack"
    other = Made(tmp_path / "other", seed=b"other")
    theirs = members_of(other.variants[0])
    plain = shutil.copy(made.variants[0], tmp_path / f"torch-2.9.0-{TAG}.whl")
    with pytest.raises(WheelError, match="is of gfx942, and its name has no label"):
        publish(store, "dev", [plain])  # as the wheel for every GPU
    for number, (change, said) in enumerate(
        (
            (Edit(remove_files=(archive,)), f"lacks {archive}"),
            (Edit(replace_files={archive: theirs[archive]}), "code of a different build for gfx942"),
            (Edit(replace_files={"torch/lib/x.so": b"other"}), "has no torch/lib/x.so as it was split"),
        )
    ):
        changed = edit_wheel(plain, change, tmp_path / str(number))
        with pytest.raises(StoreError, match=f"not published: .*{said}"):
            publish(store, "dev", [changed.rename(changed.parent / made.variants[0].name)])
    assert not store.objects


def test_no_variant_reaches_a_gate(store: MemoryStore, made: Made) -> None:
    with pytest.raises(GateError):
        publish(store, "release", [made.variants[0]])
    with pytest.raises(WheelError, match="wheel variant gfx942, where only a plain wheel will do"):
        make_set(made.variants, family="gfx942-gfx1100", targets=TARGETS)
    # What a set.json would name that was written by other means.
    plain = make_set(made.plain[:1], family="gfx942-gfx1100", targets=TARGETS)
    item = distribution.read(made.variants[0])
    named = msgspec.structs.replace(
        plain.wheels[0],
        file_name=item.path.name,
        sha256=item.sha256,
        size=item.size,
        metadata_sha256=hashlib.sha256(item.metadata).hexdigest(),
    )
    forged = msgspec.structs.replace(plain, wheels=(named,))
    with pytest.raises((StoreError, WheelError), match="wheel variant gfx942"):
        stage_set(store, "staging", forged, made.variants[:1])
    assert not contents(store, "sets/")
    item = distribution.read(made.variants[0])
    for build in ("f" * 64, MIRRORED):  # the gate asks the same of every file
        with pytest.raises(StoreError, match="wheel variant gfx942, which no gate can judge"):
            publish_dists(Index(store, "staging"), [item], "stage", build=build)


def test_nothing_that_resolves_a_set_takes_a_variant() -> None:
    plain = f"torch-2.9.0-{TAG}.whl"
    one, other = variants.with_label(plain, "gfx942"), variants.with_label(plain, "gfx1100")
    place = Platform(python="3.11", tag="linux_x86_64")
    assert place.takes(plain, None)
    assert not place.takes(one, None)
    assert overlap(plain, plain)
    assert overlap(one, one)
    assert not overlap(plain, one)
    assert not overlap(one, other)
    assert wheel_info.parse_file_name(one, variants_too=True).prefix == "torch"
    assert keys.kind_of(keys.file_key("ab" * 32, variants.index_file_name(one))) == "file"
