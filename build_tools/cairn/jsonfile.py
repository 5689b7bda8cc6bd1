"""JSON files that are versioned, validated when read and written whole."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from cairn import files
from cairn.errors import UsageError

T = TypeVar("T")

_MAKE_AGAIN = "restore the file from a copy, or run the command that wrote it again"

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")
_UNIONS = (types.UnionType, typing.Union)
_SCALARS: Mapping[object, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}


def schema_of(cls: type) -> dict[str, Any]:
    """The JSON schema of a dataclass: its fields' types, all fields without a default required.

    The value of the class variable `SCHEMA` (such as `cairn.set/1`) is the only one accepted for `schema`.
    """
    properties: dict[str, Any] = {"schema": {"const": _schema_name(cls)}} if hasattr(cls, "SCHEMA") else {}
    hints = typing.get_type_hints(cls)
    required = ["schema"] if properties else []
    for field in dataclasses.fields(cls):
        properties[field.name] = _schema_of_type(hints[field.name])
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            required.append(field.name)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def to_plain(value: object) -> dict[str, Any]:
    """A dataclass as plain JSON values, with its `schema` first."""
    assert dataclasses.is_dataclass(value)  # noqa: S101 - for the type checker; callers pass dataclasses
    head = {"schema": _schema_name(type(value))} if hasattr(value, "SCHEMA") else {}
    body = {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return head | body


def dumps(value: object) -> str:
    """The text of a versioned file: stable order, two spaces, a newline at the end."""
    return json.dumps(to_plain(value), indent=2, ensure_ascii=False) + "\n"


def write(path: Path, value: object) -> None:
    """Write a dataclass to `path` atomically."""
    files.write_text(path, dumps(value))


def read(path: Path, cls: type[T]) -> T:
    """Read a file that `write` made.

    Raises:
        UsageError: no such file, not JSON, of another version, or with missing, unknown or mistyped fields.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    return loads(text, cls, name=str(path))


def loads(text: bytes | str, cls: type[T], *, name: str) -> T:
    """Like `read`, from text; `name` stands for the file in errors."""
    return from_plain(parse(text, name=name), cls, name=name)


def parse(text: bytes | str, *, name: str) -> Any:  # noqa: ANN401 - what json gives
    """JSON as RFC 8259 has it, and as every reader understands it alike.

    Refused besides what is no JSON: a name that an object has twice, `NaN` and infinite numbers, halves of
    surrogate pairs (which cannot be written to a file), more digits or levels than Python reads.

    Raises:
        UsageError: it is not that; `name` stands for the file.
    """
    try:
        text = text if isinstance(text, str) else text.decode("utf-8-sig")
        found = json.loads(
            text, parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_without_repeats
        )
        if _SURROGATE.search(text):
            json.dumps(found, ensure_ascii=False).encode()
    except RecursionError as error:
        raise UsageError(f"{name} is nested too deep", tip=_MAKE_AGAIN) from error
    except ValueError as error:
        raise UsageError(f"{name} is not JSON: {error}", tip=_MAKE_AGAIN) from error
    return found


def from_plain(data: object, cls: type[T], *, name: str) -> T:
    """The dataclass of plain JSON values, validated against its schema."""
    # Loaded here because many commands read no such file, and it costs more than they do.
    import jsonschema  # noqa: PLC0415

    if isinstance(data, dict) and hasattr(cls, "SCHEMA") and data.get("schema") != _schema_name(cls):
        raise UsageError(
            f"{name} has schema {repr(data.get('schema'))[:100]}, expected {_schema_name(cls)!r}",
            tip="it was written by another version of Cairn; use that version or make the file again",
        )
    validator = jsonschema.Draft202012Validator(schema_of(cls))
    try:
        first = next(iter(sorted(validator.iter_errors(data), key=str)), None)
    except RecursionError as error:
        raise UsageError(f"{name} is nested too deep", tip=_MAKE_AGAIN) from error
    if first is not None:
        where = "/".join(str(p) for p in first.absolute_path) or "the top"
        raise UsageError(f"{name}, at {where}: {first.message[:300]}", tip=_MAKE_AGAIN)
    return typing.cast("T", _build(cls, data))


def _schema_name(cls: type) -> str:
    return str(cls.SCHEMA)  # type: ignore[attr-defined]


def _refuse_constant(text: str) -> Any:  # noqa: ANN401 - what json asks for
    raise ValueError(f"{text} is not a number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:40]} is too large")
    return value


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"an object has the name {name[:100]!r} twice")
        found[name] = value
    return found


def _schema_of_type(hint: Any) -> dict[str, Any]:  # noqa: ANN401 - a type hint is any object
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is None:
        return _schema_of_plain_type(hint)
    if origin is tuple:
        return {"type": "array", "items": _schema_of_type(args[0])}
    if origin is Mapping:
        return {"type": "object", "additionalProperties": _schema_of_type(args[1])}
    if origin is typing.Literal:
        return {"enum": list(args)}
    if origin in _UNIONS:
        return {"anyOf": [_schema_of_type(a) for a in args]}
    raise TypeError(f"no JSON schema for {hint!r}")


def _schema_of_plain_type(hint: Any) -> dict[str, Any]:  # noqa: ANN401 - a type hint is any object
    if dataclasses.is_dataclass(hint):
        return schema_of(typing.cast("type", hint))
    if hint is type(None):
        return {"type": "null"}
    return {"type": _SCALARS[hint]}


def _plain(value: Any) -> Any:  # noqa: ANN401 - walks any value
    if dataclasses.is_dataclass(value):
        return to_plain(value)
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    return value


def _build(hint: Any, data: Any) -> Any:  # noqa: ANN401 - mirrors _plain, on data that the schema accepted
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        fields = {k: _build(hints[k], v) for k, v in data.items() if k != "schema"}
        return typing.cast("type", hint)(**fields)
    if origin is tuple:
        return tuple(_build(args[0], item) for item in data)
    if origin is Mapping:
        return {k: _build(args[1], v) for k, v in data.items()}
    if origin in _UNIONS and data is not None:
        # Unions in our formats are `X | None`.
        return _build(next(a for a in args if a is not type(None)), data)
    return data
