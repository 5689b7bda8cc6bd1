from __future__ import annotations

import stat
import tarfile
import zipfile
from pathlib import Path

import pytest
from installer.sources import WheelFile

from cairn.formats.zip.writer import New
from cairn.rocm import archive


def wheel(folder: Path) -> Path:
    path = folder / "x-1-py3-none-any.whl"
    source = folder / "program"
    source.write_bytes(b"#!/bin/sh\n")
    members = [
        New(name="x/program, with comma", content=source, executable=True),
        New(name="x/__init__.py", content=b"text"),
        New(name="x-1.dist-info/METADATA", content=b"Metadata-Version: 2.1\nName: x\nVersion: 1\n"),
        New(
            name="x-1.dist-info/WHEEL",
            content=b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        ),
    ]
    archive.write_wheel(path, members, dist_info="x-1.dist-info")
    return path


def test_a_wheel_has_a_right_record_and_keeps_executable_bits(tmp_path: Path) -> None:
    path = wheel(tmp_path)
    with WheelFile.open(path) as opened:
        opened.validate_record()
    with zipfile.ZipFile(path) as opened_zip:
        modes = {i.filename: stat.S_IMODE(i.external_attr >> 16) for i in opened_zip.infolist()}
        assert opened_zip.namelist()[-1] == "x-1.dist-info/RECORD"
    assert modes["x/program, with comma"] == 0o755
    assert modes["x/__init__.py"] == 0o644


def test_bytes_depend_on_content_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    first = wheel(tmp_path).read_bytes()
    (tmp_path / "program").chmod(0o700)
    assert wheel(tmp_path).read_bytes() == first
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    dated = wheel(tmp_path)
    assert dated.read_bytes() != first
    with zipfile.ZipFile(dated) as opened:
        assert opened.infolist()[0].date_time == (2023, 11, 14, 22, 13, 20)


def test_a_wheel_is_whole_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "x-1-py3-none-any.whl"
    with pytest.raises(FileNotFoundError):
        archive.write_wheel(path, [New(name="x", content=tmp_path / "missing")], dist_info="x-1.dist-info")
    assert list(tmp_path.iterdir()) == []


def test_a_tar_keeps_links_and_executable_bits(tmp_path: Path) -> None:
    archive.write_tar(
        tmp_path / "a.tar", [New(name="bin/real", content=b"x", executable=True), ("bin/tool", "real")]
    )
    with tarfile.open(tmp_path / "a.tar") as opened:
        opened.extraction_filter = getattr(tarfile, "data_filter", None)
        opened.extractall(tmp_path / "out")  # noqa: S202
    assert (tmp_path / "out/bin/tool").readlink() == Path("real")
    assert (tmp_path / "out/bin/real").stat().st_mode & 0o111


def test_each_member_is_told_before_it_is_compressed(tmp_path: Path) -> None:
    progress: list[str] = []
    members = [
        New(name=name, content=name.encode()) for name in ("x/lib/librocblas.so", "x-1.dist-info/WHEEL")
    ]
    archive.write_wheel(tmp_path / "x.whl", members, dist_info="x-1.dist-info", say=progress.append)
    assert progress == [
        "write x.whl: x/lib/librocblas.so",
        "write x.whl: x-1.dist-info/WHEEL",
        "write x.whl: x-1.dist-info/RECORD",
    ]
