"""What lies far in is the same however it is read, or it is not found this way."""

import contextlib
import functools
import random
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.wheels import deflate, inspect, midstream, views, zipformat
from cairn.wheels.archive import Archive, Member
from cairn.wheels.summary import summarise
from cairn.wheels.verify import Expectation, verify

SIZE = 3 << 20
FAR = SIZE * 3 // 4


@functools.cache
def mixed(seed: int = 0) -> bytes:
    """Bytes that pack since few of them are used, and seldom repeat what was before."""
    return bytes(random.Random(seed).choices(range(64), k=SIZE))  # noqa: S311 - the same every time


def packed(data: bytes, level: int = 6, memory: int = 8, strategy: int = zlib.Z_DEFAULT_STRATEGY) -> bytes:
    stream = zlib.compressobj(level, zlib.DEFLATED, -15, memory, strategy)
    return stream.compress(data) + stream.flush()


@contextlib.contextmanager
def member_of(folder: Path, stream: bytes, size: int) -> Iterator[tuple[Archive, Member]]:
    """A member whose compressed data is a given stream, whatever made it."""
    path = folder / "one.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("member", stream)
    with Archive.open(path) as archive_read:
        yield archive_read, archive_read.member("member")._replace(method=zipformat.DEFLATED, size=size)


def read(
    folder: Path, stream: bytes, *, size: int = SIZE, offset: int = FAR, count: int = 999
) -> bytes | None:
    with member_of(folder, stream, size) as (archive, member):
        return midstream.read(archive.raw, member, offset, count)


@pytest.mark.parametrize("memory", [5, 8, 9])
@pytest.mark.parametrize("level", [1, 6, 9])
def test_it_is_found_in_what_zlib_packed(tmp_path: Path, level: int, memory: int) -> None:
    assert read(tmp_path, packed(mixed(), level, memory)) == mixed()[FAR:][:999]


def moved(stream: bytes, bit: int) -> tuple[bytes, bytes]:
    """A stream with every block that many bits later in its byte, and what comes out before the rest."""
    # With the codes that every reader knows: a block of the byte 0xFF alone, and blocks of nothing.
    value, bits = (0b1111_1111_1010, 19) if bit % 2 else (0, 0)
    while bits % 8 != bit:
        value, bits = value | 0b10 << bits, bits + 10
    value |= int.from_bytes(stream, "little") << bits
    longer = value.to_bytes(len(stream) + (bits + 7) // 8, "little")
    reader = zlib.decompressobj(-15)
    reader.decompress(longer)
    return longer.removesuffix(reader.unused_data), b"\xff" * (bit % 2)


@pytest.mark.parametrize("engine", [zlib, deflate._fast], ids=lambda engine: engine.__name__)
def test_whatever_bit_a_block_begins_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: ModuleType
) -> None:
    monkeypatch.setattr(deflate, "_fast", engine)
    for bit in range(8):
        stream, before = moved(packed(mixed()), bit)
        data = before + mixed()
        assert zlib.decompress(stream, -15) == data
        with member_of(tmp_path, stream, len(data)) as (archive, member):
            assert midstream.read(archive.raw, member, FAR, len(data) - FAR) == data[FAR:]


def test_a_block_that_begins_where_one_span_ends_is_found() -> None:
    stream = packed(mixed())
    first = next(bit for bit in midstream._block_starts(stream) if bit)
    spans = midstream._SPAN * 8
    for bit in (spans - 8, spans - 1, spans, spans + 7):
        # What is before it does not matter to the search.
        start = first - bit
        number = int.from_bytes(stream, "little")
        shifted = number >> start if start >= 0 else number << -start
        data = shifted.to_bytes(len(stream) + midstream._SPAN, "little")
        assert bit in midstream._block_starts(data)


@settings(max_examples=40, deadline=None)
@given(offset=st.integers(0, SIZE), count=st.integers(0, 5000))
def test_it_is_right_or_none(tmp_path_factory: pytest.TempPathFactory, offset: int, count: int) -> None:
    folder = tmp_path_factory.mktemp("midstream")
    found = read(folder, packed(mixed()), offset=offset, count=count)
    assert found in (None, mixed()[offset : offset + count])
    if offset + count > SIZE or offset < SIZE // 2:
        assert found is None


def test_bytes_that_hang_on_what_was_skipped_are_not_guessed(tmp_path: Path) -> None:
    data = mixed()[:20_000] * (SIZE // 20_000 + 1)
    # All blocks but the first say no more than "as 20,000 bytes ago", in codes of their own.
    assert read(tmp_path, packed(data[:SIZE])) is None


@pytest.mark.parametrize("how", [{"level": 0}, {"strategy": zlib.Z_FIXED}])
def test_blocks_that_cannot_be_told_are_not_found(tmp_path: Path, how: dict[str, int]) -> None:
    assert read(tmp_path, packed(mixed(), **how)) is None


@pytest.mark.parametrize("lost", [1, 1000, 100_000])
def test_a_stream_that_does_not_end_is_not_read(tmp_path: Path, lost: int) -> None:
    assert read(tmp_path, packed(mixed())[:-lost]) is None


def test_a_stream_that_ends_before_its_member_does_is_not_read(tmp_path: Path) -> None:
    assert read(tmp_path, packed(mixed()) + b"more") is None


def test_what_proves_a_wheel_takes_no_shortcut(
    make_wheel: Callable[..., Path], make_elf: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "_HEAD", 0)
    monkeypatch.setattr(views, "_FAR", -1)
    monkeypatch.setattr(midstream, "read", lambda *_: pytest.fail("a shortcut"))
    wheel = make_wheel(
        tags=("py3-none-manylinux_2_28_x86_64",), files={"demo/x.so": make_elf(needed=("libc.so.6",))}
    )
    assert verify(wheel, Expectation()) == ()
    assert len(inspect.libraries_of(wheel)) == len(summarise(wheel).libraries) == 1
    with Archive.open(wheel) as archive, pytest.raises(pytest.fail.Exception):
        inspect.read_libraries(archive, shortcuts=True)


def test_a_view_takes_the_shortcut_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "_HEAD", 1 << 20)
    monkeypatch.setattr(views, "_FAR", 1 << 20)
    taken = []
    monkeypatch.setattr(midstream, "read", lambda *words: taken.append(words) or b"far")
    with member_of(tmp_path, packed(mixed()), SIZE) as (archive, member):
        view = views.MemberView(archive, member, shortcuts=True)
        assert view.read(1 << 19, 9) == mixed()[1 << 19 :][:9]
        assert view.read(FAR, 3) == b"far"
        assert view.read(FAR, 3) == mixed()[FAR:][:3]
        assert views.MemberView(archive, member).read(FAR, 3) == mixed()[FAR:][:3]
    assert len(taken) == 1
