"""Our files in JSON and TOML, read into frozen values and written whole.

What a file may hold is said once, by a subclass of `Value`: msgspec checks what is read against its fields,
and gives the JSON schema. A file with a version names it in `schema`:

    class WheelSet(Value, tag_field="schema", tag="cairn.set/1"):
        wheels: tuple[SetWheel, ...]

    found = datafile.read(path, WheelSet)
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import threading
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import structs

from cairn import files
from cairn.errors import OtherVersionError, UsageError
from cairn.output import safe_text, wording

T = TypeVar("T")
V = TypeVar("V", bound="Value")

_MAKE_AGAIN = "restore the file from a copy, or run the command that wrote it again"
_ASK_SERVER = "open the address in a browser: its server may ask for a login, or have the file elsewhere"
# What is likeliest to be given in place of something else: what it is, and what takes it.
_TAKEN_BY = {
    "cairn.bisect": ("what `cairn bisect` keeps", "`cairn bisect`"),
    "cairn.changelog": ("a changelog", "people to read"),
    "cairn.compat": ("a compatibility report", "`cairn test compat`"),
    "cairn.doctor": ("a description of a machine", "`cairn doctor --machine`"),
    "cairn.manifest": ("a manifest", "`cairn manifest`"),
    "cairn.matrix": ("a matrix", "`cairn ci night freeze --matrix`"),
    "cairn.night-plan": ("the plan of a night", "`cairn ci night`"),
    "cairn.record": ("a test record", "`cairn release record` and `cairn release promote --record`"),
    "cairn.set": ("a set", "`cairn test smoke --set` and `cairn release promote`"),
    "cairn.stack": ("a stack", "`--stack`"),
    "cairn.suite-result": ("the result of a suite", "`cairn test report`"),
    "cairn.suite-shard": ("the result of a shard", "`cairn test merge`"),
    "cairn.test-times": ("a list of test times", "`cairn test shards`"),
}
_CORRECT = "correct the file"
_NEWER = "a newer Cairn may have written it: update Cairn"
_SHOWN = 300  # characters of what is wrong

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")
_UNKNOWN_FIELD = re.compile(r"object contains unknown field `(.*)`", re.DOTALL)

# `a.a.a. … = 1` costs tomllib the square of its length: 3 s for 16 KB. No file has a line such as this one.
_MOST_DOTS = 2_000


_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}  # noqa: TID251
_meeting = threading.Lock()


class _KeywordsOnly(msgspec.StructMeta):
    """A `Struct` hands its other options down to its subclasses, but not `kw_only`."""

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any], **options: Any) -> Any:  # noqa: ANN401
        return super().__new__(cls, name, bases, body, **{"kw_only": True, **options})


@typing.dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Value(msgspec.Struct, metaclass=_KeywordsOnly, frozen=True, forbid_unknown_fields=True):
    """A value that a file holds; fields are JSON's scalars, `Literal`, `tuple`, `Mapping`, `Value`, or None.

    Change one with `structs.replace`: `dataclasses.replace` fails on it, which mypy does not see.
    """


def json_schema(cls: type[Value]) -> dict[str, Any]:
    """The JSON schema of the files that hold such a value."""
    return msgspec.json.schema(cls)


def to_plain(value: object) -> dict[str, Any]:
    """A value, or a dataclass, as plain JSON values, with its `schema` first; a path is its text."""
    return typing.cast("dict[str, Any]", msgspec.to_builtins(value, enc_hook=_path_text))


def _path_text(value: object) -> str:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value)} has no form in JSON")


def dumps(value: Value) -> str:
    """Serialize to JSON with stable order, an indent of two spaces and a newline at the end."""
    return json.dumps(to_plain(value), indent=2, ensure_ascii=False) + "\n"


def toml_text(value: str) -> str:
    """Quote a text as a TOML string on one line."""
    # A basic string of TOML 1.0 escapes what a string of JSON does, and U+007F as well.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")


def write(path: Path, value: Value) -> None:
    """Write a value to `path` atomically, as JSON."""
    files.write_text(path, dumps(value))


def read(path: Path, cls: type[V], *, tip: str | None = None) -> V:
    """Read a JSON file, or one whose name ends in `.toml`.

    Args:
        path: the file.
        cls: what it holds.
        tip: what to do where there is none.

    Raises:
        UsageError: no such file, not JSON (TOML), of a different version, or with missing, unknown or
            mistyped fields.
    """
    if path.suffix == ".toml":
        return from_plain(read_toml(path, tip=tip), cls, name=str(path))
    return loads(bytes_of(path, tip=tip), cls, name=str(path))


def loads(text: bytes | str, cls: type[V], *, name: str) -> V:
    """Like `read`, from the text of a JSON file; `name` stands for the file in errors."""
    return from_plain(parse_json(text, name=name), cls, name=name)


def loads_quickly(data: bytes, cls: type[V], *, name: str) -> V:
    """Like `loads`, for large files that decide nothing; of a repeated name the last one counts."""
    with contextlib.suppress(msgspec.DecodeError):
        return decode(data, cls)
    return loads(data, cls, name=name)


def from_plain(data: object, cls: type[V], *, name: str) -> V:
    """Convert plain JSON or TOML values to a `Value`."""
    # Structs take a document without its tag.
    expected = cls.__struct_config__.tag
    if expected is not None and isinstance(data, dict) and data.get("schema") != expected:
        raise _other_schema(data.get("schema"), str(expected), name)
    try:
        return convert(data, cls)
    except msgspec.ValidationError:
        place, kind, reason = _mistake(data, cls, "")
        tip = _CORRECT if name.endswith(".toml") else _tip_for(name)
        if unknown := _UNKNOWN_FIELD.fullmatch(reason):
            fields = [field.encode_name for field in structs.fields(kind)]
            tip = wording.did_you_mean(unknown[1], fields, what="the fields are")
            if expected is not None and not name.endswith(".toml"):
                tip = f"{_NEWER}; otherwise: {tip}"
        where = safe_text.visible(place.removeprefix("."))[:_SHOWN] or "the top"  # a key may be any text
        raise UsageError(f"{name}, at {where}: {safe_text.visible(reason)[:_SHOWN]}", tip=tip) from None


def tip_of_stored(error: UsageError, restore: str) -> str:
    """The tip for a file of a store that `loads` refused: `restore`, after an update if Cairn is too old."""
    is_newer = isinstance(error, OtherVersionError) or (error.tip or "").startswith(_NEWER)
    return f"{_NEWER}; otherwise: {restore}" if is_newer else restore


def _other_schema(schema: object, expected: str, name: str) -> UsageError:
    """Explain why a file is of a different kind or version."""
    kind, _, version = str(schema).partition("/")
    expected_name = _TAKEN_BY.get(expected.partition("/")[0], (f"one of {expected}", ""))[0]
    if version and kind == expected.partition("/")[0]:
        return OtherVersionError(
            f"{name} has schema {str(schema)[:100]!r}, expected {expected!r}",
            tip="it was written by a different version of Cairn; use that version, or make the file again",
        )
    if kind in _TAKEN_BY:
        kind_name, commands = _TAKEN_BY[kind]
        return UsageError(
            f"{name} is {kind_name}, and not {expected_name}", tip=f"{kind_name} is for {commands}"
        )
    return UsageError(
        f"{name} has schema {repr(schema)[:100]}, expected {expected!r}",
        tip=f"it is not {expected_name}: name the file that is one",
    )


def convert(data: object, kind: type[T]) -> T:
    """Convert plain JSON or TOML values by `msgspec.convert`.

    Raises:
        msgspec.ValidationError: they do not fit the type.
    """
    _decoder(kind)
    return msgspec.convert(data, kind)  # noqa: TID251


def decode(data: bytes, kind: type[T]) -> T:
    """Parse JSON faster than `loads`; of a repeated name the last one counts.

    Raises:
        msgspec.DecodeError: it is not JSON, is nested too deep, or does not fit the type.
    """
    try:
        return typing.cast("T", _decoder(kind).decode(data))
    except RecursionError as error:
        raise msgspec.DecodeError("it is nested too deep") from error
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(str(error)) from error


def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:  # noqa: ANN401, TID251 - any type hint
    # msgspec (0.22) notes what a class holds when it first meets it, and a second thread that meets it
    # meanwhile reads what is not filled in yet: the process dies. So one thread at a time meets a type;
    # ruff refuses msgspec's own functions everywhere else.
    if kind not in _decoders:
        with _meeting:
            _decoders[kind] = msgspec.json.Decoder(kind)  # noqa: TID251
    return _decoders[kind]


def read_toml(path: Path, *, tip: str | None = None) -> dict[str, Any]:
    """Read a TOML file of any shape; `tip` says what to do if it is missing.

    Raises:
        UsageError: it cannot be read, is not UTF-8, or is not TOML.
    """
    return parse_toml(bytes_of(path, tip=tip), name=str(path))


def read_json(path: Path) -> Any:  # noqa: ANN401 - what json gives
    """Read a JSON file of any shape; see `parse_json`.

    Raises:
        UsageError: it cannot be read, or is not JSON.
    """
    return parse_json(bytes_of(path), name=str(path))


def parse_toml(data: bytes, *, name: str) -> dict[str, Any]:
    """Parse TOML from bytes; `name` stands for the file in errors.

    Raises:
        UsageError: it is not UTF-8, or not TOML.
    """
    import tomllib  # noqa: PLC0415 - many commands read JSON only

    if any(line.count(b".") > _MOST_DOTS for line in data.splitlines()):
        raise UsageError(f"{name} is not TOML that can be read: a line has over {_MOST_DOTS} dots")
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except RecursionError as error:
        raise UsageError(f"{name} is not TOML that can be read: it is nested too deep") from error
    except ValueError as error:  # also of a number with more digits than Python converts
        raise UsageError(f"{name} is not TOML: {error}", tip=_CORRECT) from error


def parse_json(text: bytes | str, *, name: str) -> Any:  # noqa: ANN401 - what json gives
    """Parse JSON (RFC 8259) strictly, so that every reader understands it alike.

    Refused besides what is not JSON: a name that an object has twice, `NaN` and infinite numbers, halves of
    surrogate pairs (which cannot be written to a file), more digits or levels than Python reads. (msgspec's
    decoder takes the last of two equal names.)

    Raises:
        UsageError: it is not that; `name` stands for the file.
    """
    tip = _tip_for(name)
    try:
        text = text if isinstance(text, str) else text.decode("utf-8-sig")
        value = json.loads(
            text, parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_without_repeats
        )
        # Half a pair is valid in JSON's grammar and in Python's `str`, but not in UTF-8: encoding it fails
        # here, not when the value is written somewhere. A whole pair became one character and passes.
        if ("\\u" in text or not text.isascii()) and _SURROGATE.search(
            text
        ):  # which takes as long as parsing
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError as error:
        raise UsageError(f"{name} is nested too deep", tip=tip) from error
    except ValueError as error:
        is_page = text[:200].lstrip()[:1] in (b"<", "<")
        if not is_page:
            raise UsageError(f"{name} is not JSON: {error}", tip=tip) from error
        raise UsageError(
            f"{name} is not JSON: it is a page of a website, such as a login or an error",
            tip=tip if tip == _ASK_SERVER else "fetch it again: its server may have asked for a login",
        ) from error
    return value


def _tip_for(name: str) -> str:
    return _ASK_SERVER if name.startswith(("http://", "https://")) else _MAKE_AGAIN


def bytes_of(path: Path, *, tip: str | None = None) -> bytes:
    """The bytes of a file that a user named; `tip` says what to do if it is missing.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", tip=tip) from error


