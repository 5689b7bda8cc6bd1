"""The files of Cairn's checkout that `cairn ci init` writes into other repositories.

A wheel has a copy of them, which setup.py makes by `of_checkout`; so this module imports nothing of Cairn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

FOLDER = "shipped"
"""Where a wheel has them, below the package."""

STACKS = ("sample", "pytorch")
"""The stacks among them: `stacks/sample/stack.toml` …"""

_PLACES = {
    "github": ".github",
    **{f"stacks/{name}": f"external-builds/{name}" for name in STACKS},
}
# Checkouts and work folders beside a stack.toml; git ignores them.
_WORK = {"pytorch", "pytorch_audio", "pytorch_vision", "triton", ".cairn"}


def of_checkout(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the name and the path of each file, of a checkout of Cairn.

    The scripts with upstream's names are none of them: they import Cairn, and a repository of one's own has
    the program.
    """
    yield "constraints.txt", root / "constraints.txt"
    for name, place in _PLACES.items():
        for path in sorted((root / place).rglob("*")):
            inner = path.relative_to(root / place)
            script = len(inner.parts) == 1 and path.suffix == ".py"
            if path.is_file() and not script and inner.parts[0] not in _WORK and not _is_compiled(path):
                yield f"{name}/{inner.as_posix()}", path


def read(prefix: str) -> Mapping[str, bytes]:
    """Return the files whose names begin with `prefix`, by the rest of the name."""
    package = Path(__file__).parents[2]
    folder = package / FOLDER
    if folder.is_dir():
        paths = (path for path in sorted(folder.rglob("*")) if path.is_file() and not _is_compiled(path))
        found = [(path.relative_to(folder).as_posix(), path) for path in paths]
    else:
        found = list(of_checkout(package.parents[1]))
    return {name.removeprefix(prefix): path.read_bytes() for name, path in found if name.startswith(prefix)}


def _is_compiled(path: Path) -> bool:
    """Whether Python put it there when it imported, or pip when it installed."""
    return path.parent.name == "__pycache__"
