"""Arguments that several commands share: one name and one wording each."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import completion

if TYPE_CHECKING:
    from cairn.stack import Stack
    from cairn.store.protocol import Store

Completer = Callable[..., Iterable[str]]


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
        default_line: says in words which line applies without one.
    """
    action = parser.add_argument(
        "--stack",
        type=converters.any_path,
        required=required and default is None,
        default=default,
        help="a stack.toml, or the folder that has one",
    )
    completes(action, completion.complete_stack_folders)
    add_line(parser, default=default_line, value=default if default == argparse.SUPPRESS else None)


def add_line(parser: argparse.ArgumentParser, *, default: str, value: object = None) -> None:
    """`--line`; `default` says in words what applies without it, `value` is what the option is then."""
    action = parser.add_argument(
        "--line",
        type=converters.nonempty,
        default=value,
        help=f"release line, such as nightly or release/2.9 (default: {default})",
    )
    completes(action, completion.complete_lines)


def read_stack(options: argparse.Namespace) -> Stack:
    """The stack that the options name, on the line they name."""
    from cairn import stack as stacks

    return stacks.load(options.stack).for_line(options.line)


def add_output_dir(
    parser: argparse.ArgumentParser, *, default: Path | None = None, required: bool = True
) -> None:
    """`--output-dir`, which must be given where it has no default and something is written."""
    parser.add_argument(
        "--output-dir",
        type=converters.new_folder,
        required=required and default is None,
        default=default,
        metavar="DIR",
        help="folder to write into; made if missing" + (" (default: %(default)s)" if default else ""),
    )


def add_targets(parser: argparse.ArgumentParser, *, default: str) -> None:
    """`--targets`; `default` says in words what applies without it."""
    action = parser.add_argument(
        "--targets",
        type=converters.nonempty,
        help=f"GPU targets or families, joined by commas, or cpu (default: {default})",
    )
    completes(action, completion.complete_targets)


def add_jobs(parser: argparse.ArgumentParser, *, what: str) -> None:
    """`--jobs`: how many of `what` at once; 0 without it, for as many as suits."""
    parser.add_argument(
        "--jobs", type=converters.positive, default=0, help=f"{what} at once (default: what suits)"
    )


def add_repeated(
    parser: argparse.ArgumentParser,
    name: str,
    metavar: str,
    text: str,
    *,
    kind: Callable[[str], object] = str,
) -> None:
    """An option that may be given several times; it is a list."""
    parser.add_argument(
        name, action="append", default=[], type=kind, metavar=metavar, help=f"{text}; may be repeated"
    )


def add_find_links(parser: argparse.ArgumentParser) -> None:
    """`--find-links`."""
    add_repeated(parser, "--find-links", "PLACE", "folder or page with packages")


def add_store(
    parser: argparse.ArgumentParser | argparse._ArgumentGroup, *, required: bool | None = None
) -> None:
    """`--store`, which must be given unless something else of a group may be given instead.

    Beside it, where it is not in a group: `--endpoint-url`.
    """
    needed = isinstance(parser, argparse.ArgumentParser) if required is None else required
    parser.add_argument(
        "--store", required=needed, metavar="URL", help="the store: a path, file://… or s3://bucket/prefix"
    )
    if isinstance(parser, argparse.ArgumentParser):
        add_endpoint_url(parser)


def add_endpoint_url(parser: argparse.ArgumentParser) -> None:
    """`--endpoint-url`."""
    parser.add_argument(
        "--endpoint-url",
        type=converters.nonempty,
        metavar="URL",
        help="server of an s3:// store that is not Amazon's (default: AWS_ENDPOINT_URL_S3)",
    )


def open_existing_store(options: argparse.Namespace) -> Store:
    """The store that the options of `add_store` name, in which something is."""
    from cairn.output import console
    from cairn.store import opening

    return opening.open_existing(options.store, endpoint_url=options.endpoint_url, say=console.current().info)


def add_index(parser: argparse.ArgumentParser, *, default: str, told: bool = False) -> None:
    """`--index`, and the other name for it; with `told`, it is None where the user does not say which."""
    action = parser.add_argument(
        "--index",
        "--channel",
        dest="index",
        default=None if told else default,
        help=f"a channel, or a channel and a family: staging, release/gfx110X-all (default: {default})",
    )
    completes(action, completion.complete_indexes)


def add_translate(parser: argparse.ArgumentParser) -> None:
    """`--translate`, for commands that run tests where there may be no GPU."""
    parser.add_argument(
        "--translate",
        type=converters.file,
        metavar="WHEEL",
        help="run the tests through TorchDevice, whose wheel this is: code that says cuda computes on the "
        "CPU; the record says so, and is `untested` where nothing failed, whatever the set is for",
    )


def add_python(parser: argparse.ArgumentParser, *, what: str) -> None:
    """`--python`, an interpreter; `what` says which it is."""
    parser.add_argument(
        "--python", type=converters.program, metavar="FILE", help=f"interpreter {what} (default: Cairn's own)"
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """`--json`."""
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    """`--dry-run`."""
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, and change nothing")


def completes(action: argparse.Action, completer: Completer) -> None:
    """Have `completer` say what there is for an argument."""
    action.completer = completer  # type: ignore[attr-defined]  # where argcomplete looks for it