def _refuse_constant(text: str) -> Any:  # noqa: ANN401 - what json asks for
    raise ValueError(f"{text} is not a number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:40]} is too large")
    return value


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in values:
            raise ValueError(f"an object has the name {name[:100]!r} twice")
        values[name] = value
    return values


def _mistake(data: Any, kind: Any, place: str) -> tuple[str, Any, str]:  # noqa: ANN401 - any value and type hint
    """Locate the first mistake: its place, the type expected there, and the reason.

    msgspec's own path calls every key of a mapping `[...]`: an environment variable would have no name.
    """
    for step, value, inner in _parts(data, kind):
        try:
            convert(value, inner)
        except msgspec.ValidationError:
            return _mistake(value, inner, place + step)
    try:
        convert(data, kind)
    except msgspec.ValidationError as error:
        reason = str(error)
        reason = reason[:1].lower() + reason[1:]
        if typing.get_origin(kind) is typing.Literal:
            reason += f", expected one of {', '.join(map(repr, typing.get_args(kind)))}"
        return place, kind, reason
    raise AssertionError("msgspec refused the whole, and takes each part")


def _parts(data: Any, kind: Any) -> Iterator[tuple[str, Any, Any]]:  # noqa: ANN401 - any value and type hint
    """Yield the parts of a value: the step to each, the part, and the type it must have."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union) and data is not None:
        # Unions in our formats are `X | None`.
        yield from (("", data, argument) for argument in arguments if argument is not types.NoneType)
    elif isinstance(data, dict) and isinstance(kind, type) and issubclass(kind, Value):
        types_of = {field.encode_name: field.type for field in structs.fields(kind)}
        yield from ((f".{name}", data[name], types_of[name]) for name in types_of if name in data)
    elif isinstance(data, dict) and origin is Mapping:
        yield from ((f".{name}", value, arguments[1]) for name, value in data.items())
    elif isinstance(data, list) and origin is tuple:
        yield from ((f"[{number}]", value, arguments[0]) for number, value in enumerate(data))
