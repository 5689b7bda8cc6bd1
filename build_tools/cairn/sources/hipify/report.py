"""What hipify did to a tree: kept as JSON beside the checkout's state, and told in a few lines."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from cairn import datafile
from cairn.errors import UsageError
from cairn.output import wording
from cairn.stack import HipifyKind

_NAME = "cairn.hipify.json"


class UnsupportedCall(datafile.Value):
    """A call of CUDA's that hipify has no HIP for.

    Attributes:
        name: CUDA's name of it.
        files: the files hipify wrote that still make it, under this name or under one that HIP lacks.
    """

    name: str
    files: tuple[str, ...]


class HipifyReport(datafile.Value, tag_field="schema", tag="cairn.hipify/1"):
    """What hipify did, by paths from the root (a submodule's with its own path before it).

    Attributes:
        kind: who hipified.
        when: at checkout, or while the project was built.
        read: files that hipify opened; None where it was not watched, as in a build.
        changed: files of upstream that it edited, or removed.
        generated: files it made.
        unchanged: GPU sources that are as upstream gave them (hipify may have written another file for one).
        unread: GPU sources that hipify never opened; empty where it was not watched.
        unsupported: calls that have no HIP, in what hipify wrote.
        cuda_includes: GPU sources that still include headers of CUDA: what hipify wrote, and what it
            never opened.
        contents: git's ids of the files changed and generated, where no commit has them.
    """

    kind: HipifyKind
    when: Literal["checkout", "build"] = "checkout"
    read: tuple[str, ...] | None = None
    changed: tuple[str, ...] = ()
    generated: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    unsupported: tuple[UnsupportedCall, ...] = ()
    cuda_includes: tuple[str, ...] = ()
    contents: Mapping[str, str] = msgspec.field(default_factory=dict)


def read(git_dir: Path) -> HipifyReport | None:
    """The report of a checkout; None where hipify did not run, or not by us."""
    path = git_dir / _NAME
    if not path.exists():
        return None
    try:
        return datafile.read(path, HipifyReport)
    except UsageError:
        return None  # of another version: as good as none


def write(git_dir: Path, report: HipifyReport) -> None:
    """Keep a report, in place of an earlier one."""
    datafile.write(git_dir / _NAME, report)


def forget(git_dir: Path) -> None:
    """Drop the report of a tree that is no longer there."""
    (git_dir / _NAME).unlink(missing_ok=True)


def summary(report: HipifyReport) -> Iterator[str]:
    """The report in one line, or in two where something is left that HIP cannot compile."""
    opened = "" if report.read is None else f"{len(report.read)} files read, "
    yield (
        f"hipify: {opened}{len(report.changed)} changed, {len(report.generated)} generated, "
        f"{wording.count(report.unchanged, 'GPU source')} unchanged"
    )
    left = []
    if report.unsupported:
        names = [call.name for call in report.unsupported]
        left.append(f"{wording.count(names, 'unsupported call')} ({wording.some(names, shown=3)})")
    if report.cuda_includes:
        left.append(f"CUDA headers in {wording.count(report.cuda_includes, 'GPU source')}")
    if left:
        yield f"hipify left {' and '.join(left)}"


def in_full(report: HipifyReport) -> Iterator[str]:
    """The whole report, a file a line."""
    yield from summary(report)
    for call in report.unsupported:
        yield f"unsupported {call.name}: {', '.join(call.files)}"
    groups: tuple[tuple[str, Collection[str]], ...] = (
        ("includes CUDA headers", report.cuda_includes),
        ("not read", report.unread),
        ("changed", report.changed),
        ("generated", report.generated),
        ("unchanged", report.unchanged),
        ("read", report.read or ()),
    )
    for what, names in groups:
        yield from (f"{what}: {name}" for name in names)
