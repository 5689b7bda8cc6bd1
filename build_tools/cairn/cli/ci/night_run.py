"""`cairn ci night run`: a whole night from one process, on this machine or on a cluster."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cairn import converters, extras
from cairn.cli import common_options as common
from cairn.cli import signing
from cairn.cli.answer import Answer, Note, Piece, Table
from cairn.cli.binder import command
from cairn.cli.ci import night_options
from cairn.errors import PrerequisiteError, UsageError
from cairn.matrix.matrix_options import Choice
from cairn.options import Exclusive, option, part
from cairn.output import console
from cairn.pipeline.pipeline_options import FreezeOptions

if TYPE_CHECKING:
    from cairn.pipeline.night.driver import DriveRequest, Executor
    from cairn.pipeline.night.steps import NightStep


_CLUSTER = Exclusive()


@dataclass(frozen=True, kw_only=True)
class Run(signing.SignOptions, night_options.NightOptions):
    """Options of `cairn ci night run`.

    The steps are the jobs of the nightly workflow, and each leg goes its own way. What is finished is in the
    store: run it again with --night after an error, an interrupt or a crash, and it goes on. A leg for whose
    GPU no machine is there goes to `untested`. Exit code as of `cairn ci night report`: 10 for a bad night.

        cairn ci night run --stack sample --store ./store --families gfx94X-dcgpu --pythons
        3.12
    """

    night: str = option(
        "go on with this night, or call a new one so (default: a new one, called by the time)",
        metavar="ID",
        convert=converters.nonempty,
        default="",
    )
    matrix: Path | None = option("a matrix.toml (default: beside the stack.toml)", convert=converters.file)
    choice: Choice = part(Choice)
    how: FreezeOptions = part(FreezeOptions)
    cache_store: str = night_options.cache_store()
    notify: str = option(
        "run this with the report as JSON on its standard input, where the night was not good",
        metavar="COMMAND",
        default="",
    )
    test_image: str = option(
        "run tests in a container of this image, which has Cairn, with the GPUs of their machine (default: "
        "on the machine as it is)",
        metavar="IMAGE",
        default="",
    )
    engine: Literal["docker", "podman", "buildah"] | None = option(
        "program to use (default: the first that answers)",
        choices=("docker", "podman", "buildah"),
    )
    jobs: int = common.jobs("cores of this machine that steps may use")
    executor: Literal["local", "dask"] = option(
        "where steps run: on this machine, or on the workers of a Dask cluster (default: %(default)s)",
        choices=("local", "dask"),
        default="local",
    )
    scheduler: str | None = option(
        "of Dask: its address, such as tcp://head:8786",
        metavar="URL",
        convert=converters.url,
        group=_CLUSTER,
    )
    cluster: str | None = option(
        "start one by this class of dask-jobqueue, as its configuration says: SLURMCluster, PBSCluster, …",
        metavar="CLASS",
        group=_CLUSTER,
    )
    workers: int = option(
        "how many workers of Dask to wait for, and to start with --cluster (default: %(default)s)",
        convert=converters.positive,
        default=1,
    )
    dry_run: bool = common.dry_run()


def _run(request: Run) -> Answer:
    from cairn.pipeline.night import driver
    from cairn.release import night_names

    if request.night:
        night_names.check_id(night_names.taken_apart(request.night)[0])
    with _executor(request) as executor:
        drive_request = _drive_request(request, executor)
        if request.dry_run:
            return _planned(drive_request, driver.planned(drive_request))
        try:
            return _ended(*driver.drive(drive_request, executor))
        except KeyboardInterrupt:
            night = drive_request.night
            console.current().info(
                f"finished steps are kept; go on with the same command and --night {night}"
            )
            raise


@contextmanager
def _executor(request: Run) -> Iterator[Executor]:
    from cairn.pipeline.night import driver

    place = request.scheduler or request.cluster
    if request.executor == "local":
        if place:
            raise UsageError(f"{place} is of a Dask cluster", tip="add --executor dask")
        yield driver.Here(request.jobs or _cores())
        return
    if not place:
        raise UsageError("nothing says where the Dask cluster is", tip="--scheduler or --cluster")
    try:
        from cairn.cluster import dask_executor
    except ImportError as error:
        raise PrerequisiteError(
            f"{error.name} is not installed, which nights on a cluster need",
            tip=extras.line("cluster"),
        ) from error
    where = dask_executor.Where(
        scheduler=request.scheduler,
        cluster=request.cluster,
        workers=request.workers,
        patience=request.patience or 600.0,
    )
    with dask_executor.connect(where) as cluster:
        yield cluster


def _cores() -> int:
    import os

    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _drive_request(request: Run, executor: Executor) -> DriveRequest:
    import os

    from cairn import interpreters
    from cairn import stack as stacks
    from cairn.matrix import legs, matrix_toml
    from cairn.pipeline.night import placing, plan
    from cairn.pipeline.night.driver import DriveRequest
    from cairn.pipeline.night.steps import Container, Settings

    night = request.night or f"{datetime.now(UTC):%Y%m%d-%H%M%S}"
    stack = stacks.load(request.stack)
    config = matrix_toml.load_matrix_toml(request.matrix or Path(stack.folder, matrix_toml.FILE), stack)
    stack = stack.for_line(request.line or config.lines_of(request.choice.trigger, stack)[0])
    choice = dataclasses.replace(
        request.choice, lines=(stack.line,), owner=os.environ.get("GITHUB_REPOSITORY_OWNER")
    )
    matrix = legs.make(stack, config, choice, stack_path=request.stack)
    if not matrix.legs:
        raise UsageError(f"the matrix is empty: {matrix.empty_because}", tip="name another trigger or filter")
    placed, remarks = placing.place(matrix.legs, stack, executor.machines)
    for remark in remarks:
        console.current().info(remark)
    if request.executor == "local" and plan.find(request.open_store(), night) is None:
        interpreters.find_all(tuple(dict.fromkeys(leg.python for leg in placed)))  # which builds run with
    how, work_dir = request.how, request.how.work_dir.absolute()
    return DriveRequest(
        night=night,
        stack=stack,
        store=request.open_store(),
        legs=placed,
        others=tuple(
            leg for leg in matrix.others if any(leg.platform == m.platform for m in executor.machines)
        ),
        freeze_options=dataclasses.replace(how, work_dir=work_dir / "freeze"),
        notify=request.notify,
        settings=Settings(
            stack=Path(stack.folder).absolute(),
            store=_absolute(request.store),
            endpoint_url=request.endpoint_url,
            patience=request.patience,
            sign_key=request.sign_key if request.executor == "local" else None,
            work_dir=work_dir,
            cache_store=_absolute(request.cache_store),
            # So that each machine can make any build.
            cores=min(machine.cores for machine in executor.machines),
            on_one_machine=request.executor == "local",
            container=Container(image=request.test_image, engine=request.engine)
            if request.test_image
            else None,
        ),
    )


def _absolute(url: str) -> str:
    """The URL of a store, as it is in every folder."""
    return str(Path(url).absolute()) if url and "://" not in url else url


def _planned(request: DriveRequest, due: tuple[NightStep, ...]) -> Answer:
    plain = [
        {
            "step": step.step.name,
            "waits_for": step.step.waits_for,
            "needs": str(step.demand) or "the driver",
            "cores": step.step.cores,
            "command": ("cairn", *step.command.arguments),
        }
        for step in due
    ]
    rows = [
        (
            step.step.name,
            "the driver" if step.is_central else str(step.demand),
            step.step.cores,
            ", ".join(step.step.waits_for) or "-",
        )
        for step in due
    ]
    text: list[Piece] = [Table(("step", "runs on", "cores", "waits for"), rows)] if due else []
    text.append(Note(f"{len(due)} steps of the night {request.night}; nothing was begun"))
    return Answer({"night": request.night, "steps": plain}, text)


def _ended(code: int, report: Mapping[str, object]) -> Answer:
    legs = report["legs"]
    rows = [
        (
            f"{leg['line']} {leg['family']} Python {leg['python']} {leg['platform']}",
            leg["outcome"],
            leg.get("stage"),
            leg.get("reason"),
        )
        for leg in legs  # type: ignore[attr-defined] # of `cairn ci night report --json`
    ]
    text = (
        Table(("leg", "outcome", "ended in", "why"), rows),
        *map(Note, report["hanging"]),  # type: ignore[call-overload] # likewise
        Note(f"night {report['night']}: {report['counts']}"),
    )
    return Answer(report, text, exit_code=code)


# A night has one line, and workflows alone run builds in an image.
COMMANDS = {"run": command(Run, _run, needs="release", omit=("lines", "image"))}
