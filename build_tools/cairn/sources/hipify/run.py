"""CUDA sources turned into HIP, by upstream's own code, once per tree."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from cairn.concurrency import side_by_side
from cairn.errors import SourceError
from cairn.output import Progress
from cairn.sources.git.repository import Repository
from cairn.sources.hipify import leftovers, program
from cairn.sources.hipify.program import Notes
from cairn.sources.hipify.report import HipifyReport
from cairn.sources.worktree.parts import Part, walk
from cairn.stack import HipifyKind

GPU_SUFFIXES = (".cu", ".cuh")
_CUDA_INCLUDE = (
    r"#[[:space:]]*include[[:space:]]*[<\"](cuda|cublas|curand|cufft|cusparse|cudnn|nccl|thrust/|cub/)"
)


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What hipify changed and made in a tree, by paths from the root, and what was seen while it ran."""

    changed: frozenset[str]
    generated: frozenset[str]
    notes: Notes


def runs_at_checkout(kind: HipifyKind) -> bool:
    """Whether files change when a project of this kind is checked out."""
    return kind in ("build_amd", "torch-utils")


def run(
    root: Repository, kind: HipifyKind, *, ignored_before: Collection[str], python: Path | None, say: Progress
) -> HipifyReport:
    """Hipify a tree that is as upstream gave it, submodules included; arguments and errors as of `changes`.

    Returns:
        What it did, and what it left.
    """
    return report(root, kind, changes(root, kind, ignored_before=ignored_before, python=python, say=say))


def changes(
    root: Repository, kind: HipifyKind, *, ignored_before: Collection[str], python: Path | None, say: Progress
) -> Changes:
    """Hipify a tree that is as upstream gave it, submodules included.

    Args:
        root: its repository; nothing may be edited in it.
        kind: who hipifies.
        ignored_before: what `ignored` gives now; what it gives afterwards besides is hipify's.
        python: the interpreter; ours when None, which has no torch.
        say: is told the last line of the program's output.

    Raises:
        SourceError: there is no hipify program, it failed, or it matched nothing although there are CUDA
            sources.
    """
    notes = program.execute(root.work_tree, kind, python=python or Path(sys.executable), say=say)
    before = frozenset(ignored_before)
    parts = walk(root)
    edited, new = set[str](), set[str]()
    for part, (changed, added, hidden) in zip(parts, side_by_side(_differences, parts), strict=True):
        edited |= {part.named(name) for name in changed}
        new |= {part.named(name) for name in added}
        new |= {n for n in map(part.named, hidden) if n not in before and not is_byproduct(n)}
    if not edited and not new:
        _refuse_cuda(root, tracked(root))
    return Changes(changed=frozenset(edited), generated=frozenset(new), notes=notes)


def ignored(root: Repository) -> set[str]:
    """Files that git ignores, by their paths from the root, submodules' included."""
    return _listed(root, "--others", "--ignored", "--exclude-standard")


def tracked(root: Repository) -> set[str]:
    """Files that git knows, by their paths from the root, submodules' included."""
    return _listed(root)


def _listed(root: Repository, *options: str) -> set[str]:
    def of(part: Part) -> list[str]:
        return [part.named(name) for name in part.repository.listed("ls-files", *options, "-z")]

    return {name for names in side_by_side(of, walk(root)) for name in names}


def _refuse_cuda(root: Repository, known: Collection[str]) -> None:
    """Raise a SourceError where a hipify that did nothing had something to do."""
    if cuda := sorted(_gpu_sources(known)) or tuple(_cuda_users(walk(root))):
        raise SourceError(
            f"hipify changed nothing in {root.work_tree}, which has CUDA sources ({', '.join(cuda[:3])})",
            tip="see what the project's own hipify program matches; --no-hipify checks out without it",
        )


def _gpu_sources(names: Collection[str]) -> frozenset[str]:
    return frozenset(name for name in names if name.endswith(GPU_SUFFIXES))


def report(root: Repository, kind: HipifyKind, done: Changes) -> HipifyReport:
    """What hipify did, and what it left: read from the tree, in which nothing may have changed since."""
    known = tracked(root)
    everything = known | done.generated
    unchanged = _gpu_sources(known) - done.changed
    opened = done.notes.read & everything  # a program may also try what is not there
    unread = unchanged - opened
    left = leftovers.look(
        root.work_tree,
        written=done.changed | done.generated,
        unread=unread,
        known=everything,
        unsupported=done.notes.unsupported,
    )
    return HipifyReport(
        kind=kind,
        read=tuple(sorted(opened)),
        changed=tuple(sorted(done.changed)),
        generated=tuple(sorted(done.generated)),
        unchanged=tuple(sorted(unchanged)),
        unread=tuple(sorted(unread)),
        unsupported=left.unsupported,
        cuda_includes=left.cuda_includes,
    )


def _differences(part: Part) -> tuple[list[str], list[str], list[str]]:
    """Files of HEAD that are no longer as they were, new ones, and ignored ones: one walk for all."""
    edited: list[str] = []
    by_mark: dict[str, list[str]] = {"??": [], "!!": []}
    for mark, name in part.repository.status("--ignored=traditional"):
        by_mark.get(mark, edited).append(name)
    return edited, by_mark["??"], by_mark["!!"]


def is_byproduct(name: str) -> bool:
    """Whether a file is what Python compiled, which it makes again."""
    return "__pycache__/" in name or name.endswith(".pyc")


def _cuda_users(parts: tuple[Part, ...]) -> Iterator[str]:
    """Files that include a CUDA header; slower to find than by their names, so looked for last."""
    for part in parts:
        if part.repository.succeeds("grep", "--quiet", "-IE", _CUDA_INCLUDE):
            yield from map(part.named, part.repository.listed("grep", "-lzIE", _CUDA_INCLUDE))
