"""Read a build's output: the first causes of a failure, and the progress of a running build.

Compilers run side by side and go on after the first failure, and each program that started one reports in
turn that it failed: the end of a log says *that* a build failed, and seldom why, which may stand a hundred
lines above.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import BinaryIO, TypeAlias

_SHOWN = 6
_WIDTH = 400  # characters of a line that are shown
_READ = 1 << 14  # bytes of a line that are looked at; a line may be all of a log
_TAIL = 1 << 18  # bytes at the end of a log in which its last lines are sought
_AWAITED = 4  # blank lines within a message of CMake's that is not complete

# What says why. Each is looked for once in each line, and none has two repetitions that could share a text.
_CAUSE = re.compile(
    rb"^FAILED: "  # ninja
    rb"|^CMake Error\b"
    rb"|: (?:fatal |internal compiler )?error(?: [A-Z]{1,4}\d+)?: "  # gcc, clang, lld; MSVC numbers them
    rb"|: catastrophic error: "
    rb"|: undefined reference to |: undefined symbol: |: multiple definition of "
    rb"|ld: cannot find |ld: final link failed"
    rb"|^(?:g?make|make\[\d+\]): \*\*\* No rule to make target "
    rb"|: (?:command )?not found$"  # a shell's, of a program
)
# What the machine did to the build: it counts wherever it stands. gcc's driver says that its compiler was
# killed, clang's that it could not execute it.
_MEMORY = (
    rb"\bKilled signal terminated program\b|: fatal error: Killed\b|: unable to execute command: Killed\b"
    rb"|\bout of memory\b|\bCannot allocate memory\b|\bvirtual memory exhausted\b"
    rb"|\bstd::bad_alloc\b|\bMemoryError\b"
)
_SHORT_OF_MEMORY = re.compile(_MEMORY, re.IGNORECASE)
_MACHINE = re.compile(_MEMORY + rb"|\bNo space left on device\b|\bDisk quota exceeded\b", re.IGNORECASE)
# One of these is in every line that the others find, and in few besides: it takes a tenth of the time.
_HINTS = (
    *(b"error:", b" error ", b"memoryerror", b"failed", b"*** ", b"not found", b"undefined "),
    *(b"multiple definition", b"cannot find", b"killed signal", b"no space left", b"quota exceeded"),
    *(b"out of memory", b"cannot allocate", b"memory exhausted", b"bad_alloc", b"command: killed"),
)
# What reports the failure of something else; shown where nothing says more.
_ECHO = re.compile(rb"^(?:ERROR|error|Error): |^(?:g?make|make\[\d+\]): \*\*\* |^\S+: error: ")
_WAITED = re.compile(rb"\bCalledProcessError\b|\bBackendUnavailable\b|^SystemExit\b|^subprocess\.")
_TRACEBACK = b"Traceback (most recent call last):"
# A trial of CMake's, whose failure is an answer; projects print its output (try_compile's OUTPUT_VARIABLE).
_TRIAL = re.compile(rb"^Run Build Command\(s\):.*\bcmTC_")
_TRIED = (b"ninja: build stopped", b"-- ", b"CMake ")
_UNSET = b"CMake Error: The following variables are used in this project"  # they follow, not indented
_HEAD = re.compile(rb"CMake Error(?=.*:$)|" + _UNSET)
_LAST = b"\0"  # put before the last line of a traceback, which names the exception
_PLAIN = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]")  # colours (ECMA-48)

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


Line: TypeAlias = tuple[int, str]
"""A line of a log: its number, from 1, and its text."""


def find(log: Path) -> tuple[Line, ...]:
    """Find the first known causes of a failure in a log, in its order.

    What the machine did (memory, disk, a kill) is among them wherever it stands. Takes a time that is linear
    in the size of the log, and little memory.
    """
    causes, machine, echoes = _FirstCauses(), _FirstCauses(), _FirstCauses()
    trial = False
    try:
        with log.open("rb") as file:
            for number, line in _messages(file):
                trial = not line.startswith(_TRIED) if trial else _TRIAL.match(line) is not None
                last = line.startswith(_LAST)
                lower = line.lower()
                if not last and not any(hint in lower for hint in _HINTS):
                    continue
                if _MACHINE.search(line):
                    machine.add(number, line)
                elif trial:
                    continue
                elif last or _CAUSE.search(line):
                    (echoes if _WAITED.search(line) else causes).add(number, line)
                elif _ECHO.search(line):
                    echoes.add(number, line)
    except OSError:
        return ()  # the error that is being reported matters more than this one
    chosen = machine.first[:2]
    chosen += (causes.first or ([] if chosen else echoes.first))[: _SHOWN - len(chosen)]
    return tuple(sorted(chosen, key=lambda line: line[0]))


def out_of_memory(log: Path) -> Line | None:
    """Find the first line that reports a program out of memory or killed for it; None if there is none."""
    return next((line for line in find(log) if _SHORT_OF_MEMORY.search(line[1].encode())), None)


def tail(log: Path, lines: int) -> tuple[Line, ...]:
    """Return the last non-blank lines of a log, with their numbers (0 if it is too long to count)."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL))
            last = deque(
                ((n, line) for n, line in enumerate(file.read().split(b"\n"), start=1) if line.strip()),
                maxlen=lines,
            )
    except OSError:
        return ()
    return tuple((n if size <= _TAIL else 0, _text(line)) for n, line in last)


