"""Options that the commands on skips share."""

from __future__ import annotations

import argparse
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import arguments

if TYPE_CHECKING:
    from cairn.testing.skips.conditions import RunFacts
    from cairn.testing.skips.skip_files import Listed


def add_files(parser: argparse.ArgumentParser) -> None:
    """`FILE|DIR …`."""
    parser.add_argument(
        "files",
        nargs="+",
        type=converters.file_or_folder,
        metavar="FILE|DIR",
        help="a file of skips, or a folder of them",
    )


def add_facts(parser: argparse.ArgumentParser) -> None:
    """What is known of the run; an entry whose conditions do not fit it is left aside."""
    arguments.add_targets(parser, default="any")
    parser.add_argument("--platform", choices=("linux", "windows"), help="operating system (default: any)")
    for name, what in (("--pytorch-version", "torch, such as 2.13"), ("--python-version", "Python")):
        parser.add_argument(
            name, type=converters.nonempty, metavar="VERSION", help=f"version of {what} (default: any)"
        )


def facts(options: argparse.Namespace) -> RunFacts:
    """What the options of `add_facts` say."""
    from cairn.targets import parse_targets
    from cairn.testing.skips.conditions import RunFacts, release_of

    versions = {"torch": options.pytorch_version, "python": options.python_version}
    return RunFacts(
        targets=parse_targets(options.targets, unbuilt=True) if options.targets else None,
        platform=options.platform,
        **{name: release_of(version) if version else None for name, version in versions.items()},
    )


def read(files: list[Path]) -> tuple[Listed, ...]:
    """The entries of the files."""
    from cairn.testing.skips import skip_files

    return skip_files.read(files)


def day(text: str) -> date:
    """A day, as a `type` of argparse."""
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a day, such as 2027-06-30") from error


def today() -> date:
    """The day that entries expire by."""
    from datetime import UTC, datetime

    return datetime.now(tz=UTC).date()
