"""The entry point: the parser of the program, and the run of one command line.

A command line says little and loads little: the modules of the groups import what their commands need when
these run, so that `--help` and `--version` stay fast, and a checkout loads nothing that builds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Mapping, Sequence

from cairn import __version__
from cairn.cli import completion
from cairn.cli.guard import guarded
from cairn.cli.parser import Parser, is_completion

# Command groups, which are the modules and rooms beside this one, in the order --help shows them.
_GROUPS: Mapping[str, str] = {
    "checkout": "check projects out, hipify them and tag what upstream gave",
    "manifest": "freeze what a build is made from; make and compare it again",
    "patches": "explain, export and apply what a checkout has beyond upstream",
    "rocm": "fetch ROCm's artifacts, make and install SDK packages",
    "build": "build wheels from checkouts",
    "wheel": "look at, compare, check and change wheels",
    "test": "smoke-test wheels, read test results",
    "index": "serve, publish, audit, verify, mirror or look after an index",
    "release": "promote sets, and take them back",
    "bisect": "find the first bad set between two nights, and the commits that came with it",
    "install": "print the lines that install a release on this machine",
    "image": "build and run the container images of builds and tests",
    "doctor": "check a machine for a build, an installation or tests",
    "matrix": "list what is built and tested when, and on which runners",
    "ci": "run a stack end to end, or the jobs of a night",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run `cairn` with these arguments (default: the command line's).

    Returns:
        The exit code: 0 only on success.
    """
    words = sys.argv[1:] if argv is None else argv
    # Only the group that is named gets its commands: all of them together take longer than many commands run.
    # No general option takes a value, so the first word without a dash is the group. While a shell completes,
    # the line is in argcomplete's variables, not in our arguments.
    line = completion.words() if is_completion() else words
    first = next((word for word in line if not word.startswith("-")), "")
    return guarded(make_parser((first,)).parse_args(words))


def make_parser(groups: Collection[str] = tuple(_GROUPS)) -> argparse.ArgumentParser:
    """The parser of the program; of groups that are not among `groups` it knows no more than the names."""
    parser = Parser(
        prog="cairn",
        description="Build, test and promote PyTorch wheels for AMD GPUs (ROCm).",
        epilog="example: cairn ci run --stack external-builds/sample/stack.toml",
    )
    parser.add_argument("--version", action="version", version=f"cairn {__version__}")
    subparsers = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, text in _GROUPS.items():
        group = subparsers.add_parser(name, help=text)
        if name in groups:
            _add_commands(name, group)
    return parser


def _add_commands(group: str, parser: argparse.ArgumentParser) -> None:  # noqa: C901, PLR0912 - a table, one row per group
    # All modules together take a sixth of the time of a short command, so only the one that is named is
    # imported: by statements, not by the module's name in a string, so that mypy and the contract see them.
    if group == "checkout":
        from cairn.cli.checkout import add_to
    elif group == "manifest":
        from cairn.cli.manifest import add_to
    elif group == "patches":
        from cairn.cli.patches import add_to
    elif group == "rocm":
        from cairn.cli.rocm import add_to
    elif group == "build":
        from cairn.cli.build import add_to
    elif group == "wheel":
        from cairn.cli.wheel import add_to
    elif group == "test":
        from cairn.cli.test import add_to
    elif group == "index":
        from cairn.cli.index import add_to
    elif group == "release":
        from cairn.cli.release import add_to
    elif group == "bisect":
        from cairn.cli.bisect import add_to
    elif group == "install":
        from cairn.cli.install import add_to
    elif group == "matrix":
        from cairn.cli.matrix import add_to
    elif group == "image":
        from cairn.cli.image import add_to
    elif group == "doctor":
        from cairn.cli.doctor import add_to
    else:
        from cairn.cli.ci import add_to
    add_to(parser)
