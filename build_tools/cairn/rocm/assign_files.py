"""Assigning the files of a ROCm tree to packages, each under the name that it gets there."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import structs

from cairn.errors import UsageError
from cairn.formats.image import Image
from cairn.formats.offload import code_object
from cairn.rocm import binaries
from cairn.rocm.debian import DebianPackage
from cairn.rocm.packages_toml import COMPONENTS, ComponentName, Description, matches
from cairn.rocm.tree import GENERIC, RocmTree, TreeEntry
from cairn.targets import known_targets, unbuilt_targets


class PackageMember(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a package.

    Attributes:
        path: inside the package's folder.
        source: its bytes.
        binary: what it is when it is a program or shared library.
        package: the package of a distribution that has it.
    """

    path: str
    source: Path
    binary: Image | None = None
    package: DebianPackage | None = None

    @property
    def executable(self) -> bool:
        """Whether it can be run."""
        return bool(self.source.stat().st_mode & 0o111)


class DevelLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link of the devel package, which is unpacked where links can be.

    Attributes:
        path: inside the devel package's folder.
        component: the package it points into.
        target: the path inside that package's folder.
    """

    path: str
    component: ComponentName
    target: str


class Package(msgspec.Struct, frozen=True, kw_only=True):
    """One SDK package before it is a wheel; `family` is empty but for the libraries of one family."""

    component: ComponentName
    family: str = ""
    members: tuple[PackageMember, ...]

    @property
    def folder(self) -> str:
        """Its top-level package, named as upstream's `get_py_package_name` does."""
        return "_" + self.distribution.replace("-", "_")

    @property
    def distribution(self) -> str:
        """The name it is installed by.

        Source: ROCm/TheRock 89553ce, build_tools/packaging/python/templates/rocm/src/rocm_sdk/_dist_info.py.
        """
        if self.component == "profiler":
            return "rocm-profiler"
        return f"rocm-sdk-{self.component}" + (f"-{self.family}" if self.family else "")


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """Every package of an SDK.

    Attributes:
        core: the runtime.
        libraries: one package a family, or one for all.
        profiler: the profilers; without members where the tree has none.
        devel: the rest.
        links: what devel links to, in itself and in the others.
    """

    core: Package
    libraries: tuple[Package, ...]
    profiler: Package
    devel: Package
    links: tuple[DevelLink, ...]

    @property
    def packages(self) -> tuple[Package, ...]:
        """All of them, dependencies first."""
        return (self.core, *self.libraries, self.profiler, self.devel)


def plan(
    tree: RocmTree,
    description: Description,
    families: Mapping[str, tuple[str, ...]],
    *,
    libraries_for_all: bool = False,
) -> Layout:
    """Assign the files of a tree to packages.

    Args:
        tree: the ROCm tree.
        description: the files that each component claims.
        families: family to targets; an artifact of a target or family goes to the package of that family.
        libraries_for_all: one package has the libraries for all families.

    Raises:
        UsageError: two different files would have the same place, or core is empty.
    """
    claims = _claims(tree, description)
    sharing = _Sharing(tree=tree, description=description)
    core = Package(component="core", members=sharing.members(claims["core"], ()))
    if not core.members:
        raise UsageError(
            "the tree holds no file for rocm-sdk-core", tip="check that packages.toml describes this tree"
        )
    packages = families
    if libraries_for_all:
        packages = {"": (*families, *(name for targets in families.values() for name in targets))}
    libraries = tuple(
        Package(
            component="libraries",
            family=family,
            members=sharing.members(
                # An artifact for `gfx90a:xnack+` belongs to the family of gfx90a.
                [
                    entry
                    for entry in claims["libraries"]
                    if {entry.target, entry.target.partition(":")[0]} & {GENERIC, family, *targets}
                ],
                (core,),
            ),
        )
        for family, targets in packages.items()
    )
    members = sharing.members(claims["profiler"], (core, *libraries))
    profiler = Package(component="profiler", members=_unversioned(members, description.profiler.unversioned))
    before = (core, *libraries, profiler)
    devel = Package(component="devel", members=sharing.members(claims["devel"], before))
    entries = [entry for name in COMPONENTS for entry in claims[name]]
    links = sharing.links(entries, (*before, devel))
    return Layout(core=core, libraries=libraries, profiler=profiler, devel=devel, links=links)


