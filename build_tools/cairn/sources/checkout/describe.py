"""Inspect a checkout without changing it: its commits, its version and its release line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cairn.concurrency import side_by_side
from cairn.errors import SourceError, UsageError
from cairn.output import wording
from cairn.sources.git import url
from cairn.sources.git import url as git_url
from cairn.sources.git.repository import HIPIFY_TAG, UPSTREAM_TAG, Repository, has_lost_mirror, root_at
from cairn.sources.hipify import report as hipify_report
from cairn.sources.hipify.report import HipifyReport
from cairn.sources.worktree import journal
from cairn.sources.worktree.contents import work_tree_id
from cairn.sources.worktree.parts import Module, Part, walk, walk_submodules
from cairn.stack import Project, Stack

# The first line of a pointer, and the attribute of what has one (git-lfs, docs/spec.md).
_LFS_HEAD = b"version https://git-lfs.github.com/spec/v1\n"
_LFS_FILTER = b"filter=lfs"


@dataclass(frozen=True, kw_only=True)
class Submodule:
    """A submodule of a checkout.

    Attributes:
        path: from the root, with `/`.
        origin: where it came from, without credentials.
        commit: what upstream names.
        hipify_commit: with hipify's edits; the same where there were none; None where none were committed.
        tree: git's id of its files as they are now.
    """

    path: str
    origin: str
    commit: str
    hipify_commit: str | None
    tree: str


@dataclass(frozen=True, kw_only=True)
class Checkout:
    """A project's sources, ready to be built.

    Attributes:
        project: in the stack.
        path: the working tree.
        origin: where it came from, without credentials.
        hashtag: what was asked for.
        commit: what that was (`THEROCK_UPSTREAM_DIFFBASE`).
        hipify_commit: with hipify's edits (`THEROCK_HIPIFY_DIFFBASE`); `commit` itself where there were none;
            None where none were committed.
        tree: git's id of the root's files as they are now: after hipify, with local edits.
        submodules: those that are checked out, by path.
        version: base version, from the project's version file; None where it has none.
        notes: what the user should know about how it was made; only from the run that made it.
    """

    project: Project
    path: Path
    origin: str
    hashtag: str
    commit: str
    hipify_commit: str | None
    tree: str
    submodules: tuple[Submodule, ...] = ()
    version: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def report(self) -> HipifyReport | None:
        """The report of hipify, or None if Cairn has not run it. Read on access, as it may be large."""
        return hipify_report.read(root_at(self.path).git_dir)

    @property
    def is_hipified(self) -> bool:
        """Whether hipify has run, or has nothing to do before the build."""
        return self.hipify_commit is not None or self.report is not None


def describe(project: Project, path: Path) -> Checkout:
    """Describe the checkout at `path`, which may also have been made by hand.

    Raises:
        SourceError: there is none, or it is unfinished, has lost its mirror, or has no version file.
    """
    require_finished(project, path)
    root = root_at(path.absolute())
    head = root.head() or ""
    note = journal.read(root.git_dir)
    upstream, hipified = root.tags(UPSTREAM_TAG, HIPIFY_TAG)
    origin = note.origin if note else root.origin_url() or str(root.work_tree)
    modules = side_by_side(_submodule, walk_submodules(root, origin=origin))
    return Checkout(
        project=project,
        path=root.work_tree,
        origin=url.without_credentials(origin),
        hashtag=note.hashtag if note else head,
        commit=upstream or head,
        hipify_commit=hipified,
        tree=work_tree_id(root),
        submodules=tuple(sorted(modules, key=lambda module: module.path)),
        version=base_version(project, root.work_tree),
    )


def require_finished(project: Project, path: Path) -> None:
    """Refuse a checkout that cannot be built from; takes the same time for a checkout of any size.

    Raises:
        SourceError: there is none, or it is unfinished, or has lost its mirror.
    """
    root = root_at(path.absolute())
    if has_lost_mirror(root):
        raise SourceError(
            f"the mirror that {path} borrows from is gone",
            tip="run the `checkout` command again: it fetches what is missing, and local work stays",
        )
    if root.head() is None:
        raise SourceError(f"{path} is not a git checkout", tip=f"check {project.name} out first")
    note = journal.read(root.git_dir)
    if note is not None and note.phase != "ready":
        what = "files were still being replaced" if note.phase == "moving" else "it was not hipified"
        raise SourceError(
            f"the checkout {path} of {project.name} is unfinished: {what}",
            tip="run the `checkout` command again",
        )


def base_version(project: Project, tree: Path) -> str | None:
    """Return the version in the project's version file, such as `2.10.0a0`; None if it declares none.

    Raises:
        SourceError: it should be there and is not, or is empty or in conflict.
    """
    if not project.version_file:
        return None
    path = tree / project.version_file
    try:
        lines = path.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(
            f"{project.name} has no readable version file {path}",
            tip="choose a different --repo-hashtag, or add the file to the checkout",
        ) from error
    if len(lines) != 1:
        raise SourceError(f"{path} must hold one version, and holds {' '.join(lines)[:80]!r}")
    return lines[0]


def _submodule(module: Module) -> Submodule:
    upstream, hipified = module.repository.tags(UPSTREAM_TAG, HIPIFY_TAG)
    return Submodule(
        path=module.path,
        origin=url.without_credentials(module.origin),
        commit=upstream or module.commit,
        hipify_commit=hipified,
        tree=work_tree_id(module.repository),
    )


def lfs_notes(root: Repository) -> Iterator[str]:
    """Yield a note for the user if files are Git LFS pointers: neither git nor Cairn fetches the content."""
    pointers = [name for names in side_by_side(_lfs_pointers, walk(root)) for name in names]
    if pointers:
        yield (
            f"{wording.count(pointers, 'file')} of Git LFS came as a pointer, without the content: "
            f"{wording.some(pointers)} (in the checkout, `git lfs pull` fetches it)"
        )


def _lfs_pointers(part: Part) -> list[str]:
    own = part.repository
    # Nearly always in the root's own file; asking git in every submodule would take longer than all else.
    attributes = own.work_tree / ".gitattributes"
    if not attributes.is_file() or _LFS_FILTER not in attributes.read_bytes():
        return []
    listed = own.listed("ls-files", "-z", "--", ":(attr:filter=lfs)")
    return [part.named(name) for name in listed if _is_pointer(own, name)]


def _is_pointer(own: Repository, name: str) -> bool:
    path = own.work_tree / name
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_LFS_HEAD)) == _LFS_HEAD


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


def line_of(stack: Stack, checkouts: Mapping[str, Path], *, asked: str | None = None) -> str:
    """Determine the release line of a stack's checkouts.

    A hashtag that a line has for a project tells the line; a commit or a branch of the user's tells nothing,
    but its origin may, where lines have different ones. Where nothing tells, it is the stack's default.

    Args:
        stack: as loaded, on no particular line.
        checkouts: project name to folder.
        asked: the line that the user named.

    Raises:
        UsageError: the checkouts contradict each other or the line that was asked for, do not tell which of
            several it is, or the stack has no such line.
    """
    if asked is not None:
        stack.for_line(asked)  # it must know the line
    hints = [
        evidence
        for project in stack.projects
        if project.name in checkouts and (evidence := _evidence(stack, project, checkouts[project.name]))
    ]
    strong = [evidence for evidence in hints if evidence.by_name]
    if asked is not None:
        if against := [evidence for evidence in strong if asked not in evidence.lines]:
            raise UsageError(
                f"--line {asked} contradicts the checkouts: {_told(against)}",
                tip="check the projects of that line out, or drop --line",
            )
        return asked
    common = _common(stack, strong)
    if not common:
        raise UsageError(
            f"the checkouts are of different release lines: {_told(strong)}",
            tip="check out one line of all: `cairn checkout all --line LINE`",
        )
    if stack.line in common and (strong or stack.line in _common(stack, hints)):
        return stack.line
    narrowed = (common & _common(stack, hints)) or common
    if len(narrowed) > 1:
        raise UsageError(
            f"the checkouts may be of several release lines: {_told(hints)}",
            tip="name it with --line, such as release/2.9",
        )
    return next(iter(narrowed))


def _common(stack: Stack, hints: list[_Evidence]) -> frozenset[str]:
    return frozenset(stack.line_names()).intersection(*(evidence.lines for evidence in hints))


def _evidence(stack: Stack, project: Project, folder: Path) -> _Evidence | None:
    """Read the evidence of a checkout; None for a project that is the same on every line."""
    root = root_at(folder)
    if not project.lines or not root.exists():
        return None
    note = journal.read(root.git_dir)
    if note is not None:
        hashtag, origin = note.hashtag, note.origin
    else:  # made by hand
        hashtag = _asked(root, "symbolic-ref", "--quiet", "--short", "HEAD")
        origin = root.origin_url() or ""
    on = {line: stack.for_line(line).project(project.name) for line in stack.line_names()}
    name = hashtag.removeprefix("refs/heads/").removeprefix("origin/")
    by_name = frozenset(line for line, origins in on.items() if origins.hashtag == name)
    by_origin = frozenset(line for line, origins in on.items() if _is_from(origins, origin))
    what = (
        f"{project.name} is {hashtag or 'no branch'} of {git_url.without_credentials(origin) or 'no origin'}"
    )
    if by_name:
        return _Evidence(project=project.name, what=what, lines=by_name & by_origin or by_name, by_name=True)
    if by_origin and by_origin != on.keys():
        return _Evidence(project=project.name, what=what, lines=by_origin, by_name=False)
    return None


def _is_from(project: Project, origin: str) -> bool:
    url = project.origin.url
    return url is not None and bool(origin) and git_url.identity(url) == git_url.identity(origin)


def _asked(root: Repository, *words: str) -> str:
    try:
        return root.run(*words).strip()
    except SourceError:
        return ""  # no branch, or no remote


def _told(hints: list[_Evidence]) -> str:
    return "; ".join(f"{e.what} (line {' or '.join(sorted(e.lines))})" for e in hints)
