"""The environments that builds run in: one for each distinct content, shared, and checked before reuse.

uv resolves build requirements to exact files before anything is installed or compiled: it needs metadata
alone, and a fraction of a second where pip needs several. It asks the indexes that the user's pip is set up
for (`cairn.package_index`), and then installs just these files.

The name of an environment's folder is a digest of all that is in it: the interpreter, these files, the wheels
that are built against, and the ROCm SDK. A note is written into it last, with what it holds: an environment
without one is half made, and one that differs from its note (a build has installed something into it, or
files are gone) is made again: in its place, or beside it while a build runs in it.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import os
import re
import shutil
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import msgspec
from packaging.utils import parse_wheel_filename

from cairn import datafile, files, interpreters, isolation, package_index, process, venv
from cairn.build import build_log, cache
from cairn.build.cache import in_use
from cairn.errors import BuildError, NetworkError, SystemFailureError, UsageError
from cairn.interpreters import Interpreter
from cairn.output import Progress, console
from cairn.venv import PackageSource, VirtualEnvironment

_NOTE = "cairn-environment.json"
_OF_DEVELOPER = "cairn-develop"  # in a developer's environment: the digest of what was installed
KEPT = dt.timedelta(days=30)
_FORMAT = 1  # part of every name: raise it when an environment of the same content is made differently
_WAIT = 3600.0  # seconds that another run may take to make one
_BUILD_WAIT = 12 * 3600.0  # and to build in it
_TIMEOUT = 900.0  # seconds; an sdist without metadata has to be built to be asked
_LINES = 12  # of uv's last words that are shown
_OWN_INDEX = (
    "name the index that has this build of it, such as https://download.pytorch.org/whl/cpu for the "
    "+cpu builds of PyTorch, in the variable PIP_EXTRA_INDEX_URL"
)
# PyPI takes no local versions (PEP 440): those are on an index of their project's own.
_LOCAL_VERSION = re.compile(r"require \S+==[^\s,]*\+|no version of \S+==[^\s,]*\+")
_FILE = "-r "  # begins a line that names a requirements file
_NETWORK_SIGNS = re.compile(
    r"error sending request|[Ff]ailed to fetch|client error \(Connect\)|dns error"
    r"|[Nn]etwork (?:connectivity is|was) disabled"
)


class _Note(datafile.Value, tag_field="schema", tag="cairn.build-environment/1"):
    """The content of an environment when it was made, and a digest of its files then."""

    requirements: tuple[str, ...]
    inventory: str


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """The content of an environment.

    Attributes:
        requirements: lines of a requirements file.
        wheels: files that are installed too, the wheels that are built against.
        sdk: the environment of the ROCm SDK, imported from there; None without one.
        sdk_digest: of what is installed in it.
        python: the interpreter.
        what: it is for, in messages: the name of a project or a tool.
    """

    requirements: tuple[str, ...]
    wheels: tuple[Path, ...] = ()
    sdk: Path | None = None
    sdk_digest: str | None = None
    python: Interpreter = msgspec.field(default_factory=interpreters.current)
    what: str


def root() -> Path:
    """The folder of all environments.

    As it is called without links: programs in an environment name it, and caches may share one by a link.
    """
    return (files.cache_dir() / "build-envs").resolve()


def ready(content: Content, source: PackageSource, *, log: Path, say: Progress) -> VirtualEnvironment:
    """Return the environment with this content, made now if there is none.

    Args:
        content: what it holds.
        source: where uv finds it.
        log: receives uv's output.
        say: called with a line of progress.

    Raises:
        BuildError: the requirements contradict each other, or a file cannot be installed.
        NetworkError: an index could not be reached.
    """
    locked = _lock(content, source, say=say)
    name = _digest(content, locked)[:20]
    for number in itertools.count():
        env = venv.describe(root() / (f"{name}-{number}" if number else name))
        with files.locked(
            env.path.with_suffix(".lock"),
            timeout=_WAIT,
            on_wait=lambda: say("waiting for another run to make it"),
        ):
            note = _read(env)
            if note is None or not env.python.exists() or note.inventory != _inventory(env):
                if env.path.name in _used():
                    continue  # a build still runs in it, and must not lose its files: the next one is free
                trim(KEPT)
                say("making its environment")
                venv.create(env.path, python=content.python.path)
                _fill(env, content, locked, source, log=log, say=say)
                note = _Note(requirements=_pins(locked), inventory=_inventory(env))
                datafile.write(env.path / _NOTE, note)
            os.utime(env.path / _NOTE)  # its last use, for `trim`
            with _uses():
                in_use.note(root(), env.path.name)
            break
    return env


@contextlib.contextmanager
def at(
    path: Path, content: Content, source: PackageSource, *, log: Path, say: Progress
) -> Iterator[VirtualEnvironment]:
    """Install this content into a developer's environment, and keep other runs from it for the block.

    Everything else in it stays.

    Args:
        path: its folder; it is made where it is missing.
        content: what it must hold.
        source: as for `ready`.
        log: likewise.
        say: likewise.
    """
    locked = _lock(content, source, say=say)
    env, note = venv.describe(path), path / _OF_DEVELOPER
    with files.locked(
        path.with_name(f".{path.name}.lock"),
        timeout=_BUILD_WAIT,
        on_wait=lambda: say("waiting for another run that builds in it"),
    ):
        digest = _digest(content, locked)
        if not env.python.exists():
            say("making its environment")
            venv.create(path, python=content.python.path)
        if not note.is_file() or note.read_bytes() != digest.encode():
            note.unlink(missing_ok=True)
            _fill(env, content, locked, source, log=log, say=say)
            files.write_text(note, digest)
        yield env


def give_back(env: VirtualEnvironment, project: str) -> None:
    """Check an environment after a build: one that the build has changed is not used again."""
    with _uses():
        in_use.forget(root(), env.path.name)
    note = _read(env)
    if note is not None and note.inventory != _inventory(env):
        console.current().warn(
            f"the build of {project} has changed its environment: the next build gets a new one"
        )
        (env.path / _NOTE).unlink(missing_ok=True)


def trim(unused: dt.timedelta) -> tuple[Path, ...]:
    """Remove the environments that no build has used for this long; return those that were removed."""
    removed = []
    for folder in sorted(path for path in root().glob("[!.]*") if path.is_dir()):
        note = folder / _NOTE
        # A lock file is written when it is taken: one without a note may be under way.
        used = max(
            (p.stat().st_mtime for p in (note, folder.with_suffix(".lock")) if p.exists()), default=0.0
        )
        if time.time() - used > unused.total_seconds():
            with (
                contextlib.suppress(SystemFailureError),
                files.locked(folder.with_suffix(".lock"), timeout=0.1),
            ):
                if folder.name not in _used():
                    shutil.rmtree(folder, ignore_errors=True)
                    removed.append(folder)
    return tuple(removed)


def _used() -> frozenset[str]:
    """Return the names of environments in use by builds, those of this process included."""
    with _uses():
        return in_use.keys(root())


def _uses() -> contextlib.AbstractContextManager[None]:
    return files.locked(root() / ".in-use.lock")


def _lock(content: Content, source: PackageSource, *, say: Progress) -> str:
    say("resolving its build requirements")
    by_name = ((parse_wheel_filename(wheel.name)[0], wheel.absolute()) for wheel in content.wheels)
    wheels = [f"{name} @ {wheel.as_uri()}" for name, wheel in by_name]
    return resolve_requirements(
        [*content.requirements, *wheels],
        source,
        python=content.python.path,
        provided=venv.installed_names(venv.describe(content.sdk)) if content.sdk else (),
        project=content.what,
    )


def _fill(
    env: VirtualEnvironment,
    content: Content,
    locked: str,
    source: PackageSource,
    *,
    log: Path,
    say: Progress,
) -> None:
    if content.sdk is not None:
        venv.share(env, venv.describe(content.sdk))
    if locked:
        requirements = env.path / "requirements.txt"
        requirements.write_text(locked, encoding="utf-8")
        # uv checks the hashes: what is installed is what the name of the folder stands for.
        words = ["--require-hashes", "--no-deps", "-r", str(requirements)]
        subject, reads = _subject(content.what), content.wheels
        install(env, words, source, subject=subject, log=log, on_line=say, reads=reads)


def _pins(locked: str) -> tuple[str, ...]:
    """Return the requirements of a requirements file without their hashes."""
    lines = (line.split(" \\")[0].strip() for line in locked.splitlines())
    return tuple(line for line in lines if line and not line.startswith(("#", "--")))


def _read(env: VirtualEnvironment) -> _Note | None:
    try:
        return datafile.read(env.path / _NOTE, _Note)
    except (UsageError, OSError):
        return None


def _inventory(env: VirtualEnvironment) -> str:
    return files.inventory(env.path, env.sites[0], env.bin)


def _digest(content: Content, locked: str) -> str:
    return cache.key_of(
        {
            "format": _FORMAT,
            "python": [
                os.path.realpath(content.python.path),
                content.python.release,
                content.python.platform,
            ],
            # Without where its wheels lie: their bytes are in the digest.
            "requirements": [line.partition(" @ file:")[0] for line in locked.splitlines()],
            "wheels": [files.sha256_of(wheel) for wheel in content.wheels],
            "sdk": [str(content.sdk), content.sdk_digest],
        }
    )


def resolve_requirements(
    requirements: Sequence[str],
    source: PackageSource,
    *,
    python: Path,
    provided: Collection[str] = (),
    project: str,
) -> str:
    """Resolve requirements to exact ones with hashes, as a requirements file; empty for none.

    Args:
        requirements: lines of a requirements file; a wheel is `name @ file:///…`.
        source: where files are looked for, besides the user's own index.
        python: the interpreter they are for.
        provided: names of distributions that are there already, elsewhere: nothing of them is resolved.
        project: they are for, in an error.

    Raises:
        BuildError: they contradict each other, or no index has one of them.
        NetworkError: an index is out of reach.
    """
    if not requirements:
        return ""
    # As arguments: within a requirements file ` #` ends a path, and `${HOME}` is replaced.
    lines = [line for line in requirements if not line.startswith(_FILE)]
    words = ["compile", "-", "--quiet", "--no-header", "--no-annotate", "--generate-hashes"]
    words += [line.removeprefix(_FILE) for line in requirements if line.startswith(_FILE)]
    with tempfile.TemporaryDirectory(prefix="cairn-resolve-") as folder:
        excluded = Path(folder, "excluded.txt")
        excluded.write_text("".join(f"{name}\n" for name in provided), encoding="utf-8")
        words += ["--excludes", str(excluded)]
        subject, failure = _subject(project), f"met: {' '.join(requirements)}"
        stdin = "\n".join(lines).encode()
        return _run_uv(words, source, python=python, subject=subject, failure=failure, stdin=stdin)


def install(  # noqa: PLR0913 - each is one independent property of the run
    environment: venv.VirtualEnvironment,
    requirements: Sequence[str],
    source: venv.PackageSource,
    *,
    subject: str,
    log: Path,
    on_line: Progress | None = None,
    reads: Sequence[Path] = (),
) -> None:
    """Install requirements into an environment, and what they require.

    Args:
        environment: where to.
        requirements: options of `uv pip install` may be among them; with none, nothing is run.
        source: where files are looked for, besides the user's own index.
        subject: the requirements as a phrase, which begins the message of an error.
        log: receives uv's output.
        on_line: called with each line of it.
        reads: files that a requirements file names.

    Raises:
        BuildError: uv refused; its last lines are in the error.
        NetworkError: an index could not be reached, or must not be.
    """
    if not requirements:
        return
    # It copies, since a program that changed a file linked to uv's cache would change every environment.
    _run_uv(
        ["install", "--link-mode", "copy", *requirements],
        source,
        python=environment.python,
        subject=subject,
        failure="installed",
        log=log,
        on_line=on_line,
        reads=reads,
        writes=[environment.path],
    )


def _run_uv(  # noqa: PLR0913 - each is one independent property of the run
    words: Sequence[str],
    source: PackageSource,
    *,
    python: Path,
    subject: str,
    failure: str,
    stdin: bytes | None = None,
    log: Path | None = None,
    on_line: Progress | None = None,
    reads: Sequence[Path] = (),
    writes: Sequence[Path] = (),
) -> str:
    """Run `uv pip WORDS` for an interpreter, with the indexes of the user's pip and of `source`."""
    settings = package_index.read_pip_settings()
    command = [venv.uv_program(), "pip", *words, "--no-config", "--python", str(python)]
    command += ["--no-python-downloads", *settings.uv_options(), *_options(source)]
    hosts = (*settings.addresses(), *filter(None, (source.index_url, *source.find_links)))
    with isolation.own_home(*hosts) as home:
        result = process.run(
            command,
            env=settings.uv_environment(home),
            stdin=stdin,
            log=log,
            on_line=on_line,
            timeout=_TIMEOUT,
            check=False,
            separate_stderr=True,
            reads=reads,
            writes=writes,
            network=True,
        )
    if result.returncode == 0:
        return result.output
    lines = process.tail(result.stderr)
    if _NETWORK_SIGNS.search(result.stderr):
        check = "leave --offline out once, so that they are kept" if source.offline else "check the network"
        raise NetworkError(
            f"{subject} cannot be fetched: {' '.join(lines[-_LINES:])[-400:]}",
            tip=f"{check}; --find-links names a folder that has them",
        )
    raise BuildError(
        f"{subject} cannot be {failure}",
        log=log,
        tail=lines[-_LINES:],
        # Where uv has built an sdist, the reason is far above its own last words.
        causes=build_log.above(log, build_log.tail(log, len(lines))) if log else (),
        tip=_OWN_INDEX if _LOCAL_VERSION.search(result.stderr) else "see what uv says above",
    )


def _subject(project: str) -> str:
    return f"the build requirements of {project}"


def _options(source: PackageSource) -> list[str]:
    words = ["--no-index"] if source.no_index else []
    words += ["--offline"] if source.offline else []  # uv then goes by the pages of indexes in its cache
    if source.index_url:
        words += ["--default-index", source.index_url]
    for link in source.find_links:
        # uv refuses a folder that does not exist, which pip only warns of, and splits a path at its commas.
        if "://" in link:
            words += ["--find-links", link]
        elif Path(link).is_dir():
            words += ["--find-links", Path(link).absolute().as_uri()]
    return [*words, "--prerelease", "allow"] if source.pre else words
