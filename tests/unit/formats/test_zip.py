from __future__ import annotations

import os
import random
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from cairn.errors import WheelError
from cairn.formats.view import MemberView
from cairn.formats.zip import deflate, layout
from cairn.formats.zip.reader import Archive, Limits
from cairn.formats.zip.writer import CopiedMember, New, write

END = b"PK\x05\x06"
CENTRAL = b"PK\x01\x02"


def plain_zip(path: Path, content: dict[str, bytes] | None = None, **options: object) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, **options) as archive:  # type: ignore[call-overload]
        for name, data in (content or {"a/b.txt": b"hello" * 100, "c.txt": b""}).items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return path


def opened(path: Path) -> dict[str, bytes]:
    with Archive.open(path) as archive:
        return {member.name: b"".join(archive.stream(member)) for member in archive.members}


def patched(path: Path, change: Callable[[bytearray], object]) -> Path:
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)
    return path


def test_reads_what_zipfile_wrote(tmp_path: Path) -> None:
    content = {"a/b.txt": b"hello" * 100, "ü.txt": b"", "big": os.urandom(700_000)}
    assert opened(plain_zip(tmp_path / "x.zip", content)) == content


def streamed_zip(path: Path, *, wide: bool = False) -> Path:
    """An archive whose writer could not seek: CRC and sizes stand behind the content."""
    pipe_read, pipe_write = os.pipe()
    with os.fdopen(pipe_read, "rb") as reader:
        with os.fdopen(pipe_write, "wb") as pipe, zipfile.ZipFile(pipe, "w") as archive:
            for name, data in {"a": b"data", "b": b"more"}.items():
                with archive.open(name, "w", force_zip64=wide) as member:
                    member.write(data)
        path.write_bytes(reader.read())
    return path


def test_a_renamed_member_needs_no_data_descriptor(tmp_path: Path) -> None:
    """Behind the content it has 8 bytes a size, which a stream expects after a ZIP64 field alone."""
    source, target = streamed_zip(tmp_path / "x.zip", wide=True), tmp_path / "y.zip"
    with Archive.open(source) as archive:
        first, second = archive.members
        assert first.end - first.data_offset - first.compressed_size == 24
        write(target, [CopiedMember(first, "renamed"), CopiedMember(second, second.name)], archive)
    with Archive.open(target) as archive:
        renamed, same = archive.members
        assert renamed.end == renamed.data_offset + renamed.compressed_size
        assert not renamed.flags & layout.FLAG_DESCRIPTOR
        assert same.end - same.data_offset == second.end - second.data_offset
    assert opened(target) == {"renamed": b"data", "b": b"more"}
    with zipfile.ZipFile(target) as other:
        assert other.testzip() is None


def test_reads_data_descriptors(tmp_path: Path) -> None:
    with Archive.open(streamed_zip(tmp_path / "x.zip")) as archive:
        assert archive.members[0].flags & layout.FLAG_DESCRIPTOR
        assert archive.read("a") == b"data"
        copy = tmp_path / "y.zip"
        write(copy, [CopiedMember(member=archive.member("a"), name="renamed")], archive)
    assert opened(copy) == {"renamed": b"data"}
    with zipfile.ZipFile(copy) as again:
        assert again.testzip() is None


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("../evil", layout.EscapingPathError),
        ("a/../../evil", layout.EscapingPathError),
        ("a//b", layout.EscapingPathError),
        ("./a", layout.EscapingPathError),
        ("a\\..\\b", layout.EscapingPathError),
        ("a\nb", layout.EscapingPathError),
        ("/etc/passwd", layout.AbsolutePathError),
        ("C:evil", layout.AbsolutePathError),
    ],
)
def test_refuses_names_that_lead_outside(tmp_path: Path, name: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        Archive.open(plain_zip(tmp_path / "x.zip", {name: b""}))


DEEP = "/".join(["d" * 99] * 40)  # 3,999 bytes, and a/ before it


@pytest.mark.parametrize(
    ("part", "fits"),
    [
        ("x" * 255, True),
        ("x" * 256, False),
        ("é" * 128, False),
        (f"{DEEP}/{'x' * 93}", True),
        (f"{DEEP}/{'x' * 94}", False),
        (f"{DEEP}/{'é' * 47}", False),
    ],
)
def test_refuses_names_that_no_file_system_takes(tmp_path: Path, part: str, *, fits: bool) -> None:
    path = plain_zip(tmp_path / "x.zip", {f"a/{part}": b"", f"{'a/' * 200}b": b""})
    if fits:
        assert f"a/{part}" in opened(path)
        return
    with pytest.raises(layout.UnsupportedArchiveError, match="longer than file systems take"):
        opened(path)


def test_refuses_two_members_of_one_name(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", b"1")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("a", b"2")
    with pytest.raises(layout.DuplicateMemberError):
        Archive.open(path)


def test_refuses_a_file_where_another_member_needs_a_folder(tmp_path: Path) -> None:
    with pytest.raises(layout.DuplicateMemberError):
        Archive.open(plain_zip(tmp_path / "x.zip", {"a": b"", "a/b": b""}))


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFDIR])
def test_refuses_links_and_devices(tmp_path: Path, kind: int) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        info = zipfile.ZipInfo("a")
        info.external_attr = (kind | 0o777) << 16
        archive.writestr(info, b"/etc/passwd")
    with pytest.raises(layout.LinkMemberError):
        Archive.open(path)


