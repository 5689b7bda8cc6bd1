"""The projects of a stack checked out together: torch first, since it pins the others."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from cairn import files
from cairn.concurrency import side_by_side
from cairn.errors import UsageError
from cairn.output import Progress
from cairn.sources.checkout.checkout import Checkout, CheckoutRequest, checkout
from cairn.sources.origins import materialize as declared
from cairn.sources.pins import Wanted, wanted
from cairn.stack import Project, Stack

_PINNING = "torch"  # the project whose checkout names the others' commits (cairn.stack.PinKind)


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to check out; as in `cairn.sources.checkout.checkout.CheckoutRequest`."""

    as_of: datetime | None = None
    depth: int | None = None
    jobs: int = 0
    submodules: bool = True
    hipify: bool = True
    commit_hipify: bool = True
    force: bool = False
    python: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What a person chose of one project against pins and defaults."""

    origin: str | None = None
    hashtag: str | None = None
    require_related_commit: bool = False
    release: bool = False


def _silent(_line: str) -> None:
    """Say nothing."""


def checkout_stack(  # noqa: PLR0913 - each is one independent property
    stack: Stack,
    root: Path,
    *,
    names: Collection[str] = (),
    origins: Mapping[str, str] | None = None,
    hashtags: Mapping[str, str] | None = None,
    torch_dir: Path | None = None,
    options: Options | None = None,
    say: Progress = _silent,
) -> tuple[Checkout, ...]:
    """Check projects of a stack out, each into its own folder of `root`.

    Args:
        stack: on its line.
        root: the folder of the checkouts.
        names: of the projects wanted; all when empty.
        origins: instead of the stack's, by project name.
        hashtags: instead of pins and defaults, by project name.
        torch_dir: the torch checkout that pins; the one in `root` when None.
        options: how.
        say: is told what happens.

    Returns:
        The checkouts, in the stack's order of building.
    """
    unknown = {*(origins or {}), *(hashtags or {})} - {p.name for p in stack.projects}
    if unknown:
        raise UsageError(f"the stack {stack.name} has no project {', '.join(sorted(unknown))}")
    chosen = [stack.project(name) for name in names] or list(stack.projects)
    torch_dir = torch_dir or find_torch_dir(stack, root)
    choices = {
        p.name: Choice(origin=(origins or {}).get(p.name), hashtag=(hashtags or {}).get(p.name))
        for p in chosen
    }
    done: dict[str, Checkout] = {}

    def one(project: Project) -> Checkout:
        choice = choices[project.name]
        folder = root / project.checkout_dir
        return checkout_project(
            project, folder, choice=choice, torch_dir=torch_dir, options=options or Options(), say=say
        )

    pinned = [p for p in chosen if p.pin is not None]
    for rank in ([p for p in chosen if p.pin is None], pinned):
        done |= {c.project.name: c for c in side_by_side(one, rank, jobs=len(rank))}
    return tuple(done[p.name] for p in stack.in_order() if p.name in done)


def checkout_project(
    project: Project,
    folder: Path,
    *,
    choice: Choice,
    torch_dir: Path | None,
    options: Options,
    say: Progress = _silent,
) -> Checkout:
    """Check one project out, at what the person chose, torch pins, or the line has."""
    what = _what(project, choice, torch_dir)
    say(f"{project.name}: {what.hashtag}, {what.because}")
    request = CheckoutRequest(
        project=project,
        checkout_dir=folder,
        origin=what.origin,
        hashtag=what.hashtag,
        as_of=options.as_of,
        depth=options.depth,
        jobs=options.jobs,
        submodules=options.submodules,
        hipify=options.hipify,
        commit_hipify=options.commit_hipify,
        force=options.force,
        python=options.python,
    )
    done = checkout(request, say=lambda line: say(f"{project.name}: {line}"))
    return replace(done, notes=(what.note, *done.notes)) if what.note else done


def origin_of(project: Project) -> str:
    """Where a project's default origin is: its URL, or the repository made of its tree or sdist."""
    return materialised(project) or project.origin.url or ""


def materialised(project: Project) -> str | None:
    """The repository made of a project's tree or sdist, in the cache; None for one that has a URL."""
    cache = files.cache_dir() / "origins"
    tree, sdist = project.origin.tree, project.origin.sdist
    if tree is not None:
        # Repositories of one folder name each other by their names there; another folder may use the same.
        folder = Path(tree).resolve().parent
        key = hashlib.sha256(str(folder).encode()).hexdigest()[:12]
        origin = declared.TreeOrigin(name=project.name, path=Path(tree))
        return str(declared.materialise([origin], cache / f"{folder.parent.name}-{key}")[project.name])
    if sdist is not None:
        if project.origin.sha256 is None:
            raise UsageError(f"the sdist of {project.name} has no sha256", tip="add it to its stack.toml")
        sha256 = project.origin.sha256
        archive = declared.SdistOrigin(name=project.name, requirement=sdist, sha256=sha256)
        return str(declared.materialise([archive], cache / f"sdists-{sha256[:12]}")[project.name])
    return None


def _what(project: Project, choice: Choice, torch_dir: Path | None) -> Wanted:
    return wanted(
        project,
        # A person's origin makes the default one needless: it may be an sdist that costs a download.
        default_origin=choice.origin or origin_of(project),
        origin=choice.origin,
        hashtag=choice.hashtag,
        torch_dir=torch_dir,
        require_related_commit=choice.require_related_commit,
        release=choice.release,
    )


def find_torch_dir(stack: Stack, root: Path) -> Path | None:
    """The default folder of the checkout that pins the others; None for a stack without one."""
    for project in stack.projects:
        if project.name == _PINNING:
            return root / project.checkout_dir
    return None
