"""Each cause of a difference between two builds of a wheel is named, with an example."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from cairn.errors import WheelError
from cairn.wheels.contents.reproducibility import WHOLE, differences, explain
from helpers.formats import make_elf

STAMP = (2020, 1, 1, 0, 0, 0)
RECORD = "demo-1.0.dist-info/RECORD"


def archive(
    path: Path,
    members: Mapping[str, bytes],
    *,
    stamp: tuple[int, int, int, int, int, int] = STAMP,
    mode: int = 0o644,
    level: int = 6,
) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for name, data in members.items():
            info = zipfile.ZipInfo(name, stamp)
            info.external_attr = (0o100000 | mode) << 16
            file.writestr(info, data, zipfile.ZIP_DEFLATED, level)
    return path


@pytest.mark.parametrize(
    ("first", "second", "causes"),
    [
        (b"built 2026-11-26T10:00:00Z\n", b"built 2026-11-27T11:30:01Z\n", ("time",)),
        (b"\0\1__DATE__ Nov 26 2026\0", b"\0\1__DATE__ Nov  7 2026\0", ("time",)),
        (b"seconds = 1790000000\n", b"seconds = 1790000001\n", ("time",)),
        (b"prefix = '/home/ann/src/torch'\n", b"prefix = '/work/torch'\n", ("path",)),
        (b"a\nb\nc\n", b"c\na\nb\n", ("order",)),
        (b"in /tmp/a1/x\nin /tmp/b2/y\n", b"in /srv/b/y\nin /srv/a/x\n", ("path",)),
        (b"\0GCC: (Debian 12.2.0) 12.2.0\0", b"\0GCC: (Debian 14.2.0) 14.2.0\0", ("compiler",)),
        (b"x = 1\n", b"x = 2\n", ("content",)),
        (b"x = 1  # /a/b/c 2026-01-01\n", b"x = 2  # /d/e/f 2026-01-02\n", ("time", "path", "content")),
        (b"\0\1\2\3", b"\0\1\2\4", ("content",)),
        (b"\0\1\2\3", b"\0\3\2\1", ("order",)),
        (b"", b"x", ("content",)),
    ],
)
def test_a_cause_is_what_makes_two_contents_alike_once_it_is_left_out(
    first: bytes, second: bytes, causes: tuple[str, ...]
) -> None:
    assert explain("member", first, second)[0] == causes


def test_a_compiled_module_that_differs_by_the_time_of_its_source() -> None:
    head, code = b"\xa7\r\r\n\0\0\0\0", b"\0code"
    assert explain("a.pyc", head + b"1234" + b"size" + code, head + b"5678" + b"size" + code)[0] == ("time",)
    assert explain("a.pyc", head + b"1234size" + code, head + b"1234size" + b"\0edoc")[0] != ("time",)


def test_a_binary_is_shown_by_what_differs_and_where() -> None:
    path_of = [
        make_elf(needed=("libc.so.6",), runpath=runpath) for runpath in ("/home/ann/lib/x", "/home/bob/lib/x")
    ]
    causes, example = explain("a.so", *path_of)
    assert causes == ("path",)
    assert "/home/ann/lib/x" in example
    assert "/home/bob/lib/x" in example
    assert explain("a.bin", b"\0" * 9 + b"\1", b"\0" * 9 + b"\2")[1] == "byte 9"
    assert explain("a.bin", b"\0" * 9, b"\0" * 8)[1] == "9 and 8 bytes"


def test_members_are_compared_and_record_only_where_it_has_something_to_say(
    tmp_path: Path,
) -> None:
    one = archive(tmp_path / "one", {"a.py": b"x = 1\n", "b.py": b"b", RECORD: b"a.py,sha256=1,6\nb.py,,1\n"})
    two = archive(tmp_path / "two", {"a.py": b"x = 2\n", "b.py": b"b", RECORD: b"a.py,sha256=2,6\nb.py,,1\n"})
    (only,) = differences(one, two)
    assert (only.member, only.causes) == ("a.py", ("content",))
    assert only.example == "'x = 1' and 'x = 2'"
    lie = archive(tmp_path / "lie", {"a.py": b"x = 2\n", "b.py": b"b", RECORD: b"a.py,sha256=2,6\nb.py,,9\n"})
    assert [one.member for one in differences(one, lie)] == ["a.py", RECORD]


def test_what_the_archive_says_of_equal_contents(tmp_path: Path) -> None:
    data = {"a.py": b"x" * 500, "é/b c.py": bytes(range(256)) * 9}
    one = archive(tmp_path / "one", data)

    def only(other: Path) -> list[tuple[str, tuple[str, ...]]]:
        return [(found.member, found.causes) for found in differences(one, other)]

    later = archive(tmp_path / "later", data, stamp=(2026, 11, 26, 21, 5, 8))
    assert only(later) == [("a.py", ("time",)), ("é/b c.py", ("time",))]
    assert "2020-01-01 00:00:00 and 2026-11-26 21:05:08" in differences(one, later)[0].example
    assert only(archive(tmp_path / "mode", data, mode=0o755)) == [
        ("a.py", ("mode",)),
        ("é/b c.py", ("mode",)),
    ]
    assert only(archive(tmp_path / "order", dict(reversed(data.items())))) == [(WHOLE, ("order",))]
    assert only(archive(tmp_path / "packed", data, level=1)) == [(WHOLE, ("packing",))]
    assert only(archive(tmp_path / "less", {"a.py": data["a.py"]})) == [("é/b c.py", ("missing",))]
    assert only(archive(tmp_path / "more", {**data, "c": b""})) == [("c", ("added",))]


def test_what_is_no_archive_is_an_error_and_an_escape_is_not_obeyed(tmp_path: Path) -> None:
    one = archive(tmp_path / "one", {"a": b"\x1b[31mred\n"})
    (found,) = differences(one, archive(tmp_path / "two", {"a": b"\x1b[32mgreen\n"}))
    assert "\x1b" not in found.example
    (tmp_path / "cut").write_bytes(one.read_bytes()[:40])
    with pytest.raises(WheelError):
        differences(one, tmp_path / "cut")