@pytest.mark.parametrize(
    ("bit", "error"), [(0, layout.EncryptedMemberError), (5, layout.UnsupportedArchiveError)]
)
def test_refuses_encrypted_members_and_patches(tmp_path: Path, bit: int, error: type[Exception]) -> None:
    def mark(data: bytearray) -> None:
        data[6] |= 1 << bit
        data[data.rindex(CENTRAL) + 8] |= 1 << bit

    with pytest.raises(error):
        Archive.open(patched(plain_zip(tmp_path / "x.zip", {"a": b"x"}), mark))


def test_refuses_unknown_compression(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("a", b"x")
    with pytest.raises(layout.UnsupportedArchiveError):
        Archive.open(path)


@pytest.mark.parametrize("needs", [46, 64, 3 << 8 | 46])
def test_refuses_what_needs_a_newer_zip(tmp_path: Path, needs: int) -> None:
    # The field says nothing about what is there, but zipfile (and so pip) and unzip believe it.
    path = patched(
        plain_zip(tmp_path / "x.zip"),
        lambda data: struct.pack_into("<H", data, data.index(CENTRAL) + 6, needs),
    )
    with pytest.raises(layout.UnsupportedArchiveError, match="newer ZIP"):
        opened(path)
    # The upper byte names a system: 3, Unix, in the wheels of cefpython3, which zipfile and unzip unpack.
    assert opened(
        patched(path, lambda data: struct.pack_into("<H", data, data.index(CENTRAL) + 6, 3 << 8 | 20))
    )
    # uv believes the local headers.
    with pytest.raises(layout.InconsistentArchiveError, match="newer ZIP"):
        opened(patched(path, lambda data: struct.pack_into("<H", data, 4, needs)))
    assert opened(patched(path, lambda data: struct.pack_into("<H", data, 4, 3 << 8 | 20)))


def test_refuses_bombs(tmp_path: Path) -> None:
    path = plain_zip(tmp_path / "x.zip", {"a": bytes(20 << 20)})
    with pytest.raises(layout.BombError, match="would unpack"):
        Archive.open(path)
    with Archive.open(path, limits=Limits(ratio=2000)) as archive, pytest.raises(layout.BombError):
        archive.read("a", limit=1000)
    with pytest.raises(layout.BombError, match="unpack to"):
        Archive.open(plain_zip(tmp_path / "y.zip"), limits=Limits(total_size=10))
    with pytest.raises(layout.BombError, match="members"):
        Archive.open(plain_zip(tmp_path / "y.zip"), limits=Limits(members=1))


def test_refuses_content_that_is_longer_than_its_header_says(tmp_path: Path) -> None:
    def shrink(data: bytearray) -> None:
        struct.pack_into("<L", data, 22, 10)
        struct.pack_into("<L", data, data.rindex(CENTRAL) + 24, 10)

    path = patched(plain_zip(tmp_path / "x.zip", {"a": bytes(5000)}), shrink)
    with Archive.open(path) as archive, pytest.raises(layout.InconsistentArchiveError, match="unpacks"):
        archive.read("a")


def test_broken_content_stays_broken_when_a_reader_ignores_it(tmp_path: Path) -> None:
    def grow(data: bytearray) -> None:
        struct.pack_into("<L", data, 22, 2000)
        struct.pack_into("<L", data, data.rindex(CENTRAL) + 24, 2000)

    with Archive.open(patched(plain_zip(tmp_path / "x.zip", {"a": bytes(1000)}), grow)) as archive:
        view = MemberView(archive, archive.member("a"), observer=len)
        for read in (lambda: view.read(1500, 1), view.drain):
            with pytest.raises(layout.InconsistentArchiveError):
                read()


@pytest.mark.parametrize("offset", [6, 8, 14, 18, 22, 26, 30])
def test_refuses_local_headers_that_differ(tmp_path: Path, offset: int) -> None:
    def flip(data: bytearray) -> None:
        data[offset] ^= 4

    with pytest.raises(layout.InconsistentArchiveError):
        Archive.open(patched(plain_zip(tmp_path / "x.zip", {"a": b"data"}), flip))


@pytest.mark.parametrize("offset", [0, 4, 8, 12])  # the signature, the CRC and both sizes
def test_refuses_data_descriptors_that_differ(tmp_path: Path, offset: int) -> None:
    def flip(data: bytearray) -> None:
        data[data.index(layout.DESCRIPTOR_MAGIC) + offset] ^= 4

    with pytest.raises(layout.InconsistentArchiveError):
        Archive.open(patched(streamed_zip(tmp_path / "x.zip"), flip))


def test_refuses_content_that_is_not_that_of_its_crc(tmp_path: Path) -> None:
    def flip(data: bytearray) -> None:
        data[data.index(b"data")] ^= 4

    with pytest.raises(layout.InconsistentArchiveError):
        opened(patched(streamed_zip(tmp_path / "x.zip"), flip))


def test_refuses_hidden_bytes(tmp_path: Path) -> None:
    path = plain_zip(tmp_path / "x.zip")
    data = path.read_bytes()
    for bad in (data + b"x", b"#!/bin/sh\n" + data):
        path.write_bytes(bad)
        with pytest.raises(layout.InconsistentArchiveError):
            Archive.open(path)


def test_refuses_a_member_that_the_directory_does_not_list(tmp_path: Path) -> None:
    path = plain_zip(tmp_path / "x.zip", {"a": b"1", "b": b"2"})
    data = path.read_bytes()
    first = data.index(CENTRAL)
    second = data.index(CENTRAL, first + 1)
    end = data.index(END)
    size = end - second
    tail = bytearray(data[end:])
    struct.pack_into("<HHLL", tail, 8, 1, 1, size, first)
    path.write_bytes(data[:first] + data[second:end] + tail)
    with pytest.raises(layout.InconsistentArchiveError, match=r"where 0 was due"):
        Archive.open(path)


def test_refuses_a_directory_with_more_entries_than_it_counts(tmp_path: Path) -> None:
    path = plain_zip(tmp_path / "x.zip", {"a": b"1"})
    data = path.read_bytes()
    begin, end = data.index(CENTRAL), data.index(END)
    tail = bytearray(data[end:])
    struct.pack_into("<L", tail, 12, 2 * (end - begin))
    path.write_bytes(data[:end] + data[begin:end] + tail)
    with pytest.raises(layout.InconsistentArchiveError, match="more than the 1 entries"):
        Archive.open(path)


def test_refuses_truncation_anywhere(tmp_path: Path) -> None:
    path = plain_zip(tmp_path / "x.zip")
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(layout.ArchiveError):
            Archive.open(path)


def test_refuses_what_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(b"hello")
    with pytest.raises(layout.NotAnArchiveError):
        Archive.open(tmp_path / "x.zip")
    with pytest.raises(layout.NotAnArchiveError):
        Archive.open(tmp_path / "missing.zip")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_refuses_what_is_no_file_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.zip")
    (tmp_path / "folder.zip").mkdir()
    for name, said in (("pipe.zip", "not a file"), ("folder.zip", "Is a directory|not a file")):
        with pytest.raises(layout.NotAnArchiveError, match=said):
            opened(tmp_path / name)


def test_an_unknown_member_is_named(tmp_path: Path) -> None:
    with Archive.open(plain_zip(tmp_path / "x.zip")) as archive, pytest.raises(layout.MissingMemberError):
        archive.read("nope")


def test_random_damage_never_passes_unseen(tmp_path: Path) -> None:
    content = {"a.txt": b"hello" * 30, "b/c.bin": bytes(range(256)), "d": b""}
    path = plain_zip(tmp_path / "x.zip", content)
    good = path.read_bytes()
    dice = random.Random(7)  # noqa: S311 - a fixed sequence is the point
    for _ in range(600):
        data = bytearray(good)
        for _ in range(dice.randint(1, 3)):
            data[dice.randrange(len(data))] = dice.randrange(256)
        path.write_bytes(data)
        try:
            found = opened(path)
        except layout.ArchiveError:
            continue
        # What is left may only differ in names, times and modes: never in content.
        assert sorted(found.values()) == sorted(content.values())


# Writing


def test_unchanged_members_are_copied_with_their_compressed_bytes(tmp_path: Path) -> None:
    path = plain_zip(tmp_path / "x.zip", {"a": b"1" * 100, "b": b"2" * 100, "c": b"3" * 100})
    target = tmp_path / "out" / "y.zip"
    with Archive.open(path) as archive:
        kept = [CopiedMember(member=m, name=m.name) for m in archive.members]
        write(target, [kept[0], New(name="n", content=b"new", executable=True), *kept[1:]], archive)
        originals = {m.name: archive.raw.at(m.data_offset, m.compressed_size) for m in archive.members}
    with Archive.open(target) as again:
        for name, packed in originals.items():
            member = again.member(name)
            assert again.raw.at(member.data_offset, member.compressed_size) == packed
        assert again.read("n") == b"new"
        assert again.member("n").executable
        assert [m.name for m in again.members] == ["a", "n", "b", "c"]


def test_an_identical_copy_is_byte_identical(tmp_path: Path) -> None:
    source, target = tmp_path / "x.zip", tmp_path / "y.zip"
    write(source, [New(name="a", content=b"1"), New(name="ü", content=b"2" * 3_000_000)])
    with Archive.open(source) as archive:
        write(target, [CopiedMember(member=m, name=m.name) for m in archive.members], archive)
    assert target.read_bytes() == source.read_bytes()


def test_large_members_are_packed_in_pieces_and_unpack_whole(tmp_path: Path) -> None:
    content = os.urandom(deflate.PIECE) + bytes(3 * deflate.PIECE) + b"end"
    (tmp_path / "big").write_bytes(content)
    write(tmp_path / "x.zip", [New(name="big", content=tmp_path / "big")])
    with zipfile.ZipFile(tmp_path / "x.zip") as archive:
        assert archive.read("big") == content


def test_the_number_of_workers_does_not_change_the_bytes() -> None:
    pieces = [os.urandom(5000) * 100 for _ in range(9)]
    assert b"".join(deflate.deflate(pieces, workers=1)) == b"".join(deflate.deflate(pieces, workers=7))


def test_times_follow_source_date_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for epoch, expected in (
        ("1700000000", (2023, 11, 14, 22, 13, 20)),
        ("0", (1980, 1, 1, 0, 0, 0)),
        ("nonsense", (1980, 1, 1, 0, 0, 0)),
        ("99999999999999999", (1980, 1, 1, 0, 0, 0)),
    ):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
        write(tmp_path / "x.zip", [New(name="a", content=b"")])
        with zipfile.ZipFile(tmp_path / "x.zip") as archive:
            assert archive.getinfo("a").date_time == expected


def test_modes_follow_the_file(tmp_path: Path) -> None:
    for name, mode in (("plain", 0o640), ("tool", 0o700)):
        (tmp_path / name).write_bytes(b"x")
        (tmp_path / name).chmod(mode)
    write(tmp_path / "x.zip", [New(name=n, content=tmp_path / n) for n in ("plain", "tool")])
    with Archive.open(tmp_path / "x.zip") as archive:
        assert archive.member("plain").mode == stat.S_IFREG | 0o644
        assert archive.member("tool").mode == stat.S_IFREG | 0o755


def test_the_source_is_never_overwritten(tmp_path: Path) -> None:
    path = plain_zip(tmp_path / "x.zip")
    before = path.read_bytes()
    with Archive.open(path) as archive, pytest.raises(WheelError, match="own source"):
        write(path, [], archive)
    assert path.read_bytes() == before


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    for entries, error in (
        ([New(name="a", content=b""), New(name="a", content=b"")], layout.DuplicateMemberError),
        ([New(name="../a", content=b"")], layout.EscapingPathError),
        ([New(name="a", content=tmp_path / "missing")], FileNotFoundError),
    ):
        with pytest.raises(error):
            write(tmp_path / "out" / "x.zip", entries)
        assert list((tmp_path / "out").iterdir()) == []


def lower(patch: pytest.MonkeyPatch, size: int = 0, count: int = 0) -> None:
    patch.setattr(layout, "WIDE_SIZE", size)
    patch.setattr(layout, "WIDE_COUNT", count)


@pytest.mark.parametrize("limits", [(1000, 3), (1000, 65535), (1 << 31, 3), (0, 0)])
def test_zip64_with_lowered_limits_is_read_by_everyone(
    tmp_path: Path, limits: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    lower(monkeypatch, *limits)
    content = {f"m{i}": os.urandom(400) * (i % 4) for i in range(20)}
    first, second = tmp_path / "x.zip", tmp_path / "y.zip"
    write(first, [New(name=n, content=d) for n, d in content.items()])
    with Archive.open(first) as archive:
        renamed = [CopiedMember(member=m, name=f"r/{m.name}") for m in archive.members]
        write(second, renamed, archive)
    assert opened(first) == content
    assert opened(second) == {f"r/{n}": d for n, d in content.items()}
    with zipfile.ZipFile(second) as archive:
        assert archive.testzip() is None
        assert len(archive.namelist()) == len(content)


def test_the_zip64_end_record_says_which_zip_made_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lower(monkeypatch)
    path = tmp_path / "x.zip"
    write(path, [New(name="a", content=b"a")])
    data = path.read_bytes()
    assert data[data.index(layout.END64_MAGIC) :][12:16] == bytes((45, 3, 45, 0))  # by 4.5 on Unix, needs 4.5


def test_sizes_in_two_zip64_fields_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lower(monkeypatch)
    path = tmp_path / "x.zip"
    write(path, [New(name="a", content=b"abc" * 9)])
    # The 32-bit sizes of both headers are all ones, byte for byte the same; the true ones are in two fields.
    field = struct.pack("<HHQ", 1, 16, 27)
    assert path.read_bytes().count(field) == 1
    patched(path, lambda data: data.__setitem__(data.index(field) + 4, 28))
    with pytest.raises(layout.InconsistentArchiveError):
        Archive.open(path)


@pytest.mark.parametrize(("offset", "fields"), [(8, "<HH"), (12, "<L"), (16, "<L")])
def test_refuses_two_end_records_that_differ(
    tmp_path: Path, offset: int, fields: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower(monkeypatch)
    path = tmp_path / "x.zip"
    write(path, [New(name="a", content=b"a")])
    wrong = (7,) * (len(fields) - 1)  # neither all ones nor what the ZIP64 record says
    patched(path, lambda data: struct.pack_into(fields, data, data.rindex(END) + offset, *wrong))
    with pytest.raises(layout.InconsistentArchiveError, match="contradict each other"):
        Archive.open(path)


def with_local_extra(path: Path, extra: bytes, central: bytes = b"") -> Path:
    """An archive of one file whose local header, or directory, has these extra fields."""
    plain_zip(path, {"a/b.py": b"x"})
    data = path.read_bytes()
    at = data.index(b"PK\1\2")
    local, entry, end = bytearray(data[:at]), bytearray(data[at : data.index(END)]), bytearray(data[-22:])
    struct.pack_into("<H", local, 28, len(extra))
    local[36:36] = extra
    struct.pack_into("<H", entry, 30, len(central))
    entry += central
    struct.pack_into("<LL", end, 12, len(entry), len(local))
    path.write_bytes(local + entry + end)
    return path


def test_refuses_a_second_name_or_other_sizes_in_the_extra_fields_of_either_header(tmp_path: Path) -> None:
    # Installers that read the local headers, as those do that unpack while they fetch, may believe them.
    name = b"\x01" + zlib.crc32(b"a/b.py").to_bytes(4, "little") + b"c/d.py"
    for field in (
        struct.pack("<HH", 0x7075, len(name)) + name,
        struct.pack("<HHQQ", 1, 16, 99, 99),
        b"\1\0\7",
    ):
        for extra, central in ((field, b""), (b"", field)):
            with pytest.raises(layout.InconsistentArchiveError, match=r"a/b\.py"):
                Archive.open(with_local_extra(tmp_path / "x.zip", extra, central))


def test_reads_extra_fields_that_change_nothing(tmp_path: Path) -> None:
    for field in (
        struct.pack("<HHBL", 0x5455, 5, 1, 1 << 30),  # a time of Info-ZIP
        struct.pack("<HHQQ", 1, 16, 1, 3),  # the same sizes: 1 byte, 3 packed
        b"\0\0\0",  # what zipalign fills up with
    ):
        with Archive.open(with_local_extra(tmp_path / "x.zip", field)) as archive:
            assert archive.read("a/b.py") == b"x"
