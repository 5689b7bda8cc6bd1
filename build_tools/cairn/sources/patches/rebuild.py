"""Hipify once more, on top of patches that go beneath its commit, and the checkout moved there."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cairn.sources.checkout import local_work, rehipify
from cairn.sources.git import repository
from cairn.sources.git.repository import HIPIFY_TAG, Repository
from cairn.sources.hipify import report as hipify_report
from cairn.sources.hipify import run
from cairn.sources.hipify.report import HipifyReport
from cairn.sources.patches import put
from cairn.sources.patches.mail import Mail
from cairn.sources.patches.put import Ground, Put
from cairn.sources.worktree import state, submodules
from cairn.sources.worktree.copy import Part
from cairn.stack import HipifyKind

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Rebuilt:
    """One repository as it is to be: `hipified` is for the tag, `head` has the patches above it too."""

    part: Part
    hipified: str
    head: str
    done: tuple[Put, ...]


def rebuilt(
    parts: Sequence[Part],
    above: Mapping[str, Sequence[Mail]],
    kind: HipifyKind,
    *,
    python: Path | None,
    say: Say,
) -> tuple[tuple[Rebuilt, ...], HipifyReport | None]:
    """Hipify a copy, and put the patches for hipified files on top.

    Args:
        parts: the root first, each with the commit that hipify is to be run on.
        above: patches for what hipify makes, by the path of their repository.
        kind: who hipifies.
        python: the interpreter hipify runs in; ours when None.
        say: is told what happens.

    Raises:
        SourceError: hipify failed, or a patch does not apply.
    """
    found: list[Rebuilt] = []
    with rehipify.hipified(parts, kind, python=python, say=say) as again:
        root, changes = again.copies[0].repository, again.changes
        report = run.report(root, kind, changes) if changes else None
        for part, copied, commit in zip(parts, again.copies, again.commits, strict=True):
            ground = Ground(part=part, head=commit, base=commit, commits=())
            head, done = put.put_on(copied.repository, ground, above.get(part.path, ()))
            put.keep(part.repository, copied.repository, head)
            found.append(Rebuilt(part=part, hipified=commit, head=head, done=done))
    return tuple(found), report


def move(root: Repository, places: Sequence[Rebuilt], report: HipifyReport | None) -> None:
    """Bring every repository of a checkout to its new commits; nothing in them is edited.

    A run that is killed here leaves what a killed hipify leaves, and the next checkout undoes it. Where a
    part has its patches already, it refuses first, as it does for all commits that no branch keeps.
    """
    note = state.read(root.git_dir)
    if note is not None:
        heads = {
            place.part.path: place.part.repository.tag(repository.UPSTREAM_TAG) or "" for place in places
        }
        state.write(root.git_dir, dataclasses.replace(note, phase="hipifying", heads=heads))
    for place in places:
        own = place.part.repository
        # The branch moves too, if there is one: all that it changed is in the new commits, under the
        # message and author of the patches.
        local_work.keep_commits(own, place.head)
        own.run("reset", "--quiet", "--hard", place.head)
        repository.move_refs(own, {f"refs/tags/{HIPIFY_TAG}": place.hipified})
    for place in places:
        submodules.skip_gitlinks(place.part.repository)
    if report is not None:
        hipify_report.write(root.git_dir, report)
    if note is not None:
        state.write(root.git_dir, note)
