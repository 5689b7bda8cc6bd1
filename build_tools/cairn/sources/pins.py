"""Pins: the commits that a torch checkout names for its siblings, and the source they give a project.

The formats are upstream's: `related_commits` of ROCm/pytorch's release branches, `ci_commit_pins/*.txt` and
`triton_version.txt` of `.ci/docker`. They are read strictly: what is not understood is an error that names
file and line, never a guess. (Upstream's own reader of `related_commits` reuses the fields of the previous
record for a malformed line, and there are merge commits upstream that have conflict markers in such files.)
Sources: ROCm/TheRock 89553ce, external-builds/pytorch/repo_management.py and
external-builds/pytorch/pytorch_triton_repo.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from cairn import platforms, requirements
from cairn.errors import SourceError, UsageError
from cairn.output.wording import short_id
from cairn.sources.git import repository, url
from cairn.sources.git.command import COMMIT_ID
from cairn.sources.worktree import journal
from cairn.stack import Project

RELATED_COMMITS = "related_commits"
CI_COMMIT_PINS = ".ci/docker/ci_commit_pins"
TRITON_VERSION = ".ci/docker/triton_version.txt"

_FIELDS = ("os", "source", "project", "branch", "commit", "origin")
_FALLBACK_OS = "ubuntu"  # whose records upstream's builds read everywhere, on Windows too
_CONFLICT = re.compile(r"(<{7}|={7}|>{7}|\|{7})( |$)")


class OtherSystemError(SourceError):
    """A project is pinned for other systems, and not for this one."""


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """A commit that one repository names for another.

    Attributes:
        commit: its full id.
        origin: as written, perhaps relative to the naming repository's own origin; None where not named.
        where: `file:line`, for messages.
    """

    commit: str
    origin: str | None
    where: str


class PinnedSource(msgspec.Struct, frozen=True, kw_only=True):
    """What to check out.

    Attributes:
        origin: a git URL or a path.
        hashtag: a branch, tag, commit or any other ref of it.
        because: where the hashtag comes from, for messages.
        note: what the user should know about it; None for nothing.
    """

    origin: str
    hashtag: str
    because: str
    note: str | None = None


def choose_source(  # noqa: PLR0913 - each is one independent source of the answer
    project: Project,
    *,
    default_origin: str,
    origin: str | None = None,
    hashtag: str | None = None,
    torch_dir: Path | None = None,
    require_related_commit: bool = False,
    release: bool = False,
) -> PinnedSource:
    """Choose the origin and hashtag to check a project out from.

    Args:
        project: in the stack, on its line.
        default_origin: the project's own origin.
        origin: the user's choice; wins.
        hashtag: the user's choice; wins.
        torch_dir: the torch checkout that may hold a pin.
        require_related_commit: refuse the default where `related_commits` does not name the project.
        release: the release branch of torch's triton version instead of its pinned commit.

    Raises:
        SourceError: a pin is malformed, required and missing, or there is no torch checkout to read it from.
        UsageError: both a hashtag and the release branch were asked for.
    """
    if release and hashtag is not None:
        raise UsageError("--release and --repo-hashtag exclude each other", tip="name one of them")
    if release:
        branch = triton_release(_torch(project, torch_dir))
        return PinnedSource(origin=origin or default_origin, hashtag=branch, because=TRITON_VERSION)
    needs_pin = hashtag is None or origin is None or require_related_commit
    pin = _pin(project, torch_dir, hashtag=hashtag, required=require_related_commit) if needs_pin else None
    if hashtag is not None:
        return PinnedSource(
            origin=origin or _origin(pin, torch_dir) or default_origin, hashtag=hashtag, because="asked for"
        )
    if pin is None:
        return PinnedSource(
            origin=origin or default_origin,
            hashtag=project.hashtag,
            because="the line's default",
            note=_unpinned(project, torch_dir),
        )
    url = origin or _origin(pin, torch_dir) or default_origin
    return PinnedSource(origin=url, hashtag=pin.commit, because=f"pinned in {pin.where}")


def _pin(project: Project, torch_dir: Path | None, *, hashtag: str | None, required: bool) -> Pin | None:
    if project.pin == "ci_commit_pins" and hashtag is None:
        return ci_commit_pin(_torch(project, torch_dir), project.name)
    if project.pin == "related_commits":
        return _related(project, torch_dir, hashtag=hashtag, required=required)
    if required:
        raise UsageError(f"{project.name} is named in no {RELATED_COMMITS} (stack.toml, pin)")
    return None


def _related(project: Project, torch_dir: Path | None, *, hashtag: str | None, required: bool) -> Pin | None:
    if required:
        torch_dir = _torch(project, torch_dir)
    if torch_dir is None:
        return None
    try:
        pin = related_commit(torch_dir, project.distribution)
    except OtherSystemError:
        if hashtag is None or required:
            raise
        return None  # only its origin was looked for
    if pin is None and required:
        raise SourceError(
            _unpinned(project, torch_dir)
            or f"{torch_dir} has no {RELATED_COMMITS}, so nothing names {project.distribution}",
            tip="check out a torch release branch that has it, or name --repo-hashtag",
        )
    return pin


def _unpinned(project: Project, torch_dir: Path | None) -> str | None:
    """Return a note if a torch checkout pins other projects but not this one, which it should pin."""
    if project.pin != "related_commits" or torch_dir is None or not (of_torch := named_projects(torch_dir)):
        return None
    return f"{torch_dir}/{RELATED_COMMITS} does not name {project.distribution}, only {', '.join(of_torch)}"


def _torch(project: Project, torch_dir: Path | None) -> Path:
    # Pins are files: they can be read even where the commits are gone with an emptied cache.
    if torch_dir is None or not (torch_dir / ".git").exists():
        raise SourceError(
            f"{project.name} is pinned by torch, and {torch_dir} is not a torch checkout",
            tip="check torch out first, name its folder with --torch-dir, or name --repo-hashtag",
        )
    return torch_dir


def _origin(pin: Pin | None, torch_dir: Path | None) -> str | None:
    """Return the origin of a pin; a relative one is resolved against the torch checkout's origin."""
    if pin is None or pin.origin is None or torch_dir is None:
        return None
    if not url.is_relative(pin.origin):
        return pin.origin
    root = repository.root_at(torch_dir)
    note = journal.read(root.git_dir)
    base = note.origin if note else root.origin_url()
    if base is None:
        raise SourceError(
            f"{torch_dir} does not say where it came from, and its pins have origins relative to that",
            tip="name --gitrepo-origin",
        )
    return url.resolve(base, pin.origin)


