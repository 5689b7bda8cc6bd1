"""Options of `cairn build` that `build_prod_wheels.py` has too, and what of a job follows from them."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.cli import arguments
from cairn.errors import UsageError
from cairn.output import console

if TYPE_CHECKING:
    from cairn.build.model import CompilerCache, Job

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


def add_develop(parser: argparse.ArgumentParser) -> None:
    """`--develop`, `--develop-env-dir`."""
    parser.add_argument(
        "--develop",
        "--editable",
        metavar="PROJECT|DIR",
        help="build this project in its checkout and install it from there, to be edited",
    )
    parser.add_argument(
        "--develop-env-dir",
        type=arguments.any_path,
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
