"""Our files, and the JSON and TOML of others: refused in one line that says where, in linear time."""

import contextlib
import io
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import jsonschema
import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cairn import datafile
from cairn.cli.main import make_parser
from cairn.errors import UsageError
from cairn.sources.manifest.manifest import Manifest
from cairn.wheels.wheelset import WheelSet


class Inner(datafile.Value):
    name: str
    count: int = 0


class Outer(datafile.Value, tag_field="schema", tag="cairn.test/1"):
    kind: Literal["a", "b"]
    items: tuple[Inner, ...]
    table: Mapping[str, Inner] = msgspec.field(default_factory=dict)
    maybe: Inner | None = None
    names: tuple[str, ...] | None = None
    source: str = msgspec.field(name="from", default="")


inners = st.builds(Inner, name=st.text(), count=st.integers())
outers = st.builds(
    Outer,
    kind=st.sampled_from(["a", "b"]),
    items=st.lists(inners).map(tuple),
    table=st.dictionaries(st.text(), inners),
    maybe=st.none() | inners,
    names=st.none() | st.lists(st.text()).map(tuple),
)


@given(outers)
def test_round_trip(value: Outer) -> None:
    assert datafile.loads(datafile.dumps(value), Outer, name="x") == value


GOOD = {"schema": "cairn.test/1", "kind": "a", "items": []}


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda below: st.lists(below, max_size=2) | st.dictionaries(st.text(), below, max_size=2),
)


