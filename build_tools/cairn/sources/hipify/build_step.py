"""Record the files that a project's own `setup.py` hipifies during a build.

Without the record, the files it writes into the tree would look like the user's work to the next checkout.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from msgspec import structs

from cairn.concurrency import side_by_side
from cairn.errors import SourceError
from cairn.sources.git.repository import Repository, root_at
from cairn.sources.hipify import report as hipify_report
from cairn.sources.hipify import run
from cairn.sources.hipify.report import HipifyReport
from cairn.sources.worktree.parts import Part, walk
from cairn.stack import HipifyKind

_CODE = (".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hip", ".hpp")


@contextlib.contextmanager
def recorded(checkout: Path, kind: HipifyKind, *, gpu: bool) -> Iterator[None]:
    """Record what the build inside the block hipifies, for a project that does so itself.

    Args:
        checkout: the tree that is built.
        kind: who hipifies.
        gpu: it is built for a GPU: a hipify is due.

    Raises:
        SourceError: it is built for a GPU and has CUDA sources, and nothing was hipified.
    """
    root = root_at(checkout)
    if kind != "at-build" or not root.has_commit():
        yield
        return
    before = _state(root)
    yield
    report = _report(root, before)
    if report.contents or report.generated:
        hipify_report.write(root.git_dir, report)
    if gpu and report.unchanged and not report.changed and not report.generated:
        sources = ", ".join(report.unchanged[:3])
        raise SourceError(
            f"the build of {checkout} hipified nothing, and it has CUDA sources ({sources})",
            tip="see whether its setup.py found ROCm: the log of the build says so",
        )


def generated(checkout: Path, kind: HipifyKind) -> tuple[str, ...]:
    """The new files that the last build hipified, by path from the root; none where hipify is not its own."""
    report = hipify_report.read(root_at(checkout).git_dir) if kind == "at-build" else None
    return report.generated if report is not None else ()


def _report(root: Repository, before: Mapping[str, str]) -> HipifyReport:
    earlier = hipify_report.read(root.git_dir) or HipifyReport(kind="at-build", when="build")
    after = _state(root)
    tracked = _listed_files(root)
    written = {name for name, content in after.items() if before.get(name) != content}
    # Nor is it the user's what an earlier build made, unedited since, or what hipify has signed.
    written |= {name for name, content in earlier.contents.items() if after.get(name) == content}
    written |= {name for name in after.keys() - tracked if run.is_signed(root.work_tree / name)}
    ignored = _ignored(root) & after.keys()
    changed = sorted(name for name in written & tracked if name.endswith(_CODE))
    generated = sorted(name for name in (written | ignored) - tracked if _is_hipifys(root, name))
    sources = {name for name in tracked if name.endswith(run.GPU_SUFFIXES)}
    unsupported, cuda_includes = hipify_report.find_leftovers(
        root.work_tree,
        written=[*changed, *generated],
        unread=(),
        hipified=[*tracked, *generated],
        unsupported={},
    )
    return structs.replace(
        earlier,
        changed=tuple(changed),
        generated=tuple(generated),
        unchanged=tuple(sorted(sources - set(changed))),
        unsupported=unsupported,
        cuda_includes=cuda_includes,
        contents={name: after[name] for name in sorted(written)},
    )


def _state(root: Repository) -> dict[str, str]:
    """Return the blob ids of files that differ from HEAD, and of ignored files that hipify made."""
    names = set(root.changes())
    names |= {n for n in _ignored(root) if n.endswith(_CODE) and _is_hipifys(root, n)}
    return hipify_report.ids(root, sorted(names))


def _ignored(root: Repository) -> set[str]:
    return _listed_files(root, "--others", "--ignored", "--exclude-standard")


def _listed_files(root: Repository, *options: str) -> set[str]:
    """Return what `git ls-files` lists with these options, submodules included, by path from the root."""

    def of(part: Part) -> list[str]:
        return [part.path_of(name) for name in part.repository.read_entries("ls-files", *options, "-z")]

    return {name for names in side_by_side(of, walk(root)) for name in names}


def _is_hipifys(root: Repository, name: str) -> bool:
    """Whether hipify made a file. It signs its own files, but not the headers that a setup.py copies."""
    path = PurePosixPath(name)
    return (
        "hip" in path.parts
        or "_hip" in path.name
        or path.suffix == ".hip"
        or run.is_signed(root.work_tree / name)
    )
