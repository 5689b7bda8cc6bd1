"""Call a project's build backend in its environment, with its variables and the compiler cache.

CMake's settings are compared with those of the stack while it runs. CMake switches off, or on, what it
believes to be right for the machine, and says so in one line among thousands: a wheel without ROCm is noticed
after two hours, one with a library of the build machine (MPI, NUMA) later still. Its `CMakeCache.txt` is
written when it has configured, before the first file is compiled: looked for with each line that the build
writes, so it does not matter which program calls CMake.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import build as pypa_build

from cairn import files, isolation, process
from cairn.build import build_log, environments
from cairn.build.compiler_cache import session
from cairn.build.engine.events import CacheStatistics
from cairn.build.engine.run import OutOfMemoryError
from cairn.build.inputs import downloads, source_tree, variables
from cairn.build.model import BuildRequest, BuiltWheel
from cairn.build.plan import BuildStep, Plan
from cairn.build.postprocess import Context
from cairn.errors import BuildError, CairnError, ProblemsError, ProcessError
from cairn.output import console
from cairn.venv import VirtualEnvironment

_KILLED = (-9, 137)  # exit codes of what SIGKILL has ended, as Python and as a shell has them
_TAIL = 12  # lines of a failed build that are shown

_FILE = "CMakeCache.txt"
_DEEP = 3  # folders between that of the build and the file: `build/lib.linux-x86_64/x/CMakeCache.txt`
_SHARE = 20  # looking may take a 20th of the time: there are builds that write thousands of lines a second
# What `if()` takes for a constant (CMake's manual, "if", "Basic Expressions").
_TRUE = frozenset({"1", "ON", "YES", "TRUE", "Y"})
_FALSE = frozenset({"0", "OFF", "NO", "FALSE", "N", "IGNORE", "NOTFOUND", ""})


def content_of(
    step: BuildStep, request: BuildRequest, built: Mapping[str, BuiltWheel]
) -> environments.Content:
    """Return the content of a step's environment: build requirements, the SDK, wheels to build against."""
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
    """Return the build requirements of a project, without the wheels of other projects."""
    requirements = [*step.project.build_requires, *request.stack.extra_wheels]
    requires_file = step.project.build_requires_file
    if requires_file and (step.checkout / requires_file).exists():
        requirements.append(f"-r {step.checkout / requires_file}")
    return tuple(requirements)


def require_resolvable(plans: Sequence[Plan]) -> None:
    """Resolve the build requirements of all steps that will run, and fetch their downloads.

    This way such a failure does not come up only after the first step has compiled for an hour.

    Raises:
        BuildError: those of one contradict each other, or no index has one of them.
        NetworkError: an index could not be reached.
        ProblemsError: several.
    """
    steps = [step for plan in plans for step in plan if step.hit is None]
    looked: set[tuple[tuple[str, ...], Path]] = set()
    problems: list[CairnError] = []
    for step in steps:
        request = step.request
        requirements = (requirements_of(step, request), request.python.path)
        try:
            if requirements not in looked:
                looked.add(requirements)
                environments.resolve_requirements(
                    requirements[0], request.packages(), python=requirements[1], project=step.project.name
                )
            for pinned in downloads.needed_files(request, step.project):
                with console.current().stage(f"fetch {pinned.name} for {step.project.name}") as stage:
                    downloads.ready(pinned, say=stage.update, offline=request.pip.offline)
        except CairnError as error:
            problems.append(error)
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise ProblemsError(f"{len(problems)} problems, and nothing was built", problems=problems)


def context_of(
    env: VirtualEnvironment,
    step: BuildStep,
    request: BuildRequest,
    built: Mapping[str, BuiltWheel],
    stage: console.Stage,
    *,
    log: Path,
) -> Context:
    """Return the context of a step in an existing environment."""
    values = variables.placeholder_values(
        request,
        step.project,
        base_version=step.base_version,
        built={name: wheel.version for name, wheel in built.items()},
        source_dir=step.source_dir(),
    )
    pins = variables.exact_requirements(step.project, values, request=request)
    values |= {"requirements": "|".join(pins)}
    values |= {"environment": str(env.path), "site_packages": str(env.site_packages)}
    pinned = downloads.needed_files(request, step.project)
    ready = functools.partial(downloads.ready, say=stage.update, offline=request.pip.offline)
    values |= {f"download:{file.name}": str(ready(file)) for file in pinned}
    return Context(step=step, request=request, built=built, env=env, values=values, stage=stage, log=log)


