"""`cairn checkout`: the projects of a stack as trees that can be built."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import common_options as common
from cairn.cli.answer import Answer, Table
from cairn.cli.binder import command
from cairn.errors import UsageError
from cairn.options import argument, option, part
from cairn.output import console, safe_text, wording
from cairn.output.wording import short_id
from cairn.sources.checkout.checkout_options import CheckoutOptions

if TYPE_CHECKING:
    from cairn.sources.checkout.describe import Checkout
    from cairn.stack import Project, Stack

_ALL = "all"
_ORIGINS = "origins"


@dataclass(frozen=True, kw_only=True)
class PlaceOptions:
    """Where a single checkout goes."""

    checkout_dir: Path | None = option(
        "folder of the checkout (default: by --repo-name)", convert=converters.new_folder
    )
    repo_name: str | None = option("name of the default folder (default: the stack's)")

    def folder(self, root: Path, project: Project) -> Path:
        """Return the folder of a project's checkout, below `root` unless an option names it."""
        return self.checkout_dir or root / (self.repo_name or project.checkout_dir)


def torch_dir() -> Path | None:
    """`--torch-dir`."""
    chosen: Path | None = option("torch checkout that pins the others", convert=converters.folder)
    return chosen


@dataclass(frozen=True, kw_only=True)
class CheckoutCommand(common.StackOptions, PlaceOptions):
    """Options of `cairn checkout`.

    With `all`, torch comes first, then the others at the commits it pins. A checkout that exists is brought
    up to date; local work is kept unless --force is given. `origins` makes the repositories that a stack
    describes by a tree or an sdist, and prints them.

        cairn checkout all --stack pytorch --line release/2.9
    """

    what: str = argument("all|origins|NAME", "what to check out", completer=common.complete_projects)
    root_checkout_dir: Path | None = common.root_checkout_dir()
    torch_dir: Path | None = torch_dir()
    how: CheckoutOptions = part(CheckoutOptions)


def answer(checkouts: Sequence[Checkout]) -> Answer:
    """Make the answer about checkouts; their notes are shown as warnings."""
    for checkout in checkouts:
        for note in checkout.notes:
            console.current().warn(f"{checkout.project.name}: {note}")
    return Answer(list(map(_plain, checkouts)), itertools.chain.from_iterable(map(_text, checkouts)))


def _text(checkout: Checkout) -> Iterator[str]:
    """Lines that do not break, whatever the width of the screen: paths are copied from the first."""
    from cairn.sources.hipify import report

    hashtag = "" if checkout.hashtag == checkout.commit else f" ({checkout.hashtag})"
    version = f" {checkout.version}" if checkout.version else ""
    yield f"{checkout.project.name}{version} at {short_id(checkout.commit)}{hashtag}: {checkout.path}"
    if checkout.report:
        yield from (f"  {line}" for line in report.summary(checkout.report))


def _run(command: CheckoutCommand) -> Answer:
    from cairn import stack as stacks
    from cairn.sources import checkout_stack
    from cairn.sources.checkout.checkout import CheckoutRequest

    stack = command.load_stack()
    if command.what == _ORIGINS:
        with console.current().stage(f"make the repositories of {stack.name}"):
            origins = {p.name: checkout_stack.origin_of(p) for p in stack.projects}
        return Answer(origins, [Table(("project", "origin"), origins.items())])
    root = (command.root_checkout_dir or stacks.checkouts_folder(stack)).absolute()
    if command.what == _ALL:
        _refuse_for_all(command)
        with console.current().stage(f"check out {stack.name} {stack.line}") as stage:
            requests = [
                CheckoutRequest.of(command.how, project=p, checkout_dir=root / p.checkout_dir)
                for p in stack.projects
            ]
            checkouts = checkout_stack.checkout_stack(
                stack, requests, torch_dir=command.torch_dir, say=stage.update
            )
    else:
        project = _project(stack, command.what)
        pinning = command.torch_dir or checkout_stack.find_torch_dir(stack, root)
        with console.current().stage(f"check out {project.name}") as stage:
            request = CheckoutRequest.of(
                command.how, project=project, checkout_dir=command.folder(root, project)
            )
            checkouts = (checkout_stack.checkout_project(request, torch_dir=pinning, say=stage.update),)
    return answer(checkouts)


def _project(stack: Stack, name: str) -> Project:
    names = [word for p in stack.projects for word in (p.name, p.distribution)]
    if name not in names and (close := wording.nearest(name, (*names, _ALL, _ORIGINS))):
        raise UsageError(
            f"the stack {stack.name} has no project {name!r}", tip=f"did you mean {' or '.join(close)}?"
        )
    return stack.project(name)


def _refuse_for_all(command: CheckoutCommand) -> None:
    how = command.how
    of_one = {
        "--checkout-dir": command.checkout_dir,
        "--repo-name": command.repo_name,
        "--gitrepo-origin": how.origin,
        "--repo-hashtag": how.hashtag,
        "--require-related-commit": how.require_related_commit,
        "--release": how.release,
    }
    if flags := [name for name, value in of_one.items() if value]:
        raise UsageError(
            f"{', '.join(flags)} cannot be used for all projects at once",
            tip="check them out one by one, or use --line",
        )


def _plain(checkout: Checkout) -> dict[str, object]:
    return {
        "project": checkout.project.name,
        "path": checkout.path,
        "origin": safe_text.mask(checkout.origin),
        "hashtag": checkout.hashtag,
        "commit": checkout.commit,
        "hipify_commit": checkout.hipify_commit,
        "tree": checkout.tree,
        "version": checkout.version,
        "notes": checkout.notes,
        "submodules": checkout.submodules,
        "report": checkout.report,
    }


COMMANDS = {"checkout": command(CheckoutCommand, _run)}
