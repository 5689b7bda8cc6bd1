"""Check out the projects of a stack together: torch first, since it pins the others (`pins`)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cairn import files
from cairn.concurrency import side_by_side
from cairn.errors import UsageError
from cairn.output import Progress, silent
from cairn.sources.checkout.checkout import CheckoutRequest, checkout
from cairn.sources.checkout.describe import Checkout
from cairn.sources.origins.materialize import SdistOrigin, TreeOrigin, materialize
from cairn.sources.pins import choose_source
from cairn.stack import Project, Stack

_PINNING = "torch"  # the project whose checkout names the others' commits (cairn.stack.PinKind)


def checkout_stack(
    stack: Stack,
    requests: Sequence[CheckoutRequest],
    *,
    torch_dir: Path | None = None,
    say: Progress = silent,
) -> tuple[Checkout, ...]:
    """Check out projects of a stack side by side; pinned ones come after the others.

    Args:
        stack: on its line.
        requests: one for each project; see `checkout_project`.
        torch_dir: the torch checkout that pins; the one among the requests when None.
        say: progress callback.

    Returns:
        The checkouts, in the stack's order of building.
    """
    torch_dirs = (request.checkout_dir for request in requests if request.project.name == _PINNING)
    torch_dir = torch_dir or next(torch_dirs, None)
    checkouts: dict[str, Checkout] = {}
    for is_pinned in (False, True):
        rank = [request for request in requests if (request.project.pin is not None) == is_pinned]
        batch = side_by_side(
            lambda request: checkout_project(request, torch_dir=torch_dir, say=say), rank, jobs=len(rank)
        )
        checkouts |= {one.project.name: one for one in batch}
    return tuple(checkouts[p.name] for p in stack.in_order() if p.name in checkouts)


def checkout_project(request: CheckoutRequest, *, torch_dir: Path | None, say: Progress = silent) -> Checkout:
    """Check out one project; an origin or hashtag left open comes from torch's pin or the release line.

    Raises:
        SourceError: a pin cannot be read, or as `cairn.sources.checkout.checkout.checkout`.
        UsageError: the request contradicts itself.
        NetworkError: an origin could not be reached.
        SystemFailureError: no space left, or another run does not end.
    """
    project = request.project
    what = choose_source(
        project,
        # With an origin of the user the default one is not needed: it may be an sdist that costs a download.
        default_origin=request.origin or origin_of(project),
        origin=request.origin or None,
        hashtag=request.hashtag or None,
        torch_dir=torch_dir,
        require_related_commit=request.require_related_commit,
        release=request.release,
    )
    say(f"{project.name}: {what.hashtag}, {what.because}")
    request = replace(request, origin=what.origin, hashtag=what.hashtag)
    result = checkout(request, say=lambda line: say(f"{project.name}: {line}"))
    return replace(result, notes=(what.note, *result.notes)) if what.note else result


def origin_of(project: Project) -> str:
    """Return a project's default origin: its URL, or the repository made of its tree or sdist."""
    return materialized(project) or project.origin.url or ""


def materialized(project: Project) -> str | None:
    """Return the cached repository made of a project's tree or sdist; None for a project with a URL."""
    cache = files.cache_dir() / "origins"
    tree, sdist = project.origin.tree, project.origin.sdist
    if tree is not None:
        # Repositories of one folder name each other by their names there; other folders may use them too.
        folder = Path(tree).resolve().parent
        key = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
        origin = TreeOrigin(name=project.name, path=Path(tree))
        return str(materialize([origin], cache / f"{folder.parent.name}-{key}")[project.name])
    if sdist is not None:
        if project.origin.sha256 is None:
            raise UsageError(f"the sdist of {project.name} has no sha256", tip="add it to its stack.toml")
        sha256 = project.origin.sha256
        archive = SdistOrigin(name=project.name, requirement=sdist, sha256=sha256)
        return str(materialize([archive], cache / f"sdists-{sha256[:12]}")[project.name])
    return None


def find_torch_dir(stack: Stack, root: Path) -> Path | None:
    """Return the default folder of the checkout that pins the others; None for a stack without one."""
    return next((root / p.checkout_dir for p in stack.projects if p.name == _PINNING), None)
