"""The statistics of a compiler cache in one build, from the program's machine-readable output."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from cairn.build.engine.events import CacheStatistics

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


def of_ccache(log: Path) -> CacheStatistics:
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


def of_sccache(text: str) -> CacheStatistics:
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