def above(log: Path, end: Sequence[Line]) -> tuple[str, ...]:
    """Return the first causes in a log as `torch.log:412: message`, without those in `end`.

    Args:
        log: the log.
        end: its last lines, which are shown too.
    """
    shown = {text for _, text in end}
    return tuple(f"{log.name}:{number}: {text}" for number, text in find(log) if text not in shown)


class _FirstCauses:
    """Collects the first causes of one kind, each text once."""

    def __init__(self) -> None:
        self.first: list[Line] = []
        self._texts: set[str] = set()

    def add(self, number: int, line: bytes) -> None:
        if len(self.first) < _SHOWN and (text := _text(line).removeprefix(_LAST.decode())) not in self._texts:
            self._texts.add(text)
            self.first.append((number, text))


def _messages(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield each line with its number; CMake messages are joined to their head, tracebacks' ends marked."""
    # `CMake Error at FILE:LINE (message):`, whose message is still to come, indented, in paragraphs
    head: tuple[int, bytes] | None = None
    awaited = 0  # blank lines that may still come before more of it
    tracing = False  # in a traceback, whose lines but the last are indented
    for number, line_now in _lines(file):
        line = line_now
        if head is not None:
            message = line.strip() if line[:1] in b" \t" or head[1].startswith(_UNSET) else b""
            if message and len(head[1]) < _WIDTH:
                head, line = (head[0], head[1] + b" " + message), b""
                # `Cannot find source file:` announces which.
                awaited = _AWAITED if message.endswith(b":") else 1
            elif line.strip() or (awaited := awaited - 1) == 0:
                yield head
                head = None
        if _HEAD.match(line):
            head, awaited = (number, line), _AWAITED
        elif tracing and line[:1] not in (b" ", b"\t", b""):
            tracing = False
            yield number, _LAST + line
        else:
            tracing = tracing or line.startswith(_TRACEBACK)
            yield number, line
    if head is not None:
        yield head


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield lines without line end and colours; long ones are cut, overwritten ones have the last state."""
    number = 1
    whole = True  # what is read next begins a line
    while data := file.readline(_READ):
        if whole:
            line = data.rstrip(b"\r\n")
            if b"\x1b" in line:
                line = _PLAIN.sub(b"", line)
            yield number, line.rpartition(b"\r")[2]  # progress bars return to the start of their line
        whole = data.endswith(b"\n")
        number += whole


def _text(line: bytes) -> str:
    text = _PLAIN.sub(b"", line).decode("utf-8", "replace").rstrip()
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"


def progress_line(line: str, before: str) -> str:
    """Return the progress to show after a line, such as `[317/1588] Version.cpp`; `before` is the last."""
    line = line[:_LONGEST]
    if counted := _COUNT.match(line):
        return f"{counted['count'].replace(' ', '')} {_subject(counted['rest'])}"
    if _REMARK.match(line):
        return before
    return _subject(line) if _is_command(line) else line


def _is_command(line: str) -> bool:
    words = line.split(maxsplit=1)
    return bool(words) and _PROGRAM.fullmatch(PurePosixPath(words[0].strip("'\"")).name) is not None


def _subject(text: str) -> str:
    """Return the file that a command is about: the source for a compiler, else the output file."""
    try:
        words = shlex.split(text)
    except ValueError:  # a quote that is not closed
        words = text.split()
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
