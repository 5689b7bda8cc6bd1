"""CUDA sources turned into HIP, by upstream's own code, once per tree."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from cairn.errors import SourceError
from cairn.sources import hipify_findings, hipify_program, submodules
from cairn.sources.hipify_program import Notes
from cairn.sources.hipify_report import HipifyReport
from cairn.sources.repository import Repository
from cairn.stack import HipifyKind

Say = Callable[[str], None]

GPU_SUFFIXES = (".cu", ".cuh")
_CUDA_INCLUDE = (
    r"#[[:space:]]*include[[:space:]]*[<\"](cuda|cublas|curand|cufft|cusparse|cudnn|nccl|thrust/|cub/)"
)


@dataclass(frozen=True, kw_only=True)
class _Part:
    """The root or a submodule, and the path it has in the root (with a slash at its end)."""

    repository: Repository
    prefix: str


def runs_at_checkout(kind: HipifyKind) -> bool:
    """Whether files change when a project of this kind is checked out."""
    return kind in ("build_amd", "torch-utils")


def run(
    root: Repository, kind: HipifyKind, *, ignored_before: Collection[str], python: Path | None, say: Say
) -> HipifyReport:
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
    notes = hipify_program.execute(root.work_tree, kind, python=python or Path(sys.executable), say=say)
    done = _done(root, frozenset(ignored_before))
    if not done.changed and not done.generated:
        _refuse_cuda(root, done)
    return _report(root, kind, notes, done)


def ignored(root: Repository) -> set[str]:
    """Files that git ignores, by their paths from the root, submodules' included."""
    found: set[str] = set()
    for part in _parts(root):
        listed = part.repository.run("ls-files", "--others", "--ignored", "--exclude-standard", "-z")
        found |= {part.prefix + name for name in listed.split("\0") if name}
    return found


def tracked(root: Repository) -> set[str]:
    """Files that git knows, by their paths from the root, submodules' included."""
    found: set[str] = set()
    for part in _parts(root):
        listed = part.repository.run("ls-files", "-z")
        found |= {part.prefix + name for name in listed.split("\0") if name}
    return found


@dataclass(frozen=True, kw_only=True)
class _Done:
    """What is in the tree after hipify: files it changed and made, and all that git knew before."""

    changed: frozenset[str]
    generated: frozenset[str]
    known: frozenset[str]

    def unchanged(self) -> frozenset[str]:
        """GPU sources that are as upstream gave them."""
        return frozenset(n for n in self.known if n.endswith(GPU_SUFFIXES)) - self.changed


def _done(root: Repository, ignored_before: frozenset[str]) -> _Done:
    changed: set[str] = set()
    generated = {name for name in ignored(root) - ignored_before if not is_byproduct(name)}
    for part in _parts(root):
        edited, new = _differences(part.repository)
        changed |= {part.prefix + name for name in edited}
        generated |= {part.prefix + name for name in new}
    return _Done(changed=frozenset(changed), generated=frozenset(generated), known=frozenset(tracked(root)))


def _refuse_cuda(root: Repository, done: _Done) -> None:
    """Raise a SourceError where a hipify that did nothing had something to do."""
    if cuda := sorted(done.unchanged()) or tuple(_cuda_users(tuple(_parts(root)))):
        raise SourceError(
            f"hipify changed nothing in {root.work_tree}, which has CUDA sources ({', '.join(cuda[:3])})",
            tip="see what the project's own hipify program matches; --no-hipify checks out without it",
        )


def _report(root: Repository, kind: HipifyKind, notes: Notes, done: _Done) -> HipifyReport:
    everything = done.known | done.generated
    opened = notes.read & everything  # a program may also try what is not there
    unread = done.unchanged() - opened
    left = hipify_findings.look(
        root.work_tree,
        written=done.changed | done.generated,
        unread=unread,
        known=everything,
        unsupported=notes.unsupported,
    )
    return HipifyReport(
        kind=kind,
        read=tuple(sorted(opened)),
        changed=tuple(sorted(done.changed)),
        generated=tuple(sorted(done.generated)),
        unchanged=tuple(sorted(done.unchanged())),
        unread=tuple(sorted(unread)),
        unsupported=left.unsupported,
        cuda_includes=left.cuda_includes,
    )


def _parts(root: Repository) -> Iterator[_Part]:
    yield _Part(repository=root, prefix="")
    for module in submodules.present(root):
        yield _Part(repository=module.repository, prefix=f"{module.path}/")


def _differences(repository: Repository) -> tuple[list[str], list[str]]:
    """Files of HEAD that are no longer as they were, and new ones."""
    options = ("--untracked-files=all", "--ignore-submodules=all", "--no-renames")
    listed = [e for e in repository.run("status", "--porcelain", "-z", *options).split("\0") if e]
    return [e[3:] for e in listed if e[:2] != "??"], [e[3:] for e in listed if e[:2] == "??"]


def is_byproduct(name: str) -> bool:
    """Whether a file is what Python compiled, which it makes again."""
    return "__pycache__/" in name or name.endswith(".pyc")


def _cuda_users(parts: tuple[_Part, ...]) -> Iterator[str]:
    """Files that include a CUDA header; slower to find than by their names, so looked for last."""
    for part in parts:
        if part.repository.succeeds("grep", "--quiet", "-IE", _CUDA_INCLUDE):
            listed = part.repository.run("grep", "-lzIE", _CUDA_INCLUDE)
            yield from (part.prefix + name for name in listed.split("\0") if name)
