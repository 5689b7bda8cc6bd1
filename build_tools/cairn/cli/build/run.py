"""`cairn build run`, which is `cairn build` too: the options of a build, its jobs, and the wheels built."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.build.build_options import CompileOptions, RunOptions
from cairn.cli import common_options as common
from cairn.cli.answer import Answer, Note, Piece, Table
from cairn.cli.binder import command
from cairn.errors import UsageError
from cairn.options import argument, fill, flag, option, part
from cairn.output import console
from cairn.output.wording import short_id

if TYPE_CHECKING:
    from cairn.build.cache import SharedCache
    from cairn.build.cache.entry import Vouch
    from cairn.build.model import BuiltWheel, Job
    from cairn.build.plan_graph import PlanGraph, PlannedStep


_LONGEST = 60  # characters of a value in a table of the plan; JSON has all
OF_STACK = "stack"
"""Stands for the Pythons that stack.toml names."""


@dataclass(frozen=True, kw_only=True)
class CacheOptions:
    """`--cache-store`, `--cache-read-only` and `--endpoint-url`."""

    cache_store: str | None = common.cache_store("none")
    cache_read_only: bool = flag("take wheels from it, and put none there")
    endpoint_url: str | None = common.endpoint_url()

    def shared_cache(self) -> SharedCache | None:
        """The cache that is named.

        Raises:
            UsageError: options of the cache are given, but no cache.
        """
        from cairn.build.cache import SharedCache

        if self.cache_store is None:
            if self.cache_read_only or self.endpoint_url:
                flag = "--cache-read-only" if self.cache_read_only else "--endpoint-url"
                raise UsageError(
                    f"{flag} is of a shared cache, and none is named", tip="name it: --cache-store URL"
                )
            return None
        return SharedCache(
            url=self.cache_store,
            endpoint_url=self.endpoint_url,
            read_only=self.cache_read_only,
            vouch=self._vouch(self.cache_store),
        )

    def _vouch(self, url: str) -> Vouch | None:
        """Whose wheels count there, where CAIRN_ROOT names a root."""
        from cairn.release.trust import anchor

        if not os.environ.get(anchor.VARIABLE):
            return None
        from cairn.pipeline.night import signed
        from cairn.release.trust.metadata import MetadataError
        from cairn.store import opening

        try:
            trusted = anchor.anchor(opening.open_store(url, endpoint_url=self.endpoint_url))
        except MetadataError as error:  # a cache need not have one itself
            tip = f"name a copy of the root: {anchor.VARIABLE}=root.json"
            raise UsageError(f"nobody says whose wheels count in {url}: {error}", tip=tip) from error
        return signed.vouch(trusted.root.trust() if trusted else None, None)


@dataclass(frozen=True, kw_only=True)
class DevelopOptions:
    """`--develop`, `--develop-env-dir`."""

    develop: str | None = option(
        "build this project in its checkout and install it from there, to be edited",
        convert=converters.nonempty,
        metavar="PROJECT|DIR",
    )
    develop_env_dir: Path | None = option(
        "virtual environment it is installed into, made where missing (default: one of Cairn's)",
        convert=converters.any_path,
        metavar="DIR",
    )


def develop(request: DevelopOptions, jobs: Sequence[Job]) -> list[Piece]:
    """Do what `--develop` asks for, of the job that the other options describe.

    Raises:
        UsageError: they describe several.
    """
    from msgspec import structs

    from cairn import extras

    extras.demand("build")  # which the module takes when it is loaded
    from cairn.build import develop

    if len(jobs) > 1:
        raise UsageError("--develop builds one variant in a checkout", tip="name one line, family and Python")
    (job,) = jobs
    # setuptools compiles every source of an extension again; the cache has those that were not edited.
    job = structs.replace(job, compiler_cache=job.compiler_cache or "ccache")
    folder = request.develop_env_dir
    installed = develop.run(job, request.develop or "", folder=folder and folder.absolute())
    return [
        f"{installed.project} is imported from {installed.checkout} by {installed.python}",
        Note("edit it there, and run the same command again: only what was edited is compiled"),
    ]


@dataclass(frozen=True, kw_only=True)
class Run(common.SdkOptions, CompileOptions, CacheOptions, DevelopOptions):
    """Options of `cairn build run`.

    With --gpu, what is not named is chosen: the newest release line, the projects that are needed, upstream's
    index of the ROCm SDK for that GPU; what has no checkout is checked out first. Of several lines, families
    or Pythons, each has a folder of its own below the output folder: LINE/FAMILY/PYTHON.

        cairn build run torch --gpu auto
    """

    projects: tuple[str, ...] = argument(
        "PROJECT",
        "with --gpu: what to build, with what it needs (default: all that users install)",
        nargs="*",
        completer=common.complete_projects,
    )
    gpu: str | None = option(
        'check out, install the ROCm SDK and build for this GPU: a product such as "RX 7900 XTX", a target '
        "such as gfx1100, auto for those of this machine, or cpu",
        convert=converters.nonempty,
        completer=common.complete_targets,
    )
    topology_dir: Path | None = common.topology_dir()
    stack: Path = common.stack(default=Path("pytorch"))
    line: str | None = common.line(f"{common.LINE_OF_CHECKOUTS}; with --gpu, the newest")
    install_rocm: bool = flag("install the ROCm SDK first")
    root_checkout_dir: Path | None = common.root_checkout_dir()
    output_dir: Path = common.output_dir(default=Path("wheels"))
    targets: str | None = common.targets("what the SDK serves")
    version_suffix: str | None = common.version_suffix()
    clean: bool = flag("build everything again")
    env_dir: Path | None = option("where environments are kept", convert=converters.new_folder)
    run: RunOptions = part(RunOptions)
    lines: tuple[str, ...] = option(
        "release lines, joined by commas; the checkouts of release/2.9 are in the folder release-2.9",
        convert=converters.words,
        default=(),
        completer=common.complete_lines,
    )
    families: tuple[str, ...] = option(
        "families or targets, joined by commas: wheels for each, not one for all as with --targets; "
        "{family} in --index-url and --find-links stands for each",
        convert=converters.words,
        default=(),
        completer=common.complete_targets,
    )
    pythons: tuple[str, ...] = option(
        f"interpreters, joined by commas: 3.12, a path, or {OF_STACK} for those of stack.toml "
        "(default: Cairn's own)",
        convert=converters.words,
        default=(),
    )
    offline: bool = common.offline()
    dry_run: bool = common.dry_run()
    explain: str | None = option(
        "with --dry-run: say of one step, such as vision, which of its inputs changed since its last wheel",
        convert=converters.nonempty,
        metavar="STEP",
    )


def jobs_of(request: Run) -> tuple[Job, ...]:
    """The job of each variant.

    Raises:
        UsageError: the options contradict each other, or name what does not exist.
        PrerequisiteError: the machine lacks a Python.
    """
    from cairn import interpreters
    from cairn import stack as stacks
    from cairn.build import variants

    job = job_of(request)
    if request.lines and request.line is not None:
        raise UsageError("--line and --lines exclude each other", tip="name all lines with --lines")
    pythons = request.pythons
    if pythons == (OF_STACK,) and not (pythons := job.stack.pythons):
        tip = "name them: --pythons 3.11,3.12; or in stack.toml"
        raise UsageError(f"the stack {job.stack.name} names no Pythons", tip=tip)
    axes = variants.Axes(
        lines=request.lines,
        families=request.families,
        pythons=interpreters.find_all(pythons),
    )
    return variants.expand(job, axes, root=request.root_checkout_dir or stacks.checkouts_folder(job.stack))


def job_of(request: Run) -> Job:
    """The job of a request, before it becomes one for each variant.

    Raises:
        UsageError: --resume without --clean.
    """
    from cairn import stack as stacks
    from cairn.build.model import Job

    if request.run.resume and not request.clean:
        raise UsageError(
            "--resume is for a run with --clean", tip="leave it out: finished wheels are always kept"
        )
    stack = stacks.load(request.stack)
    folder = request.root_checkout_dir or stacks.checkouts_folder(stack)
    return fill(
        Job,
        request,
        stack=stack,
        checkouts={p.name: folder / p.checkout_dir for p in stack.projects},
        sdk=request.sdk_request(),
        compiler_cache=request.compiler_cache,
        shared_cache=request.shared_cache(),
    )


def _run(request: Run) -> Answer | list[Piece]:
    from cairn.build import job, variants

    if request.gpu is not None:
        return _run_for_gpu(request, request.gpu)
    if request.projects:
        raise UsageError(
            f"{request.projects[0]} is built by itself with --gpu alone",
            tip=f"cairn build {request.projects[0]} --gpu auto",
        )
    jobs = jobs_of(request)
    if request.dry_run or request.explain:
        return _planned(jobs, request.explain)
    if request.develop:
        return develop(request, jobs)
    say_estimate(jobs)
    built = job.run(jobs)
    labels = variants.labels(jobs)
    return built_wheels(
        [wheel for wheels in built for wheel in wheels],
        [label for label, wheels in zip(labels, built, strict=True) for _ in wheels],
    )


def _planned(jobs: Sequence[Job], explain: str | None) -> Answer:
    """Make the answer about what a build would do; of one step in full, if `explain` names it.

    Raises:
        UsageError: there is no such step.
    """
    from cairn.build import job, plan_graph, variants

    graph = plan_graph.graph_of(job.plans_of(jobs), variants.labels(jobs))
    if explain is not None:
        step = graph.find(explain)
        return Answer(_plain(graph, step), _explanation(step), more={"inputs": dict(step.step.inputs)})
    rows = [
        (
            step.step.name,
            step.action,
            step.explanation.reason,
            None if step.seconds is None else console.clock(step.seconds),
        )
        for step in graph.steps
    ]
    return Answer(
        {"schema": "cairn.plan/1", "steps": [_plain(graph, step) for step in graph.steps]},
        [Table(("step", "action", "why", "last time"), rows)],
    )


def _explanation(step: PlannedStep) -> Iterator[Piece]:
    yield f"{step.step.name}: {step.action}, {step.explanation.reason}"
    last = step.explanation.last
    if last is not None:
        yield f"compared with {last.file_name}, built {last.built} (key {short_id(last.key)})"
    if differences := step.explanation.differences:
        rows = [(each.name, _cut(each.before or "-"), _cut(each.now or "-")) for each in differences]
        yield Table(("input", "was", "is"), rows)


def _plain(graph: PlanGraph, step: PlannedStep) -> dict[str, object]:
    last = step.explanation.last
    return {
        "step": step.step.name,
        "kind": step.step.kind,
        "project": step.step.project or None,
        "variant": step.variant or None,
        "needs": step.step.needs,
        "digest": graph.digest(step),
        "action": step.action,
        "why": step.explanation.reason,
        "key": step.key,
        "checkout": step.checkout or None,
        "seconds": step.seconds,
        "compared_with": last.key if last is not None else None,
        "differences": [
            {"input": each.name, "was": each.before, "is": each.now} for each in step.explanation.differences
        ],
    }


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def say_estimate(jobs: Sequence[Job]) -> None:
    """Print what builds take, as their stack estimates it."""
    from cairn.build import preflight

    if text := preflight.estimate(jobs):
        console.current().info(text)


def _run_for_gpu(request: Run, chosen: str) -> Answer:
    from cairn import extras, files, targets
    from cairn import stack as stacks
    from cairn.pipeline import gpu_build

    several = {"--targets": request.targets, "--lines": request.lines, "--families": request.families}
    several |= {"--pythons": request.pythons, "--develop": request.develop}
    if flags := [name for name, value in several.items() if value]:
        raise UsageError(f"--gpu and {flags[0]} exclude each other", tip="leave one of them out")
    stack = stacks.load(request.stack)
    # An index that is named is nobody's stream.
    stream = (
        None
        if request.index_url or request.find_links
        else request.stream or next(iter(targets.upstream_streams()))
    )
    build = gpu_build.prepare(
        job_of(request if stream is None else dataclasses.replace(request, stream=stream)),
        gpu_build.targets_of_gpus(chosen, request.topology_dir),
        request.projects,
        root=request.root_checkout_dir or stacks.checkouts_folder(stack),
    )
    if not request.dry_run:
        build, passed_over = gpu_build.choose_sdk(build, stream=stream)
        for text in passed_over:
            console.current().warn(f"passed over: {text}")
    takes = dict(gpu_build.say(build))
    if request.dry_run:
        return Answer(
            {"targets": build.targets, **takes}, [f"{word:<9} {text}" for word, text in takes.items()]
        )
    extras.demand("release" if build.makes_sdk else "build")  # before anything is checked out
    for word, text in takes.items():
        console.current().info(f"{word:<9} {text}")
    return built_wheels(gpu_build.run(build, files.cache_dir() / "sdks"))


def built_wheels(wheels: Sequence[BuiltWheel], variants: Sequence[str] = ()) -> Answer:
    """Make the answer about built wheels.

    Args:
        wheels: of all variants.
        variants: what tells them from each other, one for each wheel; none where there is one variant.
    """
    labels = [(name,) for name in variants] if any(variants) else [()] * len(wheels)
    plain = [
        {
            "project": w.project,
            "file": w.wheel,
            **({"devices": w.devices} if w.devices else {}),
            "version": w.version,
            "sha256": w.sha256,
            "targets": w.targets,
            "seconds": round(w.seconds, 2),
            "cached": w.cached,
            **({"variant": label[0]} if label else {}),
        }
        for w, label in zip(wheels, labels, strict=True)
    ]
    head = (*(("variant",) if any(variants) else ()), "wheel", "size", "targets", "sha256", "time")
    return Answer(plain, [Table(head, _rows(zip(wheels, labels, strict=True)))])


def _rows(wheels: Iterable[tuple[BuiltWheel, tuple[str, ...]]]) -> Iterator[tuple[str, ...]]:
    from cairn import files
    from cairn.wheels.contents import binaries

    for w, label in wheels:
        took = "cached" if w.cached else console.clock(w.seconds)
        size = console.size(w.wheel.stat().st_size)
        targets = "-" if w.devices else " ".join(w.targets) or "-"
        yield (*label, w.wheel.name, size, targets, w.sha256[:16], took)
        for device in w.devices:
            device_targets = " ".join(binaries.targets_of(device))
            size = console.size(device.stat().st_size)
            yield (*label, device.name, size, device_targets, files.sha256_of(device)[:16], "")


COMMANDS = {
    "run": command(Run, _run),
}
