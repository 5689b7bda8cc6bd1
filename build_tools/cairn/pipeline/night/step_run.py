"""Carry out one step of a night on the machine that this is.

A build and a test have three phases, which a workflow calls one by one. A driver joins them:

| phase | does | where | has |
| --- | --- | --- | --- |
| `fetch` | copies what the step reads from the store into its folder | here | the store |
| `run` | builds or tests there, with foreign code | a program of its own, confined | neither store nor key |
| `keep` | judges what `run` left by its bytes, and stores it, signed | here | the store, the key |

`run` gets the variables that any foreign program may have and Cairn's settings, without those that name a
secret, a key or the store; with a cache of wheels a build keeps them, and starts what is foreign without.
A merge runs nothing: it judges what the phase `keep` of suites has stored, here.

Whoever drives a night has the credentials in this process all the time. So where the machine cannot keep a
program from the variables of those above it (docs/explanation/isolation.md), a process for each phase would
protect nothing more: there, too, the phases are joined, and one warning names the variables that stay open.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import os
import re
import shlex
import shutil
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
from msgspec import structs

import cairn
from cairn import files, images, isolation, process
from cairn.build import build_log
from cairn.errors import CairnError, UsageError
from cairn.output import Progress, github, safe_text, silent
from cairn.pipeline.night import handover, plan, shards, smoke, suite
from cairn.pipeline.night.plan import NightRun
from cairn.pipeline.night.steps import CORES, FETCHED, Command, Container, LegStep
from cairn.release.trust import signers
from cairn.release.trust.signers import Signer
from cairn.retry import RetryPolicy
from cairn.start import EXIT_INTERRUPTED, EXIT_SYSTEM
from cairn.store import opening

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
_OF_DRIVER = re.compile(r"CAIRN_(STORE|TRUST_STORE|\w+_KEY)")  # what `run` has no use for
_PATIENCE = 600.0  # seconds for which a bucket that does not answer is waited for
_ENGINE = 120.0  # seconds that removing a container may take
_LOCK_WAIT = 12 * 3600.0  # seconds; the other run may be at torch
_TAIL = 20  # lines of a log that the driver shows


class StepJob(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine is asked to carry out; values that fit into a message.

    Attributes:
        name: of the step.
        command: see `NightStep`, as `phases` and `folder`.
        cores: how many it may use.
        variables: of the run: GitHub's, by which its notes are told from those of another run.
    """

    name: str
    command: Command
    phases: LegStep | None = None
    folder: Path
    cores: int
    variables: Mapping[str, str] = msgspec.field(default_factory=dict)


class StepEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a step ended; values that fit into a message.

    Attributes:
        code: the exit code of the first phase that failed; 0 where none did.
        seconds: that it took.
        outputs: what its command gave to the steps behind it, as it would to those of a workflow.
        log: where its log is, with the machine.
        tail: the end of the log, where it failed.
        worker: the address of the worker of a cluster that ran it.
    """

    code: int
    seconds: float = 0.0
    outputs: Mapping[str, str] = msgspec.field(default_factory=dict)
    log: str = ""
    tail: tuple[str, ...] = ()
    worker: str = ""


def run_step(
    job: StepJob, *, say: Progress = silent, is_ended: Callable[[], bool] = lambda: False
) -> StepEnd:
    """Run a step, all its phases; its log is beside its folder.

    Where another run of the same night is at the same step in this folder, it is waited for.

    Args:
        job: the step.
        say: called with each line of output.
        is_ended: whether the run that the step is of has ended, so that nothing more is begun.
    """
    waiting = functools.partial(say, "waits for another run of this night")
    with files.locked(job.folder.with_name(f"{job.folder.name}.lock"), timeout=_LOCK_WAIT, on_wait=waiting):
        return _run(job, say, is_ended)


def job_of(step: LegStep, *, cores: int, variables: Mapping[str, str] | None = None) -> StepJob:
    """Return what a machine is asked to do for a step in phases."""
    command = step.run_command()
    return StepJob(
        name=step.name,
        command=command,
        phases=step,
        folder=step.folder,
        cores=cores,
        variables=variables or {},
    )


def fetch(step: LegStep, run: NightRun) -> None:
    """Carry out the first phase: copy what a step reads from the store of a night into its folder."""
    leg = None if step.kind == "build" else run.plan.leg(step.leg)
    shard = shards.shard_of(run, leg, step.config, step.shard) if leg and step.kind == "suite" else None
    handover.fetch(run, step.folder / FETCHED, leg, shard)


def keep(step: LegStep, run: NightRun, signer: Signer | None) -> bool:
    """Carry out the last phase: store what `run` left, signed; return whether it left anything.

    Raises:
        UsageError: in place of a folder, it left a link, to what only we may read.
    """
    folders = (step.left / smoke.COMPAT, step.left, *step.left.parents)
    below = [folder for folder in folders if step.folder in folder.parents]
    if any(folder.is_symlink() for folder in below):
        raise UsageError(f"what {step.name} left is a link", tip="see what the step ran")
    if step.kind == "build":
        return handover.keep_built(run, step.leg, step.left, signer)
    leg = run.plan.leg(step.leg)
    if step.kind == "test":
        return handover.keep_tests(run, leg, step.left, signer)
    return handover.keep_shard(run, shards.shard_of(run, leg, step.config, step.shard), step.left, signer)


def _run(job: StepJob, say: Progress, is_ended: Callable[[], bool]) -> StepEnd:
    began, log = time.monotonic(), job.folder.with_name(f"{job.folder.name}.log")
    log.unlink(missing_ok=True)
    shutil.rmtree(job.folder, ignore_errors=True)  # of a run that was killed
    job.folder.mkdir(parents=True, exist_ok=True)
    with github.running_as(job.variables):
        code = _phases(job, log, say, is_ended)
    text = files.text_or_empty(job.folder / "outputs")
    if code == 0:
        shutil.rmtree(job.folder, ignore_errors=True)
    return StepEnd(
        code=code,
        seconds=time.monotonic() - began,
        outputs=dict(line.split("=", 1) for line in text.splitlines() if "=" in line),
        log=f"{socket.gethostname()}:{log}",
        tail=tuple(text for _, text in build_log.tail(log, _TAIL)) if code else (),
    )


def _phases(job: StepJob, log: Path, say: Progress, is_ended: Callable[[], bool]) -> int:
    """Carry out a step, one phase after another; return the exit code of the first that failed."""
    step = job.phases
    if step is not None and step.kind == "merge" and not is_ended():
        return _here(lambda: _merge(step, say), log, step.name)
    if step is not None and (code := _here(lambda: fetch(step, _open(step)), log, f"{step.name}: fetch")):
        return code
    # Foreign code may put links in the place of folders: what is kept is of this one.
    with files.pinned(job.folder) as folder:
        code = EXIT_INTERRUPTED if is_ended() else _command(job, log, say)
        if is_ended():  # what is left was not done, and so has not succeeded
            return code or EXIT_INTERRUPTED
        if step is None:
            return code
        left = structs.replace(step, folder=folder)
        kept_as = _here(lambda: keep(left, _open(step), _signer(step)), log, f"{step.name}: keep")
        return code or kept_as


def _merge(step: LegStep, say: Progress) -> None:
    run = dataclasses.replace(_open(step), only=(step.leg,))
    merges = suite.merge_night(run, step.folder, signer=_signer(step), say=say)
    if error := suite.refusal(merges):
        raise error


def _signer(step: LegStep) -> Signer | None:
    return signers.chosen_signer(step.settings.sign_key)


def _open(step: LegStep) -> NightRun:
    settings = step.settings
    retry = RetryPolicy.lasting(settings.patience or _PATIENCE)
    store = opening.open_existing(settings.store, endpoint_url=settings.endpoint_url, retry=retry)
    return plan.open_run(store, step.night, settings.stack)


def _here(phase: Callable[[], object], log: Path, name: str) -> int:
    """Carry out a phase in this process; return its exit code, and say in the log why it failed."""
    try:
        phase()
    except CairnError as error:
        code, text = error.exit_code, "\n".join(filter(None, (f"error: {error}", error.tip)))
    except OSError as error:
        code, text = EXIT_SYSTEM, f"error: {error}"
    except Exception:  # noqa: BLE001 - foreign code wrote what is read here: it may end this step, and no other
        code, text = EXIT_SYSTEM, traceback.format_exc()
    else:
        return 0
    with log.open("a", encoding="utf-8", errors="backslashreplace") as stream:
        stream.write(f"{name}\n{safe_text.mask(text)}\n")
    return code


def _command(job: StepJob, log: Path, say: Progress) -> int:
    """Run the command of a step as a program, confined where it has no credentials; return its exit code."""
    command = job.command
    arguments = [word.replace(CORES, str(job.cores)) for word in command.arguments]
    variables = {**job.variables, "GITHUB_OUTPUT": str(job.folder / "outputs")}
    if command.container is not None:
        return _in_container(command.container, job, arguments, variables, log=log, on_line=say).returncode
    program = [sys.executable, "-P", "-m", "cairn", *arguments]
    say(f"$ {shlex.join(program)}")
    environment = dict(os.environ)
    if not command.has_credentials:
        environment = {
            name: value
            for name, value in isolation.without_credentials().items()
            if not _OF_DRIVER.fullmatch(name)
        }
    return process.run(
        program,
        env={**environment, **variables},
        log=log,
        on_line=say,
        check=False,
        confined=not command.has_credentials,
        reach=None if command.has_credentials else isolation.all_but_credentials(),
        network=True,  # it fetches; what it starts in turn has none
    ).returncode


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
        process.run, images.remove_command(run, name=name), check=False, timeout=_ENGINE, confined=False
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
