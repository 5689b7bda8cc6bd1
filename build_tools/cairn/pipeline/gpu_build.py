"""Build for the GPUs of a machine by one line: choose what nobody named, say what it takes, build it.

`prepare` chooses release line, projects and ROCm SDK, and changes nothing; `say` tells what the build takes
before `run` begins it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import structs
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from cairn import simple_index
from cairn import targets as gpu
from cairn.build import job as build_jobs
from cairn.build import preflight
from cairn.build.model import BuiltWheel, Job
from cairn.errors import PrerequisiteError, SystemFailureError, UsageError
from cairn.output import console
from cairn.pipeline import staging, upstream_index
from cairn.release.publish import sdk_packages
from cairn.release.publish.compatibility import Platform
from cairn.sources import checkout_stack
from cairn.sources.checkout.checkout import CheckoutRequest
from cairn.stack import Project, Stack
from cairn.testing.gpus.visible import gpus_here

_RELEASE = re.compile(r"release/([0-9]+(?:\.[0-9]+)*)")


class GpuBuild(msgspec.Struct, frozen=True, kw_only=True):
    """A build that was chosen, and not begun.

    Attributes:
        job: the build, of the projects that were named and of what they need.
        stack: its stack, on the line.
        targets: what it is for.
        root: the folder of the checkouts.
        absent: the projects that are checked out first; torch may be among them for its pins alone.
        makes_sdk: the stack makes the ROCm SDK itself.
    """

    job: Job
    stack: Stack
    targets: tuple[str, ...]
    root: Path
    absent: tuple[Project, ...]
    makes_sdk: bool


def targets_of_gpus(chosen: str, topology: Path | None = None) -> tuple[str, ...]:
    """The targets of a GPU that is named as a product, a target or a family, or of those of this machine.

    Args:
        chosen: what the user wrote; `auto` for the GPUs of this machine, cards before graphics of processors.
        topology: the kernel's description of the GPUs; that of this machine where it is None.

    Raises:
        PrerequisiteError: it has none.
        UsageError: there is no such GPU.
    """
    if chosen != "auto":
        try:
            return gpu.parse_targets(chosen)
        except UsageError:
            if chosen.casefold().startswith("gfx"):
                raise
            return (gpu.parse_product(chosen),)
    gpus = gpu.discrete(gpus_here(topology))
    if not gpus:
        raise PrerequisiteError(
            "no GPU was found on this machine",
            tip='name one: --gpu gfx1100, --gpu "RX 7900 XTX", or --gpu cpu',
        )
    return gpu.parse_targets(gpus)


def prepare(job: Job, targets: Sequence[str], projects: Sequence[str], *, root: Path) -> GpuBuild:
    """Choose what the user did not name.

    Args:
        job: the build as the user asks for it.
        targets: of the GPUs.
        projects: what is to be built, with what it needs; those that users install where none is named.
        root: the folder of the checkouts.

    Raises:
        UsageError: there is no such project or line.
        SystemFailureError: a folder of the build may not be written to.
    """
    stack = job.stack
    if any(project.hipify == "torch-utils" for project in stack.projects):
        raise UsageError(
            f"{stack.name} is hipified by a torch that is installed first",
            tip=f"cairn ci run --stack {stack.name}",
        )
    is_cpu = tuple(targets) == (gpu.CPU,)
    chosen = [stack.project(name) for name in (*projects, *(() if projects else stack.install))]
    in_order = _with_needs(stack, chosen or [p for p in stack.projects if not (is_cpu and p.rocm_only)])
    folders = {project.name: root / project.checkout_dir for project in stack.projects}
    present = {name: folder for name, folder in folders.items() if folder.is_dir()}
    of_checkouts = checkout_stack.line_of(stack, present, line=job.line) if present else None
    stack = stack.for_line(of_checkouts or job.line or newest_line(stack))
    absent = [stack.project(p.name) for p in in_order if p.name not in present]
    if any(p.pin for p in absent) and "torch" in folders.keys() - present.keys() - {p.name for p in absent}:
        absent.append(stack.project("torch"))
    makes_sdk = not is_cpu and stack.makes_sdk
    for folder in (job.output_dir, *((root,) if absent else ())):
        # Before hours of work; the build makes its folders, and tries them again.
        if not os.access(preflight.existing_folder(folder), os.W_OK | os.X_OK):
            raise SystemFailureError(
                f"cannot write to {folder}: permission denied", tip="name a different one"
            )
    return GpuBuild(
        job=structs.replace(
            job,
            line=stack.line,
            targets=",".join(targets),
            checkouts={p.name: folders[p.name] for p in in_order},
            required=frozenset(p.name for p in in_order),
            install_rocm=not is_cpu,
        ),
        stack=stack,
        targets=tuple(targets),
        root=root,
        absent=tuple(absent),
        makes_sdk=makes_sdk,
    )


def newest_line(stack: Stack) -> str:
    """The newest release line of a stack, by its number; the stack's default where none has one."""
    numbered = {line: match for line in stack.line_names() if (match := _RELEASE.fullmatch(line))}
    return max(numbered, key=lambda line: Version(numbered[line][1]), default=stack.line)


