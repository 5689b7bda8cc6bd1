"""Carry out one step of a night: its commands one after another, as programs, on the machine that this is."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import shutil
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import cairn
from cairn import files, images, isolation, process
from cairn.build import build_log
from cairn.errors import CairnError
from cairn.output import Progress, silent
from cairn.pipeline.night.steps import CORES, Command, Container
from cairn.start import EXIT_INTERRUPTED

# A container has what hides GPUs and leads to the network; of credentials it sees none.
_OF_CONTAINER = re.compile(
    r"(ROCR|HIP|CUDA)_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL|(https?|all|no)_proxy", re.IGNORECASE
)
_SAME_VERSION = """\
it=$(cairn --version) || it="no cairn"
[ "$it" = "cairn $0" ] && exec cairn "$@"
echo "error: the image has $it, and this is cairn $0: build it with --build-arg CAIRN=..." >&2
exit 3
"""
_ENGINE = 120.0  # seconds that removing a container may take
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
        worker: the address of the worker of a cluster that ran it.
    """

    code: int
    seconds: float = 0.0
    outputs: Mapping[str, str] = field(default_factory=dict)
    log: str = ""
    tail: tuple[str, ...] = ()
    worker: str = ""


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
        if is_ended():  # what is left was not done, and so has not succeeded
            code = code or EXIT_INTERRUPTED
            break
        if code and not command.always:
            continue
        environment = dict(os.environ) if command.has_credentials else isolation.without_credentials()
        arguments = [word.replace(CORES, str(job.cores)) for word in command.arguments]
        given = {**job.variables, "GITHUB_OUTPUT": str(outputs)}
        if command.container is not None:
            run = functools.partial(_in_container, command.container, job, arguments, given)
        else:
            program = [sys.executable, "-m", "cairn", *arguments]
            run = functools.partial(process.run, program, env={**environment, **given}, check=False)
        ended = run(log=log, on_line=say)
        code = code or ended.returncode
    text = files.text_or_empty(outputs)
    if code == 0:
        shutil.rmtree(job.folder, ignore_errors=True)
    return StepEnd(
        code=code,
        seconds=time.monotonic() - began,
        outputs=dict(line.split("=", 1) for line in text.splitlines() if "=" in line),
        log=f"{socket.gethostname()}:{log}",
        tail=tuple(line.text for line in build_log.tail(log, _TAIL)) if code else (),
    )


def _in_container(
    container: Container,
    job: StepJob,
    arguments: Sequence[str],
    variables: Mapping[str, str],
    *,
    log: Path,
    on_line: Progress,
) -> process.Completed:
    """Run a command of tests in a container, which of the machine sees the step's folder and the stack."""
    stack = Path(arguments[arguments.index("--stack") + 1])
    shown = {name: value for name, value in os.environ.items() if _OF_CONTAINER.fullmatch(name)}
    engine = images.choose_engine(container.engine)
    run = images.ImageRun(
        image=container.image,
        engine=engine,
        command=("sh", "-c", _SAME_VERSION, cairn.__version__, *arguments),
        gpu=container.gpu,
        gpu_groups=images.gpu_groups() if container.gpu else (),
        user=(os.getuid(), os.getgid()),
        open_files=images.open_files(engine),
        terminal=False,
        mounts=((job.folder, True), (stack, False)),
        # A container's own name says nothing of the machine.
        variables={
            **shown,
            **variables,
            "RUNNER_NAME": os.environ.get("RUNNER_NAME") or socket.gethostname(),
        },
    )
    # That of a run that was killed is removed first: it would go on for ever.
    name = f"cairn-{hashlib.sha256(os.fsencode(job.folder)).hexdigest()[:16]}"
    remove = functools.partial(
        process.run, images.remove_command(run, name=name), check=False, timeout=_ENGINE
    )
    *make, use = images.run_commands(run, name=name)[:2]  # buildah makes it by a command of its own
    remove()
    try:
        for command in make:
            process.run(command, log=log, on_line=on_line, confined=False)
        return process.run(use, log=log, on_line=on_line, check=False, confined=False)
    finally:
        # In a thread of its own, which may start a program also where the step was ended.
        with ThreadPoolExecutor(1) as pool, contextlib.suppress(CairnError):
            pool.submit(remove).result()
