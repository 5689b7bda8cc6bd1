"""Reading a ROCm tree (a prefix, artifacts or Debian's packages) into one list of files."""

from __future__ import annotations

import functools
import os
import posixpath
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import structs

from cairn.errors import PrerequisiteError, UsageError
from cairn.output import Progress, console, silent, wording
from cairn.rocm import debian
from cairn.rocm.debian import DebianPackage
from cairn.rocm.fetch.unpack import MANIFEST, base_folders
from cairn.rocm.packages_toml import COMPONENTS, Description, literal_folder, matches
from cairn.targets import in_order

GENERIC = "generic"
"""The target of an artifact that is for every target."""

_VERSION_FILE = ".info/version"  # of the package rocm-core, in every ROCm; such as `7.10.0-12345`
_VERSION = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+")
_MAX_LINKS = 40  # what Linux follows
# TheRock joins the three parts with `_`, and uses `-` inside them: `blas_lib_gfx94X-dcgpu`.
ARTIFACT = re.compile(r"(?P<name>[^_]+)_(?P<component>[^_]+)_(?P<target>[^_]+)")
"""The name of an artifact; its target may be a family, or have features: `gfx942:xnack+`."""


class TreeEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One file or link of a ROCm tree; folders are implied.

    Attributes:
        root: the folder the tree, or this part of it, was read from.
        path: inside it, with forward slashes.
        artifact: `NAME_COMPONENT` of the artifact that holds it; empty in a prefix.
        target: the target or family it is for; `GENERIC` for all.
        package: the package of the distribution that has it; None where no distribution made the tree.
    """

    root: Path
    path: str
    artifact: str = ""
    target: str = GENERIC
    package: DebianPackage | None = None

    @property
    def source(self) -> Path:
        """The path of the entry on disk."""
        return self.root / self.path


@dataclass(frozen=True, kw_only=True)
class RocmTree:
    """All that may be packaged.

    Attributes:
        entries: sorted by path.
    """

    entries: tuple[TreeEntry, ...]

    @property
    def targets(self) -> tuple[str, ...]:
        """Targets that some artifact is for."""
        return in_order({e.target for e in self.entries} - {GENERIC})

    def rocm_version(self) -> str | None:
        """The version of ROCm that the tree says it is, without what a nightly adds to it."""
        entry = self._index.get(_VERSION_FILE)
        path = None if entry is None else self.leads_to(entry)
        if path is None or not path.is_file():
            return None
        match = _VERSION.match(path.read_text(encoding="utf-8", errors="replace"))
        return None if match is None else match[0]

    def leads_to(self, entry: TreeEntry) -> Path | None:
        """The file or folder an entry stands for on disk; None for a link that leads nowhere.

        A link may lead into a different artifact: `dev` holds `libx.so`, a link to what `lib` holds.
        """
        path = entry.path
        for _ in range(_MAX_LINKS):
            # A link that works inside its own artifact, or a file.
            if entry.source.exists():
                return entry.source.resolve()
            # Else resolve one step by hand: the artifacts are one tree once they are installed over each
            # other.
            path = posixpath.normpath(posixpath.join(posixpath.dirname(path), entry.source.readlink()))
            if path not in self._index:
                return None
            entry = self._index[path]
        return None

    def package_of(self, entry: TreeEntry, source: Path) -> DebianPackage | None:
        """The package that has the file which an entry leads to: a link may be in a different one."""
        return self._owners.get(source, entry.package) if entry.source.is_symlink() else entry.package

    def licence_of(self, package: DebianPackage) -> Path | None:
        """The file in which a package of the distribution says its licence (Debian Policy 12.5)."""
        name = package.name
        for _ in range(_MAX_LINKS):
            places = [root / "share" / "doc" / name for root in self._roots]
            path = next((place / "copyright" for place in places if (place / "copyright").is_file()), None)
            # The whole folder may be a link to that of a package from the same source.
            link = next((place for place in places if place.is_symlink()), None)
            if path is not None or link is None:
                return path
            name = link.readlink().name
        return None

    @functools.cached_property
    def _owners(self) -> dict[Path, DebianPackage | None]:
        return {e.source.resolve(): e.package for e in self.entries if not e.source.is_symlink()}

    @functools.cached_property
    def _roots(self) -> tuple[Path, ...]:
        return tuple(dict.fromkeys(entry.root for entry in self.entries))

    @functools.cached_property
    def _index(self) -> dict[str, TreeEntry]:
        # Reversed, so that of several artifacts with one path the first has it.
        return {entry.path: entry for entry in reversed(self.entries)}


def read_prefix(prefix: Path, description: Description) -> RocmTree:
    """Read an installed prefix, as far as the description's globs reach.

    Raises:
        UsageError: there is no such folder.
    """
    if not prefix.is_dir():
        raise UsageError(
            f"{prefix} is not a folder", tip="give --prefix the folder that holds bin, lib, include"
        )
    globs = [glob for name in COMPONENTS for glob in description.component(name).files]
    entries = {entry.path: entry for folder in _outermost(globs) for entry in _walk(prefix, folder)}
    owners = debian.installed(prefix)
    return RocmTree(
        entries=tuple(structs.replace(entries[path], package=owners.get(path)) for path in sorted(entries))
    )


def read_debs(places: tuple[Path, ...], folder: Path, *, say: Progress = silent) -> RocmTree:
    """Unpack Debian's packages, each into a folder of its own in `folder`, and read what they have in /usr.

    Args:
        places: .deb files, or folders with some.
        folder: where to unpack them.
        say: progress callback.

    Raises:
        UsageError: there is none, two versions of one package, or packages for different machines.
        UnsafeArchiveError: one of them is damaged, or would write outside its folder.
        PrerequisiteError: there is not enough room for them.
    """
    debs = debian.find(places)
    _check_room(sum(map(debian.installed_size, debs)), folder.parent)
    roots: dict[DebianPackage, Path] = {}
    for number, deb in enumerate(debs):
        root = folder / str(number)
        say(f"unpack {deb.name} ({number + 1} of {len(debs)})")
        package = debian.extract(deb, root)
        for nested in roots:
            if "all" != package.architecture != nested.architecture != "all":
                raise UsageError(
                    f"{package.name} is for {package.architecture}, {nested.name} for {nested.architecture}",
                    tip=f"name the packages for one of the two, without {deb}",
                )
            if nested.name == package.name and nested != package:
                raise UsageError(
                    f"{package.name} is there as {nested.version} and as {package.version}",
                    tip=f"remove one of the two, such as {deb}",
                )
        roots[package] = root
    entries = [
        structs.replace(entry, package=package)
        # By package, whatever the files are called: of two with one file the first has it.
        for package, root in sorted(roots.items())
        # Older packages have some in /lib, which is a link to /usr/lib wherever they are installed.
        for entry in (*_walk(root / "usr", ""), *_walk(root, "lib"))
    ]
    return RocmTree(entries=tuple(sorted(entries, key=lambda e: e.path)))


def _check_room(needed: int, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise PrerequisiteError(
            f"the packages unpack to {needed / 1e9:.1f} GB, and {folder} has {free / 1e9:.1f} GB free",
            tip="name a folder with more room in TMPDIR",
        )


def read_artifacts(folder: Path, *, needed: tuple[str, ...] = ()) -> RocmTree:
    """Read a tree of artifacts: folders `NAME_COMPONENT_TARGET`, each with a list of its base folders.

    Source: ROCm/TheRock 89553ce, build_tools/_therock_utils/artifacts.py.

    Args:
        folder: the tree.
        needed: globs over `NAME_COMPONENT` of the artifacts that packages are made of.

    Raises:
        UsageError: there is no artifact in it, or a `needed` one with libraries has none of its folders.
        UnsafeArchiveError: the manifest of an artifact is missing, or does not name what is there.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder")
    entries, absent = list[TreeEntry](), list[str]()
    for path in sorted(folder.iterdir()):
        match = ARTIFACT.fullmatch(path.name)
        if not match or not path.is_dir():
            continue
        artifact = f"{match['name']}_{match['component']}"
        bases, missing = base_folders(path)
        if missing and matches(artifact, needed):
            if not bases and match["component"] == "lib":
                names = ", ".join(missing)
                raise UsageError(
                    f"the artifact {path.name} has none of the folders that its manifest names: {names}",
                    tip="fetch or copy it again; where its build made no library, remove it",
                )
            absent.append(path.name)
        entries += [
            structs.replace(entry, artifact=artifact, target=match["target"])
            for base in bases
            for entry in _walk(base, "")
        ]
    if not entries:
        raise UsageError(
            f"no artifact in {folder}", tip=f"an artifact is a folder NAME_COMPONENT_TARGET with {MANIFEST}"
        )
    if absent:
        console.current().warn(
            f"{len(absent)} artifacts lack folders that their manifests name, as where a build made nothing: "
            f"{wording.some(absent, shown=3)}"
        )
    return RocmTree(entries=tuple(sorted(entries, key=lambda e: (e.path, e.artifact, e.target))))


def _outermost(globs: Iterable[str]) -> list[str]:
    """The folders that hold every match, none inside a different one: a whole /usr need not be walked."""
    folders = sorted({literal_folder(glob) for glob in globs})
    return [f for f in folders if not any(f != o and (not o or f.startswith(f"{o}/")) for o in folders)]


def _walk(root: Path, folder: str) -> Iterator[TreeEntry]:
    for at, folders, files in os.walk(root / folder):
        folders.sort()
        links = [name for name in folders if Path(at, name).is_symlink()]
        for name in sorted([*files, *links]):
            source = Path(at, name)
            if source.is_symlink() or source.is_file():  # no sockets, no devices
                yield TreeEntry(root=root, path=source.relative_to(root).as_posix())
