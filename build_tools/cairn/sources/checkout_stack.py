"""Check out the projects of a stack together: torch first, since it pins the others (`pins`).

And tell of which release line checkouts are: `line_of`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import structs

from cairn import files
from cairn.concurrency import side_by_side
from cairn.errors import SourceError, UsageError
from cairn.output import Progress, silent
from cairn.sources.checkout.checkout import CheckoutRequest, checkout
from cairn.sources.checkout.describe import Checkout
from cairn.sources.git import url
from cairn.sources.git.repository import Repository, root_at
from cairn.sources.origins.materialize import SdistOrigin, TreeOrigin, materialize
from cairn.sources.pins import choose_source
from cairn.sources.worktree import journal
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
        checkouts |= {result.project.name: result for result in batch}
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
    source = choose_source(
        project,
        # With an origin of the user the default one is not needed: it may be an sdist that costs a download.
        default_origin=request.origin or origin_of(project),
        origin=request.origin or None,
        hashtag=request.hashtag or None,
        torch_dir=torch_dir,
        require_related_commit=request.require_related_commit,
        release=request.release,
    )
    say(f"{project.name}: {source.hashtag}, {source.because}")
    request = dataclasses.replace(request, origin=source.origin, hashtag=source.hashtag)
    result = checkout(request, say=lambda line: say(f"{project.name}: {line}"))
    return structs.replace(result, notes=(source.note, *result.notes)) if source.note else result


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


class _Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """The release lines that a checkout may belong to.

    Attributes:
        project: the project.
        what: the hashtag and origin it was checked out at, for messages.
        lines: those it may be of.
        by_name: its hashtag is that of these lines; else its origin alone tells.
    """

    project: str
    what: str
    lines: frozenset[str]
    by_name: bool


def line_of(stack: Stack, checkouts: Mapping[str, Path], *, line: str | None = None) -> str:
    """Determine the release line of a stack's checkouts.

    A hashtag that a line has for a project tells the line; a commit or a branch of the user's tells nothing,
    but its origin may, where lines have different ones. Where nothing tells, it is the stack's default.

    Args:
        stack: as loaded, on no particular line.
        checkouts: project name to folder.
        line: the line that the user named.

    Raises:
        UsageError: the checkouts contradict each other or the line that was asked for, do not tell which of
            several it is, or the stack has no such line.
    """
    if line is not None:
        stack.for_line(line)  # it must know the line
    hints = [
        evidence
        for project in stack.projects
        if project.name in checkouts and (evidence := _evidence(stack, project, checkouts[project.name]))
    ]
    strong = [evidence for evidence in hints if evidence.by_name]
    if line is not None:
        if against := [evidence for evidence in strong if line not in evidence.lines]:
            raise UsageError(
                f"--line {line} contradicts the checkouts: {_sentence(against)}",
                tip="check the projects of that line out, or drop --line",
            )
        return line
    common = _common(stack, strong)
    if not common:
        raise UsageError(
            f"the checkouts are of different release lines: {_sentence(strong)}",
            tip="check out one line of all: `cairn checkout all --line LINE`",
        )
    if stack.line in common and (strong or stack.line in _common(stack, hints)):
        return stack.line
    narrowed = (common & _common(stack, hints)) or common
    if len(narrowed) > 1:
        raise UsageError(
            f"the checkouts may be of several release lines: {_sentence(hints)}",
            tip="name it with --line, such as release/2.9",
        )
    return next(iter(narrowed))


def _common(stack: Stack, hints: list[_Evidence]) -> frozenset[str]:
    return frozenset(stack.line_names()).intersection(*(evidence.lines for evidence in hints))


def _evidence(stack: Stack, project: Project, folder: Path) -> _Evidence | None:
    """Read the evidence of a checkout; None for a project that is the same on every line."""
    root = root_at(folder)
    if not project.lines or not root.has_commit():
        return None
    note = journal.read(root.git_dir)
    if note is not None:
        hashtag, origin = note.hashtag, note.origin
    else:  # made by hand
        hashtag = _ask(root, "symbolic-ref", "--quiet", "--short", "HEAD")
        origin = root.origin_url() or ""
    on = {line: stack.for_line(line).project(project.name) for line in stack.line_names()}
    name = hashtag.removeprefix("refs/heads/").removeprefix("origin/")
    by_name = frozenset(line for line, origins in on.items() if origins.hashtag == name)
    by_origin = frozenset(line for line, origins in on.items() if _is_from(origins, origin))
    subject = (
        f"{project.name} is {hashtag or 'no branch'} of {url.without_credentials(origin) or 'no origin'}"
    )
    if by_name:
        return _Evidence(
            project=project.name, what=subject, lines=by_name & by_origin or by_name, by_name=True
        )
    if by_origin and by_origin != on.keys():
        return _Evidence(project=project.name, what=subject, lines=by_origin, by_name=False)
    return None


def _is_from(project: Project, origin: str) -> bool:
    default_url = project.origin.url
    return default_url is not None and bool(origin) and url.identity(default_url) == url.identity(origin)


def _ask(root: Repository, *words: str) -> str:
    try:
        return root.run(*words).strip()
    except SourceError:
        return ""  # no branch, or no remote


def _sentence(hints: list[_Evidence]) -> str:
    return "; ".join(f"{e.what} (line {' or '.join(sorted(e.lines))})" for e in hints)
