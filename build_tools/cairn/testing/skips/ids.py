"""Test ids, and patterns that match several of them.

An id is pytest's node id of a test, relative to the folder of the tests: `test_nn.py::TestNN::test_print`,
`inductor/test_ops.py::test_add[cpu-float32]`. A file alone, `nn/test_convolution.py`, stands for all its
tests.

A pattern is an id in which a `*` stands for one or more whole parts: the class, or words of the test's name,
which `_` divides, or the arguments in brackets, which `-` divides. `test_ops.py::TestCommonCUDA::test_out_*`
matches `test_out_add_cuda_float32` but not `test_outer`. A `*` alone after the class matches all its tests.
A folder with a star, `inductor/*::TestMaxAutotune::test_bmm`, stands for all files below it, if the class or
the whole test is named.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import msgspec

from cairn.errors import UsageError
from cairn.output import wording

_MODULE = re.compile(r"(?!(?:.*/)?\.{1,2}/)(?:[^/\\:*\s]+/)*[^/\\:*\s]+\.py")
_FOLDER = re.compile(r"(?!(?:.*/)?\.{1,2}/)(?:[^/\\:*\s]+/)+\*")
_STAR = re.compile(r"(?<![^_[-])\*(?![^_\]-])")  # one that is a whole part of a name or of arguments
_EXAMPLE = "an id is written like test_nn.py::TestNN::test_print"
# `2 tests collected in 0.1s`, `2/3 tests collected (1 deselected) in 0.1s`
_COUNT = re.compile(r"^(?:=+ )?([0-9]{1,9})(?:/[0-9]+)? tests? collected", re.MULTILINE)
_COLLECT = "write one with `python -m pytest --collect-only -q test_nn.py … > collection.txt`"
_MOST_STARS = 4
_SHOWN = 2  # ids that may have been meant
_COMPARED = 500  # names

Collected: TypeAlias = Mapping[str, tuple[str, ...]]
"""The ids of the tests that there are, by their file."""


class TestId(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a test id or pattern.

    Attributes:
        module: its file.
        classes: its classes, the outermost first.
        name: of the test itself; empty where the whole file is meant.
        arguments: of a parametrized test, with their brackets; else empty.
    """

    __test__ = False  # pytest would collect the name

    module: str
    classes: tuple[str, ...]
    name: str
    arguments: str


class Pattern(msgspec.Struct, frozen=True, kw_only=True):
    """A compiled pattern.

    Attributes:
        prefix: the beginning of every id that it matches, up to the end of a part.
        regex: matches those ids in full.
    """

    prefix: str
    regex: str


def take_apart(text: str) -> TestId:
    """Split an id as pytest writes it; separators inside the arguments do not count."""
    head, bracket, arguments = text.partition("[")
    module, *levels = head.split("::")
    return TestId(
        module=module,
        classes=tuple(levels[:-1]),
        name=levels[-1] if levels else "",
        arguments=bracket + arguments,
    )


def check(text: str) -> str:
    """Return the id if it is well formed.

    Raises:
        UsageError: it is not the id of a test, or of a file of tests.
    """
    if "*" in text.partition("[")[0]:
        raise UsageError(f"{text!r} has a star, and an id is exact", tip="move it to `patterns`")
    _check(text)
    return text


def _check(text: str) -> TestId:
    parts = take_apart(text)
    is_named = "*" not in parts.classes or "*" not in parts.name
    in_folder = _FOLDER.fullmatch(parts.module) and parts.classes and is_named
    if not (_MODULE.fullmatch(parts.module) or in_folder):
        raise UsageError(f"{text!r} does not begin with a file of tests", tip=_EXAMPLE)
    if "::" in text and not all((*parts.classes, parts.name)):
        raise UsageError(f"{text!r} has an empty part", tip=_EXAMPLE)
    if text != text.strip() or (parts.arguments and not (parts.name and parts.arguments.endswith("]"))):
        raise UsageError(f"{text!r} does not end as an id does", tip=_EXAMPLE)
    return parts


