"""`cairn matrix`: what is built and tested at a trigger, and on which runners."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import arguments, completion
from cairn.errors import UsageError
from cairn.output import console

if TYPE_CHECKING:
    from cairn.matrix.legs import Matrix

_TRIGGERS = ("presubmit", "postsubmit", "nightly")
_ALL = "all"  # what a workflow's input has by default: an empty word would be a variable that is not set


def add_to(parser: argparse.ArgumentParser) -> None:
    """Give a parser the options of the command."""
    parser.description = (
        "List what is built and tested at a trigger: release lines x families x Pythons x platforms, and "
        "their runners. It comes from the matrix.toml beside the stack.toml, which a fork may change. An "
        "empty matrix is an error that says why."
    )
    parser.epilog = "example: cairn matrix --stack external-builds/pytorch --trigger nightly --pythons 3.12"
    action = parser.add_argument(
        "--stack", type=converters.any_path, required=True, help="a stack.toml, or the folder that has one"
    )
    arguments.completes(action, completion.complete_stack_folders)
    parser.add_argument(
        "--matrix",
        type=converters.file,
        metavar="FILE",
        help="a matrix.toml (default: beside the stack.toml)",
    )
    parser.add_argument(
        "--trigger",
        choices=_TRIGGERS,
        default="nightly",
        help="the event; a later one also runs the families of those before it (default: %(default)s)",
    )
    for name, what in (
        ("--lines", "release lines, any of the stack's"),
        ("--families", "families, any of the matrix.toml's"),
        ("--pythons", "Pythons, any of the stack's"),
        ("--platforms", "platforms, any of the matrix.toml's"),
    ):
        parser.add_argument(
            name,
            type=converters.nonempty,
            default=_ALL,
            help=f"{what}, joined by commas (default: all, which are those of the trigger)",
        )
    parser.add_argument(
        "--github-output",
        action="store_true",
        help="write matrix, count, empty, test_matrix, test_count, test_empty, lines and without_runner to "
        "the outputs of the step, and a table to its summary",
    )
    parser.add_argument(
        "--allow-empty", action="store_true", help="only warn of an empty matrix; its `empty` says so"
    )
    arguments.add_json(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from cairn import datafile
    from cairn.matrix import github

    matrix = _matrix(options)
    if options.github_output:
        github.write_outputs(matrix)
    if options.json:
        console.current().json(datafile.to_plain(matrix))
    elif matrix.legs:
        _show(matrix)
    if matrix.legs:
        return 0
    said = f"the matrix is empty: {matrix.empty_because}"
    if not options.allow_empty:
        raise UsageError(
            said, tip="name a different trigger or filter, or pass --allow-empty if that is right"
        )
    console.current().warn(f"{said}; nothing is built, tested or promoted")
    return 0


def _matrix(options: argparse.Namespace) -> Matrix:
    from cairn import stack as stacks
    from cairn.matrix import legs, matrix_toml

    stack = stacks.load(options.stack)
    choice = legs.Choice(
        trigger=options.trigger,
        lines=_names(options.lines),
        families=_names(options.families),
        pythons=_names(options.pythons),
        platforms=_names(options.platforms),
        owner=os.environ.get("GITHUB_REPOSITORY_OWNER"),
    )
    config = matrix_toml.load(options.matrix or Path(stack.folder, matrix_toml.FILE), stack)
    return legs.make(stack, config, choice, stack_path=options.stack)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    return () if names == (_ALL,) else names


def _show(matrix: Matrix) -> None:
    from cairn.matrix import github

    console.current().table(
        ("line", "family", "Python", "platform", "built on", "tested on", "notes"),
        [
            (
                leg.line,
                leg.family,
                leg.python,
                leg.platform,
                " ".join(leg.build_runs_on),
                " ".join(leg.test_runs_on) or "no runner",
                ", ".join(github.notes(leg)) or "-",
            )
            for leg in matrix.legs
        ],
    )