def _unversioned(members: tuple[PackageMember, ...], globs: tuple[str, ...]) -> tuple[PackageMember, ...]:
    """The members, and unversioned copies of the libraries that the globs name: wheels hold no links."""
    by_path = {member.path: member for member in members}
    for member in members:
        if member.binary and matches(member.path, globs):
            path = f"{member.path.partition('.so')[0]}.so"
            by_path.setdefault(path, structs.replace(member, path=path))
    return tuple(by_path[path] for path in sorted(by_path))


def without_databases(layout: Layout, processors: Collection[str]) -> Layout:
    """The layout without the kernels and tables of the libraries that are for other processors alone."""
    all_processors = (*processors, *known_targets(), *unbuilt_targets())

    def stays(member: PackageMember) -> bool:
        processor = code_object.named_processor(member.path, all_processors)
        return processor is None or processor in processors

    libraries = tuple(
        structs.replace(package, members=tuple(filter(stays, package.members)))
        for package in layout.libraries
    )
    present = {member.path for package in libraries for member in package.members}
    links = tuple(link for link in layout.links if link.component != "libraries" or link.target in present)
    return structs.replace(layout, libraries=libraries, links=links)


def _claims(tree: RocmTree, description: Description) -> dict[ComponentName, list[TreeEntry]]:
    """The entries of each component: the first one that claims an entry has it."""
    claims: dict[ComponentName, list[TreeEntry]] = {name: [] for name in COMPONENTS}
    for entry in tree.entries:
        for name in COMPONENTS:
            component = description.component(name)
            if entry.artifact and not matches(entry.artifact, component.artifacts):
                continue
            if matches(entry.path, component.files) and not matches(entry.path, component.exclude):
                claims[name].append(entry)
                break
    return claims


