"""Options of `cairn build` that `build_prod_wheels.py` has too, and what of a job follows from them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cairn.errors import UsageError

if TYPE_CHECKING:
    from cairn.build.model import CompilerCache

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
