"""`--lines`, `--families` and `--pythons` of `cairn build`: several variants in one run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import arguments, completion
from cairn.errors import UsageError

if TYPE_CHECKING:
    from cairn.build.model import Job
    from cairn.stack import Stack

OF_STACK = "stack"
"""Stands for the Pythons that stack.toml names."""


def add_variants(parser: argparse.ArgumentParser) -> None:
    """Give a parser the options."""
    group = parser.add_argument_group(
        "several variants in one run",
        "each in a folder of its own below the output folder: LINE/FAMILY/PYTHON",
    )
    lines = group.add_argument(
        "--lines",
        type=converters.nonempty,
        help="release lines, joined by commas; the checkouts of release/2.9 are in the folder release-2.9",
    )
    arguments.completes(lines, completion.complete_lines)
    families = group.add_argument(
        "--families",
        type=converters.nonempty,
        help="families or targets, joined by commas: wheels for each, not one for all as with --targets; "
        "{family} in --index-url and --find-links stands for each",
    )
    arguments.completes(families, completion.complete_targets)
    group.add_argument(
        "--pythons",
        type=converters.nonempty,
        help=f"interpreters, joined by commas: 3.12, a path, or {OF_STACK} for those of stack.toml "
        "(default: Cairn's own)",
    )


def jobs_of(job: Job, options: argparse.Namespace, *, root: Path) -> tuple[Job, ...]:
    """The job of each variant that the options name; the job itself where they name none.

    Raises:
        UsageError: the options contradict each other, or name what does not exist.
        PrerequisiteError: the machine lacks a Python.
    """
    from cairn import interpreters
    from cairn.build import variants

    lines = _words(options.lines, "--lines")
    if lines and options.line is not None:
        raise UsageError("--line and --lines exclude each other", tip="name all lines with --lines")
    pythons = _words(options.pythons, "--pythons")
    if pythons == (OF_STACK,):
        pythons = _of_stack(job.stack)
    wanted = variants.Wanted(
        lines=lines,
        families=_words(options.families, "--families"),
        pythons=interpreters.find_all(pythons),
    )
    return variants.expand(job, wanted, root=root)


def _of_stack(stack: Stack) -> tuple[str, ...]:
    if not stack.pythons:
        raise UsageError(
            f"the stack {stack.name} names no Pythons", tip="name them: --pythons 3.11,3.12; or in stack.toml"
        )
    return stack.pythons


def _words(text: str | None, option: str) -> tuple[str, ...]:
    words = tuple(word.strip() for word in (text or "").split(","))
    if text is not None and not all(words):
        raise UsageError(f"{option} {text!r} names nothing between two commas")
    return words if text is not None else ()
