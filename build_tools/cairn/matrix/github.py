"""A matrix for GitHub Actions: a job's outputs, and the table on the run's page."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence

from cairn import datafile
from cairn.errors import UsageError
from cairn.matrix.legs import Leg, Matrix
from cairn.output import github, markdown


def outputs(matrix: Matrix) -> Mapping[str, str]:
    """The outputs of a step, by name; lists and matrices as JSON for `fromJSON`."""
    return {
        "matrix": _include(matrix.legs),
        "count": str(len(matrix.legs)),
        "empty": "false" if matrix.legs else "true",
        "test_matrix": _include(matrix.tested),
        "test_count": str(len(matrix.tested)),
        "test_empty": "false" if matrix.tested else "true",
        "lines": json.dumps(matrix.lines),
        "without_runner": json.dumps([leg.id for leg in matrix.without_runner]),
    }


def write_outputs(matrix: Matrix) -> None:
    """Set the outputs of the step that is running, and add a table to its summary.

    Raises:
        UsageError: this is not a step of GitHub Actions.
    """
    if not os.environ.get("GITHUB_OUTPUT"):
        raise UsageError(
            "GITHUB_OUTPUT is not set: this is not a step of GitHub Actions", tip="use --json elsewhere"
        )
    github.write_outputs(outputs(matrix))
    github.add_summary(summary_text(matrix))


def summary_text(matrix: Matrix) -> str:
    """The matrix as Markdown."""
    if not matrix.legs:
        return f"### Matrix\n\n**Empty**: {matrix.empty_because}. Nothing is built, tested or promoted.\n\n"
    head = ("line", "family", "Python", "platform", "built on", "tested on", "notes")
    rows = (
        (
            leg.line,
            leg.family,
            leg.python,
            leg.platform,
            " ".join(leg.build_runs_on),
            " ".join(leg.test_runs_on) or "no runner: not tested",
            ", ".join(notes(leg)),
        )
        for leg in matrix.legs
    )
    table = markdown.table(head, (map(markdown.text, cells) for cells in rows))
    title = f"### Matrix: {len(matrix.legs)} legs, {len(matrix.tested)} tested"
    return "\n".join((title, "", *table, ""))


def notes(leg: Leg) -> list[str]:
    """What is special about a leg."""
    outputs = {
        "expected to fail": leg.expect_failure,
        "may be promoted untested": leg.bypass_tests,
        "stays in staging": not leg.push_on_success,
    }
    return [text for text, holds in outputs.items() if holds]


def _include(legs: Sequence[Leg]) -> str:
    return github.matrix([datafile.to_plain(leg) for leg in legs])
