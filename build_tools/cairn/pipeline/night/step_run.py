"""Carry out one step of a night: its commands one after another, as programs, on the machine that this is."""

from __future__ import annotations

import functools
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cairn import files, isolation, process
from cairn.output import Progress, silent
from cairn.pipeline.night.steps import CORES, Command

_LOCK_WAIT = 12 * 3600.0  # seconds; the other run may be at torch
_TAIL = 20  # lines of a log that the driver shows


@dataclass(frozen=True, kw_only=True)
class StepJob:
    """What a machine is asked to carry out; values that fit into a message.

    Attributes:
        name: of the step.
        commands: see `NightStep`.
        folder: see `NightStep`.
        cores: how many it may use.
        variables: of the run, which its commands get besides those of the machine.
    """

    name: str
    commands: tuple[Command, ...]
    folder: Path
    cores: int
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class StepEnd:
    """How a step ended; values that fit into a message.

    Attributes:
        code: the exit code of the first command that failed; 0 where none did.
        seconds: that it took.
        outputs: what its commands gave to the steps behind it, as they would to those of a workflow.
        log: where its log is, with the machine.
        tail: the end of the log, where it failed.
    """

    code: int
    seconds: float = 0.0
    outputs: Mapping[str, str] = field(default_factory=dict)
    log: str = ""
    tail: tuple[str, ...] = ()


def run_step(
    job: StepJob, *, say: Progress = silent, is_ended: Callable[[], bool] = lambda: False
) -> StepEnd:
    """Run the commands of a step; its log is beside its folder.

    Where another run of the same night is at the same step in this folder, it is waited for.

    Args:
        job: the step.
        say: called with each line of output.
        is_ended: whether the run that the step is of has ended, so that no command is begun.
    """
    waiting = functools.partial(say, "waits for another run of this night")
    with files.locked(job.folder.with_name(f"{job.folder.name}.lock"), timeout=_LOCK_WAIT, on_wait=waiting):
        return _run(job, say, is_ended)


def _run(job: StepJob, say: Progress, is_ended: Callable[[], bool]) -> StepEnd:
    began, log = time.monotonic(), job.folder.with_name(f"{job.folder.name}.log")
    log.unlink(missing_ok=True)
    shutil.rmtree(job.folder, ignore_errors=True)  # of a run that was killed
    job.folder.mkdir(parents=True, exist_ok=True)
    outputs, code = job.folder / "outputs", 0
    for command in job.commands:
        if (code and not command.always) or is_ended():
            continue
        environment = dict(os.environ) if command.has_credentials else isolation.without_credentials()
        arguments = [word.replace(CORES, str(job.cores)) for word in command.arguments]
        ended = process.run(
            [sys.executable, "-m", "cairn", *arguments],
            env={**environment, **job.variables, "GITHUB_OUTPUT": str(outputs)},
            log=log,
            on_line=say,
            check=False,
        )
        code = code or ended.returncode
    text = files.text_or_empty(outputs)
    if code == 0:
        shutil.rmtree(job.folder, ignore_errors=True)
    return StepEnd(
        code=code,
        seconds=time.monotonic() - began,
        outputs=dict(line.split("=", 1) for line in text.splitlines() if "=" in line),
        log=f"{socket.gethostname()}:{log}",
        tail=process.tail(files.text_or_empty(log), _TAIL) if code else (),
    )
