"""The parts of the installed SDK that need no installing to be tried."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import os
import shutil
import tarfile
import unittest
from collections.abc import Callable
from pathlib import Path

import pytest

from cairn.formats.zip.writer import New
from cairn.rocm import archive, runtime
from cairn.rocm.runtime import _devel, _dist, _selftest

DIST: dict[str, object] = {
    "version": "7.10.0",
    "default_family": "gfx94X-dcgpu",
    "families": {"gfx94X-dcgpu": ["gfx942"], "gfx110X-all": ["gfx1100", "gfx1101"]},
    "groups": {"gfx110X-dgpu": "gfx110X-all"},
    "requires": ["rocm-sdk-core==7.10.0"],
    "extras": {
        "devel": ["rocm-sdk-devel==7.10.0"],
        "profiler": ["rocm-profiler==7.10.0"],
        "libraries": {"gfx94X-dcgpu": ["rocm-sdk-libraries-gfx94X-dcgpu==7.10.0"]},
    },
}


@pytest.fixture(autouse=True)
def _description(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_dist, "load", lambda: DIST)


VERSIONS = {90402: "gfx942", 90010: "gfx90a", 90012: "gfx90c"}
VERSIONS |= {110000: "gfx1100", 120001: "gfx1201", 100306: "gfx1036"}


@pytest.mark.parametrize(("version", "target"), VERSIONS.items())
def test_targets_as_the_kernel_writes_them(version: int, target: str) -> None:
    assert _dist.target_of(version) == target


def test_gpus_are_found_in_the_kernels_order(tmp_path: Path) -> None:
    for node, version in (("0", 0), ("1", 110001), ("2", 90402), ("10", 110001)):
        (tmp_path / node).mkdir()
        (tmp_path / node / "properties").write_text(f"simd_count 4\ngfx_target_version {version}\nlds 1\n")
    (tmp_path / "3").mkdir()
    assert _dist.found_targets(tmp_path) == ["gfx1101", "gfx942"]
    assert _dist.found_targets(tmp_path / "nothing") == []


@pytest.mark.parametrize(
    ("environment", "found", "family"),
    [
        ({}, [], "gfx94X-dcgpu"),
        ({}, ["gfx1101"], "gfx110X-all"),
        ({}, ["gfx906"], "gfx94X-dcgpu"),
        ({}, ["gfx906", "gfx1100"], "gfx110X-all"),
        ({"ROCM_SDK_TARGET_FAMILY": "gfx110X-all"}, ["gfx942"], "gfx110X-all"),
        ({"ROCM_SDK_TARGET_FAMILY": "gfx1100"}, [], "gfx110X-all"),
        ({"ROCM_SDK_TARGET_FAMILY": "gfx110X-dgpu"}, [], "gfx110X-all"),
    ],
)
def test_the_family_asked_for_then_the_gpu_then_the_default(
    environment: dict[str, str], found: list[str], family: str
) -> None:
    assert _dist.choose_family(environment, found) == family


def test_a_family_that_is_not_there_is_refused() -> None:
    with pytest.raises(
        _dist.RocmSdkError, match="gfx906 is not in this SDK; it has gfx94X-dcgpu, gfx110X-all"
    ):
        _dist.choose_family({"ROCM_SDK_TARGET_FAMILY": "gfx906"}, ["gfx942"])


def test_the_names_of_gpus_come_with_the_sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DIST, "folders", {"core": "_some_sdk_core"})
    ids = tmp_path / "_some_sdk_core" / "share" / "libdrm" / "amdgpu.ids"
    ids.parent.mkdir(parents=True)
    (tmp_path / "_some_sdk_core" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("AMDGPU_ASIC_ID_TABLE_PATHS", raising=False)
    runtime.initialize_process()
    assert "AMDGPU_ASIC_ID_TABLE_PATHS" not in os.environ
    ids.touch()
    runtime.initialize_process()
    assert os.environ["AMDGPU_ASIC_ID_TABLE_PATHS"] == str(ids.parent)
    monkeypatch.setenv("AMDGPU_ASIC_ID_TABLE_PATHS", "/mine")
    runtime.initialize_process()
    assert os.environ["AMDGPU_ASIC_ID_TABLE_PATHS"] == "/mine"


def test_a_program_that_a_library_runs_is_named_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "clang++"
    hint = "apt-get install clang"
    monkeypatch.setitem(DIST, "programs", [[str(program), "libMIOpen.so.1", hint]])

    def skipped() -> list[str]:
        result = unittest.TestResult()
        _selftest.LibrariesTest("test_programs_that_libraries_run").run(result)
        assert result.wasSuccessful()
        return [reason for _, reason in result.skipped]

    assert skipped() == [f"libMIOpen.so.1 runs {program}, which is not here: {hint}"]
    program.touch(mode=0o755)
    assert skipped() == []


def test_the_extras_are_those_of_the_family() -> None:
    assert _dist.requirements("gfx94X-dcgpu")["libraries"] == ["rocm-sdk-libraries-gfx94X-dcgpu==7.10.0"]
    assert _dist.requirements("gfx94X-dcgpu")["profiler"] == ["rocm-profiler==7.10.0"]


def test_the_devel_tree_unpacks_where_tarfile_has_no_filters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "rocm_sdk_devel"
    package.mkdir()
    archive.write_tar(package / "devel.tar", [New(name="bin/hipcc", content=b"x", executable=True)])
    (package / "links.json").write_text(json.dumps([]), encoding="utf-8")
    extractall: Callable[..., None] = tarfile.TarFile.extractall

    def as_in_python_3_11_2(self: tarfile.TarFile, path: Path) -> None:
        assert self.extraction_filter is None
        self.extraction_filter = lambda member, _path: member
        extractall(self, path)

    monkeypatch.setattr(tarfile.TarFile, "extractall", as_in_python_3_11_2)
    monkeypatch.delattr(tarfile, "data_filter", raising=False)
    _devel._unpack(package, tmp_path / "_rocm_sdk_devel", "stamp")
    assert (tmp_path / "_rocm_sdk_devel/bin/hipcc").stat().st_mode & 0o111


@pytest.fixture
def devel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The installed package of development files, with its RECORD."""
    monkeypatch.setitem(DIST, "folders", {"devel": "_my_sdk_devel"})
    monkeypatch.syspath_prepend(str(tmp_path))
    package = tmp_path / "my_sdk_devel"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "links.json").write_text("[]")
    names = ("bin/hipcc", "include/a.h", "include/b.h", "lib/cmake/hip/hip-config.cmake")
    archive.write_tar(
        package / "devel.tar", [New(name=name, content=b"x" * 600) for name in names] + [("lib64", "lib")]
    )
    data = (package / "devel.tar").read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    dist_info = tmp_path / "my_sdk_devel-7.10.0.dist-info"
    dist_info.mkdir()
    (dist_info / "RECORD").write_text(f"my_sdk_devel/devel.tar,sha256={digest},{len(data)}\n")
    return package


