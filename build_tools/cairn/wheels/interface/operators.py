"""The operators that a library registers with PyTorch's dispatcher, by the schemas in its constants.

`TORCH_LIBRARY(ns, m) { m.def("name.overload(Tensor x) -> Tensor"); }` leaves the schema as a string in the
library's read-only data, and that is all that can be read without running it. It is exact where a schema is
written out, as code generated from native_functions.yaml, torchvision and most others do. It is not complete:
`m.def("name", &function)` has its schema inferred while it runs, and what Python registers is in no library.
Nor is a listed operator certain to be registered: a linker may keep the constant of code that is not called.
The namespace is a string of its own unless the schema begins with it; it is given where the library holds
`ns::name` for exactly one namespace, or for `aten` among several.

Against what torch 2.13.0 itself lists once it is imported (4,374 operators): 4,109 are read with their
namespace, 152 more without; the 113 others are registered from Python, or their schemas are put together when
the library is loaded (TorchScript's `aten::keys.int`). 115 that are read are not registered; half of them are
those of libraries for tests.

Source: torch/csrc/jit/frontend/function_schema_parser.cpp.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

_LONGEST = 16_384  # characters of a schema; `aten::_flash_attention_forward` has 700
_SAMPLE = 1 << 12  # bytes at either end of a piece that are looked at for code
_OF_CODE = ((200, (b"H\x89",)), (50, (b"\x0f", b"\xc5")), (50, (b"b\xf1", b"b\xf2")))
_QUALIFIED = re.compile(rb"([A-Za-z_][\w.]*)::([A-Za-z_]\w*)(?:\.\w+)?(?:\(.*)?", re.DOTALL)
_PARTS = re.compile(
    r"(?:(?P<ns>[\w.]+)::)?(?P<name>\w+)(?:\.(?P<overload>\w+))?\((?P<args>.*)\) ?-> ?(?P<result>.+)"
)
# `Tensor(a!)[] self`, `float? scale=None`, `__torch__.torch.classes.x.Y hdl`, `*`.
_TYPE = r"[A-Za-z_][\w.]*(?:\([^()]*(?:\([^()]*\)[^()]*)?\))?(?:\[\d*\]|\?|\([a-z][^()]*\))*"
_ARGUMENT = re.compile(rf"\s*(?:\*|{_TYPE}\s+\w+(?:\s*=.+)?)\s*", re.DOTALL)
_RESULT = re.compile(rf"\s*(?:\(.*\)|\.\.\.|{_TYPE}(?:\s+\w+)?)\s*", re.DOTALL)


class Operator(NamedTuple):
    """An operator.

    Attributes:
        namespace: such as `aten`; empty where the library does not tell it.
        name: with its overload, such as `add.Tensor`.
        schema: its arguments and results, as `(Tensor self) -> Tensor`.
    """

    namespace: str
    name: str
    schema: str

    @property
    def qualified(self) -> str:
        """`aten::add.Tensor`, or the bare name."""
        return f"{self.namespace}::{self.name}" if self.namespace else self.name


class OperatorReader:
    """Finds the operators whose schemas are among the texts of a library, while it is unpacked."""

    def __init__(self) -> None:
        self._held = b"\0"
        self._schemas: set[bytes] = set()
        self._names: set[bytes] = set()

    def feed(self, piece: bytes) -> None:
        """Look at the next piece, of any length."""
        if _is_code(piece[:_SAMPLE]) and _is_code(piece[-_SAMPLE:]):  # four fifths of libtorch_cpu
            self._held = (self._held + piece[-_LONGEST:])[-_LONGEST:]
            return
        text = self._held + piece
        self._schemas.update(_strings_with(text, b"-> "))
        self._names.update(filter(_QUALIFIED.fullmatch, _strings_with(text, b"::")))
        self._held = text[-_LONGEST:]

    def operators(self) -> frozenset[Operator]:
        """Those of the pieces so far."""
        self.feed(b"")  # where the last one was passed over, what stands at its very end
        namespaces: defaultdict[str, set[str]] = defaultdict(set)
        for match in filter(None, map(_QUALIFIED.fullmatch, self._names)):
            namespaces[match[2].decode()].add(match[1].decode())
        parsed = (_parse(text.decode("ascii", "replace"), namespaces) for text in self._schemas)
        return frozenset(operator for operator in parsed if operator)


def _is_code(part: bytes) -> bool:
    """Whether it is machine code of x86-64, by bytes that are every few dozen there, and nowhere else.

    `48 89` (mov) in most of it; `0F` (jcc, setcc), the prefix `C5` of AVX or that of AVX-512 in the rest.
    What is shorter than a sample is taken for text, since one byte would tell there.
    """
    enough = len(part) == _SAMPLE
    return enough and any(sum(map(part.count, marks)) * apart > _SAMPLE for apart, marks in _OF_CODE)


def _strings_with(text: bytes, mark: bytes) -> Iterator[bytes]:
    """The strings of C that hold a mark; to split all of them takes 20 times as long."""
    at = text.find(mark)
    while at >= 0:
        begin = text.rfind(b"\0", max(at - _LONGEST, 0), at) + 1
        end = text.find(b"\0", at, at + _LONGEST)
        if begin and end >= 0:
            yield text[begin:end]
        at = text.find(mark, end if end >= 0 else at + _LONGEST)


def _parse(text: str, namespaces: dict[str, set[str]]) -> Operator | None:
    match = _PARTS.fullmatch(text)
    if not match or not _RESULT.fullmatch(match["result"]):
        return None
    if not all(_ARGUMENT.fullmatch(part) for part in _split(match["args"]) if match["args"].strip()):
        return None
    namespace = match["ns"] or ""
    if not namespace:
        known = namespaces.get(match["name"], set())
        namespace = next(iter(known)) if len(known) == 1 else "aten" if "aten" in known else ""
    name = match["name"] + (f".{match['overload']}" if match["overload"] else "")
    return Operator(namespace, name, f"({match['args']}) -> {match['result']}")


def _split(arguments: str) -> list[str]:
    """The arguments, which commas part outside of brackets and quotes."""
    parts, depth, quote, begin = [], 0, "", 0
    for at, character in enumerate(arguments):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in "([":
            depth += 1
        elif character in ")]":
            depth -= 1
        elif character == "," and not depth:
            parts.append(arguments[begin:at])
            begin = at + 1
    return [*parts, arguments[begin:]]
