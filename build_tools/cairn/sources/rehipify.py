"""Hipify once more, in a copy, to see whether it explains what is between the two tags."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from cairn.sources import hipify, hipify_commit, hipifying, scratch
from cairn.sources.repository import HIPIFY_TAG, Repository
from cairn.sources.scratch import Part
from cairn.stack import HipifyKind

Say = Callable[[str], None]


def differences(
    parts: Sequence[Part], kind: HipifyKind, *, python: Path | None, say: Say
) -> Iterator[tuple[Part, tuple[str, ...]]]:
    """Per part, the files in which the second tag is not what hipify makes of upstream's commit.

    Args:
        parts: the root first; each has the second tag.
        kind: who hipifies; where nobody does at checkout, the second tag must be upstream's own tree.
        python: the interpreter hipify runs in; ours when None.
        say: is told what happens.

    Raises:
        SourceError: hipify failed.
    """
    if not hipify.runs_at_checkout(kind):
        for part in parts:
            yield part, _differing(part.repository, part.commit, part)
        return
    with scratch.copy(parts) as copies:
        root = copies[0].repository
        say(f"hipifying {copies[0].commit[:12]} again in {root.work_tree}")
        before = hipify.ignored(root)
        report = hipify.run(root, kind, ignored_before=before, python=python, say=say)
        made = hipifying.by_part(report.generated, [part.path for part in parts])
        for part, copied in zip(parts, copies, strict=True):
            commit = hipify_commit.commit(copied.repository, made[part.path])
            yield part, _differing(copied.repository, commit, part)


def _differing(where: Repository, expected: str, part: Part) -> tuple[str, ...]:
    actual = part.repository.tag(HIPIFY_TAG) or ""
    listed = where.run("diff-tree", "-r", "-z", "--name-only", "--no-renames", expected, actual)
    return tuple(part.named(name) for name in listed.split("\0") if name)