def _with_needs(stack: Stack, chosen: Sequence[Project]) -> tuple[Project, ...]:
    names: dict[str, None] = {}
    rest = [project.name for project in chosen]
    while rest:
        name = rest.pop()
        if name not in names:
            names[name] = None
            rest += stack.project(name).needs
    return tuple(project for project in stack.in_order() if project.name in names)


def choose_sdk(build: GpuBuild, *, stream: str | None) -> tuple[GpuBuild, tuple[str, ...]]:
    """Choose the newest ROCm SDK that its index has whole, and say which newer ones it has in part.

    Args:
        build: what `prepare` chose.
        stream: which of AMD's streams its index is; None for an index that the user named.

    Raises:
        PrerequisiteError: the stream has nothing for a GPU; the tip says which has.
        UsageError: the index lacks the version that is named, or has none whole.
        NetworkError: it does not answer.
    """
    sdk, python = build.job.sdk, build.job.python
    url = sdk.source.index_url
    if build.makes_sdk or build.job.for_cpu() or url is None or sdk.source.find_links or sdk.source.offline:
        return build, ()
    place = Platform(python=python.version, tag=python.platform)
    lacks = {
        # Of families the `rocm` package itself chooses one.
        version: tuple(name for name in missing if not name.startswith("rocm-sdk-libraries-"))
        for version, missing in sdk_packages.lacks_by_version(url, [(place, build.targets)]).items()
    }
    unserved = sdk_packages.never_there(lacks)
    if unserved and stream is not None:
        names = " and ".join(name.removeprefix("rocm-sdk-device-") for name in unserved)
        raise PrerequisiteError(
            f"AMD's stream {stream} ({url}) has no ROCm SDK for {names}",
            tip=upstream_index.other_streams(
                stream, lambda url: all(simple_index.files(url, name) for name in unserved)
            ),
        )
    if sdk.version and not sdk.exact:
        allowed = set(SpecifierSet(sdk.version).filter(lacks, prereleases=True))
        lacks = {version: missing for version, missing in lacks.items() if version in allowed}
    chosen, passed_over = sdk_packages.choose_version({url: lacks}, sdk.exact)
    job = structs.replace(build.job, sdk=structs.replace(sdk, version=chosen))
    return structs.replace(build, job=job), passed_over


def say(build: GpuBuild) -> Iterator[tuple[str, str]]:
    """Yield what will be done, with what it takes: a word and a sentence each."""
    job = build.job
    products = gpu.product_of(build.targets[0])
    shown = (
        f"{build.targets[0]} ({products})"
        if len(build.targets) == 1 and products
        else " ".join(build.targets)
    )
    yield "for", shown
    yield "build", f"{', '.join(job.checkouts)} of {build.stack.name}, line {job.line}, into {job.output_dir}"
    if build.absent:
        yield "check out", f"{', '.join(project.name for project in build.absent)} into {build.root}"
    if present := [name for name in job.checkouts if name not in {project.name for project in build.absent}]:
        yield "as it is", f"{', '.join(present)} in {build.root}"
    if build.makes_sdk:
        yield "ROCm SDK", "made by the stack"
    elif not job.for_cpu():
        version = job.sdk.version or "the newest"
        yield "ROCm SDK", f"{version} of {job.sdk.source.index_url or ', '.join(job.sdk.source.find_links)}"
    yield from _takes(build)


def _takes(build: GpuBuild) -> Iterator[tuple[str, str]]:
    job, costs = build.job, build.stack.costs
    needed = preflight.first_build(job, job.checkouts, build.targets)
    fetched = [*(project.name for project in build.absent), *([] if job.for_cpu() else [preflight.SDK])]
    download = sum(costs[name].download for name in fetched if name in costs)
    if not costs:
        yield "takes", "nobody measured what this stack takes"
    if download:
        yield "download", f"about {console.size(download)}"
    if needed.disk:
        free = console.size(shutil.disk_usage(preflight.existing_folder(build.root)).free)
        yield "disk", f"about {console.size(needed.disk)}; {build.root} has {free} free"
    if needed.cpu_hours:
        yield "time", preflight.rough_time(job, needed.cpu_hours)


def run(build: GpuBuild, work_dir: Path) -> tuple[BuiltWheel, ...]:
    """Check out what is absent, install the SDK and build.

    Args:
        build: what `prepare` chose.
        work_dir: keeps the SDK that a stack makes itself.

    Raises:
        CairnError: of what failed; what is finished is kept.
    """
    if build.absent:
        names = ", ".join(project.name for project in build.absent)
        with console.current().stage(f"check out {names} of {build.stack.line}") as stage:
            requests = [
                CheckoutRequest(project=p, checkout_dir=build.root.absolute() / p.checkout_dir)
                for p in build.absent
            ]
            torch_dir = checkout_stack.find_torch_dir(build.stack, build.root.absolute())
            checkout_stack.checkout_stack(build.stack, requests, torch_dir=torch_dir, say=stage.update)
    job = build.job
    if build.makes_sdk:
        (job,) = build_jobs.check((job,))
        logs = job.environments() / "logs"
        staging.install_own_sdk(job, build.targets, work_dir, logs=logs)
        job = structs.replace(job, install_rocm=False)
    (wheels,) = build_jobs.run((job,))
    return wheels
