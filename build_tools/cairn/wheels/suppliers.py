"""Which libraries the wheels bring that a wheel requires."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from cairn.errors import CairnError, UsageError
from cairn.wheels import metadata
from cairn.wheels.archive import Archive


@dataclass(frozen=True, kw_only=True)
class Supplier:
    """A wheel that others may require.

    Attributes:
        name: of its distribution, normalised.
        requires: normalised names of what it always requires, not of its extras.
        libraries: file names of the shared libraries in it.
    """

    name: str
    requires: frozenset[str]
    libraries: frozenset[str]


def provided_to(wheels: Sequence[Path], *, folders: Iterable[Path] = ()) -> dict[Path, tuple[str, ...]]:
    """For each wheel, the libraries that come from elsewhere when it is installed, sorted.

    Args:
        wheels: wheels that are installed together. Each is given the libraries of those among them that it
            requires, directly or by way of others of them; one that cannot be read supplies nothing.
        folders: of wheels that the requirements lead to in ways that METADATA does not tell, as the ROCm
            SDK's sdist does: all their libraries are there for each.

    Raises:
        UsageError: there is no such folder.
        WheelError: a wheel in a folder cannot be read.
    """
    everywhere = {name for folder in folders for name in _in_folder(folder)}
    read = {path: _read_if_whole(path) for path in wheels}
    known = {one.name: one for one in read.values() if one}
    return {
        path: tuple(sorted(everywhere | (_of_requirements(one, known) if one else set())))
        for path, one in read.items()
    }


def library_names(archive: Archive) -> frozenset[str]:
    """File names of the shared libraries in a wheel, of Linux and of Windows."""
    names = (member.name.rpartition("/")[2] for member in archive.members)
    return frozenset(name for name in names if ".so" in name or name.lower().endswith(".dll"))


def _in_folder(folder: Path) -> Iterator[str]:
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}", tip="name the folder of the wheels it requires")
    for wheel in sorted(folder.glob("*.whl")):
        with Archive.open(wheel) as archive:
            yield from library_names(archive)


def _read_if_whole(wheel: Path) -> Supplier | None:
    try:
        with Archive.open(wheel) as archive:
            info = metadata.read_archive(archive, metadata.parse_file_name(wheel.name))
            required = [metadata.requirement(text) for text in info.requires_dist]
            libraries = library_names(archive)
    except CairnError:
        return None
    return Supplier(
        name=info.distribution,
        requires=frozenset(canonicalize_name(r.name) for r in required if "extra" not in str(r.marker or "")),
        libraries=libraries,
    )


def _of_requirements(wheel: Supplier, known: Mapping[str, Supplier]) -> set[str]:
    found: set[str] = set()
    queue, seen = [*wheel.requires], {wheel.name}
    while queue:
        name = queue.pop()
        if name in known and name not in seen:
            seen.add(name)
            found |= known[name].libraries
            queue += known[name].requires
    return found