@example("table", {"\n": None})
@example("items", [{"\n": None}])
@given(st.sampled_from(["kind", "items", "table", "maybe", "names", "from"]), plain)
def test_a_value_of_any_other_shape_is_refused_with_one_line(field: str, value: object) -> None:
    # An object where a choice or a list is expected, a list where an object is, and so on.
    said = f"some.json, at {field}"
    try:
        datafile.from_plain(GOOD | {field: value}, Outer, name="some.json")
    except UsageError as error:
        said = str(error)
    assert said.startswith(f"some.json, at {field}")
    assert "\n" not in said


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"x"', "[" * 100_000])
def test_what_is_not_our_json_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        datafile.loads(text, Outer, name="some.json")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"schema": "cairn.test/1", "kind": "a", "kind": "b", "items": []}', "the name 'kind' twice"),
        ('{"a": NaN}', "NaN is not a number"),
        ('{"a": -Infinity}', "-Infinity is not a number"),
        ('{"a": 1e999}', "too large"),
        ('{"a": ' + "9" * 5_000 + "}", "not JSON"),
        ('{"a": "\\ud800"}', "surrogates not allowed"),
        (b'{"a": "\xff"}', "not JSON"),
        ('{"a": ' * 100_000, "nested too deep"),
    ],
)
def test_what_readers_understand_in_several_ways_is_refused(text: str | bytes, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        datafile.loads(text, Outer, name="some.json")


def test_a_whole_pair_of_surrogates_is_a_letter() -> None:
    assert datafile.parse_json('"\\ud83d\\ude00"', name="some.json") == "\U0001f600"


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent\.json"):
        datafile.read(tmp_path / "absent.json", Outer)


@pytest.mark.parametrize(
    ("change", "where", "why"),
    [
        ({"items": [{"name": "a"}, {"name": 1}]}, "items[1].name", "expected `str`, got `int`"),
        ({"items": [{}]}, "items[0]", "missing required field `name`"),
        ({"kind": "c"}, "kind", "'c', expected one of 'a', 'b'"),
        ({"table": {"x": {"name": "a"}, "y": {"name": "a", "count": True}}}, "table.y.count", "got `bool`"),
        ({"from": 1}, "from", "expected `str`"),
        ({"maybe": {"name": 1}}, "maybe.name", "expected `str`, got `int`"),
        ({"maybe": 1}, "maybe", "expected `object`, got `int`"),
        ({"maybe": []}, "maybe", "expected `object`, got `array`"),
        ({"names": ["a", None]}, "names[1]", "got `null`"),
        ({"itms": []}, "the top", "unknown field `itms`"),
    ],
)
def test_the_message_says_where_the_mistake_is(change: dict[str, object], where: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        datafile.loads(json.dumps(GOOD | change), Outer, name="some.json")
    said = str(caught.value)
    assert said.startswith(f"some.json, at {where}: ")
    assert why in said


@pytest.mark.parametrize(("schema", "tip"), [("cairn.test/2", "use that version"), (None, "name the file")])
def test_a_file_of_another_version_or_of_none_is_refused(schema: str | None, tip: str) -> None:
    with pytest.raises(UsageError, match=rf"has schema {schema!r}, expected 'cairn\.test/1'") as caught:
        datafile.loads(json.dumps(GOOD | {"schema": schema}), Outer, name="some.json")
    assert tip in str(caught.value.tip)


def test_a_mistyped_field_is_answered_with_the_one_that_was_meant() -> None:
    with pytest.raises(UsageError) as caught:
        datafile.loads(json.dumps(GOOD | {"itms": []}), Outer, name="some.json")
    assert caught.value.tip is not None
    assert "did you mean items?" in caught.value.tip


def test_an_unknown_field_of_a_known_schema_may_be_of_a_newer_cairn(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        datafile.loads(json.dumps(GOOD | {"novel": []}), Outer, name="some.json")
    assert (caught.value.tip or "").startswith("a newer Cairn may have written it: update Cairn; otherwise: ")
    path = tmp_path / "some.toml"  # which people write
    path.write_text('schema = "cairn.test/1"\nkind = "a"\nnovel = []\nitems = []\n')
    with pytest.raises(UsageError) as caught:
        datafile.read(path, Outer)
    assert "newer Cairn" not in (caught.value.tip or "")


def test_a_value_is_frozen_and_made_by_keywords() -> None:
    with pytest.raises(TypeError):
        Inner("a")  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Inner(name="a").name = "b"  # type: ignore[misc]


def test_the_schema_takes_what_is_written_and_nothing_else() -> None:
    schema = datafile.json_schema(Outer)
    jsonschema.validate(json.loads(datafile.dumps(Outer(kind="a", items=(Inner(name="x"),)))), schema)
    for change in ({"schema": "cairn.test/2"}, {"kind": "c"}, {"extra": 1}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(GOOD | change, schema)


def test_toml_is_read_by_its_suffix(tmp_path: Path) -> None:
    path = tmp_path / "some.toml"
    path.write_text('schema = "cairn.test/1"\nkind = "a"\n[[items]]\nname = "x"\n')
    assert datafile.read(path, Outer) == Outer(kind="a", items=(Inner(name="x"),))
    path.write_text('schema = "cairn.test/1"\nkind = 1979-05-27\nitems = []\n')
    with pytest.raises(UsageError, match=r"some\.toml, at kind: "):
        datafile.read(path, Outer)


@pytest.mark.parametrize("text", ["{} = 1", "[{}]", "x = {{ {} = 1 }}"])
def test_a_key_of_very_many_parts_is_refused(text: str) -> None:
    # tomllib takes the square of its length in time, and gives a table too deep to be used.
    with pytest.raises(UsageError, match="over 2000 dots"):
        datafile.parse_toml(text.format(".".join("a" * 3_000)).encode(), name="pyproject.toml")


def test_long_texts_are_read() -> None:
    text = "A sentence. " * 500
    assert (
        datafile.parse_toml(f'x = "{text}"\ny = """\n{text}\n{text}"""'.encode(), name="a.toml")["x"] == text
    )


@pytest.mark.parametrize(
    "data", [b"a", b"\xff = 1", b"a = 1\na = 2", b"x = " + b"[" * 5_000, b"n = " + b"9" * 5_000]
)
def test_what_is_no_toml_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(UsageError, match=r"a\.toml is not TOML"):
        datafile.parse_toml(data, name="a.toml")


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_text_in_toml_is_read_as_it_was(text: str) -> None:
    line = f"a = {datafile.toml_text(text)}"
    assert "\n" not in line
    assert tomllib.loads(line) == {"a": text}


_RACE = """
import sys, threading, types, msgspec
from cairn import datafile
from cairn.errors import UsageError

sys.setswitchinterval(1e-6)
# Many fields, and types within types: looking at such a class takes long enough for a second thread.
SOURCE = "".join(
    f"class C{n}(datafile.Value):\\n"
    + "".join(f"    f{i}: {f'tuple[C{n - 1}, ...]' if n and i % 2 else 'int'}\\n" for i in range(20))
    for n in range(6)
)
HELD = {f"f{i}": [] if i % 2 else 1 for i in range(20)}
TEXT = msgspec.json.encode(HELD)
WAYS = (
    lambda kind: datafile.convert(HELD, kind),
    lambda kind: datafile.decode(TEXT, kind),
    lambda kind: datafile.from_plain(HELD, kind, name="x"),
    lambda kind: datafile.loads(TEXT, kind, name="x"),
)
for turn in range(40):
    made = types.ModuleType(f"made{turn}")
    sys.modules[made.__name__] = made
    made.datafile = datafile
    exec("from __future__ import annotations\\n" + SOURCE, made.__dict__)
    together = threading.Barrier(len(WAYS))

    def meet(way, kind):
        together.wait()
        way(kind)

    kinds = [made.C4, made.C5, made.C5, made.C5]
    crew = [threading.Thread(target=meet, args=each) for each in zip(WAYS, kinds, strict=True)]
    for one in crew:
        one.start()
    for one in crew:
        one.join()
"""


def test_two_threads_that_meet_a_type_at_once_live() -> None:
    # With msgspec's own functions in place of ours this process dies of SIGSEGV in one of its first turns.
    done = subprocess.run([sys.executable, "-c", _RACE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


PAGE = b"\n <!DOCTYPE html><html><title>Sign in</title></html>"


@pytest.mark.parametrize(
    "text", [PAGE, PAGE.decode(), b"\xef\xbb\xbf<html>", b"<?xml version='1.0'?><Error/>"]
)
def test_a_page_in_place_of_a_file_is_called_one(text: bytes | str) -> None:
    """What a server behind a login answers, and what a company's proxy does, with 200 OK."""
    for name, tip in (
        ("https://x.example/manifest.json", "open the address in a browser"),
        ("/srv/manifest.json", "fetch it again: its server may have asked for a login"),
    ):
        with pytest.raises(UsageError, match="is not JSON: it is a page of a website") as caught:
            datafile.loads(text, Outer, name=name)
        assert str(caught.value.tip).startswith(tip)
    with pytest.raises(UsageError) as caught:
        datafile.loads(b"{", Outer, name="https://x.example/manifest.json")
    assert "restore" not in str(caught.value.tip)


def every_schema() -> list[str]:
    """Of all files that have one."""
    root = Path(datafile.__file__).parent
    texts = (path.read_text(encoding="utf-8") for path in root.rglob("*.py"))
    return sorted({name for text in texts for name in re.findall(r'tag="(cairn\.[a-z-]+/[0-9]+)"', text)})


@pytest.mark.parametrize("schema", every_schema())
def test_a_file_of_another_kind_is_not_of_a_different_version(schema: str) -> None:
    for kind in (Manifest, WheelSet, Outer):
        expected = str(kind.__struct_config__.tag)
        with pytest.raises(UsageError) as caught:
            datafile.from_plain({"schema": schema}, kind, name="x.json")
        other = schema.partition("/")[0] != expected.partition("/")[0]
        assert ("different version" in str(caught.value.tip)) is (not other and schema != expected)


def test_a_file_of_another_kind_is_named_with_what_takes_it() -> None:
    with pytest.raises(UsageError) as caught:
        datafile.from_plain({"schema": "cairn.set/2"}, Manifest, name="set.json")
    assert str(caught.value) == "set.json is a set, and not a manifest"
    assert "`cairn release promote`" in str(caught.value.tip)
    with pytest.raises(UsageError) as caught:
        datafile.from_plain({"name": "mine"}, Manifest, name="package.json")
    assert str(caught.value.tip) == "it is not a manifest: name the file that is one"


def test_the_commands_that_take_a_file_are_there() -> None:
    for kind, (_, commands) in datafile._TAKEN_BY.items():
        assert any(schema.startswith(f"{kind}/") for schema in every_schema())
        for command in re.findall("`cairn ([^`]+)`", commands):
            words = command.split()
            options = [word for word in words if word.startswith("--")]
            names = words[: len(words) - len(options)]
            with contextlib.redirect_stdout(io.StringIO()) as shown, pytest.raises(SystemExit) as ended:
                make_parser().parse_args([*names, "--help"])
            assert ended.value.code == 0
            assert all(option in shown.getvalue() for option in options)


def test_a_path_in_an_answer_is_its_text_and_what_has_none_is_refused() -> None:
    assert datafile.to_plain({"wheel": Path("a/b"), "all": [Path("c")]}) == {"wheel": "a/b", "all": ["c"]}
    with pytest.raises(TypeError, match="no form in JSON"):
        datafile.to_plain({"when": object()})