def compile_pattern(text: str) -> Pattern:
    """Read a pattern.

    Raises:
        UsageError: it is not an id with stars in place of whole parts, or has no star.
    """
    parts = _check(text)
    if "*" not in text:
        raise UsageError(f"the pattern {text!r} has no star", tip="move it to `tests`")
    # Between their borders, stars can share the words of a name in many ways: all are tried where none fits.
    if text.count("*") > _MOST_STARS:
        raise UsageError(f"the pattern {text!r} has more than {_MOST_STARS} stars", tip="write several")
    if any("*" in name and name != "*" for name in parts.classes) or any(
        "*" in _STAR.sub("", part) for part in (parts.name, parts.arguments)
    ):
        raise UsageError(
            f"a star of the pattern {text!r} is not a whole part",
            tip="write it between `_`, `::`, `[`, `-` and `]`: test_out_*, not test_out*",
        )
    # A star of the name ends before the brackets: with arguments, it is a different test. One alone is every
    # test of the class.
    classes = (r"[^:\[]+" if name == "*" else re.escape(name) for name in parts.classes)
    name = ".+" if parts.name == "*" and not parts.arguments else _with_stars(parts.name, r"[^:\[]+")
    module = _with_stars(parts.module, r"[^:]+\.py")
    regex = "::".join((module, *classes, name)) + _with_stars(parts.arguments, ".+")
    return Pattern(prefix=text.partition("*")[0], regex=regex)


def is_of(name: str, module: str) -> bool:
    """Whether an id or a pattern names tests of a file, or all below a folder that has the file."""
    place = take_apart(name).module
    return module.startswith(place[:-1]) if place.endswith("*") else module == place


def _with_stars(text: str, star: str) -> str:
    return star.join(map(re.escape, text.split("*")))


def read_collection(path: Path) -> Collected:
    """Read the tests of each file from the output of `pytest --collect-only -q`, in pytest's order.

    The output has one id per line, up to the first empty line. If collected from the top of torch's tree, all
    ids begin with `test/`, which is removed.

    Raises:
        UsageError: there is no id in it, or there are not as many as pytest counted.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", tip=_COLLECT) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8", tip=_COLLECT) from error
    # Behind the empty line: warnings, errors of collecting with lines of code in them, the count.
    lines = text.strip().partition("\n\n")[0].splitlines()
    tests = [line for line in lines if ".py::" in line]
    if not tests:
        raise UsageError(f"{path} has no id of a test", tip=_COLLECT)
    counts = [int(match[1]) for match in _COUNT.finditer(text)]
    if counts[-1:] != [len(tests)]:
        says = f"pytest counted {counts[-1]}" if counts else "pytest's count, its last line, is missing"
        raise UsageError(f"{path} has {len(tests)} ids of tests, and {says}: it is not whole", tip=_COLLECT)
    above = "test/" if all(test.startswith("test/") for test in tests) else ""
    modules: dict[str, list[str]] = {}
    for test in tests:
        name = test.removeprefix(above)
        modules.setdefault(take_apart(name).module, []).append(name)
    return {module: tuple(tests) for module, tests in modules.items()}


def similar(test: str, collected: Collected) -> str:
    """Suggest ids similar to one that names no test: a sentence, or an empty text.

    Args:
        test: the id.
        collected: the existing tests by file.
    """
    parsed = take_apart(test)
    if parsed.module not in collected:
        return f"no test was collected from {parsed.module}"
    if any(candidate.startswith(f"{test}[") for candidate in collected[parsed.module]):
        return f"it has arguments: did you mean the pattern {test}[*]?"
    # Comparing texts takes long, and a file may have 20,000 tests: those that begin alike will do.
    beginning = "_".join(parsed.name.split("_")[:2])
    near = {
        candidate: take_apart(candidate)
        for candidate in collected[parsed.module]
        if f"::{beginning}" in candidate
    }
    same = [candidate for candidate, parts in near.items() if parts.name == parsed.name]
    mates = [parts.name for parts in near.values() if parts.classes == parsed.classes]
    close = same or [*wording.nearest(parsed.name, mates[:_COMPARED])]
    return f"did you mean {' or '.join(close[:_SHOWN])}?" if close else ""
