"""Ids of tests, and patterns for families of them.

An id is what pytest calls a test, counted from the folder of the tests: `test_nn.py::TestNN::test_print`,
`inductor/test_ops.py::test_add[cpu-float32]`. A file alone, `nn/test_convolution.py`, stands for all of it.

A pattern is an id in which a `*` stands for one or more whole parts: the class, or words of the test's name,
which `_` divides, or the arguments in brackets, which `-` divides. `test_ops.py::TestCommonCUDA::test_out_*`
takes `test_out_add_cuda_float32` and never `test_outer`. A `*` alone after the class takes all its tests.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from cairn.errors import UsageError
from cairn.output import wording

_MODULE = re.compile(r"(?!(?:.*/)?\.{1,2}/)(?:[^/\\:*\s]+/)*[^/\\:*\s]+\.py")
_STAR = re.compile(r"(?<![^_[-])\*(?![^_\]-])")  # one that is a whole part of a name or of arguments
_EXAMPLE = "an id is written like test_nn.py::TestNN::test_print"
_MOST_STARS = 4
_SHOWN = 2  # ids that may have been meant
_COMPARED = 500  # names


@dataclass(frozen=True, kw_only=True)
class TestId:
    """The id of a test, or a pattern, taken apart.

    Attributes:
        module: its file.
        classes: what it lies in, from the outside in.
        name: of the test itself; empty where the whole file is meant.
        arguments: of a parametrized test, with their brackets; else empty.
    """

    __test__ = False  # pytest would collect the name

    module: str
    classes: tuple[str, ...]
    name: str
    arguments: str


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """A pattern, ready to be matched.

    Attributes:
        prefix: what every id that it matches begins with; a part ends there.
        regex: matches those ids in full.
    """

    prefix: str
    regex: str


def take_apart(text: str) -> TestId:
    """The parts of an id as pytest writes it; what arguments hold is not part of the rest."""
    head, bracket, arguments = text.partition("[")
    module, *levels = head.split("::")
    return TestId(
        module=module,
        classes=tuple(levels[:-1]),
        name=levels[-1] if levels else "",
        arguments=bracket + arguments,
    )


def check(text: str) -> str:
    """The id, found to be well formed.

    Raises:
        UsageError: it is not the id of a test, or of a file of tests.
    """
    if "*" in text.partition("[")[0]:
        raise UsageError(f"{text!r} has a star, and an id is exact", tip="move it to `patterns`")
    _check(text)
    return text


def _check(text: str) -> TestId:
    found = take_apart(text)
    if not _MODULE.fullmatch(found.module):
        raise UsageError(f"{text!r} does not begin with a file of tests", tip=_EXAMPLE)
    if "::" in text and not all((*found.classes, found.name)):
        raise UsageError(f"{text!r} has an empty part", tip=_EXAMPLE)
    if text != text.strip() or (found.arguments and not (found.name and found.arguments.endswith("]"))):
        raise UsageError(f"{text!r} does not end as an id does", tip=_EXAMPLE)
    return found


def compile_pattern(text: str) -> Pattern:
    """Read a pattern.

    Raises:
        UsageError: it is not an id with stars for whole parts, or has no star at all.
    """
    found = _check(text)
    if "*" not in text:
        raise UsageError(f"the pattern {text!r} has no star", tip="move it to `tests`")
    # Between their borders, stars can share the words of a name in many ways: all are tried where none fits.
    if text.count("*") > _MOST_STARS:
        raise UsageError(f"the pattern {text!r} has more than {_MOST_STARS} stars", tip="write several")
    if any("*" in name and name != "*" for name in found.classes) or any(
        "*" in _STAR.sub("", part) for part in (found.name, found.arguments)
    ):
        raise UsageError(
            f"a star of the pattern {text!r} is not a whole part",
            tip="write it between `_`, `::`, `[`, `-` and `]`: test_out_*, not test_out*",
        )
    # A star of the name ends before the brackets: with arguments, it is a different test. One alone is every
    # test of the class.
    classes = (r"[^:\[]+" if name == "*" else re.escape(name) for name in found.classes)
    name = ".+" if found.name == "*" and not found.arguments else _with_stars(found.name, r"[^:\[]+")
    regex = "::".join((re.escape(found.module), *classes, name)) + _with_stars(found.arguments, ".+")
    return Pattern(prefix=text.partition("*")[0], regex=regex)


def _with_stars(text: str, star: str) -> str:
    return star.join(map(re.escape, text.split("*")))


def similar(test: str, known: Mapping[str, Collection[str]]) -> str:
    """What may have been meant by an id that names nothing: a sentence, empty where nothing is similar.

    Args:
        test: the id.
        known: the tests that there are, by their file.
    """
    wanted = take_apart(test)
    if wanted.module not in known:
        return f"no test was collected from {wanted.module}"
    if any(other.startswith(f"{test}[") for other in known[wanted.module]):
        return f"it has arguments: did you mean the pattern {test}[*]?"
    # Comparing texts takes long, and a file may have 20,000 tests: those that begin alike will do.
    beginning = "_".join(wanted.name.split("_")[:2])
    near = {other: take_apart(other) for other in known[wanted.module] if f"::{beginning}" in other}
    same = [other for other, found in near.items() if found.name == wanted.name]
    mates = [found.name for found in near.values() if found.classes == wanted.classes]
    close = same or [*wording.nearest(wanted.name, mates[:_COMPARED])]
    return f"did you mean {' or '.join(close[:_SHOWN])}?" if close else ""
