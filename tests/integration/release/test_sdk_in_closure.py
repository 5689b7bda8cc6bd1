"""A night whose ROCm SDK comes from an index: its files are staged, promoted and collected with the set."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cairn.cli.main import main
from cairn.release.index.snapshot import read_set
from cairn.store.folder import LocalStore
from helpers import sdk_index, tiny_stack
from helpers.serving import serving

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("sdk-in-closure")]

STAGING, NIGHTLY = (f"{channel}/{sdk_index.FAMILY}" for channel in ("staging", "nightly"))
SDK = [
    f"rocm-{sdk_index.VERSION}.tar.gz",
    f"rocm_sdk_core-{sdk_index.VERSION}-py3-none-{tiny_stack.HERE.platform}.whl",
    f"rocm_sdk_libraries_gfx94x_dcgpu-{sdk_index.VERSION}-py3-none-any.whl",
]


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def answer(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Place:
    """A store, a stack, and the index of its SDK on a server."""

    folder: Path
    url: str

    @property
    def store(self) -> LocalStore:
        return LocalStore(self.folder / "store")

    def types(self, *words: object) -> Ended:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code: Any = main([str(word) for word in words])
            except SystemExit as end:
                code = end.code
        return Ended(int(code or 0), out.getvalue(), err.getvalue())

    def night(self, name: str, *words: object) -> Ended:
        place = ("--stack", self.folder / "stack", "--store", self.folder / "store", "--night", "1")
        return self.types("ci", "night", name, *place, *words)

    def freeze(self) -> Ended:
        matrix, place = (
            self.folder / "matrix.json",
            ("--stack", self.folder / "stack", "--trigger", "nightly"),
        )
        matrix.write_text(self.types("matrix", *place, "--json").out)
        where = ("--work-dir", self.folder / "freeze", "--rocm-index-url", f"{self.url}/v2/{{family}}/")
        return self.night("freeze", "--matrix", matrix, "--json", *where)

    def build(self, leg: str) -> Ended:
        where = (
            "--output-dir",
            self.folder / f"artifacts/wheels-{leg}-1",
            "--work-dir",
            self.folder / "work",
        )
        return self.night("build", "--leg", leg, *where)

    def stage(self) -> Ended:
        return self.night("stage", "--artifacts", self.folder / "artifacts", "--json")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("sdk-in-closure")
    sdk_index.offer(sdk_index.write_packages(folder / "sdk"), folder / "www")
    sdk_index.write_stack(folder / "stack")
    with serving(folder / "www") as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAIRN_CACHE_DIR", str(folder / "cache"))
        place = Place(folder, url)
        frozen = place.freeze()
        assert frozen.code == 0, frozen.err
        (leg,) = frozen.answer["missing"]
        made = place.build(leg)
        assert made.code == 0, made.err
        yield place


@pytest.fixture
def place(built: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """The night as its build has left it; what a test does to the index of the SDK is undone."""
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("store", "artifacts", "stack", "sdk"):
        shutil.copytree(built.folder / name, tmp_path / name, symlinks=True)
    (tmp_path / "www").symlink_to(built.folder / "www")
    yield Place(tmp_path, built.url)
    sdk_index.offer(built.folder / "sdk", built.folder / "www")


def test_the_sdk_of_a_build_is_staged_and_promoted_with_its_set(place: Place) -> None:
    ended = place.stage()
    assert ended.code == 0, ended.err
    (leg,) = ended.answer
    assert leg["set"], leg["reason"]
    made = read_set(place.store, leg["set"])
    assert [file.file_name for file in made.closure] == SDK
    assert {file.origin for file in made.closure} == {"rocm-sdk"}
    assert leg["sdk_size"] == sum(file.size for file in made.closure)
    promoted = place.night("promote", "--json")
    assert promoted.code == 0, promoted.err + promoted.out
    assert promoted.answer["legs"][0]["promoted"], promoted.out


def test_a_file_that_was_changed_since_the_build_is_refused_by_name(place: Place) -> None:
    changed = sdk_index.packing.write_wheel(
        place.folder / "sdk", "rocm-sdk-libraries-gfx94x-dcgpu", sdk_index.VERSION, {"evil.py": ""}
    )
    sdk_index.offer(place.folder / "sdk", place.folder / "www")
    (leg,) = place.stage().answer
    assert leg["set"] is None
    assert f"{sdk_index.FAMILY}/ has {changed.name} with sha256 " in leg["reason"]
    assert not any(place.store.list("files/"))


def test_a_file_that_the_index_has_dropped_is_named_and_can_be_published_by_hand(place: Place) -> None:
    (gone,) = (place.folder / "sdk").glob("rocm_sdk_core-*")
    kept = gone.rename(place.folder / gone.name)
    sdk_index.offer(place.folder / "sdk", place.folder / "www")
    ended = place.stage()
    (leg,) = ended.answer
    assert leg["set"] is None
    assert f"{place.url}/v2/{sdk_index.FAMILY}/ has no {gone.name} any more" in leg["reason"]
    line = re.search(r"cairn (index publish) FILE … (--store \S+ --index \S+)", leg["reason"])
    assert line, leg["reason"]
    by_hand = place.types(*line[1].split(), kept, *line[2].split())
    assert by_hand.code == 0, by_hand.err
    (leg,) = place.stage().answer
    assert leg["set"], leg["reason"]
