"""The command lines of upstream's `pytorch_*_repo.py`: their names and flags, over `cairn.sources`.

Source of the flags: ROCm/TheRock, external-builds/pytorch.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.cli import arguments
from cairn.cli import checkout as command
from cairn.cli.guard import guarded
from cairn.cli.parser import Parser
from cairn.output import console

if TYPE_CHECKING:
    from cairn.stack import Project, Stack


def main(project: str, argv: Sequence[str] | None = None, *, script: str) -> int:
    """Run the script of one project; returns its exit code.

    Args:
        project: its name in the stack.
        argv: its arguments; the command line's by default.
        script: its own file: the stack.toml and the default checkouts are beside it.
    """
    options = _parser(project, Path(script)).parse_args(argv)
    options.project = project
    options.beside = Path(script).absolute().parent
    return guarded(options)


def _parser(project: str, script: Path) -> argparse.ArgumentParser:
    parser = Parser(
        prog=script.name,
        description=f"Check {project} out and hipify it, for building a wheel with ROCm.",
        epilog=f"example: python {script.name} checkout",
    )
    arguments.add_stack(parser, default=script.absolute().parent)
    commands = parser.add_subparsers(required=True, metavar="checkout|hipify")
    checkout = commands.add_parser(
        "checkout",
        help="check out, hipify, and tag what upstream gave",
        description=f"Check {project} out, hipify it, and tag what upstream gave.",
        epilog=f"example: python {script.name} checkout --repo-hashtag main",
    )
    arguments.add_stack(checkout, default=argparse.SUPPRESS)
    command.add_place(checkout)
    pinned = project != "torch"
    command.add_choice(checkout, related=pinned and project != "triton", release=project == "triton")
    command.add_how(checkout)
    checkout.set_defaults(run=_checkout)
    hipify = commands.add_parser(
        "hipify",
        help="hipify a checkout made with --no-hipify, or by hand",
        description="Hipify a checkout that was made with --no-hipify, or by hand, and tag it.",
        epilog=f"example: python {script.name} hipify --checkout-dir ~/pytorch",
    )
    arguments.add_stack(hipify, default=argparse.SUPPRESS)
    command.add_place(hipify)
    command.add_hipify(hipify)
    hipify.set_defaults(run=_hipify)
    return parser


def _checkout(options: argparse.Namespace) -> int:
    from cairn.sources import checkout_stack

    stack, project, folder = _places(options)
    torch_dir = getattr(options, "torch_dir", None) or checkout_stack.find_torch_dir(stack, options.beside)
    with console.current().stage(f"check out {project.name}") as stage:
        asked = command.request(project, folder, options)
        done = checkout_stack.checkout_project(asked, torch_dir=torch_dir, say=stage.update)
    command.show((done,))
    return 0


def _hipify(options: argparse.Namespace) -> int:
    from cairn.sources.checkout.checkout import hipify_checkout

    _, project, folder = _places(options)
    with console.current().stage(f"hipify {project.name}") as stage:
        done = hipify_checkout(
            project, folder, commit=options.commit_hipify, python=options.python, say=stage.update
        )
    command.show((done,))
    return 0


def _places(options: argparse.Namespace) -> tuple[Stack, Project, Path]:
    stack = arguments.read_stack(options)
    project = stack.project(options.project)
    folder = options.checkout_dir or options.beside / (options.repo_name or project.checkout_dir)
    return stack, project, folder
