"""Options of `cairn build` that `build_prod_wheels.py` has too, and what of a job follows from them."""

from __future__ import annotations

import argparse
import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.errors import UsageError
from cairn.output import console

if TYPE_CHECKING:
    from cairn.build.model import CompilerCache, Job, RunOptions

_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhd]?)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_MOST_SECONDS = 1e9
_CACHES: tuple[CompilerCache, ...] = ("ccache", "sccache")


def add_compiler_cache(parser: argparse.ArgumentParser) -> None:
    """`--use-ccache`, `--use-sccache`."""
    for cache in _CACHES:
        parser.add_argument(
            f"--use-{cache}",
            action=argparse.BooleanOptionalAction,
            default=False,
            help=f"compile through {cache}, which is installed where the machine has none",
        )


def compiler_cache(options: argparse.Namespace) -> CompilerCache | None:
    """The compiler cache that the options choose.

    Raises:
        UsageError: they choose two.
    """
    chosen = [cache for cache in _CACHES if getattr(options, f"use_{cache}")]
    if len(chosen) > 1:
        raise UsageError(f"{' and '.join(f'--use-{cache}' for cache in chosen)} exclude each other")
    return next(iter(chosen), None)


def add_split(parser: argparse.ArgumentParser) -> None:
    """`--split`."""
    parser.add_argument(
        "--split",
        action="store_true",
        help="put device code into wheels of its own, one for each target",
    )


def add_offline(parser: argparse.ArgumentParser) -> None:
    """`--offline`."""
    parser.add_argument(
        "--offline",
        action="store_true",
        help="fetch nothing, and let no build fetch: what it needs is there from an earlier run, "
        "or in the folders of --find-links",
    )


def add_develop(parser: argparse.ArgumentParser) -> None:
    """`--develop`, `--develop-env-dir`."""
    parser.add_argument(
        "--develop",
        "--editable",
        type=converters.nonempty,
        metavar="PROJECT|DIR",
        help="build this project in its checkout and install it from there, to be edited",
    )
    parser.add_argument(
        "--develop-env-dir",
        type=converters.any_path,
        metavar="DIR",
        help="virtual environment it is installed into, made where missing (default: one of Cairn's)",
    )


def develop(options: argparse.Namespace, jobs: Sequence[Job]) -> int:
    """What `--develop` asks for, of the job that the other options describe.

    Raises:
        UsageError: they describe several.
    """
    from cairn.build import develop

    if len(jobs) > 1:
        raise UsageError("--develop builds one variant in a checkout", tip="name one line, family and Python")
    (asked,) = jobs
    # setuptools compiles every source of an extension again; the cache has those that were not edited.
    caches = asked.compiler_cache or "ccache"
    chosen = dataclasses.replace(asked, compiler_cache=caches)
    folder: Path | None = options.develop_env_dir
    done = develop.run(chosen, options.develop, folder=folder and folder.absolute())
    console.current().out(f"{done.project} is imported from {done.checkout} by {done.python}")
    console.current().info("edit it there, and run the same command again: only what was edited is compiled")
    return 0


def add_running(parser: argparse.ArgumentParser) -> None:
    """`--keep-going`, `--resume`, `--time-limit`, `--max-memory`."""
    parser.add_argument(
        "--keep-going",
        action="store_true",
        help="after a failure go on with what does not need the failed project",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="with --clean: do not build again what the last run, which was ended, had finished",
    )
    parser.add_argument(
        "--time-limit",
        type=duration,
        metavar="TIME",
        help="end a project that takes longer, such as 90m or 6h (default: none)",
    )
    parser.add_argument(
        "--max-memory",
        type=memory,
        metavar="SIZE",
        help="memory for all compilers together, such as 16GB (default: what is free)",
    )


def run_options(options: argparse.Namespace) -> RunOptions:
    """How the options of `add_running` have a build run.

    Raises:
        UsageError: --resume without --clean.
    """
    from cairn.build.model import RunOptions

    if options.resume and not options.clean:
        raise UsageError(
            "--resume is for a run with --clean", tip="leave it out: finished wheels are always kept"
        )
    return RunOptions(
        keep_going=options.keep_going,
        resume=options.resume,
        time_limit=options.time_limit,
        max_memory=options.max_memory,
    )


def duration(text: str) -> float:
    """Seconds from a text such as `90m`, as a `type` of argparse."""
    found = _DURATION.fullmatch(text.strip())
    seconds = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    if not 0 < seconds < _MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a time: write 90m, 6h or 45s")
    return seconds


def memory(text: str) -> int:
    """Bytes from a text such as `16GB`, as a `type` of argparse."""
    from cairn.build.cache.trim import parse_size

    try:
        found = parse_size(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(f"{error}: {error.tip}" if error.tip else str(error)) from error
    if found <= 0:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not an amount of memory")
    return found
