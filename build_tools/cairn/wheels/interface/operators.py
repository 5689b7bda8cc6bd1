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
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_LONGEST = 16_384  # characters of a schema; `aten::_flash_attention_forward` has 700
_QUALIFIED = re.compile(rb"([A-Za-z_][\w.]*)::([A-Za-z_]\w*)(?:\.\w+)?(?:\(.*)?", re.DOTALL)
_PARTS = re.compile(
    r"(?:(?P<ns>[\w.]+)::)?(?P<name>\w+)(?:\.(?P<overload>\w+))?\((?P<args>.*)\) ?-> ?(?P<result>.+)"
)
# `Tensor(a!)[] self`, `float? scale=None`, `__torch__.torch.classes.x.Y hdl`, `*`.
_TYPE = r"[A-Za-z_][\w.]*(?:\([^()]*(?:\([^()]*\))?[^()]*\))?(?:\[\d*\]|\?|\([a-z]\w*!?[^()]*\))*"
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


def operators_in(constants: Iterable[bytes]) -> frozenset[Operator]:
    """The operators whose schemas are among the constants of a library.

    Args:
        constants: the content of each section of read-only data.
    """
    schemas: set[str] = set()
    namespaces: defaultdict[str, set[str]] = defaultdict(set)
    for section in constants:
        if b"-> " not in section:
            continue
        for text in _strings_with(section, b"-> "):
            schemas.add(text.decode("ascii", "replace"))
        for text in _strings_with(section, b"::"):
            if match := _QUALIFIED.fullmatch(text):
                namespaces[match[2].decode()].add(match[1].decode())
    parsed = (_parse(text, namespaces) for text in schemas)
    return frozenset(operator for operator in parsed if operator)


def _strings_with(section: bytes, mark: bytes) -> Iterator[bytes]:
    """The strings of C that hold a mark; to split all of them takes 20 times as long."""
    at = section.find(mark)
    while at >= 0:
        start = max(at - _LONGEST, 0)
        begin = section.rfind(b"\0", start, at) + 1
        end = section.find(b"\0", at, at + _LONGEST)
        if (begin or not start) and end >= 0:
            yield section[begin:end]
        at = section.find(mark, end if end >= 0 else at + _LONGEST)


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
