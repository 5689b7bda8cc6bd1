"""Building one project: its environment, its build backend, and what is done to the wheel afterwards."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import secrets
import shutil
import tempfile
import time
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import build as pypa_build

from cairn import files, process
from cairn.build import cache, environment, postprocess, rocm_init
from cairn.build.environment import Environment, PipSource
from cairn.build.inputs import leftovers, placeholders, source_tree, toolchain, variables
from cairn.build.log import causes, progress
from cairn.build.model import BuildRequest, BuiltWheel
from cairn.build.plan import Step, keys_of
from cairn.errors import BuildError, CairnError, ProcessError, SourceError, WheelError
from cairn.output import console, wording
from cairn.rocm.install import available_libraries
from cairn.sources.git.repository import Repository, root_at
from cairn.sources.hipify import build_step
from cairn.sources.worktree import lent, state

_TAIL = 12  # lines of a failed build that are shown


@dataclass(frozen=True, kw_only=True)
class _Run:
    """One step that is under way: what to build, what came before it, and where its output goes."""

    step: Step
    request: BuildRequest
    built: Mapping[str, BuiltWheel]
    stage: console.Stage
    log: Path
    work: Path


def build(
    step: Step, request: BuildRequest, built: Mapping[str, BuiltWheel], stage: console.Stage
) -> cache.Hit:
    """Build one wheel and put it into the cache.

    Args:
        step: what to build.
        request: the build it is part of.
        built: the wheels of the projects before it.
        stage: shown to the person while it runs.

    Raises:
        BuildError: the environment or the build backend failed.
        PrerequisiteError: the machine has no compiler, and the stack needs one.
        WheelError: the wheel is not what was asked for.
    """
    started = time.monotonic()
    if request.sdk is None:
        toolchain.require_host_compiler()
    name = step.project.name
    log = request.output_dir / "logs" / f"{name}.log"
    files.write_text(log, "")
    run = _Run(step=step, request=request, built=built, stage=stage, log=log, work=request.work_dir / name)
    env = _environment(run)
    values = _values(run) | {"environment": str(env.path)}
    waiting = functools.partial(stage.update, f"waiting for another run that uses {step.checkout}")
    with (
        state.alone(step.checkout, on_wait=waiting),
        tempfile.TemporaryDirectory(dir=run.work, prefix="wheel-") as folder,
    ):
        raw, changed = _built_in_tree(run, env, values, Path(folder, "raw"))
        stage.update("repairing and proving the wheel")
        context = postprocess.Context(step=step, request=request, env=env, values=values, built=built)
        wheel = postprocess.finish(raw, context, Path(folder, "finished"))
        # Where the tree was edited meanwhile, nobody knows what of it is in the wheel: it is not kept.
        key = cache.key_of({"key": step.key, "once": secrets.token_hex()}) if changed else step.key
        hit = cache.WheelCache(request.cache_dir).put(key, wheel, seconds=time.monotonic() - started)
        if changed:
            console.current().warn(
                f"{step.checkout} was edited while it was built: its wheel is not kept for later"
            )
        else:
            _keep_for_tree_as_built(step, request, hit)
    return hit


def _built_in_tree(
    run: _Run, env: Environment, values: Mapping[str, str], output_dir: Path
) -> tuple[Path, bool]:
    """The wheel that the backend made, and whether the tree was edited since the build was planned."""
    step, request = run.step, run.request
    root, sources = root_at(step.checkout), step.project.source_dirs
    source_tree.tidy(step.checkout, step.project.rocm_init)
    found = keys_of(request, step.project, checkout=step.checkout, needs=step.needs)
    if found.cmake is not None and not request.clean:
        console.current().warn(
            f"{step.checkout / found.cmake} is of a build that was not Cairn's, and its settings hold: "
            "pass --clean to begin anew"
        )
    if request.clean:
        leftovers.clear(root, sources)
    edits = source_tree.edits(step.checkout)
    with leftovers.kept(root, step.flavour, sources) as kept, _lent_module(run):
        for folder in {step.checkout, step.source_dir()}:
            _remove_stale(root, folder / "build", kept.ours)
        recorded = build_step.recorded(step.checkout, step.project.hipify, gpu=request.sdk is not None)
        with source_tree.egg_info_restored(step.checkout), recorded:
            raw = _call_backend(run, env, values, output_dir)
        kept.wheel, kept.source_dir = raw, step.source_dir().relative_to(step.checkout).as_posix()
    _refuse_caches(raw)
    # A project that hipifies itself may do so in place.
    edited = source_tree.edits(step.checkout) != edits and step.project.hipify != "at-build"
    return raw, edited or step.key not in found.all()


@contextlib.contextmanager
def _lent_module(run: _Run) -> Iterator[None]:
    """Have the module that loads the ROCm SDK in the tree, for a build that packs it."""
    project, request = run.step.project, run.request
    if project.rocm_init is None or request.sdk is None:
        yield
        return
    wanted = request.stack.sdk.preload if request.stack.sdk else ()
    preloads = available_libraries(environment.describe(request.sdk.environment).python, wanted)
    text = rocm_init.module_text(preloads=preloads, rocm_version=request.sdk.info.version)
    with lent.lent(root_at(run.step.checkout), project.rocm_init, text):
        yield


def _refuse_caches(wheel: Path) -> None:
    # The key does not cover these (cairn.sources.worktree.unseen).
    with zipfile.ZipFile(wheel) as archive:
        found = next((name for name in archive.namelist() if "__pycache__" in name.split("/")), None)
    if found is not None:
        raise WheelError(
            f"{wheel.name} was built with {found}, which is a cache of the Python that built it",
            tip="leave __pycache__ out of the project's package data",
        )


def _environment(run: _Run) -> Environment:
    run.stage.update("making its environment")
    env = environment.create(run.work / "env")
    if run.request.sdk is not None:
        environment.share(env, environment.describe(run.request.sdk.environment))
    project, pip = run.step.project, run.request.pip
    source = PipSource(
        index_url=pip.index_url,
        find_links=(*pip.find_links, str(run.request.output_dir)),
        cache_dir=pip.cache_dir,
    )
    siblings = [str(run.built[name].wheel) for name in run.step.needs]
    wanted = [*project.build_requires, *run.request.stack.extra_wheels, *siblings]
    if project.build_requires_file and (run.step.checkout / project.build_requires_file).exists():
        wanted += ["-r", str(run.step.checkout / project.build_requires_file)]
    environment.pip_install(env, wanted, source, log=run.log, on_line=run.stage.update)
    return env


def _values(run: _Run) -> dict[str, str]:
    values = variables.placeholder_values(
        run.request,
        base_version=run.step.base_version,
        built={name: wheel.version for name, wheel in run.built.items()},
        source_dir=run.step.source_dir(),
    )
    pins = variables.exact_requirements(run.step.project, values, request=run.request)
    return values | {"requirements": "|".join(pins)}


def _remove_stale(root: Repository, folder: Path, ours: Collection[str]) -> None:
    # setuptools adds whatever lies here to the wheel, also files that the tree has no longer. A CMake build
    # in the same folder keeps its libraries in `lib`: an hour's work, and none of setuptools' business.
    stale = [*folder.glob("lib.*"), *folder.glob("bdist.*")]
    if not (folder / "CMakeCache.txt").exists():
        stale += folder.glob("lib")
    stale = [p for p in stale if p.is_dir() and not p.is_symlink()]
    untracked = [p for p in stale if not root.run("--literal-pathspecs", "ls-files", "--", str(p))]
    found = (file.relative_to(root.work_tree) for path in untracked for file in files.walk(path))
    foreign = sorted(f.as_posix() for f in found if f.as_posix() not in ours and "__pycache__" not in f.parts)
    if foreign:
        raise SourceError(
            f"{root.work_tree} has {wording.some(foreign)}, which setuptools would pack",
            tip="no build of Cairn's made that: move it away, or pass --clean, which empties `build`",
        )
    for path in untracked:
        shutil.rmtree(path)


def _call_backend(run: _Run, env: Environment, values: Mapping[str, str], output_dir: Path) -> Path:
    project = run.step.project
    given = variables.build_variables(
        project, env, values, request=run.request, epoch=source_tree.commit_time(run.step.checkout)
    )

    def runner(
        cmd: Sequence[str], cwd: str | None = None, extra_environ: Mapping[str, str] | None = None
    ) -> None:
        process.run(
            cmd,
            cwd=Path(cwd) if cwd else None,
            env=given | dict(extra_environ or {}),
            log=run.log,
            on_line=advance,
        )

    def advance(line: str) -> None:
        run.stage.update(line, shown=progress.shown(line, run.stage.line))

    source_dir = run.step.source_dir()
    settings = placeholders.expand_all(
        project.config_settings, values, where=f"config_settings of {project.name}"
    )
    if run.request.sdk is None:  # no such module then, and scikit-build-core refuses to include none
        settings = {name: text for name, text in settings.items() if text != project.rocm_init}
    try:
        # Clang for HIP leaves an empty folder for every source it compiles: thousands, for torch.
        with environment.temporary_files() as places:
            given |= places
            # Also this reads pyproject.toml, and says what is wrong with it.
            builder = pypa_build.ProjectBuilder(source_dir, python_executable=str(env.python), runner=runner)
            return Path(builder.build("wheel", output_dir, dict(settings)))
    except (pypa_build.BuildException, pypa_build.BuildBackendException) as error:
        raise _failure(run, error) from error


def _failure(run: _Run, error: Exception) -> Exception:
    cause = getattr(error, "exception", None)
    # A full disk (OSError) is no fault of the project, and has its own exit code.
    if isinstance(cause, CairnError | OSError) and not isinstance(cause, ProcessError):
        return cause
    # Where no program failed, the log does not know what did.
    own = () if isinstance(cause, ProcessError) else (str(error),)
    tail = causes.tail(run.log, _TAIL)
    return BuildError(
        f"building {run.step.project.name} failed",
        log=run.log,
        tail=(*(line.text for line in tail), *own) or (str(error),),
        causes=causes.above(run.log, tail),
        tip="fix what the lines above name and run the same command again: finished wheels are kept",
    )


def _keep_for_tree_as_built(step: Step, request: BuildRequest, hit: cache.Hit) -> None:
    # The next run finds in the tree what this one left there: files that git does not ignore, and a build
    # folder to go on with. It must know that they are the build's own.
    after = keys_of(
        dataclasses.replace(request, clean=False), step.project, checkout=step.checkout, needs=step.needs
    )
    if step.key not in after.all():
        store = cache.WheelCache(request.cache_dir)
        store.put(after.own, hit.wheel, seconds=hit.seconds, identity=hit.identity)
