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
from pathlib import Path

import build as pypa_build

from cairn import files, process, venv
from cairn.build import cache, postprocess
from cairn.build.cached_wheel import check_of
from cairn.build.inputs import leftovers, source_tree, toolchain, variables
from cairn.build.log import causes, progress
from cairn.build.model import BuildRequest, BuiltWheel
from cairn.build.pip_install import pip_install
from cairn.build.plan import BuildStep, keys_of
from cairn.build.postprocess import Context
from cairn.errors import BuildError, CairnError, ProcessError, SourceError, WheelError
from cairn.output import Progress, console, wording
from cairn.rocm.install import available_libraries
from cairn.sources.git.repository import Repository, root_at
from cairn.sources.hipify import build_step
from cairn.sources.worktree import state
from cairn.venv import VirtualEnvironment

_TAIL = 12  # lines of a failed build that are shown


def build(
    step: BuildStep, request: BuildRequest, built: Mapping[str, BuiltWheel], stage: console.Stage
) -> cache.Hit:
    """Build one wheel and put it into the cache.

    Args:
        step: what to build.
        request: the build it is part of.
        built: the wheels of the projects before it.
        stage: shown to the user while it runs.

    Raises:
        BuildError: the environment or the build backend failed.
        PrerequisiteError: the machine has no compiler, and the stack needs one.
        WheelError: the wheel is not what was asked for.
    """
    started = time.monotonic()
    if request.sdk is None:
        toolchain.require_host_compiler()
    log = request.output_dir / "logs" / f"{step.project.name}.log"
    files.write_text(log, "")
    work = request.work_dir / step.project.name
    env = _environment(step, request, built, work / "env", log=log, say=stage.update)
    values = variables.placeholder_values(
        request,
        base_version=step.base_version,
        built={name: wheel.version for name, wheel in built.items()},
        source_dir=step.source_dir(),
    )
    pins = variables.exact_requirements(step.project, values, request=request)
    values |= {"requirements": "|".join(pins), "environment": str(env.path)}
    context = Context(step=step, request=request, built=built, env=env, values=values, stage=stage, log=log)
    waiting = functools.partial(stage.update, f"waiting for another run that uses {step.checkout}")
    with (
        state.alone(step.checkout, on_wait=waiting),
        tempfile.TemporaryDirectory(dir=work, prefix="wheel-") as folder,
    ):
        raw, changed = _build_in_tree(context, Path(folder, "raw"))
        stage.update("repairing and verifying the wheel")
        wheel = postprocess.finish(raw, context, Path(folder, "finished"))
        wheel_cache, seconds = request.wheel_cache, time.monotonic() - started
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
            log=log,
            replace=request.clean,
            private=step.private,
            check=check_of(step.project, request),
        )
        # The next run finds in the tree what this one left there: files that git does not ignore, and a build
        # folder to go on with. These are the build's own, so it is kept under the new key of the tree, too.
        unclean = dataclasses.replace(request, clean=False)
        after = keys_of(unclean, step.project, checkout=step.checkout, needs=step.needs)
        if step.key not in after.all():
            wheel_cache.put(
                after.own,
                hit.wheel,
                seconds=hit.seconds,
                identity=hit.identity,
                project=step.project.name,
                inputs=after.inputs,
                log=wheel_cache.log(hit.entry),
                private=True,
            )
    return hit


def _environment(
    step: BuildStep,
    request: BuildRequest,
    built: Mapping[str, BuiltWheel],
    folder: Path,
    *,
    log: Path,
    say: Progress,
) -> VirtualEnvironment:
    """A new environment with the project's build requirements, the SDK and the wheels it is built against."""
    say("making its environment")
    env = venv.create(folder, python=request.python.path)
    if request.sdk is not None:
        venv.share(env, venv.describe(request.sdk.environment))
    links = (*request.pip.find_links, str(request.output_dir))
    source = dataclasses.replace(request.pip, find_links=links)
    siblings = [str(built[name].wheel) for name in step.needs]
    wanted = [*step.project.build_requires, *request.stack.extra_wheels, *siblings]
    listed = step.project.build_requires_file
    if listed and (step.checkout / listed).exists():
        wanted += ["-r", str(step.checkout / listed)]
    pip_install(env, wanted, source, log=log, on_line=say)
    return env


