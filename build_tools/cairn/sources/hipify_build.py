"""Hipify by a project's own `setup.py`: what it made is recorded when the build has run.

Without the record, the files it writes into the tree would look like a person's work to the next checkout.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath

from cairn.errors import SourceError
from cairn.sources import hipify, hipify_findings, hipify_report
from cairn.sources.hipify_report import HipifyReport
from cairn.sources.repository import Repository, root_at
from cairn.stack import HipifyKind

_CODE = (".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp")


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
    if kind != "at-build" or not root.exists():
        yield
        return
    before = _state(root)
    yield
    report = _report(root, before)
    if report.changed or report.generated:
        hipify_report.write(root.git_dir, report)
    elif gpu and report.unchanged:
        sources = ", ".join(report.unchanged[:3])
        raise SourceError(
            f"the build of {checkout} hipified nothing, and it has CUDA sources ({sources})",
            tip="see whether its setup.py found ROCm: the log of the build says so",
        )


def without_recorded(root: Repository, names: Collection[str]) -> tuple[str, ...]:
    """Of edited or new files, by paths from the root, those that are not as a recorded build left them."""
    report = hipify_report.read(root.git_dir)
    known = report.contents if report else {}
    if not known:
        return tuple(names)
    made = _contents(root, [name for name in names if name in known])
    return tuple(name for name in names if name not in known or made.get(name) != known[name])


def _report(root: Repository, before: Mapping[str, str]) -> HipifyReport:
    earlier = hipify_report.read(root.git_dir) or HipifyReport(kind="at-build", when="build")
    after = _state(root)
    new = {name for name, content in after.items() if before.get(name) != content}
    # What an earlier build made and nobody has edited since is a build's too.
    built = new | {name for name, content in earlier.contents.items() if after.get(name) == content}
    tracked = hipify.tracked(root)
    changed = sorted(name for name in built & tracked if name.endswith(_CODE))
    generated = sorted(name for name in built - tracked if _is_hipifys(root, name))
    sources = {name for name in tracked if name.endswith(hipify.GPU_SUFFIXES)}
    left = hipify_findings.look(
        root.work_tree,
        written=[*changed, *generated],
        unread=(),
        known=[*tracked, *generated],
        unsupported={},
    )
    return dataclasses.replace(
        earlier,
        changed=tuple(changed),
        generated=tuple(generated),
        unchanged=tuple(sorted(sources - set(changed))),
        unsupported=left.unsupported,
        cuda_includes=left.cuda_includes,
        contents={name: after[name] for name in sorted(built)},
    )


def _state(root: Repository) -> dict[str, str]:
    """Git's ids of the files that differ from HEAD, and of the ignored ones that hipify has signed."""
    names = set(root.changes())
    names |= {name for name in hipify.ignored(root) if hipify.is_signed(root.work_tree / name)}
    return _contents(root, sorted(names))


def _is_hipifys(root: Repository, name: str) -> bool:
    """A build makes other files too; hipify signs its own, but not the headers that a setup.py copies."""
    path = PurePosixPath(name)
    return (
        "hip" in path.parts
        or path.suffix == ".hip"
        or "_hip" in path.stem
        or hipify.is_signed(root.work_tree / name)
    )


def _contents(root: Repository, names: Collection[str]) -> dict[str, str]:
    there = [name for name in names if (root.work_tree / name).is_file()]
    paths = b"".join(os.fsencode(name) + b"\n" for name in there if "\n" not in name)
    ids = root.run("hash-object", "--no-filters", "--stdin-paths", stdin=paths).split()
    return dict(zip([name for name in there if "\n" not in name], ids, strict=True))
