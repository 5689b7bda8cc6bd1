"""GitHub's expression language, read and evaluated with what is known.

Source: docs.github.com, "Evaluate expressions in workflows and actions". What is not known, such as an output
or an input, is `UNKNOWN`, and so is what follows from it; `false && UNKNOWN` is still false.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from cairn.errors import UsageError

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>[-+]?(?:0x[0-9a-fA-F]+|0o[0-7]+|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?![A-Za-z0-9_.-]))
    | (?P<string>'(?:[^']|'')*')
    | (?P<name>[A-Za-z_][A-Za-z0-9_-]*)
    | (?P<sign>&&|\|\||==|!=|<=|>=|[!<>()\[\].,*])
    )""",
    re.VERBOSE,
)
_EMBEDDED = re.compile(r"\$\{\{((?:'(?:[^']|'')*'|(?!\}\}).)*)\}\}", re.DOTALL)
_WORDS: Mapping[str, object] = {
    "true": True,
    "false": False,
    "null": None,
    "nan": math.nan,
    "infinity": math.inf,
}
_COMPARED = ("==", "!=", "<", "<=", ">", ">=")


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = _Unknown()
"""The value of what is known only when the workflow runs."""

EVERY_OTHER = "*"
"""In a context: the value of names that it does not list."""

Value: TypeAlias = Any
Functions: TypeAlias = Mapping[str, Callable[[], Value]]


@dataclass(frozen=True, kw_only=True)
class Expression:
    """A part of an expression.

    Attributes:
        kind: `value`, `name`, `call`, `member` (also `[…]`), `not`, an operator, or `text` around `${{ }}`.
        value: of a `value`; the lower-case name of a `name` or `call`.
        parts: what it is made of.
    """

    kind: str
    value: Value = None
    parts: tuple[Expression, ...] = ()

    def walk(self) -> Iterator[Expression]:
        """It, and every part of it."""
        yield self
        for part in self.parts:
            yield from part.walk()

    def calls(self, *names: str) -> bool:
        """Whether it calls one of these functions."""
        return any(part.kind == "call" and part.value in names for part in self.walk())

    def paths(self) -> Iterator[tuple[str, ...]]:
        """What it reads, such as `("needs", "build", "result")`; `*` stands for what is computed."""
        if self.kind in ("name", "member"):
            yield _path(self)
        base = self
        while base.kind == "member":  # what is read in order to say which member
            yield from base.parts[1].paths()
            base = base.parts[0]
        for part in base.parts:
            yield from part.paths()


def parse_condition(text: str) -> Expression:
    """The condition of an `if:`, with or without `${{ }}`.

    Raises:
        UsageError: it is not an expression.
    """
    stripped = text.strip()
    if "${{" not in stripped:
        return parse(stripped)
    whole = _EMBEDDED.fullmatch(stripped)
    return parse(whole[1]) if whole else Expression(kind="text", value=stripped, parts=tuple(embedded(text)))


def embedded(text: str) -> Iterator[Expression]:
    """Every `${{ … }}` of a text.

    Raises:
        UsageError: one is not an expression.
    """
    for match in _EMBEDDED.finditer(text):
        yield parse(match[1])


def replace_embedded(text: str, replacement: str) -> str:
    """The text with `replacement` for every `${{ … }}`."""
    return _EMBEDDED.sub(lambda _: replacement, text)