def _build_in_tree(context: Context, output_dir: Path) -> tuple[Path, bool]:
    """The wheel that the backend made, and whether the tree was edited since the build was planned."""
    step, request = context.step, context.request
    root, sources = root_at(step.checkout), step.project.source_dirs
    source_tree.tidy(step.checkout, step.project.rocm_init)
    found = keys_of(request, step.project, checkout=step.checkout, needs=step.needs)
    if request.clean:
        leftovers.clear(root, sources)
    elif found.cmake is not None:
        console.current().warn(
            f"{step.checkout / found.cmake} was not made by Cairn, and the build will use its settings: "
            "pass --clean to start over"
        )
    edits = source_tree.edits(step.checkout)
    with leftovers.kept(root, step.flavour, sources) as kept, _lent_module(context):
        for folder in {step.checkout, step.source_dir()}:
            _remove_stale(root, folder / "build", kept.ours)
        recorded = build_step.recorded(step.checkout, step.project.hipify, gpu=request.sdk is not None)
        with source_tree.egg_info_restored(step.checkout), recorded:
            raw = _call_backend(context, output_dir)
        kept.wheel, kept.source_dir = raw, step.source_dir().relative_to(step.checkout).as_posix()
        kept.hipified = build_step.generated(step.checkout, step.project.hipify)
    with zipfile.ZipFile(raw) as archive:  # no key covers these (cairn.sources.worktree.unseen)
        bytecode = next((name for name in archive.namelist() if "__pycache__" in name.split("/")), None)
    if bytecode is not None:
        raise WheelError(
            f"{raw.name} was built with {bytecode}, which is a cache of the Python that built it",
            tip="leave __pycache__ out of the project's package data",
        )
    # A project that hipifies itself may do so in place.
    edited = source_tree.edits(step.checkout) != edits and step.project.hipify != "at-build"
    return raw, edited or step.key not in found.all()


@contextlib.contextmanager
def _lent_module(context: Context) -> Iterator[None]:
    """Have the module that loads the ROCm SDK in the tree, for a build that packs it."""
    project, request = context.step.project, context.request
    if project.rocm_init is None or request.sdk is None:
        yield
        return
    wanted = request.stack.sdk.preload if request.stack.sdk else ()
    preloads = available_libraries(venv.describe(request.sdk.environment).python, wanted)
    text = source_tree.rocm_init_module(preloads=preloads, rocm_version=request.sdk.info.version)
    with state.lent(root_at(context.step.checkout), project.rocm_init, text):
        yield


def _remove_stale(root: Repository, folder: Path, ours: Collection[str]) -> None:
    """Remove what setuptools left in a build folder and would add to the wheel, also without its source.

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
    found = (file.relative_to(root.work_tree) for path in untracked for file in files.walk(path))
    foreign = sorted(f.as_posix() for f in found if f.as_posix() not in ours and "__pycache__" not in f.parts)
    if foreign:
        raise SourceError(
            f"{root.work_tree} has {wording.some(foreign)}, which setuptools would pack",
            tip="Cairn did not build that: move it away, or pass --clean, which empties `build`",
        )
    for path in untracked:
        shutil.rmtree(path)


def _call_backend(context: Context, output_dir: Path) -> Path:
    """Call `build_wheel` of the project's backend (PEP 517) in its environment; the wheel that it made."""
    step, request, stage = context.step, context.request, context.stage
    given = variables.build_variables(
        step.project,
        context.env,
        context.values,
        request=request,
        epoch=source_tree.commit_time(step.checkout),
    )

    def advance(line: str) -> None:
        stage.update(line, shown=progress.shown(line, stage.line))

    def runner(
        cmd: Sequence[str], cwd: str | None = None, extra_environ: Mapping[str, str] | None = None
    ) -> None:
        variables_now = given | dict(extra_environ or {})
        process.run(cmd, cwd=Path(cwd) if cwd else None, env=variables_now, log=context.log, on_line=advance)

    settings = variables.expand_all(
        step.project.config_settings, context.values, where=f"config_settings of {step.project.name}"
    )
    if request.sdk is None:  # no such module then, and scikit-build-core refuses to include none
        settings = {name: text for name, text in settings.items() if text != step.project.rocm_init}
    try:
        # Clang for HIP leaves an empty folder for every source it compiles: thousands, for torch.
        with venv.temporary_files() as temporary:
            given |= temporary
            # The constructor reads pyproject.toml, and reports what is wrong with it.
            builder = pypa_build.ProjectBuilder(
                step.source_dir(), python_executable=str(context.env.python), runner=runner
            )
            return Path(builder.build("wheel", output_dir, dict(settings)))
    except (pypa_build.BuildException, pypa_build.BuildBackendException) as error:
        raise _failure(context, error) from error


def _failure(context: Context, error: Exception) -> Exception:
    cause = getattr(error, "exception", None)
    # A full disk (OSError) is not a fault of the project, and has its own exit code.
    if isinstance(cause, CairnError | OSError) and not isinstance(cause, ProcessError):
        return cause
    # Where no program failed, the log does not know what did.
    own = () if isinstance(cause, ProcessError) else (str(error),)
    tail = causes.tail(context.log, _TAIL)
    return BuildError(
        f"building {context.step.project.name} failed",
        log=context.log,
        tail=(*(line.text for line in tail), *own) or (str(error),),
        causes=causes.above(context.log, tail),
        tip="fix what the lines above name and run the same command again: finished wheels are kept",
    )
