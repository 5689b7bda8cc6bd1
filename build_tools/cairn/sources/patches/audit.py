"""Audit a checkout: every difference from upstream is explained by hipify or the allowlist, or a problem.

The allowlist, in patches-policy, names the commits that may be on top of a hipified checkout, why, and until
when.
"""

from __future__ import annotations

import datetime as dt
import functools
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import structs

from cairn import datafile
from cairn.concurrency import side_by_side
from cairn.errors import SourceError, UsageError
from cairn.output import Progress, wording
from cairn.output.wording import short_id
from cairn.sources.checkout import local_commits
from cairn.sources.checkout.local_commits import LocalCommit
from cairn.sources.git import lock
from cairn.sources.git.command import COMMIT_ID
from cairn.sources.git.repository import HIPIFY_TAG, UPSTREAM_TAG, Repository
from cairn.sources.hipify import report as hipify_report
from cairn.sources.hipify import run
from cairn.sources.patches.apply import root_of
from cairn.sources.worktree import journal
from cairn.sources.worktree.parts import CommittedPart, walk_commit
from cairn.stack import HipifyKind

SCHEMA = "cairn.patches/1"
DEFAULT = Path("patches-policy", "allowlist.toml")

# tomllib does not say on which line a value was: where an entry begins is searched in the text.
_TABLE = re.compile(r"[ \t]*\[\[[ \t]*[\"']?patch[\"']?[ \t]*\]\]")
_SHAPES: Mapping[str, tuple[re.Pattern[str], str]] = {
    "commit": (COMMIT_ID, "a full commit id, in lower case"),
    "why": (re.compile(r"\S.{9,}", re.DOTALL), "a sentence"),
    "upstream": (re.compile(r"https://\S+/(pull|merge_requests)/\d+\S*"), "the URL of a pull request"),
    "owner": (re.compile(r"\S.*"), "a name"),
    "expires": (re.compile(r"\d{4}-\d{2}-\d{2}"), "a date, YYYY-MM-DD"),
    "project": (re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*"), "the name of a project of the stack"),
    "path": (re.compile(r"[^/\s][^\n]*[^/\s]|[^/\s]"), "the path of a submodule"),
    "patch": (re.compile(r"[0-9a-f]{64}"), "a sha256, as `cairn patches audit` shows it"),
}
_REQUIRED = ("project", "commit", "why", "upstream", "owner", "expires")


class Allowed(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the allowlist.

    Attributes:
        project: whose checkout it is for, as the stack calls it.
        commit: its id, where it comes from.
        why: what breaks without it.
        upstream: the pull request that will make it unnecessary.
        owner: who is responsible for it.
        expires: the last day on which it is allowed.
        path: of the submodule it is for; empty for the root.
        patch: digest of what it changes (`local_commits.digest`), which is the same on a different base.
        where: file and line of the entry.
    """

    project: str
    commit: str
    why: str
    upstream: str
    owner: str
    expires: dt.date
    path: str = ""
    patch: str | None = None
    where: str = ""


def find_allowlist(start: Path) -> Path | None:
    """Find the allowlist of `start` or of its nearest parent folder."""
    folders = (start.absolute(), *start.absolute().parents)
    return next((folder / DEFAULT for folder in folders if (folder / DEFAULT).is_file()), None)


def load_allowlist(path: Path) -> tuple[Allowed, ...]:
    """Read an allowlist.

    Raises:
        UsageError: it cannot be read or is malformed, with the file, the line and the reason.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        data = tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise UsageError(f"{path}:{line}: not UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}:{_line_of(error, text)}: {error}", tip="correct the file") from error
    except (ValueError, RecursionError) as error:  # a number too long, or tables nested too deep
        raise UsageError(f"{path}: {error}", tip="correct the file") from error
    if data.get("schema") != SCHEMA:
        raise UsageError(f"{path}:1: schema is {data.get('schema')!r}, expected {SCHEMA!r}")
    if unknown := sorted(data.keys() - {"schema", "patch"}):
        raise UsageError(f"{path}:{_line_with(text, unknown[0])}: unknown key {unknown[0]}")
    entries = tuple(_entries(path, text, data.get("patch", [])))
    _refuse_duplicates(entries)
    return entries


def _entries(path: Path, text: str, tables: object) -> Iterator[Allowed]:
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise UsageError(f"{path}:{_line_with(text, 'patch')}: patch is not an array of tables: [[patch]]")
    starts = [number for number, line in enumerate(text.splitlines(), 1) if _TABLE.match(line)]
    for number, table in enumerate(tables):
        # They differ where `[[patch]]` is in a text of several lines, or the tables are written inline.
        start = starts[number] if len(starts) == len(tables) else 1
        yield _entry(path, text, start, table)


def _entry(path: Path, text: str, start: int, table: Mapping[str, object]) -> Allowed:
    def refuse(key: str, reason: str) -> UsageError:
        return UsageError(f"{path}:{_line_with(text, key, start=start)}: {reason}")

    for key in sorted(table.keys() - _SHAPES.keys()):
        raise refuse(key, f"unknown key {key}")
    if missing := [key for key in _REQUIRED if key not in table]:
        raise UsageError(f"{path}:{start}: {missing[0]} is missing")
    fields: dict[str, str] = {}
    for key, value in table.items():
        shape, meaning = _SHAPES[key]
        # `type`, since a datetime is a date too, and a last day has no time.
        plain = value.isoformat() if type(value) is dt.date else value
        if not isinstance(plain, str) or not shape.fullmatch(plain):
            raise refuse(key, f"{key} is {plain!r}, expected {meaning}")
        fields[key] = plain
    try:
        expires = dt.date.fromisoformat(fields.pop("expires"))
    except ValueError as error:
        raise refuse("expires", f"expires: {error}") from error
    return Allowed(**fields, expires=expires, where=f"{path}:{start}")


def _refuse_duplicates(entries: tuple[Allowed, ...]) -> None:
    seen: dict[tuple[str, str, str], Allowed] = {}
    for entry in entries:
        first = seen.setdefault((entry.project, entry.path, entry.commit), entry)
        if first is not entry:
            raise UsageError(f"{entry.where}: {short_id(entry.commit)} is allowed at {first.where} already")


def _line_with(text: str, key: str, *, start: int = 1) -> int:
    """Return the number of the first line, from `start` on, that sets a key; `start` if there is none."""
    pattern = re.compile(rf"\s*(\[\[?\s*)?[\"']?{re.escape(key)}[\"']?\s*[=.\]]")
    lines = enumerate(text.splitlines()[start - 1 :], start)
    return next((number for number, line in lines if pattern.match(line)), start)


def _line_of(error: tomllib.TOMLDecodeError, text: str) -> int:
    match = re.search(r"at line (\d+)", str(error))
    return int(match[1]) if match else text.count("\n") + 1


T = TypeVar("T")


class Unexplained(msgspec.Struct, frozen=True, kw_only=True):
    """A difference that neither hipify nor the allowlist explains.

    Attributes:
        kind: what it is about.
        path: the submodule it is in; empty for the root.
        text: what is wrong.
        files: the files that differ, by paths from the root.
        commit: the commit that is not allowed.
        patch: its digest, for an entry of the allowlist.
    """

    kind: str
    path: str
    text: str
    files: tuple[str, ...] = ()
    commit: str | None = None
    patch: str | None = None


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """A commit above the second tag or beneath hipify's own, and the entry that allows it."""

    path: str
    commit: LocalCommit
    entry: Allowed


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an audit.

    Attributes:
        parts: how many repositories were looked at: the root and its submodules.
        hipify: who hipified.
        problems: all that nothing explains.
        explained: the commits that the allowlist has.
    """

    parts: int
    hipify: HipifyKind
    problems: tuple[Unexplained, ...]
    explained: tuple[Explained, ...]


class AuditRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to audit.

    Attributes:
        checkout: the working tree.
        project: in the stack; entries of other projects do not count.
        kind: who hipifies it.
        allowed: the allowlist.
        today: an entry is expired on the day after its last.
        python: the interpreter hipify runs in; ours when None.
    """

    checkout: Path
    project: str
    kind: HipifyKind
    allowed: Sequence[Allowed]
    today: dt.date
    python: Path | None = None


def audit(request: AuditRequest, *, say: Progress) -> Audit:
    """Audit a checkout, without touching it.

    Raises:
        SourceError: it is not a checkout, is unfinished, has no diff base, or hipify cannot be run again.
    """
    root = root_of(request.checkout, finished=True)
    base = root.tag(UPSTREAM_TAG)
    if base is None:
        raise SourceError(f"{root.work_tree} has no tag {UPSTREAM_TAG}", tip="check the project out again")
    with lock.hold(request.checkout):
        parts = walk_commit(root, base)
        problems = _flat(side_by_side(_tag_problems, parts))
        if not problems:
            say(f"explaining what is between the tags of {len(parts)} repositories")
            # Patches that hipify was run on are looked up in the allowlist below, with those on top of it.
            bases = side_by_side(
                lambda p: structs.replace(p, commit=local_commits.hipified_from(p.repository) or p.commit),
                parts,
            )
            differing = run.differences(bases, request.kind, python=request.python, say=say)
            for part, files in differing:
                if files:
                    text = f"between the tags are edits that hipify does not make: {wording.some(files)}"
                    problems.append(Unexplained(kind="hipify", path=part.path, text=text, files=files))
        allowed = [entry for entry in request.allowed if entry.project == request.project]
        local = side_by_side(functools.partial(_commits, allowed=allowed), parts)
        edits = _edits(root, parts)
        for part, (_, wrong) in zip(parts, local, strict=True):
            problems += wrong + edits[part.path]
    for entry in allowed:
        if entry.expires < request.today:
            until = f"was allowed until {entry.expires}; owner: {entry.owner}"
            text = f"{entry.where}: {short_id(entry.commit)} {until}"
            problems.append(Unexplained(kind="expired", path=entry.path, text=text, commit=entry.commit))
    explained = _flat([problem for problem, _ in local])
    return Audit(parts=len(parts), hipify=request.kind, problems=tuple(problems), explained=tuple(explained))


def _flat(lists: Iterable[Iterable[T]]) -> list[T]:
    return [item for items in lists for item in items]


def plain(audit: Audit) -> dict[str, object]:
    """Return the result as plain JSON values."""
    return {
        "ok": not audit.problems,
        "parts": audit.parts,
        "hipify": audit.hipify,
        "problems": [datafile.to_plain(problem) for problem in audit.problems],
        "allowed": [
            {
                "path": explained.path,
                "commit": explained.commit.id,
                "subject": explained.commit.subject,
                "why": explained.entry.why,
                "upstream": explained.entry.upstream,
                "owner": explained.entry.owner,
                "expires": explained.entry.expires.isoformat(),
            }
            for explained in audit.explained
        ],
    }


def _tag_problems(part: CommittedPart) -> list[Unexplained]:
    repo = part.repository
    first, second = repo.tags(UPSTREAM_TAG, HIPIFY_TAG)
    # The root's own tag may have been moved; what upstream gave is noted when it is checked out.
    note = None if part.path else journal.read(repo.git_dir)
    upstream = note.commit if note else part.commit
    problems = []
    if first != upstream:
        problems.append(f"{UPSTREAM_TAG} is at {_short(first)}, and upstream's commit is {_short(upstream)}")
    if second is None:
        problems.append(f"there is no {HIPIFY_TAG}: nothing says what hipify did (--hipify --commit-hipify)")
    else:
        # Most submodules are where upstream has them, and need not be asked.
        if second != part.commit and not repo.succeeds("merge-base", "--is-ancestor", part.commit, second):
            problems.append(f"{HIPIFY_TAG} does not descend from {_short(part.commit)}")
        if repo.head() != second and not repo.head_descends_from(second):
            problems.append(f"HEAD does not descend from {HIPIFY_TAG}")
    return [Unexplained(kind="tags", path=part.path, text=text) for text in problems]


def _commits(part: CommittedPart, *, allowed: Sequence[Allowed]) -> tuple[list[Explained], list[Unexplained]]:
    explained: list[Explained] = []
    problems: list[Unexplained] = []
    upstream, hipified = part.repository.tags(UPSTREAM_TAG, HIPIFY_TAG)
    # Neither hipified nor changed, as most submodules are: there is nothing to look up.
    if hipified is None or (upstream == hipified == part.repository.head()):
        return explained, problems
    # By id where the commit is what the entry names, else by what it changes: on another base, or amended, it
    # has a different id.
    allowed = [entry for entry in allowed if entry.path == part.path]
    digests = _digests(part.repository, allowed)
    local = local_commits.beneath(part.repository) + local_commits.above(part.repository, HIPIFY_TAG)
    for commit in local:
        digest = None if commit.is_merge else local_commits.digest(part.repository, commit.id)
        entry = next((e for e in allowed if e.commit == commit.id), None) or digests.get(digest or "")
        if entry is not None:
            explained.append(Explained(path=part.path, commit=commit, entry=entry))
            continue
        text = f"{short_id(commit.id)} {commit.subject!r} of {commit.author} is not on the allowlist"
        problems.append(Unexplained(kind="commit", path=part.path, text=text, commit=commit.id, patch=digest))
    return explained, problems


def _digests(repo: Repository, allowed: Sequence[Allowed]) -> dict[str, Allowed]:
    """Return the entries by patch digest; it is computed for an entry without one if its commit is here."""
    by_name = {entry.patch: entry for entry in allowed if entry.patch}
    for entry in allowed:
        if entry.patch is None and repo.succeeds("cat-file", "-e", f"{entry.commit}^{{commit}}"):
            by_name[local_commits.digest(repo, entry.commit)] = entry
    return by_name


def _edits(root: Repository, parts: Sequence[CommittedPart]) -> dict[str, list[Unexplained]]:
    changed = side_by_side(lambda part: [part.path_of(name) for name in part.repository.changes()], parts)
    hidden = side_by_side(lambda part: [part.path_of(name) for name in part.repository.index()[1]], parts)
    # Asked once for all: the report of a whole torch has thousands of names.
    edited = set(hipify_report.without_recorded(root, _flat(changed)))
    problems: dict[str, list[Unexplained]] = {}
    for part, names, unseen in zip(parts, changed, hidden, strict=True):
        of_part = problems.setdefault(part.path, [])
        if files := tuple(name for name in names if name in edited):
            text = f"{wording.count(files, 'edited or new file')} in no commit: {wording.some(files)}"
            of_part.append(Unexplained(kind="edits", path=part.path, text=text, files=files))
        if files := tuple(unseen):
            text = f"{wording.count(files, 'file')} git was told to ignore edits of: {wording.some(files)}"
            of_part.append(Unexplained(kind="edits", path=part.path, text=text, files=files))
    return problems


def _short(commit: str | None) -> str:
    return short_id(commit) if commit else "no commit"
