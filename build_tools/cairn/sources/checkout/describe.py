"""Inspect a checkout without changing it: its commits, its submodules and its version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from packaging.version import InvalidVersion, Version

from cairn.concurrency import side_by_side
from cairn.errors import SourceError
from cairn.output import wording
from cairn.sources.git import url
from cairn.sources.git.repository import HIPIFY_TAG, UPSTREAM_TAG, Repository, has_lost_mirror, root_at
from cairn.sources.hipify import report as hipify_report
from cairn.sources.hipify import run
from cairn.sources.hipify.report import HipifyReport
from cairn.sources.worktree import journal
from cairn.sources.worktree.contents import edited_tree_id
from cairn.sources.worktree.journal import Journal
from cairn.sources.worktree.parts import Module, Part, walk, walk_submodules
from cairn.stack import Project

# The first line of a pointer, and the attribute of what has one (git-lfs, docs/spec.md).
_LFS_HEAD = b"version https://git-lfs.github.com/spec/v1\n"
_LFS_FILTER = b"filter=lfs"


class Submodule(msgspec.Struct, frozen=True, kw_only=True):
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


class Checkout(msgspec.Struct, frozen=True, kw_only=True):
    """A project's sources, ready to be built.

    Attributes:
        project: in the stack.
        path: the working tree.
        origin: where it came from, without credentials.
        hashtag: what was asked for.
        commit: what that was (`THEROCK_UPSTREAM_DIFFBASE`).
        hipify_commit: with hipify's edits (`THEROCK_HIPIFY_DIFFBASE`); `commit` itself where there were none;
            None where none were committed.
        tree: git's id of the root's files as they are now: after hipify, with local edits, without what
            builds leave in `build` and `*.egg-info`.
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
        """Whether hipify has run, committed or not, or has nothing to do before the build."""
        note = journal.read(root_at(self.path).git_dir)
        return self.hipify_commit is not None or (note is not None and note.hipify) or self.report is not None


def describe(project: Project, path: Path) -> Checkout:
    """Describe the checkout at `path`, which may also have been made by hand.

    Raises:
        SourceError: there is none, or it is unfinished, has lost its mirror, or has no version file.
    """
    require_finished(project, path)
    root = root_at(path.absolute())
    head = root.head() or ""
    note = journal.read(root.git_dir)
    origin = note.origin if note else root.origin_url() or str(root.work_tree)
    generated = _uncommitted(root, note) if run.runs_at_checkout(project.hipify) else {}
    modules = side_by_side(lambda m: _submodule(m, generated), walk_submodules(root, origin=origin))
    upstream, hipified, tree = _look(root, generated.get("", ()))
    return Checkout(
        project=project,
        path=root.work_tree,
        origin=url.without_credentials(origin),
        hashtag=note.hashtag if note else head,
        commit=upstream or head,
        hipify_commit=hipified,
        tree=tree,
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
        reason = "files were still being replaced" if note.phase == "moving" else "it was not hipified"
        raise SourceError(
            f"the checkout {path} of {project.name} is unfinished: {reason}",
            tip="run the `checkout` command again",
        )


def base_version(project: Project, tree: Path) -> str | None:
    """Return the version in the project's version file, such as `2.10.0a0`; None if it declares none.

    Raises:
        SourceError: the file is missing, or does not hold a version of PEP 440 and nothing else.
    """
    if not project.version_file:
        return None
    path = tree / project.version_file
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(
            f"{project.name} has no readable version file {path}",
            tip="is this the right repository? choose a different --repo-hashtag, or add the file",
        ) from error
    try:
        Version(text)
    except InvalidVersion:
        first = text.partition("\n")[0][:80]
        raise SourceError(
            f"{path} does not hold one version (PEP 440), but {first!r}"
            + (" and more lines" if "\n" in text else ""),
            tip="a merge may have gone wrong there; write one such as 2.9.0 or 2.10.0a0",
        ) from None
    return text


def _uncommitted(root: Repository, note: Journal | None) -> dict[str, list[str]]:
    """Return the files that hipify made and did not commit, by part: git may ignore some of them."""
    report = hipify_report.read(root.git_dir) if note is not None and note.files_digest else None
    if report is None:
        return {}
    return run.by_part(report.generated, [part.path for part in walk(root)])


def _look(repository: Repository, generated: Sequence[str]) -> tuple[str | None, str | None, str]:
    """Return the commits of both diff bases, and the id of the files as they are now."""
    tags = (f"refs/tags/{name}^{{commit}}" for name in (UPSTREAM_TAG, HIPIFY_TAG))
    edited = edited_tree_id(repository, outputs=False, also=generated)
    # After the files: a commit that a person makes meanwhile has what git saw no difference from.
    upstream, hipified, committed = repository.resolve(*tags, "HEAD^{tree}")
    return upstream, hipified, edited or committed or ""


def _submodule(module: Module, generated: Mapping[str, Sequence[str]]) -> Submodule:
    upstream, hipified, tree = _look(module.repository, generated.get(module.path, ()))
    return Submodule(
        path=module.path,
        origin=url.without_credentials(module.origin),
        commit=upstream or module.commit,
        hipify_commit=hipified,
        tree=tree,
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
    repo = part.repository
    # Nearly always in the root's own file; asking git in every submodule would take longer than all else.
    attributes = repo.work_tree / ".gitattributes"
    if not attributes.is_file() or _LFS_FILTER not in attributes.read_bytes():
        return []
    names = repo.read_entries("ls-files", "-z", "--", ":(attr:filter=lfs)")
    return [part.path_of(name) for name in names if _is_pointer(repo, name)]


def _is_pointer(repo: Repository, name: str) -> bool:
    path = repo.work_tree / name
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_LFS_HEAD)) == _LFS_HEAD
