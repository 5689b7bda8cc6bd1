import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn import jsonfile
from cairn.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Inner:
    name: str
    count: int = 0


@dataclass(frozen=True, kw_only=True)
class Outer:
    SCHEMA: ClassVar[str] = "cairn.test/1"

    kind: Literal["a", "b"]
    items: tuple[Inner, ...]
    table: Mapping[str, Inner] = field(default_factory=dict)
    maybe: Inner | None = None
    names: tuple[str, ...] | None = None


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
    assert jsonfile.loads(jsonfile.dumps(value), Outer, name="x") == value


GOOD = {"schema": "cairn.test/1", "kind": "a", "items": []}


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "cairn.test/2"},
        {"schema": None},
        {"kind": "c"},
        {"items": [{"count": 1}]},
        {"items": [{"name": 1}]},
        {"extra": 1},
        {"maybe": []},
        {"names": [1]},
    ],
)
def test_a_lie_is_refused_with_one_line(change: dict[str, object]) -> None:
    with pytest.raises(UsageError) as caught:
        jsonfile.loads(json.dumps(GOOD | change), Outer, name="some.json")
    assert str(caught.value).startswith("some.json")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"x"', "[" * 100_000])
def test_what_is_not_our_json_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        jsonfile.loads(text, Outer, name="some.json")


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
        jsonfile.loads(text, Outer, name="some.json")


def test_a_whole_pair_of_surrogates_is_a_letter() -> None:
    assert jsonfile.parse('"\\ud83d\\ude00"', name="some.json") == "\U0001f600"


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent\.json"):
        jsonfile.read(tmp_path / "absent.json", Outer)
