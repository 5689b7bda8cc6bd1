from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.errors import WheelError
from cairn.wheels.metadata import wheel_info
from cairn.wheels.metadata.fields import parse_headers
from cairn.wheels.metadata.record import RecordRow, format_record, parse_record
from helpers.packing import pack
from helpers.wheels import MakeWheel, altered, members_of

INFO = "demo-1.0.dist-info"
PATHS = st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1)


def test_read_tells_everything(make_wheel: MakeWheel) -> None:
    path = make_wheel(version="1.0+rocm7.1", build="3", tags=("py2-none-any", "py3-none-any"))
    info = wheel_info.read(path)
    assert (info.distribution, info.name, info.version, info.build) == ("demo", "demo", "1.0+rocm7.1", "3")
    assert info.tags == info.wheel_tags == ("py2-none-any", "py3-none-any")
    assert info.requires_dist == ("triton==3.5.0", "filelock")
    assert info.extras == ("fast",)
    assert info.requires_python == ">=3.9"
    assert info.entry_points == {"console_scripts": {"demo": "timeit:main"}}
    assert info.pure
    assert info.metadata_sha256 == hashlib.sha256(info.metadata).hexdigest()
    assert info.size == path.stat().st_size
    assert len(info.record) == 7


@pytest.mark.parametrize("name", ["demo.whl", "demo-1.0-py3-none.whl", "demo-x-py3-none-any.whl", "demo.zip"])
def test_a_malformed_file_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(WheelError, match="name of a wheel"):
        wheel_info.read(tmp_path / name)


@pytest.mark.parametrize("missing", ["METADATA", "WHEEL", "RECORD"])
def test_a_missing_file_is_named(make_wheel: MakeWheel, missing: str) -> None:
    path = altered(make_wheel(), {f"{INFO}/{missing}": None})
    with pytest.raises(WheelError, match=missing):
        wheel_info.read(path)


def test_the_dist_info_folder_must_be_one_and_ours(make_wheel: MakeWheel) -> None:
    wheel = make_wheel()
    other = {name.replace("demo-1.0", "other-1.0"): data for name, data in members_of(wheel).items()}
    with pytest.raises(WheelError, match="not that of demo"):
        wheel_info.read(pack(wheel, other))
    with pytest.raises(WheelError, match="2 dist-info"):
        wheel_info.read(altered(make_wheel(), {f"{INFO}/WHEEL": None, "x-1.dist-info/WHEEL": b""}))


