"""A project's build backend, called in its environment: what it sees, the compiler cache in front."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import build as pypa_build

from cairn import files, isolation, process
from cairn.build import cmake_check, downloads, environments
from cairn.build.compiler_cache import session
from cairn.build.engine.events import CacheStatistics
from cairn.build.engine.run import OutOfMemoryError
from cairn.build.environments import resolve
from cairn.build.inputs import source_tree, variables
from cairn.build.log import causes, progress
from cairn.build.model import BuildRequest, BuiltWheel
from cairn.build.plan import BuildStep, Plan
from cairn.build.postprocess import Context
from cairn.errors import BuildError, CairnError, ProblemsError, ProcessError
from cairn.output import console
from cairn.venv import VirtualEnvironment

_KILLED = (-9, 137)  # exit codes of what SIGKILL has ended, as Python and as a shell has them
_TAIL = 12  # lines of a failed build that are shown


def content_of(
    step: BuildStep, request: BuildRequest, built: Mapping[str, BuiltWheel]
) -> environments.Content:
    """The project's build requirements, the SDK and the wheels it is built against."""
    sdk = request.sdk
    return environments.Content(
        requirements=requirements_of(step, request),
        wheels=tuple(built[name].whole or built[name].wheel for name in step.needs),
        sdk=sdk.environment if sdk else None,
        sdk_digest=sdk.digest if sdk else None,
        python=request.python,
        what=step.project.name,
    )


def requirements_of(step: BuildStep, request: BuildRequest) -> tuple[str, ...]:
    """The build requirements of a project, besides the wheels of other projects."""
    requirements = [*step.project.build_requires, *request.stack.extra_wheels]
    listed = step.project.build_requires_file
    if listed and (step.checkout / listed).exists():
        requirements.append(f"-r {step.checkout / listed}")
    return tuple(requirements)


def require_resolvable(plans: Sequence[Plan]) -> None:
    """Resolve the build requirements of all steps that will run, and fetch what their builds would fetch.

    So nothing of this is found after the first has compiled for an hour.

    Raises:
        BuildError: those of one contradict each other, or no index has one of them.
        NetworkError: an index could not be reached.
        ProblemsError: several.
    """
    steps = [(step, plan.request) for plan in plans for step in plan.steps if step.hit is None]
    looked: set[tuple[tuple[str, ...], Path]] = set()
    problems: list[CairnError] = []
    for step, request in steps:
        requirements = (requirements_of(step, request), request.python.path)
        try:
            if requirements not in looked:
                looked.add(requirements)
                resolve.lock(
                    requirements[0], request.packages(), python=requirements[1], what=step.project.name
                )
            _fetch(step, request)
        except CairnError as error:
            problems.append(error)
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise ProblemsError(f"{len(problems)} problems, and nothing was built", problems=problems)


def _fetch(step: BuildStep, request: BuildRequest) -> None:
    for one in downloads.needed(request, step.project):
        with console.current().stage(f"fetch {one.name} for {step.project.name}") as stage:
            downloads.ready(one, say=stage.update, offline=request.pip.offline)


def context_of(
    step: BuildStep,
    request: BuildRequest,
    built: Mapping[str, BuiltWheel],
    stage: console.Stage,
    *,
    log: Path,
) -> Context:
    """The context of a step, with its environment made now and the values of stack.toml's placeholders."""
    content = content_of(step, request, built)
    env = environments.ready(content, request.packages(), log=log, say=stage.update)
    return context_in(env, step, request, built, stage, log=log)


def context_in(
    env: VirtualEnvironment,
    step: BuildStep,
    request: BuildRequest,
    built: Mapping[str, BuiltWheel],
    stage: console.Stage,
    *,
    log: Path,
) -> Context:
    """The context of a step in an environment that exists."""
    values = variables.placeholder_values(
        request,
        base_version=step.base_version,
        built={name: wheel.version for name, wheel in built.items()},
        source_dir=step.source_dir(),
    )
    pins = variables.exact_requirements(step.project, values, request=request)
    values |= {"requirements": "|".join(pins)}
    values |= {"environment": str(env.path), "site_packages": str(env.site_packages)}
    pinned = downloads.needed(request, step.project)
    ready = functools.partial(downloads.ready, say=stage.update, offline=request.pip.offline)
    values |= {f"download:{one.name}": str(ready(one)) for one in pinned}
    return Context(step=step, request=request, built=built, env=env, values=values, stage=stage, log=log)


@dataclass(frozen=True, kw_only=True)
class BackendResult:
    """The wheel that a backend made, and the counts of the compiler cache."""

    wheel: Path
    compiler_cache: CacheStatistics | None


@dataclass(kw_only=True)
class BuildRunner:
    """A build that may begin.

    Attributes:
        run: runs a program with the variables of the build, which writes into the log and on the screen.
        compiler_cache: the cache in use, whose statistics are there when the block has ended.
    """

    run: Callable[[Sequence[str], Path | None, Mapping[str, str]], None]
    compiler_cache: session.Session | None


