"""Build one project: its environment, its build backend, and the steps after it."""

from __future__ import annotations

import contextlib
import functools
import secrets
import shutil
import tempfile
import time
import zipfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from msgspec import structs

from cairn import files, isolation, platforms, venv
from cairn.build import backend, cache, environments, postprocess
from cairn.build.engine import compile_jobs
from cairn.build.engine.events import CacheStatistics
from cairn.build.engine.run import Running
from cairn.build.inputs import leftovers, machine, source_tree, variables
from cairn.build.model import BuildRequest, BuiltWheel
from cairn.build.plan import BuildStep, check_of, keys_of
from cairn.build.postprocess import Context
from cairn.errors import SourceError, WheelError
from cairn.output import console, wording
from cairn.rocm.install import available_libraries
from cairn.sources.git import lock
from cairn.sources.git.repository import Repository, root_at
from cairn.sources.hipify import build_step
from cairn.sources.manifest import manifest
from cairn.sources.worktree import journal
from cairn.wheels.sbom import Source

_SCRATCH = "wheel-"  # what the names of folders begin with in which a wheel is made


def build(
    step: BuildStep,
    request: BuildRequest,
    built: Mapping[str, BuiltWheel],
    stage: console.Stage,
    *,
    running: Running,
) -> tuple[cache.Hit, CacheStatistics | None, bool]:
    """Build one wheel and put it into the cache; return it, the counts of the compiler cache, and `edited`.

    Args:
        step: what to build.
        request: the build it is part of.
        built: the wheels of the projects before it.
        stage: shown to the user while it runs.
        running: the step as the engine runs it: its jobs, its log.

    Raises:
        BuildError: the environment or the build backend failed.
        OutOfMemoryError: likewise, and with fewer compile jobs it may do.
        PrerequisiteError: the machine has no compiler, and the stack needs one.
        WheelError: the wheel is not what was asked for.
    """
    started = time.monotonic()
    if request.sdk is None:
        machine.require_host_compiler(request.env_of(step.project))
    log = running.log or request.output_dir / "logs" / f"{step.project.name}.log"
    if running.attempt > 1:  # what the first attempt says is not what the second one fails of
        with contextlib.suppress(FileNotFoundError):
            log.replace(log.with_suffix(f".{running.attempt - 1}.log"))
    files.write_text(log, f"{isolation.level(network=request.has_network(step.project))}\n")
    request = structs.replace(request, jobs=running.jobs)
    work = request.place_of(step.project)
    work.mkdir(parents=True, exist_ok=True)
    content = backend.content_of(step, request, built)
    env = environments.ready(content, request.packages(), log=log, say=stage.update)
    context = backend.context_of(env, step, request, built, stage, log=log)
    waiting = functools.partial(stage.update, f"waiting for another run that uses {step.checkout}")
    with (
        lock.hold(step.checkout, on_wait=waiting),
        _scratch(work) as folder,
        running.makeflags(variables.path_of(context.env, context.values, request=request)) as makeflags,
    ):
        if makeflags is not None:
            path = compile_jobs.without_old_make(context.values["PATH"], work / "make")
            values = {**context.values, "makeflags": makeflags, "PATH": path}
            context = structs.replace(context, values=values)
        raw, statistics, sources, edited = _build_in_tree(context, folder / "raw")
        stage.update("repairing and verifying the wheel")
        wheel = postprocess.finish(raw, context, folder / "finished", sources=sources)
        hit = _keep(wheel, context, seconds=time.monotonic() - started, changed=edited)
    return hit, statistics, edited


def _keep(wheel: Path, context: Context, *, seconds: float, changed: bool) -> cache.Hit:
    """Put a wheel into the cache under the key of its step; the caller must have locked the checkout.

    Args:
        wheel: the finished wheel.
        context: of its build.
        seconds: what the build took.
        changed: whether the tree was edited since the build was planned.
    """
    step, request, wheel_cache = context.step, context.request, context.request.wheel_cache
    if changed:
        # No one knows which of the edits are in the wheel: it gets a key that no later build asks for.
        key = cache.key_of({"key": step.key, "once": secrets.token_hex()})
        console.current().warn(
            f"{step.checkout} was edited while it was built: its wheel is not kept for later"
        )
        return wheel_cache.put(key, wheel, seconds=seconds, private=True)
    hit = wheel_cache.put(
        step.key,
        wheel,
        seconds=seconds,
        project=step.project.name,
        inputs=step.inputs,
        log=context.log,
        replace=request.clean,
        private=step.private,
        check=check_of(step.project, request),
    )
    # The next run finds in the tree what this one left there: files that git does not ignore, and a build
    # folder to go on with. These are the build's own, so it is kept under the new key of the tree, too.
    unclean = structs.replace(request, clean=False)
    after = keys_of(unclean, step.project, checkout=step.checkout, needs=step.needs)
    if step.key not in after.in_lookup_order():
        wheel_cache.put(
            after.in_tree,
            hit.wheel,
            seconds=hit.entry.seconds,
            first_key=hit.entry.first_key,
            project=step.project.name,
            inputs={**after.inputs, source_tree.SOURCES: step.inputs.get(source_tree.SOURCES)},
            log=wheel_cache.log(hit.entry),
            private=True,
        )
    return hit


