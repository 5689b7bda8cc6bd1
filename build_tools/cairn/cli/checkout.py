"""`cairn checkout`: the projects of a stack as trees that can be built."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import arguments, completion
from cairn.errors import UsageError
from cairn.output import console, safe_text, wording

if TYPE_CHECKING:
    from datetime import datetime

    from cairn.sources.checkout.checkout import CheckoutRequest
    from cairn.sources.checkout.describe import Checkout
    from cairn.stack import Project, Stack

_ALL = "all"
_ORIGINS = "origins"


def add_to(parser: argparse.ArgumentParser) -> None:
    """Give a parser the options of the command."""
    parser.description = (
        "Check out one project of a stack, or `all`: torch first, then the others at the commits "
        "it pins. A checkout that exists is brought up to date; local work is kept unless --force is given. "
        "`origins` makes the repositories that a stack describes by a tree or an sdist, and prints them."
    )
    parser.epilog = "example: cairn checkout all --stack external-builds/pytorch --line release/2.9"
    what = parser.add_argument("what", metavar="all|origins|NAME", help="what to check out")
    arguments.completes(what, completion.complete_projects)
    arguments.add_stack(parser)
    arguments.add_root_checkout_dir(parser)
    add_place(parser)
    add_choice(parser)
    add_how(parser)
    arguments.add_json(parser)
    parser.set_defaults(run=_run)


def add_place(parser: argparse.ArgumentParser) -> None:
    """Where a single checkout goes."""
    parser.add_argument(
        "--checkout-dir",
        type=converters.new_folder,
        metavar="DIR",
        help="folder of the checkout (default: by --repo-name)",
    )
    parser.add_argument("--repo-name", help="name of the default folder (default: the stack's)")


def add_choice(parser: argparse.ArgumentParser, *, related: bool = True, release: bool = True) -> None:
    """Which origin and hashtag: these win over pins, and pins over defaults."""
    parser.add_argument(
        "--gitrepo-origin", type=converters.nonempty, metavar="URL", help="git URL or path of the repository"
    )
    parser.add_argument(
        "--repo-hashtag",
        type=converters.nonempty,
        metavar="REF",
        help="branch, tag, commit, or #N for a pull request",
    )
    if related or release:
        parser.add_argument(
            "--torch-dir", type=converters.folder, metavar="DIR", help="torch checkout that pins the others"
        )
    if related:
        parser.add_argument(
            "--require-related-commit",
            action=argparse.BooleanOptionalAction,
            default=False,
            help="refuse where torch's related_commits does not name the project",
        )
    if release:
        parser.add_argument(
            "--release",
            action=argparse.BooleanOptionalAction,
            default=False,
            help="the release branch of torch's triton version, instead of its pinned commit",
        )


def add_how(parser: argparse.ArgumentParser) -> None:
    """How to check out."""
    flag = argparse.BooleanOptionalAction
    add_depth(parser)
    arguments.add_jobs(parser, what="submodules that are fetched")
    add_as_of(parser)
    parser.add_argument("--submodules", action=flag, default=True, help="check submodules out too")
    parser.add_argument("--hipify", action=flag, default=True, help="hipify, where it is done at checkout")
    arguments.add_force(parser)
    add_hipify(parser)


def add_depth(parser: argparse.ArgumentParser) -> None:
    """`--depth`."""
    text = "fetch only this many commits of history (default: all)"
    parser.add_argument("--depth", type=converters.positive, help=text)


def add_hipify(parser: argparse.ArgumentParser) -> None:
    """How to hipify."""
    parser.add_argument(
        "--commit-hipify",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="commit what hipify did, and tag it",
    )
    arguments.add_python(parser, what="that hipify runs in")


def request(project: Project, folder: Path, options: argparse.Namespace) -> CheckoutRequest:
    """What the flags of `add_how` and `add_choice` ask for, of one project."""
    from cairn.sources.checkout.checkout import CheckoutRequest

    return CheckoutRequest(
        project=project,
        checkout_dir=folder,
        origin=options.gitrepo_origin or "",
        hashtag=options.repo_hashtag or "",
        require_related_commit=getattr(options, "require_related_commit", False),
        release=getattr(options, "release", False),
        as_of=options.as_of,
        depth=options.depth,
        jobs=options.jobs,
        submodules=options.submodules,
        hipify=options.hipify,
        commit_hipify=options.commit_hipify,
        force=options.force,
        python=options.python,
    )


def show(checkouts: Sequence[Checkout], *, as_json: bool = False) -> None:
    """Print what was checked out."""
    from cairn.sources.hipify import report

    for checkout in checkouts:
        for note in checkout.notes:
            console.current().warn(f"{checkout.project.name}: {note}")
    if as_json:
        console.current().json([_plain(checkout) for checkout in checkouts])
        return
    for checkout in checkouts:
        console.current().out(_line(checkout))
        for line in report.summary(checkout.report) if checkout.report else ():
            console.current().out(f"  {line}")


def _run(options: argparse.Namespace) -> int:
    from cairn.sources import checkout_stack

    stack = arguments.read_stack(options)
    if options.what == _ORIGINS:
        return _origins(stack, as_json=options.json)
    root = (options.root_checkout_dir or Path(stack.folder)).absolute()
    if options.what == _ALL:
        _refuse_for_all(options)
        with console.current().stage(f"check out {stack.name} {stack.line}") as stage:
            requests = [request(p, root / p.checkout_dir, options) for p in stack.projects]
            done = checkout_stack.checkout_stack(
                stack, requests, torch_dir=options.torch_dir, say=stage.update
            )
    else:
        project = _project(stack, options.what)
        folder = options.checkout_dir or root / (options.repo_name or project.checkout_dir)
        torch_dir = options.torch_dir or checkout_stack.find_torch_dir(stack, root)
        with console.current().stage(f"check out {project.name}") as stage:
            asked = request(project, folder, options)
            done = (checkout_stack.checkout_project(asked, torch_dir=torch_dir, say=stage.update),)
    show(done, as_json=options.json)
    return 0


def _project(stack: Stack, name: str) -> Project:
    names = [word for p in stack.projects for word in (p.name, p.distribution)]
    if name not in names and (close := wording.nearest(name, (*names, _ALL, _ORIGINS))):
        raise UsageError(
            f"the stack {stack.name} has no project {name!r}", tip=f"did you mean {' or '.join(close)}?"
        )
    return stack.project(name)


def _origins(stack: Stack, *, as_json: bool) -> int:
    from cairn.sources import checkout_stack

    with console.current().stage(f"make the repositories of {stack.name}"):
        found = {p.name: checkout_stack.origin_of(p) for p in stack.projects}
    if as_json:
        console.current().json(found)
    else:
        console.current().table(("project", "origin"), list(found.items()))
    return 0


def _refuse_for_all(options: argparse.Namespace) -> None:
    flags = (
        "checkout_dir",
        "repo_name",
        "gitrepo_origin",
        "repo_hashtag",
        "require_related_commit",
        "release",
    )
    given = [name for name in flags if getattr(options, name)]
    if given:
        shown = ", ".join("--" + name.replace("_", "-") for name in given)
        raise UsageError(
            f"{shown} cannot be used for all projects at once",
            tip="check them out one by one, or use --line",
        )


def _line(checkout: Checkout) -> str:
    """One line that does not break, whatever the width of the screen: paths are copied from it."""
    named = "" if checkout.hashtag == checkout.commit else f" ({checkout.hashtag})"
    version = f" {checkout.version}" if checkout.version else ""
    return f"{checkout.project.name}{version} at {checkout.commit[:12]}{named}: {checkout.path}"


def _plain(checkout: Checkout) -> dict[str, object]:
    from cairn import datafile

    return {
        "project": checkout.project.name,
        "path": str(checkout.path),
        "origin": safe_text.mask(checkout.origin),
        "hashtag": checkout.hashtag,
        "commit": checkout.commit,
        "hipify_commit": checkout.hipify_commit,
        "tree": checkout.tree,
        "version": checkout.version,
        "notes": list(checkout.notes),
        "submodules": [dataclasses.asdict(module) for module in checkout.submodules],
        "report": datafile.to_plain(checkout.report) if checkout.report else None,
    }


def add_as_of(parser: argparse.ArgumentParser) -> None:
    """`--as-of`."""
    parser.add_argument(
        "--as-of",
        type=_moment,
        metavar="DATE",
        help="take branches as they were at the end of this date (UTC), or at this time (ISO 8601)",
    )


def _moment(text: str) -> datetime:
    from cairn.sources.mirror import history

    try:
        return history.moment(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(f"{error}: {error.tip}") from error
