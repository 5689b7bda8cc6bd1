"""ZIP64 for real: more members, and more bytes, than the old format can count."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from cairn.formats.zip.reader import Archive, Limits
from cairn.formats.zip.writer import CopiedMember, New, write

MANY = 70_000
LARGE = (4 << 30) + 1

pytestmark = pytest.mark.slow


def renamed_copy(source: Path, target: Path, limits: Limits) -> None:
    with Archive.open(source, limits=limits) as archive:
        write(target, [CopiedMember(member=m, name=f"moved/{m.name}") for m in archive.members], archive)


def test_more_members_than_sixteen_bits_count(tmp_path: Path) -> None:
    first, second = tmp_path / "a.zip", tmp_path / "b.zip"
    write(first, [New(name=f"{i % 100}/{i}", content=b"%d" % i) for i in range(MANY)])
    renamed_copy(first, second, Limits())
    if shutil.which("unzip"):
        subprocess.run(["unzip", "-tq", str(second)], check=True, capture_output=True)
    with zipfile.ZipFile(second) as archive:
        assert len(archive.namelist()) == MANY
        assert archive.testzip() is None
        assert archive.read(f"moved/{(MANY - 1) % 100}/{MANY - 1}") == b"%d" % (MANY - 1)


def test_a_member_larger_than_four_gigabytes(tmp_path: Path) -> None:
    sparse = tmp_path / "sparse"
    with sparse.open("wb") as file:
        file.seek(LARGE - 3)
        file.write(b"end")
    first, second = tmp_path / "a.zip", tmp_path / "b.zip"
    write(first, [New(name="big", content=sparse), New(name="small", content=b"after")])
    renamed_copy(first, second, Limits(ratio=2000))
    with zipfile.ZipFile(second) as archive:
        assert archive.getinfo("moved/big").file_size == LARGE
        assert archive.read("moved/small") == b"after"
        last, count = b"", 0
        with archive.open("moved/big") as big:
            while piece := big.read(1 << 24):
                last, count = (last + piece)[-4:], count + len(piece)
    assert count == LARGE
    assert last.endswith(b"\0end")
