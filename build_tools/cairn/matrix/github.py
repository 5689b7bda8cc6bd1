"""A matrix for GitHub Actions: a job's outputs, and the table on the run's page."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from cairn import datafile
from cairn.errors import UsageError
from cairn.matrix.legs import Leg, Matrix


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
    """Append the outputs to the file that GitHub reads after the step, and a table to its summary.

    Source: docs.github.com, "Workflow commands": GITHUB_OUTPUT, GITHUB_STEP_SUMMARY.

    Raises:
        UsageError: this is not a step of GitHub Actions.
    """
    path = os.environ.get("GITHUB_OUTPUT")
    if not path:
        raise UsageError(
            "GITHUB_OUTPUT is not set: this is not a step of GitHub Actions", tip="use --json elsewhere"
        )
    _append(Path(path), "".join(f"{name}={value}\n" for name, value in outputs(matrix).items()))
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        _append(Path(summary), summary_text(matrix))


def summary_text(matrix: Matrix) -> str:
    """The matrix as Markdown."""
    if not matrix.legs:
        return f"### Matrix\n\n**Empty**: {matrix.empty_because}. Nothing is built, tested or promoted.\n\n"
    rows = [
        f"| {leg.line} | {leg.family} | {leg.python} | {leg.platform} | {' '.join(leg.build_runs_on)} "
        f"| {' '.join(leg.test_runs_on) or 'no runner: not tested'} | {', '.join(notes(leg))} |\n"
        for leg in matrix.legs
    ]
    head = "| line | family | Python | platform | built on | tested on | notes |\n" + "| --- " * 7 + "|\n"
    return f"### Matrix: {len(matrix.legs)} legs, {len(matrix.tested)} tested\n\n{head}{''.join(rows)}\n"


def notes(leg: Leg) -> list[str]:
    """What is special about a leg."""
    said = {
        "expected to fail": leg.expect_failure,
        "may be promoted untested": leg.bypass_tests,
        "stays in staging": not leg.push_on_success,
    }
    return [text for text, holds in said.items() if holds]


def _include(legs: Sequence[Leg]) -> str:
    return json.dumps({"include": [datafile.to_plain(leg) for leg in legs]}, separators=(",", ":"))


def _append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8", newline="\n") as file:
        file.write(text)