def parse(text: str) -> Expression:
    """Read one expression, without `${{ }}`.

    Raises:
        UsageError: it is not one.
    """
    parser = _Parser(text)
    try:
        return parser.whole()
    except RecursionError as error:
        raise UsageError("the expression is nested too deep") from error


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._at = 0

    def whole(self) -> Expression:
        found = self._either()
        if self._at < len(self._tokens):
            raise self._unexpected()
        return found

    def _either(self) -> Expression:
        return self._chain(("||",), self._both)

    def _both(self) -> Expression:
        return self._chain(("&&",), self._comparison)

    def _comparison(self) -> Expression:
        return self._chain(_COMPARED, self._negation)

    def _chain(self, signs: Sequence[str], operand: Callable[[], Expression]) -> Expression:
        left = operand()
        while sign := self._take(*signs):
            left = Expression(kind=sign, parts=(left, operand()))
        return left

    def _negation(self) -> Expression:
        if self._take("!"):
            return Expression(kind="not", parts=(self._negation(),))
        return self._members(self._primary())

    def _members(self, of: Expression) -> Expression:
        while True:
            if self._take("."):
                kind, text = self._next("a name")
                if kind != "name" and text != "*":
                    raise self._unexpected(back=1)
                name = Expression(kind="value", value=text)
            elif self._take("["):
                name = Expression(kind="value", value="*") if self._take("*") else self._either()
                self._demand("]")
            else:
                return of
            of = Expression(kind="member", parts=(of, name))

    def _primary(self) -> Expression:
        kind, text = self._next("a value")
        if kind == "string":
            return Expression(kind="value", value=text[1:-1].replace("''", "'"))
        if kind == "number":
            return Expression(kind="value", value=_number(text))
        if text == "(":
            found = self._either()
            self._demand(")")
            return found
        if kind != "name":
            raise self._unexpected(back=1)
        if self._take("("):
            return Expression(kind="call", value=text.lower(), parts=self._arguments())
        if text.lower() in _WORDS:
            return Expression(kind="value", value=_WORDS[text.lower()])
        return Expression(kind="name", value=text.lower())

    def _arguments(self) -> tuple[Expression, ...]:
        found: list[Expression] = []
        while not self._take(")"):
            if found:
                self._demand(",")
            found.append(self._either())
        return tuple(found)

    def _take(self, *signs: str) -> str:
        if self._at < len(self._tokens) and self._tokens[self._at] in [("sign", sign) for sign in signs]:
            self._at += 1
            return self._tokens[self._at - 1][1]
        return ""

    def _demand(self, sign: str) -> None:
        if not self._take(sign):
            raise self._unexpected(wanted=f"{sign!r}")

    def _next(self, wanted: str) -> tuple[str, str]:
        if self._at >= len(self._tokens):
            raise self._unexpected(wanted=wanted)
        self._at += 1
        return self._tokens[self._at - 1]

    def _unexpected(self, *, back: int = 0, wanted: str = "") -> UsageError:
        at = self._at - back
        there = repr(self._tokens[at][1]) if at < len(self._tokens) else "its end"
        expected = f", expected {wanted}" if wanted else ""
        return UsageError(f"{self._text.strip()!r} is not an expression: unexpected {there}{expected}")


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            raise UsageError(f"{text.strip()!r} is not an expression: unexpected {text[at:].strip()[:1]!r}")
        yield str(match.lastgroup), match[str(match.lastgroup)]
        at = match.end()


def _number(text: str) -> float:
    digits = text.lstrip("+-")
    value = float(int(digits, 0)) if digits[:2].lower() in ("0x", "0o") else float(digits)
    return -value if text.startswith("-") else value


def evaluate(of: Expression, context: Mapping[str, Value], functions: Functions) -> Value:
    """The value of an expression: a text, a number, a boolean, None, a list, an object, or `UNKNOWN`.

    Args:
        of: the expression.
        context: `needs`, `github`, …; a name that is not there is `UNKNOWN`.
        functions: the status functions by name; others than GitHub's are `UNKNOWN`.
    """
    if of.kind in ("value", "text"):
        return of.value  # the text around `${{ }}` is not empty, whatever is in them
    if of.kind == "name":
        return context.get(of.value, UNKNOWN)
    if of.kind == "call" and of.value in functions:
        return functions[of.value]()
    return _result(of, tuple(evaluate(part, context, functions) for part in of.parts))


