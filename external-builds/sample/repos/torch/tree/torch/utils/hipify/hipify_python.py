"""Contract: `hipify` with upstream's parameters; CUDA sources become HIP, in place or in files beside them.

A directory called `cuda` becomes `hip`, `CUDA` in a file's name becomes `HIP`, and `.cu`
becomes `.hip`. Includes, calls and types follow the tables of `cuda_to_hip_mappings`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

try:
    from .cuda_to_hip_mappings import INCLUDES, RUNTIME, TORCH
except ImportError:  # run from a source tree, where torch itself cannot be imported
    from cuda_to_hip_mappings import INCLUDES, RUNTIME, TORCH  # type: ignore[no-redef]

EXTENSIONS = (".cu", ".cuh", ".c", ".cc", ".cpp", ".h", ".hpp")
_NAMES = {**RUNTIME, **TORCH}
_NAME = re.compile(r"(?<![\w:])(" + "|".join(map(re.escape, sorted(_NAMES, reverse=True))) + r")\b")
_INCLUDE = re.compile(r'(?m)^(\s*#\s*include\s*)([<"])([^>"]+)([>"])')


@dataclass(frozen=True)
class HipifyResult:
    """What became of one file. `hipified_path` is None for a file that needed no change."""

    current_state: str
    hipified_path: str | None
    status: str


def hipify(
    project_directory: str,
    show_detailed: bool = False,
    extensions: Iterable[str] = EXTENSIONS,
    output_directory: str = "",
    includes: Iterable[str] = ("*",),
    ignores: Iterable[str] = (),
    extra_files: Iterable[str] = (),
    out_of_place_only: bool = False,
    is_pytorch_extension: bool = False,
) -> dict[str, HipifyResult]:
    """Rewrite the files of a folder; the answer maps each absolute path to its result.

    `includes` and `ignores` are shell patterns of absolute paths, or of paths relative to
    the project. Sources of an extension are always kept and rewritten beside themselves;
    in a tree of torch (`is_pytorch_extension=False`) the rewritten file takes the place
    of the original, unless `out_of_place_only`.
    """
    root = Path(project_directory).resolve()
    output = Path(output_directory).resolve() if output_directory else root
    patterns = [includes] if isinstance(includes, str) else list(includes)
    files = _matching(root, tuple(extensions), patterns, list(ignores))
    keep = is_pytorch_extension or out_of_place_only or output != root
    results = {
        str(path): _hipify_file(path, output / hip_path(path.relative_to(root)), keep)
        for path in [*files, *(root / name for name in extra_files)]
    }
    if show_detailed:
        for name, result in results.items():
            print(f"{name} -> {result.hipified_path} {result.status}")
    return results


def hip_path(path: Path) -> Path:
    """Where the HIP version of a source lies: `native/cuda/X.cu` -> `native/hip/X.hip`."""
    parts = ["hip" if part == "cuda" else part for part in path.parts[:-1]]
    suffix = ".hip" if path.suffix == ".cu" else path.suffix
    return Path(*parts, path.stem.replace("CUDA", "HIP") + suffix)


def hip_text(text: str) -> str:
    """The HIP version of a source text."""
    return _NAME.sub(lambda match: _NAMES[match[1]], _INCLUDE.sub(_hip_include, text))


def _hip_include(match: re.Match[str]) -> str:
    directive, opening, name, closing = match.groups()
    renamed = INCLUDES.get(name) or str(PurePosixPath(hip_path(Path(name)).as_posix()))
    return f"{directive}{opening}{renamed}{closing}"


def _matching(root: Path, extensions: tuple[str, ...], includes: list[str], ignores: list[str]) -> list[Path]:
    found = []
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = sorted(name for name in subfolders if name != ".git")
        for name in sorted(names):
            path = Path(folder, name)
            if name.endswith(extensions) and _matches(path, root, includes):
                if not _matches(path, root, ignores):
                    found.append(path)
    return found


def _matches(path: Path, root: Path, patterns: list[str]) -> bool:
    names = (path.as_posix(), path.relative_to(root).as_posix())
    return any(fnmatch(name, pattern) for name in names for pattern in patterns)


def _hipify_file(path: Path, target: Path, keep: bool) -> HipifyResult:
    # Bytes, so that line ends and stray characters survive untouched.
    before = path.read_bytes().decode("utf-8", "surrogateescape")
    after = hip_text(before)
    moved = target != path
    if after == before and not moved:
        return HipifyResult("done", None, "[skipped, no changes]")
    if keep and not moved:
        target = path.with_name(f"{path.stem}_hip{path.suffix}")
    _write_if_changed(target, after)
    if moved and not keep:
        path.unlink()
        _remove_if_empty(path.parent)
    return HipifyResult("done", str(target), "[ok]")


def _write_if_changed(path: Path, text: str) -> None:
    """Leave an equal file alone, so that nothing is compiled again for its new date."""
    data = text.encode("utf-8", "surrogateescape")
    if path.is_file() and path.read_bytes() == data:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _remove_if_empty(folder: Path) -> None:
    if not any(folder.iterdir()):
        folder.rmdir()
