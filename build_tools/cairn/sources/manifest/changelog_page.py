"""A changelog for people: lines of text, or one HTML file without a script and without anything to load."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jinja2

from cairn import files
from cairn.output import redact
from cairn.sources.git.commits import Commit
from cairn.sources.manifest.changelog import Change, Changelog, ProjectChange

_SHORT = 12  # characters of a commit's id
_BROWSABLE = "https://github.com/"
_FULL = (40, 64)  # of SHA-1 and SHA-256


def lines(changelog: Changelog) -> Iterator[str]:
    """The changelog as text."""
    yield f"{changelog.stack} {changelog.line}: {changelog.before[:_SHORT]} → {changelog.after[:_SHORT]}"
    yield from (f"  {_change(change)}" for change in changelog.values)
    for project in changelog.projects:
        yield from _project(project)
    if not changelog.is_changed:
        yield "nothing changed"


def write_page(path: Path, changelog: Changelog) -> None:
    """Write the changelog as one HTML file, atomically; whatever the values hold is shown as text."""
    files.write_text(path, page(changelog))


def page(changelog: Changelog) -> str:
    """The changelog as HTML."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("cairn.sources.manifest", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters.update(short=short, link=link)
    return redact.mask(environment.get_template("changelog.html").render(changelog=changelog))


def short(value: str | None) -> str:
    """A value as it is read: of a commit's id the beginning, `none` for nothing."""
    if value is None:
        return "none"
    is_id = len(value) in _FULL and set(value) <= set("0123456789abcdef")
    return value[:_SHORT] if is_id else value


def link(commit: str, origin: str) -> str:
    """Where a commit can be read in a browser; empty where we do not know."""
    return f"{origin.removesuffix('.git')}/commit/{commit}" if origin.startswith(_BROWSABLE) else ""


def _project(project: ProjectChange) -> Iterator[str]:
    if not project.is_changed:
        yield f"{project.name}: unchanged at {short(project.after)}"
        return
    yield f"{project.name}: {short(project.before)} → {short(project.after)}{_count(project)}"
    yield from (f"  {_change(change)}" for change in project.values)
    if project.note:
        yield f"  {project.note}"
    yield from (f"  + {_commit(commit)}" for commit in project.commits)
    yield from (f"  - {_commit(commit)}" for commit in project.dropped)
    yield from (f"  submodule {_change(change)}" for change in project.submodules)


def _count(project: ProjectChange) -> str:
    counts = [(len(project.commits), "new"), (len(project.dropped), "dropped")]
    said = [f"{count} {word}" for count, word in counts if count]
    return f" ({', '.join(said)})" if said else ""


def _change(change: Change) -> str:
    return f"{change.name}: {short(change.before)} → {short(change.after)}"


def _commit(commit: Commit) -> str:
    return f"{short(commit.id)} {commit.subject} ({commit.author}, {commit.date[:10]})"
