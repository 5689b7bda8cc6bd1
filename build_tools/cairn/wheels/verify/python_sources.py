"""Python files that no Python can read: zeros, cut off, or with the markers of a conflict.

Wheels have Python files on purpose that this Python cannot compile: for Python 2, templates, data of tests.
Only what no author writes counts: NUL bytes; a file of a package that ends before its last statement does;
and the markers of a conflict (git-merge(1), "How conflicts are presented") where they are no part of a text.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Sequence

_MARKERS = re.compile(rb"^<<<<<<< .*\n(?:.*\n)*?=======\r?\n(?:.*\n)*?>>>>>>> ", re.MULTILINE)
_LARGEST = 1 << 21  # bytes of a file that is parsed, which takes a hundred times as many for its tree
_TAIL = 99  # bytes at the end that are looked at
# Behind these a statement goes on. Most files end in none, and in a line end; the others are few, and parsed.
_GOES_ON = b"([{,\\:=+-*/%&|^<.@"
# PyCF_ALLOW_INCOMPLETE_INPUT of CPython (Include/cpython/compile.h), which `codeop` uses: of an error at the
# end of the text the parser says that more is due.
_ALLOW_INCOMPLETE = 0x4000
_INCOMPLETE = "incomplete input"


def problem(data: bytes, *, in_package: bool) -> str:
    """Return what is wrong with a Python file; an empty text where nothing is known to be.

    Args:
        data: its content.
        in_package: whether Python imports it: what is beside packages may be a template.
    """
    if b"\0" in data:
        return "it has NUL bytes, which no Python reads"
    if b"<<<<<<<" in data and (match := _MARKERS.search(data)):
        line = data.count(b"\n", 0, match.start()) + 1
        error = _error(data)
        if error is not None and error.lineno == line:
            return f"it has the markers of a conflict from line {line} on"
    if in_package and _may_be_cut(data):
        error, lines = _error(data, _ALLOW_INCOMPLETE), data.splitlines()
        if error is not None and (error.msg == _INCOMPLETE or _is_at_end(error, lines)):
            return f"it ends within a statement, in line {len(lines)}"
    return ""


def _may_be_cut(data: bytes) -> bool:
    """Whether a text may end within a statement, as far as that costs little."""
    if (
        not data
        or len(data) > _LARGEST
        or (data[-1:] == b"\n" and data[-_TAIL:].rstrip()[-1:] not in _GOES_ON)
    ):
        return False
    # Of the few that are left, most are good from the last definition on.
    last = max(data.rfind(word) for word in (b"\ndef ", b"\nclass ", b"\nimport ", b"\nfrom "))
    return _error(data[last + 1 :]) is not None


def _is_at_end(error: SyntaxError, lines: Sequence[bytes]) -> bool:
    """Whether the parser has taken all but the end: what stands before it may be for no other Python."""
    if error.lineno != len(lines) or error.offset is None:
        return False
    text = lines[-1].decode("utf-8", "replace").rstrip()
    return error.offset > len(text) or error.msg.startswith("unterminated string literal")


def _error(data: bytes, flags: int = 0) -> SyntaxError | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of old syntax, which is theirs
            compile(data, "", "exec", flags | ast.PyCF_ONLY_AST, dont_inherit=True)
    except SyntaxError as error:
        return error
    except (ValueError, RecursionError, MemoryError):
        return None  # for another Python
    return None