def _result(of: Expression, values: Sequence[Value]) -> Value:
    if of.kind in ("&&", "||"):
        return _logical(of.kind, values[0], values[1])
    if of.kind == "not":
        return UNKNOWN if values[0] is UNKNOWN else not truthy(values[0])
    if of.kind == "member":
        return _member(values[0], values[1])
    if of.kind == "call":
        return UNKNOWN if not values or UNKNOWN in values else _call(of.value, values)
    return _compare(of.kind, values[0], values[1])


def truthy(value: Value) -> bool:
    """Whether GitHub takes a value for true; `UNKNOWN` may be."""
    if isinstance(value, float) and math.isnan(value):
        return False
    return value is UNKNOWN or value not in (False, 0, "", None)


def _logical(sign: str, left: Value, right: Value) -> Value:
    if left is UNKNOWN:
        # Only the right side can settle it.
        decides = right is not UNKNOWN and truthy(right) == (sign == "||")
        return right if decides else UNKNOWN
    return right if truthy(left) == (sign == "&&") else left


def _member(of: Value, name: Value) -> Value:
    if of is UNKNOWN or name is UNKNOWN:
        return UNKNOWN
    if name == "*":
        values = of.items() if isinstance(of, Mapping) else enumerate(of if isinstance(of, list) else ())
        return _Filtered(value for key, value in values if key != EVERY_OTHER)
    if isinstance(of, _Filtered):
        return _Filtered(_member(value, name) for value in of)
    if isinstance(of, Mapping):
        known = {key.casefold(): value for key, value in of.items()}
        return known.get(str(name).casefold(), known.get(EVERY_OTHER))
    if isinstance(of, list) and isinstance(name, float) and 0 <= name < len(of):
        return of[int(name)]
    return None


class _Filtered(list[Any]):
    """What `.*` gives: a member of it is that of each of its members."""


def _compare(sign: str, left: Value, right: Value) -> Value:
    if left is UNKNOWN or right is UNKNOWN:
        return UNKNOWN
    if isinstance(left, str) and isinstance(right, str):
        left, right = left.casefold(), right.casefold()
    elif type(left) is not type(right):
        left, right = _as_number(left), _as_number(right)
    if sign in ("==", "!="):
        return (left == right) == (sign == "==")
    try:
        return {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[sign]
    except TypeError:
        return False


def _as_number(value: Value) -> float:
    if value is None or value == "":
        return 0.0
    if isinstance(value, str):
        try:
            return _number(value.strip())
        except ValueError:
            return math.nan
    return float(value) if isinstance(value, bool | float | int) else math.nan


def _call(name: str, values: Sequence[Value]) -> Value:
    """One of GitHub's functions, of arguments that are known; `UNKNOWN` for those that depend on more."""
    first, *more = (_text(value) for value in values)
    second = more[0] if more else ""
    results: Mapping[str, Callable[[], Value]] = {
        "contains": lambda: _contains(values[0], values[-1]),
        "startswith": lambda: first.casefold().startswith(second.casefold()),
        "endswith": lambda: first.casefold().endswith(second.casefold()),
        "fromjson": lambda: _from_json(first),
        "join": lambda: _join(values[0], second if more else ","),
    }
    return results[name]() if name in results else UNKNOWN


def _from_json(text: str) -> Value:
    try:
        return json.loads(text, parse_int=float)
    except ValueError:
        return UNKNOWN


def _join(of: Value, between: str) -> Value:
    listed = of if isinstance(of, list) else [of]
    return UNKNOWN if UNKNOWN in listed else between.join(map(_text, listed))


def _contains(of: Value, item: Value) -> Value:
    if isinstance(of, list):
        same = [_compare("==", value, item) for value in of]
        return True if True in same else UNKNOWN if UNKNOWN in same else False
    return _text(item).casefold() in _text(of).casefold()


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None else str(value)


def _path(of: Expression) -> tuple[str, ...]:
    if of.kind == "name":
        return (str(of.value),)
    if of.kind != "member":
        return ("*",)
    name = of.parts[1]
    return (*_path(of.parts[0]), str(name.value) if name.kind == "value" else "*")