def call(context: Context, output_dir: Path) -> BackendResult:
    """Call `build_wheel` of the project's backend (PEP 517) in its environment.

    Raises:
        BuildError: it failed, or CMake has found other settings than the stack asks for.
    """
    step, request = context.step, context.request
    settings = variables.expand_all(
        step.project.config_settings, context.values, where=f"config_settings of {step.project.name}"
    )
    if request.sdk is None:  # no such module then, and scikit-build-core refuses to include none
        settings = {name: text for name, text in settings.items() if text != step.project.rocm_init}
    with prepared(context, tree=step.checkout) as ready:

        def runner(
            cmd: Sequence[str], cwd: str | None = None, extra_environ: Mapping[str, str] | None = None
        ) -> None:
            ready.run(cmd, Path(cwd) if cwd else None, extra_environ or {})

        try:
            # The constructor reads pyproject.toml, and reports what is wrong with it.
            builder = pypa_build.ProjectBuilder(
                step.source_dir(), python_executable=str(context.env.python), runner=runner
            )
            wheel = Path(builder.build("wheel", output_dir, dict(settings)))
        except (pypa_build.BuildException, pypa_build.BuildBackendException) as error:
            raise failure(context, error) from error
    cache = ready.compiler_cache
    return BackendResult(wheel=wheel, compiler_cache=cache.statistics if cache else None)


@contextlib.contextmanager
def prepared(context: Context, *, tree: Path | None = None) -> Iterator[BuildRunner]:
    """Have everything that programs of a build see: variables, temporary files, the compiler cache.

    Args:
        context: the step.
        tree: the folder whose path no object is to know, so that a compiler cache has it for other folders,
            too; None where a debugger is to find the sources.
    """
    step, stage, began = context.step, context.stage, time.time()
    for name in step.project.empty_dirs:
        (step.checkout / name).mkdir(parents=True, exist_ok=True)

    def advance(line: str) -> None:
        watch.look()
        stage.update(line, shown=progress.shown(line, stage.line))

    def run(command: Sequence[str], cwd: Path | None, more: Mapping[str, str]) -> None:
        process.run(
            command,
            cwd=cwd,
            env=env | dict(more),
            log=context.log,
            on_line=advance,
            hidden=isolation.credential_files(),
        )

    source_dir = step.source_dir()
    watch = cmake_check.Watch(
        project=step.project.name,
        settings=variables.cmake_settings(step.project, context.values, request=context.request),
        homes=(step.checkout, source_dir),
        folders=(source_dir / "build",),
        log=context.log,
    )
    watch.look(now=True)
    # Clang for HIP leaves an empty folder for every source it compiles: thousands, for torch.
    with isolation.temporary_files() as temporary, isolation.own_home() as home:
        env = temporary | variables.build_variables(
            step.project,
            context.env,
            context.values,
            request=context.request,
            epoch=source_tree.commit_time(step.checkout),
            home=home,
        )
        env |= temporary
        watch.folders = (*watch.folders, Path(temporary["TMPDIR"]))
        with _compiler_cache(context, env, tree) as cache:
            env |= cache.variables if cache else {}
            try:
                yield BuildRunner(run=run, compiler_cache=cache)
                watch.look(now=True)
            finally:
                environments.give_back(context.env, step.project.name)
                compiled = cache is not None and _compiled([step.checkout, Path(temporary["TMPDIR"])], began)
    if cache is not None and cache.statistics is not None:
        cache.statistics = cache.statistics.judged(compiled=compiled)
        if cache.statistics.problem is not None:
            console.current().warn(f"{step.project.name}: {cache.statistics.problem}")


def _compiler_cache(
    context: Context, env: Mapping[str, str], tree: Path | None
) -> contextlib.AbstractContextManager[session.Session | None]:
    request = context.request
    if request.compiler_cache is None:
        return contextlib.nullcontext()
    cache_request = session.CacheRequest(
        program=request.compiler_cache,
        folder=request.launchers_of(context.step.project),
        environment=context.env,
        variables=env,
        sdk_root=request.sdk.info.root if request.sdk else None,
        source=request.pip,
        log=context.log,
        tree=tree,
    )
    return session.opened(cache_request, say=context.stage.update)


def _compiled(folders: Sequence[Path], since: float) -> bool:
    """Whether object files were written in one of the folders."""
    for folder in folders:
        for path in files.walk(folder):
            with contextlib.suppress(OSError):
                if path.suffix in (".o", ".obj") and path.lstat().st_mtime >= since:
                    return True
    return False


def failure(context: Context, error: Exception) -> Exception:
    """The error to raise for an error of a backend; a full disk is not a fault of the project."""
    cause = getattr(error, "exception", None)
    if isinstance(cause, CairnError | OSError) and not isinstance(cause, ProcessError):
        return cause
    # Where no program failed, the log does not know what did.
    own = () if isinstance(cause, ProcessError) else (str(error),)
    tail = causes.tail(context.log, _TAIL)
    killed = isinstance(cause, ProcessError) and cause.returncode in _KILLED
    short = killed or causes.out_of_memory(context.log) is not None
    why = ": a program was killed, or had no memory left" if short else ""
    return (OutOfMemoryError if short else BuildError)(
        f"building {context.step.project.name} failed{why}",
        log=context.log,
        tail=(*(line.text for line in tail), *own) or (str(error),),
        causes=causes.above(context.log, tail),
        tip="fix what the lines above name and run the same command again: finished wheels are kept",
    )