@dataclass(kw_only=True)
class BuildRunner:
    """Runs the programs of one build.

    Attributes:
        run: runs a program with the variables of the build, its output in the log and on the screen; called
            as pypa/build calls its `runner`, with the command, its folder and further variables.
        compiler_cache: what the compiler cache counted, once the block has ended; None without one.
    """

    run: Callable[..., None]
    compiler_cache: CacheStatistics | None = None


def call(context: Context, output_dir: Path) -> tuple[Path, CacheStatistics | None]:
    """Call `build_wheel` of the project's backend (PEP 517) in its environment.

    Returns:
        The wheel, and the statistics of the compiler cache.

    Raises:
        BuildError: it failed, or CMake has found other settings than the stack asks for.
    """
    step, request = context.step, context.request
    settings = variables.expand_all(
        step.project.config_settings, context.values, where=f"config_settings of {step.project.name}"
    )
    if request.sdk is None:  # no such module then, and scikit-build-core refuses to include none
        settings = {name: text for name, text in settings.items() if text != step.project.rocm_init}
    with prepare(context, [output_dir], tree=step.checkout) as ready:
        try:
            # The constructor reads pyproject.toml, and reports what is wrong with it.
            builder = pypa_build.ProjectBuilder(
                step.source_dir(), python_executable=str(context.env.python), runner=ready.run
            )
            wheel = Path(builder.build("wheel", output_dir, dict(settings)))
        except (pypa_build.BuildException, pypa_build.BuildBackendException) as error:
            raise failure(context, error) from error
    return wheel, ready.compiler_cache


@contextlib.contextmanager
def prepare(context: Context, writes: Sequence[Path], tree: Path | None = None) -> Iterator[BuildRunner]:
    """Set up what programs of a build see: variables, temporary files, the compiler cache.

    Args:
        context: the step.
        writes: folders that they write to besides the checkout.
        tree: the folder whose path no object has, for a compiler cache; None where a debugger needs it.
    """
    step, stage, began = context.step, context.stage, time.time()
    for name in step.project.empty_dirs:
        (step.checkout / name).mkdir(parents=True, exist_ok=True)

    def advance(line: str) -> None:
        watch.look()
        stage.update(line, shown=build_log.progress_line(line, stage.line))

    def run(
        cmd: Sequence[str], cwd: str | None = None, extra_environ: Mapping[str, str] | None = None
    ) -> None:
        process.run(
            cmd,
            cwd=Path(cwd) if cwd else None,
            env=env | dict(extra_environ or {}),
            log=context.log,
            on_line=advance,
            reads=cache.reads if cache else (),
            writes=(step.checkout, *writes, Path(cmd[-1]).absolute()),  # the last is pypa/build's answer
            network=context.request.has_network(step.project),
        )

    source_dir = step.source_dir()
    watch = CMakeWatch(
        project=step.project.name,
        settings=variables.cmake_settings(step.project, context.values, request=context.request),
        homes=(step.checkout, source_dir),
        folders=(source_dir / "build",),
        log=context.log,
    )
    watch.look(now=True)
    runner = BuildRunner(run=run)
    # Clang for HIP leaves an empty folder for every source it compiles: thousands, for torch.
    with isolation.temporary_files() as temporary, isolation.own_home() as home:
        epoch = source_tree.commit_time(step.checkout)
        env = variables.build_variables(
            step.project, context.env, context.values, request=context.request, epoch=epoch, home=home
        )
        env |= temporary
        watch.folders = (*watch.folders, Path(temporary["TMPDIR"]))
        with _compiler_cache(context, env, (step.checkout, *writes), tree) as cache:
            env |= cache.variables if cache else {}
            try:
                yield runner
                watch.look(now=True)
            finally:
                environments.give_back(context.env, step.project.name)
                compiled = cache is not None and _compiled([step.checkout, Path(temporary["TMPDIR"])], began)
    if cache is not None and cache.statistics is not None:
        runner.compiler_cache = counted = cache.statistics.judge(compiled=compiled)
        if counted.problem is not None:
            console.current().warn(f"{step.project.name}: {counted.problem}")


def _compiler_cache(
    context: Context, env: Mapping[str, str], writes: tuple[Path, ...], tree: Path | None
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
        writes=writes,
        tree=tree,
    )
    return session.open_session(cache_request, say=context.stage.update)


def _compiled(folders: Sequence[Path], since: float) -> bool:
    """Whether object files were written in one of the folders since a moment."""
    for folder in folders:
        for path in files.walk(folder):
            with contextlib.suppress(OSError):
                if path.suffix in (".o", ".obj") and path.lstat().st_mtime >= since:
                    return True
    return False


