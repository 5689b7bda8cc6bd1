"""The command lines of upstream's `pytorch_*_repo.py`: their names and flags, over `cairn.sources`.

Source of the flags: ROCm/TheRock, external-builds/pytorch.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.cli import binder, fields
from cairn.cli.answer import Answer
from cairn.cli.checkout import PlaceOptions, answer, torch_dir
from cairn.cli.guard import guarded
from cairn.cli.parser import Parser
from cairn.options import part
from cairn.output import console
from cairn.sources.checkout.options import CheckoutOptions, HipifyOptions

if TYPE_CHECKING:
    from cairn.stack import Project, Stack

_STACK = ("stack", "line")


@dataclass(frozen=True, kw_only=True)
class _Script(fields.StackOptions, PlaceOptions):
    """What each command of a script has: whose it is, and where.

    Attributes:
        project: its name in the stack.
        beside: the folder of the script, which has the stack.toml and the default checkouts.
    """

    project: str
    beside: Path

    def place(self) -> tuple[Stack, Project, Path]:
        """The stack, the project and the folder of its checkout."""
        stack = self.load_stack()
        project = stack.project(self.project)
        return stack, project, self.folder(self.beside, project)


@dataclass(frozen=True, kw_only=True)
class _Checkout(_Script):
    torch_dir: Path | None = torch_dir()
    how: CheckoutOptions = part(CheckoutOptions)


@dataclass(frozen=True, kw_only=True)
class _Hipify(_Script):
    how: HipifyOptions = part(HipifyOptions)


def main(project: str, argv: Sequence[str] | None = None, *, script: str) -> int:
    """Run the script of one project; returns its exit code.

    Args:
        project: its name in the stack.
        argv: its arguments; the command line's by default.
        script: its own file: the stack.toml and the default checkouts are beside it.
    """
    return guarded(_parser(project, Path(script)).parse_args(argv))


def _parser(project: str, script: Path) -> argparse.ArgumentParser:
    beside = script.absolute().parent
    parser = Parser(
        prog=script.name,
        description=f"Check {project} out and hipify it, for building a wheel with ROCm.",
        epilog=f"example: python {script.name} checkout",
    )
    binder.add_options(parser, fields.StackOptions, defaults={"stack": beside})
    parser.set_defaults(project=project, beside=beside)
    commands = parser.add_subparsers(required=True, metavar="checkout|hipify")
    checkout = commands.add_parser(
        "checkout",
        help="check out, hipify, and tag what upstream gave",
        description=f"Check {project} out, hipify it, and tag what upstream gave.",
        epilog=f"example: python {script.name} checkout --repo-hashtag main",
    )
    # torch is pinned by nothing, and triton by a file of torch's instead of related_commits.
    omit = {
        "torch": ("torch_dir", "require_related_commit", "release"),
        "triton": ("require_related_commit",),
    }
    binder.bind(checkout, _Checkout, _check_out, inherited=_STACK, omit=omit.get(project, ("release",)))
    hipify = commands.add_parser(
        "hipify",
        help="hipify a checkout made with --no-hipify, or by hand",
        description="Hipify a checkout that was made with --no-hipify, or by hand, and tag it.",
        epilog=f"example: python {script.name} hipify --checkout-dir ~/pytorch",
    )
    binder.bind(hipify, _Hipify, _hipify, inherited=_STACK)
    return parser


def _check_out(command: _Checkout) -> Answer:
    from cairn.sources import checkout_stack
    from cairn.sources.checkout.checkout import CheckoutRequest

    stack, project, folder = command.place()
    pinning = command.torch_dir or checkout_stack.find_torch_dir(stack, command.beside)
    with console.current().stage(f"check out {project.name}") as stage:
        request = CheckoutRequest.of(command.how, project=project, checkout_dir=folder)
        checkout = checkout_stack.checkout_project(request, torch_dir=pinning, say=stage.update)
    return answer((checkout,))


def _hipify(command: _Hipify) -> Answer:
    from cairn.sources.checkout.checkout import hipify_checkout

    _, project, folder = command.place()
    with console.current().stage(f"hipify {project.name}") as stage:
        checkout = hipify_checkout(
            project, folder, commit=command.how.commit_hipify, python=command.how.python, say=stage.update
        )
    return answer((checkout,))
