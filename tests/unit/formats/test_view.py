"""A member of a wheel is read at any place, and unpacked once where readers come back to its two ends."""

from __future__ import annotations

import zipfile
from array import array
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from cairn.errors import WheelError
from cairn.formats.view import MemberView
from cairn.formats.zip.layout import Member
from cairn.formats.zip.reader import Archive

MIB = 1 << 20


class Counted(Archive):
    """An archive that counts how often a member is unpacked from its beginning."""

    times = 0

    def stream(self, member: Member) -> Iterator[bytes]:
        self.times += 1
        return super().stream(member)


@pytest.fixture(scope="module")
def data() -> bytes:
    return array("I", range(11 * MIB)).tobytes()  # 44 MiB


@pytest.fixture(scope="module")
def packed(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack(tmp_path_factory.mktemp("view") / "x.zip", data)


def pack(path: Path, data: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("lib.so", data)
    return path


def test_what_patchelf_moves_to_the_end_is_read_in_the_one_pass(packed: Path, data: bytes) -> None:
    seen = 0

    def observe(piece: bytes) -> None:
        nonlocal seen
        seen += len(piece)

    with Counted.open(packed) as archive:
        assert isinstance(archive, Counted)
        view = MemberView(archive, archive.member("lib.so"), observer=observe)
        # Headers, dynamic section, strings behind everything, the hash table before them, symbols in front,
        # the section table with its names, and what stands between.
        for at, size in (
            *((0, 64), (30 * MIB, 600), (38 * MIB + 77, 5 * MIB), (37 * MIB, 4000), (MIB, 3 * MIB)),
            *((44 * MIB - 900, 900), (37 * MIB - 5, 9), (29 * MIB, 1), (44 * MIB, 0)),
        ):
            assert view.read(at, size) == data[at : at + size]
        view.drain()
        assert (archive.times, seen) == (1, len(data))
        assert view.read(20 * MIB, 8) == data[20 * MIB : 20 * MIB + 8]
        assert (archive.times, seen) == (2, len(data))


def test_it_gives_the_bytes_of_any_place(packed: Path, data: bytes) -> None:
    random = Random(30)  # noqa: S311 - the same places each time
    with Archive.open(packed) as archive:
        view = MemberView(archive, archive.member("lib.so"))
        for _ in range(30):
            at = random.randrange(len(data))
            size = random.choice([0, 1, 900, 300_000, 2 * MIB, 20 * MIB])
            size = min(size, len(data) - at)
            assert view.read(at, size) == data[at : at + size]


def test_what_leads_to_and_fro_for_ever_is_refused(tmp_path: Path) -> None:
    # It is unpacked 64 times: zeros are in a fraction of the time.
    with Archive.open(pack(tmp_path / "x.zip", bytes(44 * MIB))) as archive:
        view = MemberView(archive, archive.member("lib.so"))
        with pytest.raises(WheelError, match="to and fro"):
            for _ in range(200):
                view.read(17 * MIB, 4)
                view.read(43 * MIB, 4)
