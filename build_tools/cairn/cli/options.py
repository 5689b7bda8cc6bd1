"""Options that several commands share, and how their text becomes values."""

from __future__ import annotations

import argparse
from pathlib import Path

from cairn import stack as stacks
from cairn.build import sdk
from cairn.build.environment import PipSource

MORE_FIND_LINKS = "more_find_links"  # where a parser that repeats the options of `add_pip` keeps its own


def add_stack(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """`--stack` and `--line`."""
    parser.add_argument(
        "--stack", type=Path, required=required, help="a stack.toml, or the folder that has one"
    )
    parser.add_argument("--line", help="release line, such as nightly or release/2.9 (default: the stack's)")


def read_stack(options: argparse.Namespace) -> stacks.Stack:
    """The stack that the options name, on the line they name."""
    return stacks.load(options.stack).for_line(options.line)


def add_pip(parser: argparse.ArgumentParser) -> None:
    """Where pip finds the ROCm SDK."""
    parser.add_argument("--index-url", help="package index that has the ROCm SDK")
    parser.add_argument(
        "--find-links", action="append", default=[], help="folder or page with packages; may be repeated"
    )
    parser.add_argument("--pip-cache-dir", type=Path, help="pip's cache folder")
    parser.add_argument("--rocm-sdk-version", help="exact version of the ROCm SDK (default: the newest)")
    parser.add_argument(
        "--pre", action=argparse.BooleanOptionalAction, default=True, help="take pre-releases too"
    )
    parser.add_argument(
        "--rocm-extras", default="libraries,devel", help="extras of the rocm package (default: %(default)s)"
    )


def wanted_sdk(options: argparse.Namespace, *, family: str | None = None) -> sdk.Wanted:
    """Which ROCm SDK the options ask for."""
    return sdk.Wanted(
        source=PipSource(
            index_url=options.index_url,
            find_links=(*options.find_links, *getattr(options, MORE_FIND_LINKS, ())),
            cache_dir=options.pip_cache_dir,
            pre=options.pre,
        ),
        version=options.rocm_sdk_version,
        extras=tuple(word.strip() for word in options.rocm_extras.split(",") if word.strip()),
        family=family,
    )


def json_flag(parser: argparse.ArgumentParser) -> None:
    """`--json`."""
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
