"""The report of what hipify changed in a tree and what HIP still cannot compile, kept as JSON.

Left are calls without an equivalent, and headers of CUDA. Upstream counts unsupported calls and prints the
count, but its counting has been broken for years (torch/utils/hipify/hipify_python.py, `compute_stats`), so
what it wrote is read again here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Literal

import msgspec

from cairn import datafile, files
from cairn.errors import UsageError
from cairn.output import wording
from cairn.sources.git.repository import Repository
from cairn.stack import HipifyKind

_NAME = "cairn.hipify.json"

_CODE = (".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hip", ".hpp", ".inl", ".in")
# One that is never closed goes to the end: without `\Z`, each later `/*` would search the rest of the file
# again, which takes quadratic time.
_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_LIBRARIES = r"cuda|cublas(?:Lt)?|cudnn|cufft|curand|cusparse(?:Lt)?|cusolver(?:Dn|Sp|Rf)?|nvrtc|nvml"
_DRIVER = (
    "Ctx|Device|Driver|Event|External|File|Func|Get|Graph|Import|Ipc|Kernel|Launch|Library|Link|Mem|Module"
    "|Multicast|Occupancy|Pointer|Profiler|Stream|Surf|Tensor|Tex|User"
)
_CUDA_CALL = re.compile(rf"(?<![\w.>])((?:{_LIBRARIES})[A-Z]\w*|cu(?:{_DRIVER})[A-Z]\w*|cuInit)\s*\(")
_CALL = re.compile(r"\b([A-Za-z_]\w*)\s*\(")
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"\n]+)[>\"]", re.MULTILINE)
_CUDA_HEADER = re.compile(
    r"(?:cuda\w*|cublas\w*|cudnn\w*|cufft\w*|curand\w*|cusparse\w*|cusolver\w*|nvrtc|nvml|nvToolsExt\w*|nccl"
    r"|cooperative_groups|device_launch_parameters|(?:cub|cuda/std|nvtx3|cute|cutlass)/.+)\.(?:h|hpp|cuh)"
)


class UnsupportedCall(datafile.Value):
    """A CUDA call that hipify cannot translate to HIP.

    Attributes:
        name: its CUDA name.
        files: the files hipify wrote that still make it, under this name or under one that HIP lacks.
    """

    name: str
    files: tuple[str, ...]


class HipifyReport(datafile.Value, tag_field="schema", tag="cairn.hipify/1"):
    """The files that hipify changed, made or left, by path from the root, submodules included.

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
    """Read the report of a checkout; None if Cairn has not run hipify there."""
    path = git_dir / _NAME
    if not path.exists():
        return None
    try:
        return datafile.read(path, HipifyReport)
    except UsageError:
        return None  # of a different version of Cairn


def write(git_dir: Path, report: HipifyReport) -> None:
    """Write a report, in place of an earlier one."""
    datafile.write(git_dir / _NAME, report)


def forget(git_dir: Path) -> None:
    """Delete the report of a tree that is gone."""
    (git_dir / _NAME).unlink(missing_ok=True)


def summary(report: HipifyReport) -> Iterator[str]:
    """Yield the report in one line, and a second one if HIP cannot compile everything."""
    opened = "" if report.read is None else f"{len(report.read)} files read, "
    yield (
        f"hipify: {opened}{len(report.changed)} changed, {len(report.generated)} generated, "
        f"{wording.count(report.unchanged, 'GPU source')} unchanged"
    )
    unchanged = []
    if report.unsupported:
        names = [call.name for call in report.unsupported]
        unchanged.append(f"{wording.count(names, 'unsupported call')} ({wording.some(names, shown=3)})")
    if report.cuda_includes:
        unchanged.append(f"CUDA headers in {wording.count(report.cuda_includes, 'GPU source')}")
    if unchanged:
        yield f"hipify left {' and '.join(unchanged)}"


def in_full(report: HipifyReport) -> Iterator[str]:
    """Yield the whole report, one file per line."""
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
    for title, names in groups:
        yield from (f"{title}: {name}" for name in names)


def find_leftovers(
    tree: Path,
    *,
    written: Iterable[str],
    unread: Iterable[str],
    hipified: Collection[str],
    unsupported: Mapping[str, str],
) -> tuple[tuple[UnsupportedCall, ...], tuple[str, ...]]:
    """Look for code that HIP cannot compile, in files that hipify wrote and in those it never opened.

    The two fields of `HipifyReport` are returned: `unsupported` and `cuda_includes`.

    Args:
        tree: the root's working tree.
        written: files that hipify changed or made.
        unread: GPU sources that it did not open; only their includes count.
        hipified: all files of the tree: a header with the name of one of them is not taken for CUDA's.
        unsupported: names that hipify writes and HIP lacks, each with CUDA's name of it.
    """
    file_names = {PurePosixPath(name).name for name in hipified}
    calls: dict[str, list[str]] = {}
    includes = [name for name in unread if _includes_cuda(files.text_or_empty(tree / name), file_names)]
    for name in written:
        if not name.endswith(_CODE):
            continue
        text = files.text_or_empty(tree / name)
        if _includes_cuda(text, file_names):
            includes.append(name)
        for call in _unsupported_calls(text, unsupported):
            calls.setdefault(call, []).append(name)
    calls_by_name = (
        UnsupportedCall(name=name, files=tuple(sorted(files))) for name, files in sorted(calls.items())
    )
    return tuple(calls_by_name), tuple(sorted(includes))


def _includes_cuda(text: str, file_names: Collection[str]) -> bool:
    # Taking comments out costs more than all the rest, and few files come so far.
    return _names_header(text, file_names) and _names_header(_COMMENT.sub(" ", text), file_names)


def _names_header(text: str, file_names: Collection[str]) -> bool:
    headers = (match[1] for match in _INCLUDE.finditer(text))
    return any(_CUDA_HEADER.fullmatch(h) and PurePosixPath(h).name not in file_names for h in headers)


def _unsupported_calls(text: str, unsupported: Mapping[str, str]) -> set[str]:
    if not _names_calls(text, unsupported):
        return set()
    return _names_calls(_COMMENT.sub(" ", text), unsupported)


def _names_calls(text: str, unsupported: Mapping[str, str]) -> set[str]:
    names = {match[1] for match in _CUDA_CALL.finditer(text)}
    if unsupported:
        names |= {unsupported[name] for name in set(_CALL.findall(text)) & unsupported.keys()}
    return names


def without_recorded(root: Repository, names: Collection[str]) -> tuple[str, ...]:
    """Filter edited or new files, by paths from the root: drop those still as a recorded build left them."""
    if not names:
        return ()
    report = read(root.git_dir)
    contents = report.contents if report else {}
    if not contents:
        return tuple(names)
    current = ids(root, [name for name in names if name in contents])
    return tuple(name for name in names if name not in contents or current.get(name) != contents[name])


def ids(root: Repository, names: Collection[str]) -> dict[str, str]:
    """Return the blob ids of those files that exist in the tree; where a link leads out of it, none does."""
    folder = os.path.realpath(root.work_tree) + os.sep
    present = [
        name
        for name in names
        if (root.work_tree / name).is_file() and os.path.realpath(folder + name).startswith(folder)
    ]
    paths = b"".join(os.fsencode(name) + b"\n" for name in present if "\n" not in name)
    ids = root.run("hash-object", "--no-filters", "--stdin-paths", stdin=paths).split()
    return dict(zip([name for name in present if "\n" not in name], ids, strict=True))
