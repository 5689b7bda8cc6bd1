"""Hipify once more, in a copy: to check what is between the two tags, or to put it on top of patches."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cairn.concurrency import side_by_side
from cairn.output import Progress
from cairn.sources.checkout import hipify_step
from cairn.sources.git.repository import HIPIFY_TAG, Repository
from cairn.sources.hipify import run
from cairn.sources.worktree import copy, submodules
from cairn.sources.worktree.parts import CommittedPart
from cairn.stack import HipifyKind


def differences(
    parts: Sequence[CommittedPart], kind: HipifyKind, *, python: Path | None, say: Progress
) -> Iterator[tuple[CommittedPart, tuple[str, ...]]]:
    """Per part, the files in which the second tag is not what hipify makes of the part's commit.

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


@dataclass(frozen=True, kw_only=True)
class Hipified:
    """Copies that were hipified; `commits` are their commits afterwards, in the same order.

    `changes` are of all of them; None where a checkout is not hipified.
    """

    copies: tuple[CommittedPart, ...]
    commits: tuple[str, ...]
    changes: run.Changes | None = None


@contextlib.contextmanager
def hipified(
    parts: Sequence[CommittedPart], kind: HipifyKind, *, python: Path | None, say: Progress
) -> Iterator[Hipified]:
    """Copies of the parts, hipified, as long as the block runs."""
    with copy.copy(parts) as copies:
        if not run.runs_at_checkout(kind):
            yield Hipified(copies=copies, commits=tuple(copied.commit for copied in copies))
            return
        root = copies[0].repository
        # They may be at other commits than their parents name; that is not hipify's doing.
        side_by_side(lambda copied: submodules.skip_gitlinks(copied.repository), copies)
        say(f"hipifying {copies[0].commit[:12]} again in {root.work_tree}")
        changes = run.changes(root, kind, ignored_before=(), python=python, say=say)
        paths = [copied.path for copied in copies]
        made, changed = (
            hipify_step.by_part(changes.generated, paths),
            hipify_step.by_part(changes.changed, paths),
        )

        def one(copied: CommittedPart) -> str:
            new, edited = made[copied.path], changed[copied.path]
            return hipify_step.commit_part(copied.repository, new, edited) if new or edited else copied.commit

        yield Hipified(copies=copies, commits=side_by_side(one, copies), changes=changes)


def _differing(where: Repository, expected: str, part: CommittedPart) -> tuple[str, ...]:
    actual = part.repository.tag(HIPIFY_TAG) or ""
    if actual == expected:
        return ()
    listed = where.run("diff-tree", "-r", "-z", "--name-only", "--no-renames", expected, actual)
    return tuple(part.named(name) for name in listed.split("\0") if name)
