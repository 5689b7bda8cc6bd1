"""`cairn matrix`: what is built and tested at a trigger, and on which runners."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import common_options as common
from cairn.cli.answer import Answer, Note, Table
from cairn.cli.binder import command
from cairn.errors import UsageError
from cairn.matrix.matrix_options import Choice
from cairn.options import flag, option, part
from cairn.output import console

if TYPE_CHECKING:
    from cairn.matrix.legs import Matrix
    from cairn.stack import Stack


@dataclass(frozen=True, kw_only=True)
class MatrixRequest:
    """Options of `cairn matrix`.

    It is release lines x families x Pythons x platforms at a trigger, and their runners, and comes from the
    matrix.toml beside the stack.toml, which a fork may change. An empty matrix is an error that says why.

        cairn matrix --stack pytorch --trigger nightly --pythons 3.12
    """

    stack: Path = common.stack()
    matrix: Path | None = option("a matrix.toml (default: beside the stack.toml)", convert=converters.file)
    choice: Choice = part(Choice)
    figures: bool = flag(
        "print how many builds, jobs, artifacts and requests to GitHub the night of each line has, and which "
        "limits of GitHub's they come near, in place of the legs"
    )
    allow_empty: bool = flag("only warn of an empty matrix; `empty_because` of --json says why")


def _run(request: MatrixRequest) -> Answer:
    from cairn import stack as stacks
    from cairn.matrix import legs, matrix_toml

    stack = stacks.load(request.stack)
    choice = dataclasses.replace(request.choice, owner=os.environ.get("GITHUB_REPOSITORY_OWNER"))
    config = matrix_toml.load_matrix_toml(request.matrix or Path(stack.folder, matrix_toml.FILE), stack)
    matrix = legs.make(stack, config, choice, stack_path=request.stack)
    error, message = None, f"the matrix is empty: {matrix.empty_because}"
    if not matrix.legs and request.allow_empty:
        console.current().warn(f"{message}; nothing is built, tested or promoted")
    elif not matrix.legs:
        tip = "name a different trigger or filter, or pass --allow-empty if that is right"
        error = UsageError(message, tip=tip)
    if request.figures and matrix.legs:
        return _figures(stack, matrix)
    return Answer(matrix, [_table(matrix)] if matrix.legs else (), error=error)


def _figures(stack: Stack, matrix: Matrix) -> Answer:
    from cairn.matrix import legs
    from cairn.pipeline.night import shards

    by_line = []
    for line in matrix.lines:
        of_line = [leg for leg in matrix.legs if leg.line == line]
        count = sum(len(shards.expected(stack, leg)) for leg in of_line)
        by_line.append(legs.figures_of(of_line, shards=count))
    names = ("line", "legs", "builds", "tests", "shards", "jobs", "artifacts", "requests")
    rows = [tuple(getattr(cell, name) for name in names) for cell in by_line]
    return Answer(by_line, [Table(names, rows), *(Note(text) for cell in by_line for text in cell.limits())])


def _table(matrix: Matrix) -> Table:
    from cairn.matrix import legs

    return Table(
        ("line", "family", "Python", "platform", "built on", "tested on", "ends"),
        [
            (
                leg.line,
                leg.family,
                leg.python,
                leg.platform,
                " ".join(leg.build_runs_on),
                " ".join(leg.test_runs_on) or f"{' '.join(leg.host_runs_on) or 'no machine'}, no GPU",
                ", ".join(legs.notes(leg)),
            )
            for leg in matrix.legs
        ],
    )


COMMANDS = {"matrix": command(MatrixRequest, _run)}