@pytest.mark.parametrize(
    ("file", "data", "message"),
    [
        ("METADATA", b"Metadata-Version: 2.1\nVersion: 1.0\n\n", "Name"),
        ("METADATA", b"Metadata-Version: 2.1\nName: demo\nVersion: 1.0\nVersion: 2.0\n\n", "Version"),
        ("WHEEL", b"nonsense\n", "not a header"),
        ("WHEEL", b"Wheel-Version: 1.0\nGene rator: x\nTag: a-b-c\n", "not a header"),
        ("WHEEL", b"Wheel-Version: 1.0\nGenerator\x80: x\nTag: a-b-c\n", "not a header"),
        ("WHEEL", b"Wheel-Version: 1.0\rTag: a-b-c\n", "not a header"),
        ("RECORD", b"\xff", "UTF-8"),
        ("RECORD", b"a,b\n", "columns"),
        ("RECORD", b"a,,\na,,\n", "twice"),
        ("RECORD", b"a,sha256=?,1\n", "malformed hash"),
        ("RECORD", b"a,,-1\n", "size"),
        ("entry_points.txt", b"demo = x\n", "entry_points"),
        ("entry_points.txt", b"[a]\nx = y\nx = z\n", "already exists"),
        ("entry_points.txt", b"[a]\ndemo\n", "entry_points"),
    ],
)
def test_malformed_files_are_refused(make_wheel: MakeWheel, file: str, data: bytes, message: str) -> None:
    path = altered(make_wheel(), {f"{INFO}/{file}": data})
    with pytest.raises(WheelError, match=message) as raised:
        wheel_info.read(path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("text", ["a b c", "a ((", "", "a==", "a @"])
def test_what_is_no_requirement_is_told_in_one_line(text: str) -> None:
    with pytest.raises(WheelError, match="not a requirement") as raised:
        wheel_info.requirement(text)
    assert "\n" not in str(raised.value)


def test_record_survives_a_round_trip() -> None:
    text = 'a.py,sha256=abc_-,12\n"b,c.py",sha512=x,0\n"q"".py",,\n'
    assert format_record(parse_record(text)) == text


@given(st.lists(st.tuples(PATHS, st.integers(0, 10**12)), unique_by=lambda row: row[0]))
def test_any_path_survives_a_round_trip(rows: list[tuple[str, int]]) -> None:
    record = tuple(RecordRow(path, "sha256", "abc", size) for path, size in rows)
    if any(
        len(f"-{path}-".splitlines()) > 1 for path, _ in rows
    ):  # pip's and installer's readers end lines there
        with pytest.raises(WheelError, match="line ends in which its readers differ"):
            parse_record(format_record(record))
    else:
        assert parse_record(format_record(record)) == record


def test_header_edits_leave_all_else_alone() -> None:
    text = b"A: 1\r\nB: two\n  lines\nA: 3\nC:\xff\n\nbody\nA: 9\n"
    headers = parse_headers(text, name="X")
    assert headers.all("a") == ("1", "3")
    assert headers.all("B") == ("two lines",)
    assert headers.to_bytes() == text.replace(b"\r", b"")
    assert headers.replaced("A", ["x"]).to_bytes() == b"A: x\nB: two\n  lines\nC:\xff\n\nbody\nA: 9\n"
    assert headers.added("A", ["4"]).to_bytes().startswith(b"A: 1\nB: two\n  lines\nA: 3\nA: 4\nC:")
    assert headers.added("D", ["5"]).to_bytes().endswith(b"C:\xff\nD: 5\n\nbody\nA: 9\n")
    assert headers.mapped("A", lambda v: None if v == "1" else v).all("A") == ("3",)


@pytest.mark.parametrize("tag", ["py3", "py3-none", "a-b-c-d"])
def test_malformed_tags_are_refused(tag: str) -> None:
    with pytest.raises(WheelError, match="not a wheel tag"):
        wheel_info.expand_tags(tag)


@pytest.mark.parametrize(
    "name",
    [
        "demo-1.0-1\nTag: x-py3-none-any.whl",
        "demo-1.0-py3-none-any\n.whl",
        "demo-1.0-1/../x-py3-none-any.whl",
        "demo-1.0-py3-none-a\u202eny.whl",
        f"demo-1.0-{'1' * 5000}-py3-none-any.whl",
        "..-1-py3-none-any.whl",
        ".a-1-py3-none-any.whl",
        "a.-1-py3-none-any.whl",
    ],
)
def test_odd_characters_and_endless_numbers_are_in_no_file_name(name: str) -> None:
    with pytest.raises(WheelError, match="not the name of a wheel"):
        wheel_info.parse_file_name(name)


def test_a_hundred_thousand_requirements_are_refused_before_they_are_read(make_wheel: MakeWheel) -> None:
    path = make_wheel(requires=[f"a{number}" for number in range(100_000)])
    with pytest.raises(WheelError, match="METADATA has 100000 requirements, more than the 20000"):
        wheel_info.read(path)


def test_more_fields_than_anybody_needs_are_refused(make_wheel: MakeWheel) -> None:
    many = "".join(f"X-Field-{number}: a\n" for number in range(5_000)).encode()
    path = altered(make_wheel(), {f"{INFO}/METADATA": lambda data: many + data})
    with pytest.raises(WheelError, match="different fields, more than"):
        wheel_info.read(path)


@pytest.mark.parametrize(
    "tags", [f"Tag: {'.'.join('a' * 5_000)}-{'.'.join('b' * 5_000)}-any\n", "Tag: a-b-c\n" * 20_000]
)
def test_more_tags_than_anybody_needs_are_refused(make_wheel: MakeWheel, tags: str) -> None:
    path = altered(make_wheel(), {f"{INFO}/WHEEL": tags.encode()})
    with pytest.raises(WheelError, match="more than 10000 tags"):
        wheel_info.read(path)
