"""The changes between two manifests: commits with their subjects, submodules, SDK, toolchain.

`between` compares; `lines` and `write_page` show the result, as text and as one HTML file without scripts
or anything to load.

Commits are read by GitPython in our environment. It starts `git` with the caller's whole environment, and
its `Repo` also reads configuration files and GIT_* variables by itself. So no `Repo` is made here, and
`_isolated` starts the one program that GitPython needs to read objects, `git cat-file --batch`, in the
environment of all other runs of git (`cairn.sources.git.command`). It shows objects as they were written: no
setting of `log`, `i18n`, `color` or `mailmap` takes part. GitPython cannot read SHA-256 repositories
(git/cmd.py, `_parse_object_header`); our mirrors are SHA-1.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from cairn import datafile, files, templates
from cairn.concurrency import side_by_side
from cairn.errors import SourceError
from cairn.output import Progress, safe_text
from cairn.output.wording import short_id
from cairn.sources import mirror
from cairn.sources.git import command, url
from cairn.sources.manifest.manifest import Manifest, ProjectSource

if TYPE_CHECKING:
    import git

_ENCODING = re.compile(rb"^encoding (\S+)$", re.MULTILINE)
_PARENT = re.compile(rb"^parent ([0-9a-f]+)$", re.MULTILINE)
_SIGNED = re.compile(rb"^(author|committer) (.*)$", re.MULTILINE)


class Commit(datafile.Value):
    """A commit, as a changelog shows it; control characters in it are replaced.

    Attributes:
        id: in full.
        author: the name of who wrote it.
        date: when it was committed, ISO 8601; empty where the commit does not say.
        subject: the first paragraph of its message, in one line.
        parent: the first of its parents; empty where it has none.
    """

    id: str
    author: str
    date: str
    subject: str
    parent: str = ""


def commits_between(folder: Path, before: str, after: str) -> tuple[Commit, ...]:
    """Return the commits in `before..after`, newest first.

    Args:
        folder: a working tree or a git directory: a worktree, a partial clone or a mirror as well.
        before: a commit, tag or branch in it.
        after: likewise.

    Raises:
        SourceError: there is no such commit.
    """
    ids = command.run(folder, "rev-list", f"{before}..{after}").split()
    if not ids:
        return ()
    reader = _isolated()(str(folder))
    try:
        return tuple(_read_commit(each, reader.get_object_data(each)[3]) for each in ids)
    except (ValueError, OSError) as error:
        raise SourceError(f"git cat-file in {folder}: {error}", tip="`git fsck` there says more") from error
    finally:
        reader.clear_cache()  # ends the program


@functools.cache
def _isolated() -> type[git.Git]:
    """GitPython's `Git`, loaded when first needed: it takes 50 ms, which a checkout does not spend."""
    # On import it runs `git version`, and fails where GIT_PYTHON_GIT_EXECUTABLE names no git.
    os.environ["GIT_PYTHON_REFRESH"] = "quiet"
    import git  # noqa: PLC0415

    class Isolated(git.Git):
        def execute(  # type: ignore[override] # the one way in which `get_object_data` calls it
            self, command_line: Sequence[str], istream: int, **_: object
        ) -> git.Git.AutoInterrupt:
            args = ["git", *command_line[1:]]  # the first may be the user's GIT_PYTHON_GIT_EXECUTABLE
            child = subprocess.Popen(
                args,
                cwd=self.working_dir,
                env=command.environment(),
                stdin=istream,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            return self.AutoInterrupt(child, args)

    return Isolated


def _read_commit(commit: str, raw: bytes) -> Commit:
    """Parse a commit object: headers, an empty line, the message (git's `parse_commit_buffer`)."""
    from git.objects.util import from_timestamp, parse_actor_and_date  # noqa: PLC0415 - see `_isolated`

    headers, _, message = raw.partition(b"\n\n")
    # `git.Commit` (3.2.1) takes every commit for UTF-8: it compares ten bytes of the header with `encoding `.
    declared = _ENCODING.search(headers)
    encoding = declared[1].decode("ascii", "replace") if declared else "utf-8"
    signed = {role: _text(line, encoding) for role, line in _SIGNED.findall(headers)}
    name = signed.get(b"author", "").partition("<")[0].strip()
    _, seconds, offset = parse_actor_and_date(f"committer {signed.get(b'committer', '')}")
    try:
        date = from_timestamp(seconds, offset).isoformat() if seconds else ""
    except (ValueError, OverflowError):  # past the year 9999
        date = ""
    paragraph = re.split(r"\n[ \t\r]*\n", _text(message, encoding).strip(), maxsplit=1)[0]
    subject = " ".join(line.rstrip() for line in paragraph.split("\n"))
    match = _PARENT.search(headers)
    parent = match[1].decode() if match else ""
    return Commit(id=commit, author=_shown(name), date=date, subject=_shown(subject), parent=parent)


def _text(data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding, "replace")
    except (LookupError, ValueError):  # no such encoding, or not one of text; git takes the bytes as they are
        return data.decode(errors="replace")


def _shown(text: str) -> str:
    """Make text safe to print: a commit's author may have put anything into it."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


_BROWSABLE = "https://github.com/"
_FULL = (40, 64)  # characters: of SHA-1 and SHA-256


class ValueChange(datafile.Value):
    """A value that differs, or was added or removed; None where there was or is none."""

    name: str
    before: str | None
    after: str | None


class ProjectChange(datafile.Value):
    """The changes of one project.

    Attributes:
        name: in the stack.
        origin: where it comes from now (or came from, for one that was removed).
        before: its commit then; None where it was added.
        after: its commit now; None where it was removed.
        values: what else differs: origin, hashtag, version, who hipifies, the files at an equal commit.
        commits: the new ones, newest first.
        dropped: those that it no longer has, where a branch was rewritten or went back.
        submodules: their commits, by path.
        note: why there are no commits to show; empty where there are, or none changed.
    """

    name: str
    origin: str
    before: str | None
    after: str | None
    values: tuple[ValueChange, ...] = ()
    commits: tuple[Commit, ...] = ()
    dropped: tuple[Commit, ...] = ()
    submodules: tuple[ValueChange, ...] = ()
    note: str = ""

    @property
    def is_changed(self) -> bool:
        """Whether anything in the project differs."""
        return self.before != self.after or bool(self.values or self.submodules)


class Changelog(datafile.Value, tag_field="schema", tag="cairn.changelog/1"):
    """The changes from one manifest to another.

    Attributes:
        stack: the name of the newer one's stack.
        line: likewise, its release line.
        before: sha256 of the older manifest.
        after: sha256 of the newer one.
        values: SDK, targets, Pythons, platform, tools of the toolchain, variables given to builds.
        projects: all of both manifests, in the newer one's order of building.
    """

    stack: str
    line: str
    before: str
    after: str
    values: tuple[ValueChange, ...]
    projects: tuple[ProjectChange, ...]

    @property
    def is_changed(self) -> bool:
        """Whether anything differs."""
        return bool(self.values) or any(project.is_changed for project in self.projects)


def between(
    before: Manifest,
    after: Manifest,
    *,
    commits: bool = True,
    say: Progress,
) -> Changelog:
    """Compare two manifests.

    Args:
        before: the older manifest.
        after: the newer one.
        commits: name the commits too, which needs their origins, or mirrors that have them.
        say: progress callback.

    Raises:
        NetworkError: an origin could not be reached.
    """
    old = {project.name: project for project in before.projects}
    new = {project.name: project for project in after.projects}

    def change_of(name: str) -> ProjectChange:
        change = _project(old.get(name), new.get(name))
        if not commits or change.before is None or change.after is None or change.before == change.after:
            return change
        return _with_commits(change, old[name], new[name], say=say)

    names = [*new, *(name for name in old if name not in new)]
    return Changelog(
        stack=after.stack,
        line=after.line,
        before=before.digest(),
        after=after.digest(),
        values=_changes(_values(before), _values(after)),
        projects=side_by_side(change_of, names),
    )


def _values(manifest: Manifest) -> dict[str, str | None]:
    fixed = {
        "stack": manifest.stack,
        "line": manifest.line,
        "ROCm SDK": manifest.sdk_version,
        "targets": ", ".join(manifest.targets),
        "Pythons": ", ".join(manifest.pythons),
        "platform": manifest.platform,
    }
    tools = {f"toolchain, {name}": value for name, value in manifest.toolchain.items()}
    return fixed | tools | {f"--build-env {name}": value for name, value in manifest.build_env.items()}


def _changes(before: Mapping[str, str | None], after: Mapping[str, str | None]) -> tuple[ValueChange, ...]:
    pairs = ((name, before.get(name), after.get(name)) for name in {**after, **before})
    return tuple(ValueChange(name=name, before=was, after=now) for name, was, now in pairs if was != now)


def _project(before: ProjectSource | None, after: ProjectSource | None) -> ProjectChange:
    either = after or before
    assert either is not None  # noqa: S101 - for the type checker; a name is of one of them
    return ProjectChange(
        name=either.name,
        origin=url.without_credentials(either.origin),
        before=before.commit if before else None,
        after=after.commit if after else None,
        values=tuple(_project_values(before, after)) if before and after else (),
        submodules=_changes(_submodules(before), _submodules(after)) if before and after else (),
    )


def _project_values(before: ProjectSource, after: ProjectSource) -> Iterator[ValueChange]:
    values: list[tuple[str, str | None, str | None]] = [
        ("origin", url.without_credentials(before.origin), url.without_credentials(after.origin)),
        ("hashtag", before.hashtag, after.hashtag),
        ("version", before.version, after.version),
        ("hipify", before.hipify, after.hipify),
    ]
    # The same commit with different files: hipified by another version, or frozen with local edits.
    if before.commit == after.commit:
        values.append(("files", before.tree, after.tree))
    return (ValueChange(name=name, before=was, after=now) for name, was, now in values if was != now)


def _submodules(source: ProjectSource) -> dict[str, str | None]:
    return {module.path: module.commit for module in source.submodules}


def _with_commits(
    change: ProjectChange, before: ProjectSource, after: ProjectSource, *, say: Progress
) -> ProjectChange:
    source = mirror.of_commits(after.origin)
    try:
        # A commit that a branch no longer has may be gone from its origin: the changelog then goes without.
        source.find(after.commit, say=say)
        source.find(before.commit, say=say)
    except SourceError as error:
        return structs.replace(change, note=f"no commits to show: {error}")
    return structs.replace(
        change,
        commits=commits_between(source.path, before.commit, after.commit),
        dropped=commits_between(source.path, after.commit, before.commit),
    )


def lines(changelog: Changelog) -> Iterator[str]:
    """Yield the changelog as lines of text."""
    yield f"{changelog.stack} {changelog.line}: {short_id(changelog.before)} → {short_id(changelog.after)}"
    yield from (f"  {_change(change)}" for change in changelog.values)
    for project in changelog.projects:
        yield from _project_lines(project)
    if not changelog.is_changed:
        yield "nothing changed"


def write_page(path: Path, changelog: Changelog) -> None:
    """Write the changelog as one HTML file, atomically; values are shown as text, whatever they hold."""
    page = templates.page("changelog", changelog=changelog, short=_short, link=_link)
    files.write_text(path, safe_text.mask(page))


def _short(value: str | None) -> str:
    """A value as it is read: of a commit's id the beginning, `none` for nothing."""
    if value is None:
        return "none"
    is_id = len(value) in _FULL and set(value) <= set("0123456789abcdef")
    return short_id(value) if is_id else value


def _link(commit: str, origin: str) -> str:
    """Where a commit can be read in a browser; empty where we do not know."""
    return f"{origin.removesuffix('.git')}/commit/{commit}" if origin.startswith(_BROWSABLE) else ""


def _project_lines(project: ProjectChange) -> Iterator[str]:
    if not project.is_changed:
        yield f"{project.name}: unchanged at {_short(project.after)}"
        return
    numbers = [(len(project.commits), "new"), (len(project.dropped), "dropped")]
    summary = ", ".join(f"{number} {word}" for number, word in numbers if number)
    counts = f" ({summary})" if summary else ""
    yield f"{project.name}: {_short(project.before)} → {_short(project.after)}{counts}"
    yield from (f"  {_change(change)}" for change in project.values)
    if project.note:
        yield f"  {project.note}"
    yield from (f"  + {_commit(commit)}" for commit in project.commits)
    yield from (f"  - {_commit(commit)}" for commit in project.dropped)
    yield from (f"  submodule {_change(change)}" for change in project.submodules)


def _change(change: ValueChange) -> str:
    return f"{change.name}: {_short(change.before)} → {_short(change.after)}"


def _commit(commit: Commit) -> str:
    written = ", ".join(filter(None, (commit.author, commit.date[:10])))
    return f"{_short(commit.id)} {commit.subject} ({written})"
