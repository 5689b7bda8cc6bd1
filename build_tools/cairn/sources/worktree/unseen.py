"""Files of a working tree that `contents.tree_state` does not see, and that a build may read or pack anyway.

They are what git ignores, what it was told not to look at, and repositories inside the tree that are no
submodules: of these git sees at most the commit.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath

from cairn import files
from cairn.concurrency import side_by_side
from cairn.sources.worktree.parts import Part

# What editors, test runners and interpreters keep in a tree: it changes all the time, and no build reads it.
# `__pycache__` could be packed; a wheel that has it is refused (cairn.build.build_project).
_OF_TOOLS = frozenset(
    (
        *(".git", ".venv", "__pycache__", "node_modules", ".cache", ".idea", ".vscode", ".vs", ".clangd"),
        *(".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", ".tox", ".nox", ".ccls-cache"),
        ".DS_Store",
    )
)
_VENV = "pyvenv.cfg"  # in the root of every virtual environment (PEP 405)


def ignored(parts: Iterable[Part]) -> dict[str, Path]:
    """Every file that git ignores, by its path from the root; not those of tools."""
    return _of_all(_ignored, parts)


def hidden(parts: Iterable[Part]) -> dict[str, Path]:
    """The other files that git does not see: those it was told to skip, and whole repositories inside."""
    return _of_all(_hidden, parts)


def mark(path: Path) -> str | None:
    """What changes when a file is written, without reading it; None where there is none (any more)."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return f"{status.st_size}:{status.st_mtime_ns}:{stat.S_IFMT(status.st_mode):o}"


def digest(paths: Mapping[str, Path]) -> str | None:
    """A sha256 of the names and contents of files; None for no files."""
    if not paths:
        return None
    whole = hashlib.sha256()
    for name in sorted(paths):
        whole.update(f"{name}\0{_content(paths[name])}\0".encode("utf-8", "surrogateescape"))
    return whole.hexdigest()


def _of_all(look: Callable[[Part], dict[str, Path]], parts: Iterable[Part]) -> dict[str, Path]:
    together: dict[str, Path] = {}
    for group in side_by_side(look, list(parts)):
        together |= group
    return _without_tools(together)


def _ignored(part: Part) -> dict[str, Path]:
    return _listed(part, "--ignored")


def _hidden(part: Part) -> dict[str, Path]:
    own = part.repository
    # A folder stands for a repository inside; the files of one that is ignored come with `_ignored`.
    listed = _listed(part, only_folders=True)
    return listed | {part.named(name): own.work_tree / name for name in own.hidden()}


def _listed(part: Part, *options: str, only_folders: bool = False) -> dict[str, Path]:
    own = part.repository
    paths: dict[str, Path] = {}
    for name in own.listed("ls-files", "--others", *options, "--exclude-standard", "-z"):
        if name.endswith("/"):
            paths |= {
                part.named(f"{name}{inner}"): own.work_tree / name / inner
                for inner in _walk(own.work_tree / name)
            }
        elif not only_folders:
            paths[part.named(name)] = own.work_tree / name
    return paths


def _walk(folder: Path) -> Iterable[str]:
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in _OF_TOOLS]
        inside = Path(place).relative_to(folder)
        yield from ((inside / name).as_posix() for name in names if name != ".git")


def _without_tools(paths: Mapping[str, Path]) -> dict[str, Path]:
    environments = tuple(name.removesuffix(_VENV) for name in paths if PurePosixPath(name).name == _VENV)
    return {
        name: path
        for name, path in paths.items()
        if not (environments and name.startswith(environments)) and _OF_TOOLS.isdisjoint(name.split("/"))
    }


def _content(path: Path) -> str:
    try:
        if path.is_symlink():
            return f"link {os.readlink(path)}"  # noqa: PTH115 - as text, whatever it leads to
        if path.is_file():
            return f"{path.stat().st_mode & stat.S_IXUSR:o} {files.sha256_of(path)}"
    except OSError:
        pass  # not ours to read: a build that reads it runs as the same user
    return "no file"
