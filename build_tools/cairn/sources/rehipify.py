"""Hipify once more, in a copy: to see whether it explains what is between the tags, or on top of patches."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from cairn.sources import hipify, hipify_commit, hipifying, scratch, submodules
from cairn.sources.hipify_report import HipifyReport
from cairn.sources.repository import HIPIFY_TAG, Repository
from cairn.sources.scratch import Part
from cairn.stack import HipifyKind

Say = Callable[[str], None]


def differences(
    parts: Sequence[Part], kind: HipifyKind, *, python: Path | None, say: Say
) -> Iterator[tuple[Part, tuple[str, ...]]]:
    """Per part, the files in which the second tag is not what hipify makes of the part's commit.

    Args:
        parts: the root first; each has the second tag, and the commit that hipify was run on.
        kind: who hipifies; where nobody does at checkout, the second tag must be that commit's own tree.
        python: the interpreter hipify runs in; ours when None.
        say: is told what happens.

    Raises:
        SourceError: hipify failed.
    """
    if not hipify.runs_at_checkout(kind):
        for part in parts:
            yield part, _differing(part.repository, part.commit, part)
        return
    with hipified(parts, kind, python=python, say=say) as (copies, commits, _):
        for part, copied, commit in zip(parts, copies, commits, strict=True):
            yield part, _differing(copied.repository, commit, part)


@contextlib.contextmanager
def hipified(
    parts: Sequence[Part], kind: HipifyKind, *, python: Path | None, say: Say
) -> Iterator[tuple[tuple[Part, ...], tuple[str, ...], HipifyReport | None]]:
    """Copies of the parts, the commit of each after hipify, and what it did; as long as the block runs."""
    with scratch.copy(parts) as copies:
        if not hipify.runs_at_checkout(kind):
            yield copies, tuple(copied.commit for copied in copies), None
            return
        root = copies[0].repository
        for copied in copies:
            # They may be at other commits than their parents name; that is not hipify's doing.
            submodules.skip_gitlinks(copied.repository)
        say(f"hipifying {copies[0].commit[:12]} again in {root.work_tree}")
        before = hipify.ignored(root)
        report = hipify.run(root, kind, ignored_before=before, python=python, say=say)
        made = hipifying.by_part(report.generated, [copied.path for copied in copies])
        commits = tuple(hipify_commit.commit(copied.repository, made[copied.path]) for copied in copies)
        yield copies, commits, report


def _differing(where: Repository, expected: str, part: Part) -> tuple[str, ...]:
    actual = part.repository.tag(HIPIFY_TAG) or ""
    listed = where.run("diff-tree", "-r", "-z", "--name-only", "--no-renames", expected, actual)
    return tuple(part.named(name) for name in listed.split("\0") if name)