@contextlib.contextmanager
def _scratch(work: Path) -> Iterator[Path]:
    """Yield an empty folder for one build, without leftovers of killed ones; the checkout must be locked."""
    for abandoned in work.glob(f"{_SCRATCH}*"):
        shutil.rmtree(abandoned, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=work, prefix=_SCRATCH) as folder:
        yield Path(folder)


def _build_in_tree(
    context: Context, output_dir: Path
) -> tuple[Path, CacheStatistics | None, tuple[Source, ...], bool]:
    """Call the build backend in a tree that must not change meanwhile.

    Returns:
        The wheel, the statistics of the compiler cache, the commits that the tree stood on, and whether it
        was edited since the build was planned.

    Raises:
        SourceError: it is not what the manifest froze, or did not stay so.
    """
    step, request = context.step, context.request
    root, sources = root_at(step.checkout), step.project.source_dirs
    source_tree.tidy(step.checkout, step.project.rocm_init)
    keys = keys_of(request, step.project, checkout=step.checkout, needs=step.needs)
    if request.clean:
        leftovers.clear(root, sources)
    elif keys.cmake is not None:
        console.current().warn(
            f"{step.checkout / keys.cmake} was not made by Cairn, and the build will use its settings: "
            "pass --clean to start over"
        )
    if request.frozen is not None:
        manifest.require(request.frozen, step.project.name, step.checkout)
    heads, edits = source_tree.heads(step.checkout), source_tree.edits(step.checkout)
    commits = source_tree.sources_of(step.project, step.checkout)
    with leftovers.exchange(root, step.settings_digest, sources) as leftover, lend_module(context):
        for folder in {step.checkout, step.source_dir()}:
            _remove_stale(root, folder / "build", leftover.ours)
        recorded = build_step.recorded(step.checkout, step.project.hipify, gpu=request.sdk is not None)
        with source_tree.restore_egg_info(step.checkout), recorded:
            raw, statistics = backend.call(context, output_dir)
        leftover.wheel, leftover.source_dir = raw, step.source_dir().relative_to(step.checkout).as_posix()
        leftover.hipified = build_step.generated(step.checkout, step.project.hipify)
    with zipfile.ZipFile(raw) as archive:  # no key covers these (cairn.sources.worktree.contents)
        bytecode = next((name for name in archive.namelist() if "__pycache__" in name.split("/")), None)
    if bytecode is not None:
        raise WheelError(
            f"{raw.name} was built with {bytecode}, which is a cache of the Python that built it",
            tip="leave __pycache__ out of the project's package data",
        )
    # A project that hipifies itself may do so in place.
    edited = source_tree.edits(step.checkout) != edits and step.project.hipify != "at-build"
    edited = edited or source_tree.heads(step.checkout) != heads
    if edited and request.frozen is not None:
        raise SourceError(
            f"{step.checkout} was edited while it was built: it is not what the manifest froze any more",
            tip="run it again, in a work folder of its own",
        )
    return raw, statistics, commits, edited or step.key not in keys.in_lookup_order()


@contextlib.contextmanager
def lend_module(context: Context) -> Iterator[None]:
    """Put the module that loads the ROCm SDK into the tree, for a build that packs it."""
    module = module_of(context)
    if module is None:
        yield
        return
    with journal.lend(root_at(context.step.checkout), *module):
        yield


def module_of(context: Context) -> tuple[str, str] | None:
    """Return path and text of the module that loads the ROCm SDK; None for a build without one."""
    project, request = context.step.project, context.request
    if project.rocm_init is None or request.sdk is None:
        return None
    libraries = request.stack.sdk.preloads(platforms.here.stack_section()) if request.stack.sdk else ()
    preloads = available_libraries(venv.describe(request.sdk.environment).python, libraries)
    return project.rocm_init, source_tree.rocm_init_module(
        preloads=preloads, rocm_version=request.sdk.info.version
    )


def _remove_stale(root: Repository, folder: Path, ours: Collection[str]) -> None:
    """Remove files in a build folder that setuptools would pack even though their source is gone.

    Raises:
        SourceError: there are files that no build of ours left.
    """
    # setuptools copies into `lib*` and `bdist*`, and packs whatever lies there (its command/build_py.py).
    # A CMake build in the same folder keeps its libraries in `lib`: an hour's work, which setuptools ignores.
    stale = [*folder.glob("lib.*"), *folder.glob("bdist.*")]
    if not (folder / "CMakeCache.txt").exists():
        stale += folder.glob("lib")
    stale = [p for p in stale if p.is_dir() and not p.is_symlink()]
    untracked = [p for p in stale if not root.run("--literal-pathspecs", "ls-files", "--", str(p))]
    names = (file.relative_to(root.work_tree) for path in untracked for file in files.walk(path))
    foreign = sorted(f.as_posix() for f in names if f.as_posix() not in ours and "__pycache__" not in f.parts)
    if foreign:
        raise SourceError(
            f"{root.work_tree} has {wording.some(foreign)}, which setuptools would pack",
            tip="Cairn did not build that: move it away, or pass --clean, which empties `build`",
        )
    for path in untracked:
        shutil.rmtree(path)