class RelatedCommit(msgspec.Struct, frozen=True, kw_only=True):
    """One record of `related_commits`; `line` counts from 1."""

    os: str
    source: str
    project: str
    branch: str
    commit: str
    origin: str
    line: int


def related_commits(path: Path) -> tuple[RelatedCommit, ...]:
    """Read the records of a `related_commits` file.

    Raises:
        SourceError: a line is malformed, or two of one system name different commits for one project.
    """
    records = tuple(_record(path, number, text) for number, text in _lines(path))
    records_by_name: dict[tuple[str, str], RelatedCommit] = {}
    for record in records:
        first = records_by_name.setdefault((record.os, record.project), record)
        if (first.commit, first.origin) != (record.commit, record.origin):
            raise _malformed(
                path,
                record.line,
                f"names a different commit or origin of {record.project} than line {first.line}",
            )
    return records


def related_commit(torch_dir: Path, distribution: str, *, system: str | None = None) -> Pin | None:
    """Return the pin that `related_commits` has for a distribution; None without a file or a record.

    The records of this system count, else those of `ubuntu`.

    Args:
        torch_dir: the torch checkout.
        distribution: as the file calls the project.
        system: what the file calls this system; None asks it.

    Raises:
        OtherSystemError: there are records for other systems only.
        SourceError: the file is malformed.
    """
    path = torch_dir / RELATED_COMMITS
    if not path.is_file():
        return None
    by_os = {r.os: r for r in reversed(related_commits(path)) if r.project == distribution}
    system = system or platforms.here.name()
    record = by_os.get(system) or by_os.get(_FALLBACK_OS)
    if record is not None:
        return Pin(commit=record.commit, origin=record.origin, where=f"{path}:{record.line}")
    if by_os:
        others = "; ".join(
            f"{r.os}: {short_id(r.commit)} of {r.origin} (line {r.line})" for r in by_os.values()
        )
        mine = " or ".join(dict.fromkeys((system, _FALLBACK_OS)))
        raise OtherSystemError(
            f"{path} does not name {distribution} for {mine}; it has {others}",
            tip="name the commit with --repo-hashtag, or add a record to the torch checkout",
        )
    return None


