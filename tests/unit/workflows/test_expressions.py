"""GitHub's expression language, with the examples of its documentation, and what is not known yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.errors import UsageError
from cairn.workflows.expressions import EVERY_OTHER, UNKNOWN, evaluate, parse, parse_condition, truthy

CONTEXT: Mapping[str, Any] = {
    "needs": {
        "build": {"result": "success", "outputs": {"count": "3", EVERY_OTHER: UNKNOWN}},
        "Test-all": {"result": "failure"},
    },
    "github": {"event_name": "push", "ref": "refs/heads/main"},
    "list": [1.0, "b"],
}


def _value(text: str) -> Any:
    return evaluate(parse(text), CONTEXT, {"always": lambda: True, "cancelled": lambda: False})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true", True),
        ("null", None),
        ("711", 711.0),
        ("-9.2", -9.2),
        ("0xff", 255.0),
        ("-2.99e-2", -0.0299),
        ("'Mona the Octocat'", "Mona the Octocat"),
        ("'It''s open source!'", "It's open source!"),
        ("'' || 'b'", "b"),
        ("'a' && 0", 0.0),
        ("!0 && !''", True),
        ("'Success' == 'success'", True),
        ("'1' == 1", True),
        ("'' == 0", True),
        ("null == 0", True),
        ("true == 'true'", False),  # the boolean is 1, the text not a number
        ("true == 1", True),
        ("3 > 2 && 2 >= 2 && !(1 < 1)", True),
        ("'x' > 1", False),
        ("1 || 2 && 0", 1.0),
        ("!cancelled() && always()", True),
        ("needs.build.result", "success"),
        ("NEEDS.Build['result']", "success"),
        ("needs.test-all.result == 'failure'", True),
        ("needs.none.result", None),
        ("needs.build.outputs.count != '0'", True),
        ("contains(needs.*.result, 'failure')", True),
        ("contains(needs.*.result, 'skipped')", False),
        ("join(needs.*.result, ' ')", "success failure"),
        ("contains('Hello world', 'LLO')", True),
        ("startsWith(github.ref, 'refs/heads/')", True),
        ("endsWith(github.ref, 'release')", False),
        ("fromJSON('[1, 2]')[1]", 2.0),
        ('fromJSON(\'{"a": {"b": true}}\').a.b', True),
        ("list[1]", "b"),
        ("list[7]", None),
        ("needs.build.outputs.other", UNKNOWN),
        ("inputs.x", UNKNOWN),
        ("!inputs.x", UNKNOWN),
        ("inputs.x == 'y'", UNKNOWN),
        ("inputs.x && false", False),
        ("inputs.x || true", True),
        ("inputs.x || false", UNKNOWN),
        ("false && inputs.x", False),
        ("format('{0}', inputs.x)", UNKNOWN),
        ("hashFiles('a')", UNKNOWN),
        ("contains(needs.*.outputs, 'a')", False),
    ],
)
def test_has_githubs_value(text: str, expected: object) -> None:
    found = _value(text)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    "text",
    [
        "a = b",
        "a ==",
        "(a",
        "a)",
        "a b",
        "'open",
        "a.",
        "a.'b'",
        "a[",
        "f(a,",
        "f(,a)",
        "&& a",
        '"a"',
        "a ? b",
        "",
    ],
)
def test_refuses_what_is_no_expression(text: str) -> None:
    with pytest.raises(UsageError, match="is not an expression"):
        parse(text)


def test_nesting_without_end_is_refused() -> None:
    with pytest.raises(UsageError, match="too deep"):
        parse("(" * 100_000)


@given(st.text(alphabet="ab()[]!&|=<>.,*'0 -$\n", max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = parse(text)
    except UsageError:
        return
    truthy(evaluate(found, CONTEXT, {}))
    list(found.paths())


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("${{ a && b }}", "&&"),
        ("a && b", "&&"),
        ("  ${{ contains('}}', a) }}  \n", "call"),
        ("${{ a }} && b", "text"),
        ("${{ a }} && ${{ b }}", "text"),
    ],
)
def test_a_condition_may_stand_in_braces(text: str, kind: str) -> None:
    assert parse_condition(text).kind == kind


def test_paths_are_what_it_reads() -> None:
    found = parse("needs.a.outputs['x'] == env[github.ref] || startsWith(matrix.*.b, secrets.K)")
    assert set(found.paths()) == {
        ("needs", "a", "outputs", "x"),
        ("env", "*"),
        ("github", "ref"),
        ("matrix", "*", "b"),
        ("secrets", "K"),
    }
