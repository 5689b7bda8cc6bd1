"""Hipify in a copy of commits: the one place where it runs. A checkout gets the commits that come of it."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cairn.concurrency import side_by_side
from cairn.output import Progress
from cairn.sources.git import command
from cairn.sources.git.repository import HIPIFY_SUBJECT, HIPIFY_TAG, Repository
from cairn.sources.hipify import run
from cairn.sources.hipify.report import HipifyReport
from cairn.sources.worktree import copy
from cairn.sources.worktree.parts import CommittedPart
from cairn.stack import HipifyKind


@dataclass(frozen=True, kw_only=True)
class Hipified:
    """Copies that were hipified; `commits` are their commits afterwards, in the same order.

    `changes` are of all of them; None where a checkout is not hipified.
    """

    kind: HipifyKind
    copies: tuple[CommittedPart, ...]
    commits: tuple[str, ...]
    changes: run.Changes | None = None

    def report(self) -> HipifyReport | None:
        """What hipify did, and what it left; read from the copies, as long as they are there."""
        if self.changes is None:
            return None
        return run.report(self.copies[0].repository.work_tree, self.kind, self.changes)


@contextlib.contextmanager
def hipified(
    parts: Sequence[CommittedPart], kind: HipifyKind, *, python: Path | None, say: Progress
) -> Iterator[Hipified]:
    """Copies of the parts, hipified, as long as the block runs.

    Args:
        parts: the root first.
        kind: who hipifies.
        python: the interpreter hipify runs in; ours when None.
        say: progress callback.

    Raises:
        SourceError: hipify failed.
    """
    with copy.copy(parts) as copies:
        if not run.runs_at_checkout(kind):
            yield Hipified(kind=kind, copies=copies, commits=tuple(copied.commit for copied in copies))
            return
        shown = parts[0].repository.work_tree
        say(f"hipifying {copies[0].commit[:12]} of {shown} in a copy")
        changes = run.changes(copies, kind, shown=shown, python=python, say=say)
        paths = [copied.path for copied in copies]
        generated, changed = _by_part(changes.generated, paths), _by_part(changes.changed, paths)

        def committed(copied: CommittedPart) -> str:
            names = [*generated[copied.path], *changed[copied.path]]
            return _commit(copied.repository, names) if names else copied.commit

        commits = side_by_side(committed, copies)
        yield Hipified(kind=kind, copies=copies, commits=commits, changes=changes)


def differences(
    parts: Sequence[CommittedPart], kind: HipifyKind, *, python: Path | None, say: Progress
) -> Iterator[tuple[CommittedPart, tuple[str, ...]]]:
    """For each repository, the files in which its hipify tag differs from a fresh hipify of its commit.

    Args:
        parts: the root first; each has the second tag, and the commit that hipify was run on.
        kind: who hipifies; where that is not done at checkout, the second tag must be that commit's own tree.
        python: the interpreter hipify runs in; ours when None.
        say: progress callback.

    Raises:
        SourceError: hipify failed.
    """
    if not run.runs_at_checkout(kind):
        for part in parts:
            yield part, _differing(part.repository, part.commit, part)
        return
    with hipified(parts, kind, python=python, say=say) as again:
        for part, copied, commit in zip(parts, again.copies, again.commits, strict=True):
            yield part, _differing(copied.repository, commit, part)


def _differing(where: Repository, expected: str, part: CommittedPart) -> tuple[str, ...]:
    actual = part.repository.tag(HIPIFY_TAG) or ""
    if actual == expected:
        return ()
    listed = where.listed("diff-tree", "-r", "-z", "--name-only", "--no-renames", expected, actual)
    return tuple(map(part.named, listed))


def _by_part(names: Collection[str], parts: Collection[str]) -> dict[str, list[str]]:
    """Files by the root (empty) or submodule they are in, with paths from there."""
    by_part: dict[str, list[str]] = {path: [] for path in parts}
    deepest_first = sorted(parts, key=len, reverse=True)
    for name in names:
        owner = next(path for path in deepest_first if not path or name.startswith(f"{path}/"))
        by_part[owner].append(name[len(owner) + 1 :] if owner else name)
    return by_part


def _commit(copied: Repository, names: Collection[str]) -> str:
    """Commit what hipify changed and made in one repository; the commit, or HEAD where nothing differs.

    Generated files are committed even where the project ignores them, so that the commit has everything. It
    depends on the tree, the parent and the parent's time alone, so that it is the same for everyone. It is
    made without `git commit`, which runs hooks, reads the user's settings and fails where nothing changed.
    """
    from_input = ("--pathspec-from-file=-", "--pathspec-file-nul")  # git 2.25
    listed = command.nul_separated(sorted(names))
    copied.run("--literal-pathspecs", "add", "--all", "--force", *from_input, stdin=listed)
    tree = copied.run("write-tree").strip()
    head, old_tree, date = copied.run("log", "-1", "--format=%H %T %cd", "--date=raw").strip().split(" ", 2)
    if tree == old_tree:
        return head
    dates = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
    new = copied.run("commit-tree", tree, "-p", head, "-m", HIPIFY_SUBJECT, env=dates).strip()
    copied.run("update-ref", "-m", f"commit: {HIPIFY_SUBJECT}", "HEAD", new, head)
    return new


def commit_id(repository: Repository, commit: str, tree: str) -> str:
    """The commit that `hipified` makes on a commit where hipify leaves that tree, without hipifying."""
    old_tree, date = (
        repository.run("log", "-1", "--format=%T %cd", "--date=raw", commit).strip().split(" ", 1)
    )
    if tree == old_tree:
        return commit
    who = f"Cairn <{command.EMAIL}> {date}"
    text = f"tree {tree}\nparent {commit}\nauthor {who}\ncommitter {who}\n\n{HIPIFY_SUBJECT}\n"
    return repository.run("hash-object", "-t", "commit", "--stdin", stdin=text.encode()).strip()