class _Sharing(msgspec.Struct, frozen=True, kw_only=True):
    """A tree under its description: turns entries into members and links."""

    tree: RocmTree
    description: Description

    def members(self, entries: list[TreeEntry], before: tuple[Package, ...]) -> tuple[PackageMember, ...]:
        """The members for these entries, each under the name that other binaries need it by.

        A link becomes a file where the one it leads to is neither here nor in a package that comes `before`.
        """
        # A wheel holds files only (PEP 427 knows no links), so of `libx.so -> libx.so.1 -> libx.so.1.2` one
        # file remains, and devel, which is unpacked by a program of its own, gets the other names as links.
        by_name: dict[str, PackageMember] = {}
        files = [e for e in entries if not e.source.is_symlink()]
        present = {e.source.resolve() for e in files} | {m.source for p in before for m in p.members}
        for entry in (*files, *(e for e in entries if e.source.is_symlink())):
            source = self.tree.leads_to(entry)
            if source is None or not source.is_file() or (entry.source.is_symlink() and source in present):
                continue
            member = self._member(entry, source)
            first = by_name.setdefault(member.path, member)
            if first.source != source and first.source.read_bytes() != source.read_bytes():
                raise _differ(member, first)
        return tuple(by_name[path] for path in sorted(by_name))

    def _member(self, entry: TreeEntry, source: Path) -> PackageMember:
        path, binary = self.description.relocated(entry.path), binaries.read(source)
        # Under its SONAME, since that is the only name by which others ask the loader for it (DT_NEEDED).
        if binary is not None and binary.soname and "/" not in binary.soname:
            path = posixpath.join(posixpath.dirname(path), binary.soname)
        if "\\" in path:  # the name of a file on Linux alone
            raise UsageError(
                f"{path} has a backslash in its name, which a wheel cannot have",
                tip="leave it out by `exclude` in packages.toml",
            )
        package = self.tree.package_of(entry, source)
        return PackageMember(path=path, source=source, binary=binary, package=package)

    def links(self, entries: list[TreeEntry], packages: tuple[Package, ...]) -> tuple[DevelLink, ...]:
        """The links of devel: to every file of the other packages, under each of its names, and its own."""
        # Reversed, so that of several packages with one file the first has it: later keys win.
        homes = {m.source: (p.component, m.path) for p in reversed(packages) for m in p.members}
        links = {
            member.path: DevelLink(path=member.path, component=package.component, target=member.path)
            for package in packages[:-1]
            for member in package.members
        }
        # CMake files name the libraries of the other packages where the tree has them.
        libraries = {m.source for p in packages[:-1] for m in p.members if m.binary}
        for entry in entries:
            source = self.tree.leads_to(entry)
            moved = self.description.relocated(entry.path) != entry.path
            if self.description.cmake and moved and source in libraries:
                component, target = homes[source]
                links[entry.path] = DevelLink(path=entry.path, component=component, target=target)
            link = self._link(entry, homes)
            # Not to itself: a file of devel is its own home.
            if link is not None and (link.path, "devel") != (link.target, link.component):
                links.setdefault(link.path, link)
        taken = {m.path for m in packages[-1].members}
        return tuple(links[path] for path in sorted(links) if path not in taken)

    def _link(self, entry: TreeEntry, homes: Mapping[Path, tuple[ComponentName, str]]) -> DevelLink | None:
        """The link in devel for a link, or for a library under a name that is not its SONAME."""
        path, source = self.description.relocated(entry.path), self.tree.leads_to(entry)
        if source is None:
            return None
        if source in homes:
            component, target = homes[source]
            return DevelLink(path=path, component=component, target=target)
        # A link to a folder, such as `lib64 -> lib`, stays one as long as it does not lead out of the tree.
        root = entry.root.resolve()
        if not source.is_dir() or not source.is_relative_to(root):
            return None
        inside = self.description.relocated(source.relative_to(root).as_posix())
        return DevelLink(path=path, component="devel", target=inside)


def _differ(member: PackageMember, second: PackageMember) -> UsageError:
    """Two different files have one place."""
    if member.package is None or second.package is None or member.package == second.package:
        return UsageError(f"two files for {member.path}: {second.source} and {member.source}")
    parts = sorted({member.package, second.package})
    names = " and ".join(f"{part.name} {part.version}" for part in parts)
    return UsageError(
        f"two files for {member.path}: those of {names} differ",
        tip="leave out one of the two, as a system that they are installed on must",
    )


def unmet(layout: Layout, system: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Pairs of a file and a library it needs, where neither a package nor the system has that library."""
    provided = {m.binary.soname for p in layout.packages for m in p.members if m.binary} | system
    for package in layout.packages:
        for member in package.members:
            for name in member.binary.needed if member.binary else ():
                if name not in provided:
                    yield f"{package.folder}/{member.path}", name


def run_path_of(package: Package, member: PackageMember, core: Package) -> str:
    """The DT_RUNPATH for a file: its own folder, where its package has what it needs, then core's.

    Core's library folder is always there: the runtime opens some of its libraries by name.
    """
    assert member.binary is not None  # noqa: S101 - callers pass binaries
    needed = member.binary.needed
    here = posixpath.dirname(f"{package.folder}/{member.path}")
    places = [here]
    for provider in (package,) if package is core else (package, core):
        folders = {
            posixpath.dirname(m.path) for m in provider.members if m.binary and m.binary.soname in needed
        }
        places += [posixpath.join(provider.folder, folder).rstrip("/") for folder in sorted(folders)]
    places.append(f"{core.folder}/lib")
    # $ORIGIN is the folder of the file itself (ld.so(8)); packages lie side by side in site-packages.
    relative = [posixpath.relpath(place, here) for place in dict.fromkeys(places)]
    return ":".join("$ORIGIN" if path == "." else f"$ORIGIN/{path}" for path in relative)