def named_projects(torch_dir: Path) -> tuple[str, ...]:
    """Return the projects that `related_commits` names; empty if there is no such file."""
    path = torch_dir / RELATED_COMMITS
    return tuple(dict.fromkeys(r.project for r in related_commits(path))) if path.is_file() else ()


def ci_commit_pin(torch_dir: Path, name: str) -> Pin | None:
    """Return the pin in `ci_commit_pins/<name>.txt`; None if there is no such file."""
    path = torch_dir / CI_COMMIT_PINS / f"{name}.txt"
    if not path.is_file():
        return None
    number, text = _only_line(path)
    if not COMMIT_ID.fullmatch(text):
        raise _malformed(path, number, f"{text[:60]!r} is not a full commit id")
    return Pin(commit=text, origin=None, where=f"{path}:{number}")


def triton_release(torch_dir: Path) -> str:
    """The release branch of the triton version that a torch checkout names: `release/3.5.x` for 3.5.0.

    Raises:
        SourceError: there is no such file, or it does not hold one version.
    """
    path = torch_dir / TRITON_VERSION
    if not path.is_file():
        raise SourceError(f"{path} is missing", tip="check torch out first, or name --repo-hashtag")
    number, text = _only_line(path)
    try:
        version = requirements.version(text)
    except ValueError as error:
        raise _malformed(path, number, f"{text[:60]!r} is not a version") from error
    return f"release/{version.major}.{version.minor}.x"


def _record(path: Path, number: int, text: str) -> RelatedCommit:
    values = [value.strip() for value in text.split("|")]
    if len(values) != len(_FIELDS):
        raise _malformed(path, number, f"has {len(values)} fields, expected {'|'.join(_FIELDS)}")
    fields = dict(zip(_FIELDS, values, strict=True))
    if empty := [name for name, value in fields.items() if not value]:
        raise _malformed(path, number, f"has no {' and no '.join(empty)}")
    if unclear := [name for name, value in fields.items() if re.search(r"[\s\x00-\x1f\x7f]", value)]:
        raise _malformed(path, number, f"has white space in {' and '.join(unclear)}")
    if not COMMIT_ID.fullmatch(fields["commit"]):
        raise _malformed(path, number, f"{fields['commit'][:60]!r} is not a full commit id")
    if fields["origin"].startswith("-"):
        raise _malformed(path, number, f"{fields['origin'][:60]!r} is not a valid origin")
    return RelatedCommit(**fields, line=number)


def _only_line(path: Path) -> tuple[int, str]:
    lines = list(_lines(path))
    if not lines:
        raise _malformed(path, 1, "is empty")
    if len(lines) > 1:
        raise _malformed(path, lines[1][0], "holds a second entry, expected one")
    return lines[0]


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file, numbered from 1, without comments and blank ones; any line end counts."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SourceError(f"{path} is not UTF-8 text: {error.reason}") from error
    # Not splitlines(), which also splits at form feeds and other characters that editors do not count.
    for number, raw in enumerate(re.split(r"\r\n|\n|\r", text), start=1):
        if _CONFLICT.match(raw):
            raise _malformed(path, number, "is a merge conflict marker")
        line = raw.strip(" \t")
        if line and not line.startswith("#"):
            yield number, line


def _malformed(path: Path, number: int, reason: str) -> SourceError:
    return SourceError(f"{path}:{number}: {reason}", tip="correct the line in the torch checkout")
