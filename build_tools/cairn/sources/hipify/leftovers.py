"""What hipify left in a tree that HIP cannot compile: calls without an equivalent, headers of CUDA.

Upstream counts unsupported calls and prints the count, but its counting has been broken for years
(torch/utils/hipify/hipify_python.py, `compute_stats`), so what it wrote is read again here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cairn.sources.hipify.report import UnsupportedCall

_CODE = (".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hip", ".hpp", ".inl", ".in")
# One that is never closed goes to the end: to look for it again from each later `/*` would take for ever.
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


@dataclass(frozen=True, kw_only=True)
class Findings:
    """See `HipifyReport`, whose fields these are."""

    unsupported: tuple[UnsupportedCall, ...]
    cuda_includes: tuple[str, ...]


def look(
    tree: Path,
    *,
    written: Iterable[str],
    unread: Iterable[str],
    known: Collection[str],
    unsupported: Mapping[str, str],
) -> Findings:
    """Read what hipify wrote, and what it never opened.

    Args:
        tree: the root's working tree.
        written: files that hipify changed or made.
        unread: GPU sources that it did not open; only their includes count.
        known: all files of the tree: a header that is among them is none of CUDA's.
        unsupported: names that hipify writes and HIP lacks, each with CUDA's name of it.
    """
    own = {PurePosixPath(name).name for name in known}
    calls: dict[str, list[str]] = {}
    includes = [name for name in unread if _includes_cuda(_text(tree / name), own)]
    for name in written:
        if not name.endswith(_CODE):
            continue
        text = _text(tree / name)
        if _includes_cuda(text, own):
            includes.append(name)
        for call in _unsupported_calls(text, unsupported):
            calls.setdefault(call, []).append(name)
    found = (UnsupportedCall(name=name, files=tuple(sorted(files))) for name, files in sorted(calls.items()))
    return Findings(unsupported=tuple(found), cuda_includes=tuple(sorted(includes)))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""  # hipify removed it


def _includes_cuda(text: str, own: Collection[str]) -> bool:
    # Taking comments out costs more than all the rest, and few files come so far.
    return _names_header(text, own) and _names_header(_COMMENT.sub(" ", text), own)


def _names_header(text: str, own: Collection[str]) -> bool:
    headers = (match[1] for match in _INCLUDE.finditer(text))
    return any(_CUDA_HEADER.fullmatch(h) and PurePosixPath(h).name not in own for h in headers)


def _unsupported_calls(text: str, unsupported: Mapping[str, str]) -> set[str]:
    if not _names_calls(text, unsupported):
        return set()
    return _names_calls(_COMMENT.sub(" ", text), unsupported)


def _names_calls(text: str, unsupported: Mapping[str, str]) -> set[str]:
    left = {match[1] for match in _CUDA_CALL.finditer(text)}
    if unsupported:
        left |= {unsupported[name] for name in set(_CALL.findall(text)) & unsupported.keys()}
    return left
