"""Command lines that the real programs refuse."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from cairn.workflows.findings import Finding, Rule
from cairn.workflows.shell import Command
from cairn.workflows.workflow import Step, Workflow

_MOST_LOOSE = 6  # words of which every combination is tried

CheckWords: TypeAlias = Callable[[Sequence[str]], str | None]
"""Says what is wrong with a program and its arguments; None where nothing is, or where it is not ours."""


def check(workflow: Workflow, check_words: CheckWords) -> Iterator[Finding]:
    """Every command of the workflow's own steps that its program refuses."""
    for job in workflow.jobs.values():
        for step in job.steps:
            yield from _of_step(step, check_words)
    for step in workflow.steps:
        yield from _of_step(step, check_words)


def _of_step(step: Step, check_words: CheckWords) -> Iterator[Finding]:
    script = step.node.get("run")
    for command in step.commands() if script is not None else ():
        said = _refused(command, check_words)
        if said is not None and script is not None:
            # A text of several lines begins below `run: |`.
            below = 1 + command.line if "\n" in (script.text or "") else 0
            yield Finding(rule=Rule.COMMAND_LINE, file=step.file, line=script.line + below, message=said)


def _refused(command: Command, check_words: CheckWords) -> str | None:
    said = check_words(command.words)
    if said is None or not command.loose:
        return said
    # `$OPTIONS` without quotes may also be nothing, where `--targets $TARGETS` beside it is a value.
    loose = sorted(command.loose - {0})[:_MOST_LOOSE]
    for left_out in itertools.chain.from_iterable(
        itertools.combinations(loose, count) for count in range(1, len(loose) + 1)
    ):
        kept = [word for number, word in enumerate(command.words) if number not in left_out]
        if check_words(kept) is None:
            return None
    return said
