"""Which origin and hashtag are meant: the flag, then the pin in the torch checkout, then the default."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cairn.errors import SourceError, UsageError
from cairn.sources.git import repository, url
from cairn.sources.pins import read
from cairn.sources.pins.read import Pin
from cairn.sources.worktree import state
from cairn.stack import Project


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What to check out.

    Attributes:
        origin: a git URL or a path.
        hashtag: a branch, tag, commit or any other ref of it.
        because: where the hashtag comes from, for people.
        note: what a person should know of it; None for nothing.
    """

    origin: str
    hashtag: str
    because: str
    note: str | None = None


def wanted(  # noqa: PLR0913 - each is one independent source of the answer
    project: Project,
    *,
    default_origin: str,
    origin: str | None = None,
    hashtag: str | None = None,
    torch_dir: Path | None = None,
    require_related_commit: bool = False,
    release: bool = False,
) -> Wanted:
    """What to check out for a project.

    Args:
        project: in the stack, on its line.
        default_origin: the project's own origin.
        origin: of the person; wins.
        hashtag: of the person; wins.
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
        branch = read.triton_release(_torch(project, torch_dir))
        return Wanted(origin=origin or default_origin, hashtag=branch, because=read.TRITON_VERSION)
    needs_pin = hashtag is None or origin is None or require_related_commit
    pin = _pin(project, torch_dir, hashtag=hashtag, required=require_related_commit) if needs_pin else None
    if hashtag is not None:
        return Wanted(
            origin=origin or _origin(pin, torch_dir) or default_origin, hashtag=hashtag, because="asked for"
        )
    if pin is None:
        return Wanted(
            origin=origin or default_origin,
            hashtag=project.hashtag,
            because="the line's default",
            note=_unpinned(project, torch_dir),
        )
    found = origin or _origin(pin, torch_dir) or default_origin
    return Wanted(origin=found, hashtag=pin.commit, because=f"pinned in {pin.where}")


def _pin(project: Project, torch_dir: Path | None, *, hashtag: str | None, required: bool) -> Pin | None:
    if project.pin == "ci_commit_pins" and hashtag is None:
        return read.ci_commit_pin(_torch(project, torch_dir), project.name)
    if project.pin == "related_commits":
        return _related(project, torch_dir, hashtag=hashtag, required=required)
    if required:
        raise UsageError(f"{project.name} is named in no {read.RELATED_COMMITS} (stack.toml, pin)")
    return None


def _related(project: Project, torch_dir: Path | None, *, hashtag: str | None, required: bool) -> Pin | None:
    if required:
        torch_dir = _torch(project, torch_dir)
    if torch_dir is None:
        return None
    try:
        pin = read.related_commit(torch_dir, project.distribution)
    except read.OtherSystemError:
        if hashtag is None or required:
            raise
        return None  # only its origin was looked for
    if pin is None and required:
        raise SourceError(
            _unpinned(project, torch_dir)
            or f"{torch_dir} has no {read.RELATED_COMMITS}, so nothing names {project.distribution}",
            tip="check out a torch release branch that has it, or name --repo-hashtag",
        )
    return pin


def _unpinned(project: Project, torch_dir: Path | None) -> str | None:
    """What is said where a torch checkout pins others, and not this project."""
    if torch_dir is None or not (named := read.named_projects(torch_dir)):
        return None
    return f"{torch_dir}/{read.RELATED_COMMITS} does not name {project.distribution}, only {', '.join(named)}"


def _torch(project: Project, torch_dir: Path | None) -> Path:
    # Pins are files: they can be read even where the commits are gone with an emptied cache.
    if torch_dir is None or not (torch_dir / ".git").exists():
        raise SourceError(
            f"{project.name} is pinned by torch, and {torch_dir} is no torch checkout",
            tip="check torch out first, name its folder with --torch-dir, or name --repo-hashtag",
        )
    return torch_dir


def _origin(pin: Pin | None, torch_dir: Path | None) -> str | None:
    """A pin's origin; a relative one starts where the torch checkout came from."""
    if pin is None or pin.origin is None or torch_dir is None:
        return None
    if not url.is_relative(pin.origin):
        return pin.origin
    return url.resolve(_came_from(torch_dir), pin.origin)


def _came_from(torch_dir: Path) -> str:
    root = repository.root_at(torch_dir)
    if note := state.read(root.git_dir):
        return note.origin
    if origin := root.origin_url():
        return origin
    raise SourceError(
        f"{torch_dir} does not say where it came from, and its pins are relative to that",
        tip="name --gitrepo-origin",
    )