def _cut(tar: Path, size: int) -> None:
    tar.write_bytes(tar.read_bytes()[:size])


def _damage(tar: Path, at: int) -> None:
    data = bytearray(tar.read_bytes())
    data[at : at + 8] = b"?" * 8
    tar.write_bytes(data)


MEMBER = 512 + 1024  # bytes of a member of the tar: its header, and its content in whole blocks


@pytest.mark.parametrize("with_record", [True, False])
@pytest.mark.parametrize(
    "change",
    [
        lambda tar: _cut(tar, 2 * MEMBER),
        lambda tar: _cut(tar, 2 * MEMBER + 100),
        lambda tar: _cut(tar, 2 * MEMBER + 700),
        lambda tar: _cut(tar, 0),
        lambda tar: _damage(tar, 2 * MEMBER + 148),  # the checksum of a header
        Path.unlink,
    ],
    ids=["between members", "in a header", "in a file", "empty", "a damaged header", "removed"],
)
def test_a_devel_tar_that_is_not_whole_is_not_taken(
    devel: Path, change: Callable[[Path], object], *, with_record: bool
) -> None:
    change(devel / "devel.tar")
    if not with_record:
        (devel.parent / "my_sdk_devel-7.10.0.dist-info/RECORD").unlink()
    why = r"are not whole: .*; install them again: pip install .*my-sdk-devel==7\.10\.0"
    for _ in range(2):
        with pytest.raises(_dist.RocmSdkError, match=why):
            _devel.root()
    assert not (devel.parent / "_my_sdk_devel").exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "include/b.h").unlink(),
        lambda root: (root / "include/b.h").write_bytes(b""),
        lambda root: shutil.rmtree(root / "include"),
        lambda root: (root / "lib64").unlink(),
        lambda root: (root / ".rocm-sdk-devel.files.json").unlink(),
        lambda root: (root / ".rocm-sdk-devel.files.json").write_bytes(b"{"),
    ],
    ids=["a header removed", "emptied", "a folder removed", "a link removed", "no listing", "half a listing"],
)
@pytest.mark.usefixtures("devel")
def test_a_stamp_is_not_taken_for_the_tree(change: Callable[[Path], object]) -> None:
    root = _devel.root()
    whole = sorted(path.relative_to(root) for path in root.rglob("*"))
    change(root)
    assert _devel.root(look=True) == root
    assert sorted(path.relative_to(root) for path in root.rglob("*")) == whole
    assert (root / "include/b.h").stat().st_size == 600
    assert len(_devel.listing(root)) == 5
    # What somebody puts beside is his own: the tree is still whole.
    (root / "include/mine.h").touch()
    assert (_devel.root(look=True) / "include/mine.h").exists()


@pytest.mark.parametrize("name", ["plain", "a,b", 'a "quoted" name', 'both, "of them"'])
def test_an_unpacked_file_has_a_row_in_record_that_is_read_as_its_name(name: str) -> None:
    assert next(csv.reader([_devel._row(name)])) == [name, "", ""]
