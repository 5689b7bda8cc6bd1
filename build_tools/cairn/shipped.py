"""The files of Cairn's checkout that a wheel of Cairn holds: stacks, workflows, actions and Dockerfiles.

A wheel holds them in one archive, which setup.py makes by `of_checkout`; so this module imports nothing of
Cairn before it is asked. As files of their own, pip would compile their Python into the trees of stacks. They
are unpacked into the user's cache, where a new version of Cairn has a new folder: an installation may belong
to somebody else, and be read-only.
"""

from __future__ import annotations

import functools
import hashlib
import io
import lzma
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

ARCHIVE = "shipped.zip.xz"
"""The archive in a wheel, in the package; compressed as a whole, it takes half of what it does by member."""

TRIALS = ("benchmarks", "tests")
"""The folders of a tree (`tree/` beside a stack.toml) that no wheel is made of."""

STACKS = ("sample", "pytorch", "pyg", "torchdevice")
"""The stacks among them: `stacks/sample/stack.toml` …"""

_PLACES = {
    "github": ".github",
    "dockerfiles": "dockerfiles",
    **{f"stacks/{name}": f"external-builds/{name}" for name in STACKS},
}
# Checkouts and work folders beside a stack.toml; git ignores them.
_WORK = {"pytorch", "pytorch_audio", "pytorch_vision", "triton", ".cairn"}
_DATE = (2000, 1, 1, 0, 0, 0)


def of_checkout(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the name and the path of each file, of a checkout of Cairn.

    Pages, TorchDevice's tests and the scripts with upstream's names are left out: a repository of one's own
    has the program. All else is there, so that a stack has its recipe in the checkout (`cairn.stack.recipe`).
    """
    yield "constraints.txt", root / "constraints.txt"
    for name, place in _PLACES.items():
        for path in sorted((root / place).rglob("*")):
            inner = path.relative_to(root / place)
            left_out = len(inner.parts) == 1 and path.suffix in (".md", ".py") and path.name != "hooks.py"
            left_out |= inner.parts[:2] in {("tree", trial) for trial in TRIALS}
            if path.is_file() and not left_out and inner.parts[0] not in _WORK and not _is_compiled(path):
                yield f"{name}/{inner.as_posix()}", path


def pack(root: Path, archive: Path) -> None:
    """Write the archive of a wheel; the same files give the same bytes."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as out:
        for name, path in of_checkout(root):
            entry = zipfile.ZipInfo(name, _DATE)
            entry.external_attr = (0o755 if path.stat().st_mode & 0o100 else 0o644) << 16
            out.writestr(entry, path.read_bytes())
    archive.write_bytes(lzma.compress(packed.getvalue(), preset=9))


def read(prefix: str) -> Mapping[str, bytes]:
    """Return the files whose names begin with `prefix`, by the rest of the name."""
    archive = _archive()
    if archive is None:
        paths = ((name, path) for name, path in of_checkout(_checkout()) if name.startswith(prefix))
        return {name.removeprefix(prefix): path.read_bytes() for name, path in paths}
    with _opened(archive) as content:
        names = [name for name in content.namelist() if name.startswith(prefix)]
        return {name.removeprefix(prefix): content.read(name) for name in names}


def folder(name: str) -> Path:
    """Return the folder of a stack (`stacks/sample`) or of the Dockerfiles (`dockerfiles`)."""
    archive = _archive()
    return _checkout() / _PLACES[name] if archive is None else _unpacked(archive) / name


def is_unpacked(path: Path) -> bool:
    """Whether a path is in the cache, where no work of the user's belongs."""
    archive = _archive()
    return archive is not None and path.is_relative_to(_cache(archive))


def _archive() -> Path | None:
    """Return the archive of an installed Cairn; None for one that runs from its checkout."""
    path = Path(__file__).with_name(ARCHIVE)
    return path if path.is_file() else None


def _opened(archive: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BytesIO(lzma.decompress(archive.read_bytes())))


def _checkout() -> Path:
    return Path(__file__).parents[2]


@functools.cache
def _cache(archive: Path) -> Path:
    from cairn import files  # noqa: PLC0415 - see above

    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    return files.cache_dir() / "shipped" / digest[:16]


def _unpacked(archive: Path) -> Path:
    from cairn import files  # noqa: PLC0415 - see above

    place = _cache(archive)
    if place.is_dir():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with files.folder_beside(place) as part, _opened(archive) as content:
        for entry in content.infolist():
            (part / entry.filename).parent.mkdir(parents=True, exist_ok=True)
            (part / entry.filename).write_bytes(content.read(entry))
            (part / entry.filename).chmod(entry.external_attr >> 16)
    return place


def _is_compiled(path: Path) -> bool:
    """Whether Python put it there when it imported."""
    return path.parent.name == "__pycache__"
