"""The release line that the checkouts of a stack are of, by the hashtags and origins they were made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cairn.errors import SourceError, UsageError
from cairn.sources.git import url
from cairn.sources.git.repository import Repository, root_at
from cairn.sources.worktree import journal
from cairn.stack import Project, Stack


@dataclass(frozen=True, kw_only=True)
class _Evidence:
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


def line_of(stack: Stack, checkouts: Mapping[str, Path], *, named: str | None = None) -> str:
    """Determine the release line of a stack's checkouts.

    A hashtag that a line has for a project tells the line; a commit or a branch of the user's tells nothing,
    but its origin may, where lines have different ones. Where nothing tells, it is the stack's default.

    Args:
        stack: as loaded, on no particular line.
        checkouts: project name to folder.
        named: the line that the user named.

    Raises:
        UsageError: the checkouts contradict each other or the line that was asked for, do not tell which of
            several it is, or the stack has no such line.
    """
    if named is not None:
        stack.for_line(named)  # it must know the line
    hints = [
        evidence
        for project in stack.projects
        if project.name in checkouts and (evidence := _evidence(stack, project, checkouts[project.name]))
    ]
    strong = [evidence for evidence in hints if evidence.by_name]
    if named is not None:
        if against := [evidence for evidence in strong if named not in evidence.lines]:
            raise UsageError(
                f"--line {named} contradicts the checkouts: {_sentence(against)}",
                tip="check the projects of that line out, or drop --line",
            )
        return named
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
    what = f"{project.name} is {hashtag or 'no branch'} of {url.without_credentials(origin) or 'no origin'}"
    if by_name:
        return _Evidence(project=project.name, what=what, lines=by_name & by_origin or by_name, by_name=True)
    if by_origin and by_origin != on.keys():
        return _Evidence(project=project.name, what=what, lines=by_origin, by_name=False)
    return None


def _is_from(project: Project, origin: str) -> bool:
    own = project.origin.url
    return own is not None and bool(origin) and url.identity(own) == url.identity(origin)


def _ask(root: Repository, *words: str) -> str:
    try:
        return root.run(*words).strip()
    except SourceError:
        return ""  # no branch, or no remote


def _sentence(hints: list[_Evidence]) -> str:
    return "; ".join(f"{e.what} (line {' or '.join(sorted(e.lines))})" for e in hints)
