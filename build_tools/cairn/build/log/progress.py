"""The progress in a build's output: `[317/1588] Version.cpp`, not the path of a compiler."""

from __future__ import annotations

import itertools
import re
import shlex
from pathlib import PurePosixPath

_LONGEST = 4096  # characters of a line that are looked at
_COUNT = re.compile(r"\s*(?P<count>\[\s*\d+(?:/\d+|%)\])\s+(?P<rest>.*)")  # ninja's, setuptools'; make's
_PROGRAM = re.compile(
    r"(?:[\w.+-]*-)?"  # x86_64-linux-gnu-
    r"(?:c\+\+|g\+\+|gcc|cc|clang|clang\+\+|clang-cl|cl|hipcc|amdclang|amdclang\+\+|nvcc|ccache|sccache|ld|lld|ar)"
    r"(?:-[\d.]+)?(?:\.exe)?"
)
_SOURCES = (".c", ".cc", ".cpp", ".cxx", ".cu", ".hip", ".m", ".mm", ".s", ".S", ".f", ".f90", ".asm")
# What compilers say of a source (a place in it, the code there, how it was included): no progress.
_REMARK = re.compile(
    r"\S+:\d+(?::\d+)?: |\s+\d* \|| {4,}|In file included from |\s+from \S+:\d+|\S+: (?:In|At) |[\s~^|+-]*$"
)


def shown(line: str, before: str) -> str:
    """The text to show after a line of output; `before` was shown until now."""
    line = line[:_LONGEST]
    if counted := _COUNT.match(line):
        return f"{counted['count'].replace(' ', '')} {_named(counted['rest'])}"
    if _REMARK.match(line):
        return before
    return _named(line) if _is_command(line) else line


def _is_command(line: str) -> bool:
    words = line.split(maxsplit=1)
    return bool(words) and _PROGRAM.fullmatch(PurePosixPath(words[0].strip("'\"")).name) is not None


def _named(text: str) -> str:
    """The subject of a command: the source of a compiler's, the output file of any other."""
    words = _words(text)
    if not words:
        return text
    if _is_command(text) or " && " in text:
        if sources := [word for word in words if word.endswith(_SOURCES)]:
            return PurePosixPath(sources[-1]).name
        outputs = [after for word, after in itertools.pairwise(words) if word == "-o"]
        return PurePosixPath(outputs[-1]).name if outputs else PurePosixPath(words[0]).name
    # CMake's: `Building CXX object c10/CMakeFiles/c10.dir/core/Version.cpp.o`
    if text.startswith(("Building ", "Linking ", "Generating ")) and "/" in words[-1]:
        return PurePosixPath(words[-1]).name.removesuffix(".obj").removesuffix(".o")
    return text


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quote that is not closed
        return text.split()