def failure(context: Context, error: Exception) -> Exception:
    """Return the error to raise for a failed backend; a full disk is not a fault of the project."""
    cause = getattr(error, "exception", None)
    if isinstance(cause, CairnError | OSError) and not isinstance(cause, ProcessError):
        return cause
    # Where no program failed, the log does not know what did.
    message = () if isinstance(cause, ProcessError) else (str(error),)
    tail = build_log.tail(context.log, _TAIL)
    killed = isinstance(cause, ProcessError) and cause.returncode in _KILLED
    short = killed or build_log.out_of_memory(context.log) is not None
    why = ": a program was killed, or had no memory left" if short else ""
    return (OutOfMemoryError if short else BuildError)(
        f"building {context.step.project.name} failed{why}",
        log=context.log,
        tail=(*(text for _, text in tail), *message) or (str(error),),
        causes=build_log.above(context.log, tail),
        tip="fix what the lines above name and run the same command again: finished wheels are kept",
    )


@dataclass(kw_only=True)
class CMakeWatch:
    """Checks the CMakeCache.txt files of one build.

    Attributes:
        project: its name, for messages.
        settings: name of a cache entry to its value.
        homes: the folders whose CMakeLists.txt is the project's own; others are of what it contains.
        folders: where build folders appear.
        log: of the build.
    """

    project: str
    settings: Mapping[str, str]
    homes: Sequence[Path]
    folders: Sequence[Path]
    log: Path
    _seen: dict[Path, tuple[int, int]] = field(default_factory=dict)
    _next: float = 0.0
    _unknown: set[str] = field(default_factory=set)

    def look(self, *, now: bool = False) -> None:
        """Check new or changed CMakeCache.txt files; cheap enough to be called for each line of output.

        Raises:
            BuildError: CMake has other settings than the stack asks for.
        """
        began = time.monotonic()
        if not self.settings or (not now and began < self._next):
            return
        for path in (path for folder in self.folders for path in _below(folder, _DEEP)):
            with contextlib.suppress(OSError):  # it was removed meanwhile, as builds do
                info = path.stat()
                if self._seen.get(path) != (info.st_mtime_ns, info.st_size):
                    self._seen[path] = (info.st_mtime_ns, info.st_size)
                    self._compare(path)
        # No fixed pause: after the line that follows a configure there may be no other for a long time.
        self._next = began + _SHARE * (time.monotonic() - began)

    def _compare(self, path: Path) -> None:
        entries = read_cmake_cache(path)
        # A program in a folder that a link leads to knows the folder by its own path.
        if os.path.realpath(entries.get("CMAKE_HOME_DIRECTORY", "")) not in map(os.path.realpath, self.homes):
            return
        unknown = sorted(self.settings.keys() - entries.keys() - self._unknown)
        if unknown:
            self._unknown |= set(unknown)
            console.current().warn(f"{self.project}: its CMake knows no {', '.join(unknown)}")
        differences = [
            f"{name} is {entries[name] or 'empty'}, and {value} was asked"
            for name, value in sorted(self.settings.items())
            if name in entries and not means_the_same(entries[name], value)
        ]
        if differences:
            raise BuildError(
                f"CMake has configured {self.project} differently: {'; '.join(differences)}",
                log=self.log,
                tip="the log says why CMake chose so; `--clean` forgets what an earlier build had chosen",
            )


def read_cmake_cache(path: Path) -> dict[str, str]:
    """Read the entries of a CMakeCache.txt: lines of `NAME:TYPE=VALUE`."""
    entries = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        left, sign, value = line.partition("=")
        name, colon, _ = left.rpartition(":")
        if sign and colon and not line.startswith(("//", "#")):
            entries[name.strip('"')] = value
    return entries


def means_the_same(text: str, expected: str) -> bool:
    """Whether two values are equal to CMake: all words for true are equal, and so are those for false."""
    return _meaning(text) == _meaning(expected)


def _meaning(value: str) -> str:
    upper = value.upper()
    if upper in _TRUE:
        return "ON"
    return "OFF" if upper in _FALSE or upper.endswith("-NOTFOUND") else value


def _below(folder: Path, deep: int) -> Iterator[Path]:
    try:
        with os.scandir(folder) as listing:
            entries = list(listing)
    except OSError:  # it is not there yet, or just gone
        return
    for entry in entries:
        if entry.name == _FILE:
            yield Path(entry.path)
        # CMake's own trials have caches below CMakeFiles.
        elif deep and entry.name != "CMakeFiles" and entry.is_dir(follow_symlinks=False):
            yield from _below(Path(entry.path), deep - 1)
