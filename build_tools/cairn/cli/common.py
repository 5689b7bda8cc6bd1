"""Options that several commands share, and how their text becomes values: one name and one wording each."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.cli import completers, paths

if TYPE_CHECKING:
    from cairn.build.model import WantedSdk
    from cairn.stack import Stack

MORE_FIND_LINKS = "more_find_links"  # where a parser that repeats the options of `add_pip` keeps its own
PORT = 8383
"""Where an index is served unless another port is asked for."""


LINE_OF_CHECKOUTS = "that of the checkouts"


def add_stack(
    parser: argparse.ArgumentParser,
    *,
    required: bool = True,
    default: Path | str | None = None,
    default_line: str = "the stack's",
) -> None:
    """`--stack` and `--line`.

    Args:
        parser: what gets them.
        required: whether the stack must be given where it has no default.
        default: the stack of a script; argparse.SUPPRESS below a command that has one already.
        default_line: says in words what line holds without one.
    """
    action = parser.add_argument(
        "--stack",
        type=Path,
        required=required and default is None,
        default=default,
        help="a stack.toml, or the folder that has one",
    )
    completers.completes(action, completers.stack_folders)
    add_line(parser, default=default_line, value=default if default == argparse.SUPPRESS else None)


def add_build_env(parser: argparse.ArgumentParser) -> None:
    """`--build-env`."""
    parser.add_argument(
        "--build-env",
        action="append",
        default=[],
        metavar="[PROJECT:]NAME=VALUE",
        help="variable for the builds, or for that of one project, such as USE_FBGEMM=0; may be repeated",
    )


def add_line(parser: argparse.ArgumentParser, *, default: str, value: object = None) -> None:
    """`--line`; `default` says in words what holds without it, `value` is what the option is then."""
    action = parser.add_argument(
        "--line", default=value, help=f"release line, such as nightly or release/2.9 (default: {default})"
    )
    completers.completes(action, completers.lines)


def read_stack(options: argparse.Namespace) -> Stack:
    """The stack that the options name, on the line they name."""
    from cairn import stack as stacks  # noqa: PLC0415 - many a command needs none

    return stacks.load(options.stack).for_line(options.line)


def add_root_checkout_dir(parser: argparse.ArgumentParser) -> None:
    """`--root-checkout-dir`."""
    parser.add_argument(
        "--root-checkout-dir",
        type=paths.new_folder,
        metavar="DIR",
        help="folder of the checkouts (default: beside the stack.toml)",
    )


def add_output_dir(parser: argparse.ArgumentParser, *, default: Path | None = None) -> None:
    """`--output-dir`, which must be given where it has no default."""
    parser.add_argument(
        "--output-dir",
        type=paths.new_folder,
        required=default is None,
        default=default,
        metavar="DIR",
        help="folder to write into; made if missing" + (" (default: %(default)s)" if default else ""),
    )


def add_targets(parser: argparse.ArgumentParser, *, default: str) -> None:
    """`--targets`; `default` says in words what holds without it."""
    action = parser.add_argument(
        "--targets",
        type=_some_targets,
        help=f"GPU targets or families, joined by commas, or cpu (default: {default})",
    )
    completers.completes(action, completers.targets)


def _some_targets(text: str) -> str:
    # A variable of a CI job that is not set must not stand for the default: that may be every target.
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty; leave the option out for what holds without it")
    return text


def add_jobs(parser: argparse.ArgumentParser, *, what: str) -> None:
    """`--jobs`: how many of `what` at once; 0 without it, for as many as suits."""
    parser.add_argument("--jobs", type=positive, default=0, help=f"{what} at once (default: what suits)")


def positive(text: str) -> int:
    """A number of things, as a `type` of argparse."""
    # Python makes no number of more than 4,300 digits, and no machine has use for one of ten.
    if not re.fullmatch("[0-9]{1,9}", text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a positive number below a billion")
    return int(text)


def add_force(parser: argparse.ArgumentParser) -> None:
    """`--force`."""
    parser.add_argument(
        "--force",
        action="store_true",
        help="drop local work that stands in the way; refs/cairn/dropped keeps it",
    )


def add_find_links(parser: argparse.ArgumentParser) -> None:
    """`--find-links`."""
    parser.add_argument(
        "--find-links",
        action="append",
        default=[],
        metavar="PLACE",
        help="folder or page with packages; may be repeated",
    )


def add_store(parser: argparse.ArgumentParser) -> None:
    """`--store`."""
    parser.add_argument("--store", required=True, metavar="URL", help="the store: a path or file://…")


def add_index(parser: argparse.ArgumentParser, *, default: str) -> None:
    """`--index`, and the other name for it."""
    action = parser.add_argument(
        "--index",
        "--channel",
        dest="index",
        default=default,
        help="a channel, or a channel and a family: staging, release/gfx110X-all (default: %(default)s)",
    )
    completers.completes(action, completers.indexes)


def add_python(parser: argparse.ArgumentParser, *, what: str) -> None:
    """`--python`, an interpreter; `what` says which it is."""
    parser.add_argument(
        "--python", type=paths.program, metavar="FILE", help=f"interpreter {what} (default: Cairn's own)"
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """`--json`."""
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    """`--dry-run`."""
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, and change nothing")


def add_pip(parser: argparse.ArgumentParser) -> None:
    """Where pip finds the ROCm SDK: upstream's flags (build_prod_wheels.py)."""
    parser.add_argument("--index-url", metavar="URL", help="the only package index to use")
    add_find_links(parser)
    parser.add_argument("--pip-cache-dir", type=paths.new_folder, metavar="DIR", help="pip's cache folder")
    parser.add_argument(
        "--rocm-sdk-version",
        type=exact_version,
        metavar="VERSION",
        help="exact version of the ROCm SDK, 7.10.0 or ==7.10.0 (default: the newest)",
    )
    parser.add_argument(
        "--pre", action=argparse.BooleanOptionalAction, default=True, help="take pre-releases too"
    )
    parser.add_argument(
        "--rocm-extras", default="libraries,devel", help="extras of the rocm package (default: %(default)s)"
    )


def exact_version(text: str) -> str:
    """An exact version, perhaps with the comparison that upstream writes before it: `==7.10.0`."""
    return text.strip().removeprefix("==")


def wanted_sdk(options: argparse.Namespace, *, family: str | None = None) -> WantedSdk:
    """Which ROCm SDK the options ask for."""
    # Loaded here: what builds takes longer to load than many a command that shares options with it takes.
    from cairn.build.model import WantedSdk  # noqa: PLC0415
    from cairn.venv import PackageSource  # noqa: PLC0415

    return WantedSdk(
        source=PackageSource(
            index_url=options.index_url,
            find_links=(*options.find_links, *getattr(options, MORE_FIND_LINKS, ())),
            cache_dir=options.pip_cache_dir,
            pre=options.pre,
        ),
        version=options.rocm_sdk_version,
        extras=tuple(word.strip() for word in options.rocm_extras.split(",") if word.strip()),
        family=family,
    )
