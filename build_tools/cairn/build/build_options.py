"""The options of builds; light, since a parser is also made for `--help`."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

from cairn import converters
from cairn.errors import UsageError
from cairn.options import flag, option, repeated, switch

if TYPE_CHECKING:
    from datetime import timedelta

T = TypeVar("T")

CompilerCache = Literal["ccache", "sccache"]
"""Programs that are put in front of the compilers (CMake's `<LANG>_COMPILER_LAUNCHER`)."""

_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhd]?)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_MOST_SECONDS = 1e9


def size(text: str) -> int:
    """Bytes from a text such as `20GB`."""
    from cairn.build.cache.trim import parse_size

    return _read(parse_size, text)


def age(text: str) -> timedelta:
    """A time from a text such as `30d`."""
    from cairn.build.cache.trim import parse_age

    return _read(parse_age, text)


def _memory(text: str) -> int:
    if (amount := size(text)) <= 0:
        raise ArgumentTypeError(f"{text[:40]!r} is not an amount of memory")
    return amount


def _duration(text: str) -> float:
    match = _DURATION.fullmatch(text.strip())
    seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if not 0 < seconds < _MOST_SECONDS:
        raise ArgumentTypeError(f"{text[:40]!r} is not a time: write 90m, 6h or 45s")
    return seconds


def _read(read: Callable[[str], T], text: str) -> T:
    try:
        return read(text)
    except UsageError as error:
        raise ArgumentTypeError(f"{error}; {error.tip}") from error


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How the steps of a build are run; none of it changes a wheel.

    Attributes:
        keep_going: after a failure, go on with what does not need the failed project.
        resume: do not build again, even with `clean`, what the last run finished before it was ended.
        time_limit: seconds that each project may take; None for as long as it takes.
        max_memory: bytes that all compilers together may use; None for what is free.
    """

    keep_going: bool = flag("after a failure go on with what does not need the failed project")
    resume: bool = flag("with --clean: do not build again what the last run, which was ended, had finished")
    time_limit: float | None = option(
        "end a project that takes longer, such as 90m or 6h (default: none)",
        metavar="TIME",
        convert=_duration,
    )
    max_memory: int | None = option(
        "memory for all compilers together, such as 16GB (default: what is free)",
        metavar="SIZE",
        convert=_memory,
    )


@dataclass(frozen=True, kw_only=True)
class CompilerCacheOptions:
    """`--use-ccache`, `--use-sccache`."""

    use_ccache: bool = switch("compile through ccache, which is installed where the machine has none")
    use_sccache: bool = switch("compile through sccache, which is installed where the machine has none")

    @property
    def compiler_cache(self) -> CompilerCache | None:
        """The one that is chosen.

        Raises:
            UsageError: both are.
        """
        if self.use_ccache and self.use_sccache:
            raise UsageError("--use-ccache and --use-sccache exclude each other")
        return "ccache" if self.use_ccache else "sccache" if self.use_sccache else None


def compile_jobs() -> int:
    """`--jobs`; 0 without it."""
    jobs: int = option("compile jobs at once (default: what suits)", convert=converters.positive, default=0)
    return jobs


def build_env() -> tuple[str, ...]:
    """`--build-env`, as the user wrote it (`cairn.build.inputs.variables`)."""
    texts: tuple[str, ...] = repeated(
        "variable for the builds, or for that of one project, such as USE_FBGEMM=0",
        metavar="[PROJECT:]NAME=VALUE",
    )
    return texts


@dataclass(frozen=True, kw_only=True)
class CompileOptions(CompilerCacheOptions):
    """How projects are compiled, and into what.

    Attributes:
        jobs: compile jobs at once; 0 is one per processor.
        build_env: variables for the builds.
        split: make host and device wheels of what has device code.
    """

    jobs: int = compile_jobs()
    build_env: tuple[str, ...] = build_env()
    split: bool = flag("put device code into wheels of its own, one for each target")
