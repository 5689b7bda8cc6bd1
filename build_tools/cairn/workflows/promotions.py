"""What of a workflow promotes: makes something public that cannot be taken back by running it again."""

from __future__ import annotations

from typing import Literal

from cairn.workflows.shell import Command
from cairn.workflows.workflow import Job, Step

Kind = Literal["gated", "plain"]
"""`gated`: through the gate, which judges each set by the records in the store; `plain`: what there is."""

_GATED = (("release", "promote"), ("ci", "night", "promote"))
_PLAIN = (("twine", "upload"), ("uv", "publish"), ("gh", "release", "create"), ("gh", "release", "upload"))
_ACTIONS = ("pypa/gh-action-pypi-publish@", "softprops/action-gh-release@")


def of_step(step: Step) -> Kind | None:
    """How a step promotes, itself or through the local action that it uses; None where it does not."""
    kinds = {kind for inner in step.with_inner() for kind in (_own(inner),) if kind}
    return "plain" if "plain" in kinds else "gated" if kinds else None


def of_job(job: Job) -> Kind | None:
    """How a job promotes; None where it does not."""
    kinds = {kind for step in job.all_steps() for kind in (_own(step),) if kind}
    return "plain" if "plain" in kinds else "gated" if kinds else None


def downloads(job: Job) -> bool:
    """Whether a job reads artifacts of other jobs."""
    return any(step.uses.startswith("actions/download-artifact@") for step in job.all_steps())


def _own(step: Step) -> Kind | None:
    if step.uses.startswith(_ACTIONS):
        return "plain"
    kinds = [_of_command(command) for command in step.commands()]
    return "plain" if "plain" in kinds else "gated" if "gated" in kinds else None


def _of_command(command: Command) -> Kind | None:
    words = [word for word in command.words if not word.startswith("-")]
    if "--dry-run" in command.words:
        return None
    for begin in range(min(3, len(words))):  # `cairn …`, `python -m twine …`
        if any(tuple(words[begin : begin + len(name)]) == name for name in _PLAIN):
            return "plain"
        if any(tuple(words[begin + 1 : begin + 1 + len(name)]) == name for name in _GATED):
            return "gated"
    return None
