"""MessagePack, read strictly.

`msgspec`, which writes it for us, keeps the last of two equal keys where another reader keeps the first, so
that two readers of one file could load different code. Here such a map is refused, and so is whatever takes
memory out of proportion: a count that the bytes behind it cannot fill, deep nesting, very many values.

Source: https://github.com/msgpack/msgpack/blob/master/spec.md, "Formats".
"""

from __future__ import annotations

import struct
from typing import TypeAlias

from cairn.errors import WheelError

Value: TypeAlias = "bool | int | float | str | bytes | list[Value] | dict[str, Value] | None"

_DEEPEST = 16
_MOST_VALUES = 1_000_000  # a code object takes about ten
# First byte to how the number that follows it is packed.
_NUMBERS = dict(
    zip((*range(0xCA, 0xD4),), (">f", ">d", ">B", ">H", ">I", ">Q", ">b", ">h", ">i", ">q"), strict=True)
)
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
_BYTES, _TEXT, _ARRAY, _MAP = "bytes", "text", "array", "map"
# First byte to the kind of what follows and how its length is packed. From 0x80 to 0xbf the low bits have it.
_LONG = {0xC4: (_BYTES, ">B"), 0xC5: (_BYTES, ">H"), 0xC6: (_BYTES, ">I")}
_LONG |= {0xD9: (_TEXT, ">B"), 0xDA: (_TEXT, ">H"), 0xDB: (_TEXT, ">I")}
_LONG |= {0xDC: (_ARRAY, ">H"), 0xDD: (_ARRAY, ">I"), 0xDE: (_MAP, ">H"), 0xDF: (_MAP, ">I")}
_SHORT = {0x80: (_MAP, 0x0F), 0x90: (_ARRAY, 0x0F), 0xA0: (_TEXT, 0x1F), 0xB0: (_TEXT, 0x1F)}
_FIRST_SHORT, _FIRST_NEGATIVE = 0x80, 0xE0


def loads(data: bytes, *, padded: bool = False) -> Value:
    """The one value that `data` holds, up to its end; `padded` lets zeros follow.

    Raises:
        WheelError: it is malformed, or has two equal keys, a key that is not text, or an extension type.
    """
    reader = _Reader(data)
    try:
        value = reader.value(_DEEPEST)
    except UnicodeDecodeError as error:
        raise WheelError("MessagePack with text that is not UTF-8") from error
    rest = data[reader.at :]
    if rest.strip(b"\0") if padded else rest:
        raise WheelError(f"MessagePack with {len(rest)} bytes behind its end")
    return value


class _Reader:
    """The values of a text one after the other.

    Attributes:
        at: where the next one begins.
    """

    def __init__(self, data: bytes) -> None:
        self.at = 0
        self._data = data
        self._left = _MOST_VALUES

    def value(self, depth: int) -> Value:
        self._left -= 1
        if depth < 0 or self._left < 0:
            raise WheelError("MessagePack that is nested too deeply, or has too many values")
        first = self._bytes(1)[0]
        if first < _FIRST_SHORT or first >= _FIRST_NEGATIVE:
            return first if first < _FIRST_SHORT else first - 0x100
        if first in _CONSTANTS:
            return _CONSTANTS[first]
        if first in _NUMBERS:
            return self._number(_NUMBERS[first])
        kind, length = self._head(first)
        if kind in (_BYTES, _TEXT):
            data = self._bytes(length)
            return data.decode() if kind == _TEXT else data
        # Each element takes a byte at least, so that no list is begun which the rest cannot fill.
        remaining = len(self._data) - self.at
        if length * (2 if kind == _MAP else 1) > remaining:
            raise WheelError(f"MessagePack with {length} elements where {remaining} bytes are left")
        return (
            self._map(length, depth - 1) if kind == _MAP else [self.value(depth - 1) for _ in range(length)]
        )

    def _map(self, length: int, depth: int) -> dict[str, Value]:
        mapping: dict[str, Value] = {}
        for _ in range(length):
            key = self.value(0)
            if not isinstance(key, str) or key in mapping:
                raise WheelError(
                    f"MessagePack with the key {key!r:.60}, which is not text, or is there twice"
                )
            mapping[key] = self.value(depth)
        return mapping

    def _head(self, first: int) -> tuple[str, int]:
        if first in _LONG:
            kind, layout = _LONG[first]
            return kind, self._number(layout)
        if first & 0xF0 not in _SHORT:
            raise WheelError(f"MessagePack with a value of the kind {first:#x}, which has no place here")
        kind, low_bits = _SHORT[first & 0xF0]
        return kind, first & low_bits

    def _number(self, layout: str) -> int:
        number: int = struct.unpack(layout, self._bytes(struct.calcsize(layout)))[0]
        return number

    def _bytes(self, size: int) -> bytes:
        data = self._data[self.at : self.at + size]
        if len(data) < size:
            raise WheelError("MessagePack that is cut off")
        self.at += size
        return data
