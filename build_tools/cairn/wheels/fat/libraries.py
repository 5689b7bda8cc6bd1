"""Collecting the libraries that a fat wheel bundles, and setting run paths so that binaries find them.

A fat wheel bundles the libraries that it needs, their dependencies, and libraries that are opened by name
(dlopen, LoadLibrary). No file lists the last kind: libamdhip64 opens libamd_comgr, torch opens what its
`_rocm_init.py` lists. So the recipe lists them.

A library from the tree gets the run path `$ORIGIN`, the folder that all of them lie in; one of the wheel
keeps the run paths that stay inside the wheel, and gets one to that folder.

Code for other targets is taken out of a plain offload bundle: its entries get ids that name no device, and
the code becomes zeros, which cost next to nothing in a wheel. A compressed bundle stays whole.
"""

from __future__ import annotations

import graphlib
import mmap
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec
from msgspec import structs

from cairn import files
from cairn.errors import WheelError
from cairn.formats import view as formats_view
from cairn.formats.offload import bundle as offload_bundle
from cairn.formats.offload.code_object import CodeObject, bundles_of, target_of_entry
from cairn.formats.view import Patch, apply_patches
from cairn.output import wording
from cairn.targets import TargetId
from cairn.wheels.contents import system_libraries
from cairn.wheels.contents.binaries import Binary, run_path_folder, run_path_to, shipped
from cairn.wheels.fat.platform import WheelPlatform
from cairn.wheels.fat.recipe import Recipe, plain, serves
from cairn.wheels.fat.rocm_tree import RocmTree, key_of, stem_of
from cairn.wheels.metadata.wheel_info import installed_path
from cairn.wheels.rewrite import elf
from cairn.wheels.rewrite.elf import BinaryEdit

_SDK_FOLDER = "_rocm_sdk_"
_MOST_ZEROS = 40  # times what is left of a library


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """Something that the wheel does not carry, and why."""

    name: str
    reason: str


class BundledLibrary(msgspec.Struct, frozen=True, kw_only=True):
    """A library of the ROCm tree that the wheel gets.

    Attributes:
        name: its file name in the wheel: its SONAME, by which others need it, or else its file name.
        binary: what it is.
        trimmed: device code that is to be taken out of it.
    """

    name: str
    binary: Binary
    trimmed: tuple[CodeObject, ...] = ()

    @property
    def sizes(self) -> dict[str, int]:
        """Target to bytes of the code it keeps for it."""
        return sizes(code for code in self.binary.code_objects if code not in self.trimmed)


class LibraryBundle(msgspec.Struct, frozen=True, kw_only=True):
    """The libraries of a fat wheel.

    Attributes:
        libraries: those of the tree that it gets, in the order in which they can be loaded.
        names: library as a binary needs it to the name that it has in the wheel, where the two differ.
        left_out: listed libraries that it does not get.
    """

    libraries: tuple[BundledLibrary, ...]
    names: Mapping[str, str]
    left_out: tuple[LeftOut, ...]

    def find(self, stem: str) -> BundledLibrary | None:
        """The library of a stem, with or without `lib`."""
        name = plain(stem)
        return next((b for b in self.libraries if key_of(b.name) == name), None)


class Collector:
    """Collects libraries of a ROCm tree for a wheel, with those that each of them needs or opens in turn."""

    def __init__(
        self,
        own: Sequence[Binary],
        tree: RocmTree,
        recipe: Recipe,
        platform: WheelPlatform,
        *,
        provided: Sequence[str],
    ) -> None:
        """Begin with nothing.

        Args:
            own: the binaries of the wheel.
            tree: where to take from.
            recipe: who opens what by name.
            platform: of the wheel.
            provided: globs of libraries that other wheels supply.
        """
        self._tree = tree
        self._recipe = recipe
        self._platform = platform
        self._wheel = own
        self._own = shipped(own)
        on_windows = platform.system == "windows"
        self._provided = [glob.lower() if on_windows else glob for glob in provided]
        # File in the tree, its links resolved, to the library.
        self._libraries: dict[Path, BundledLibrary] = {}
        # Library as a binary needs it to the name that it has in the wheel.
        self._names: dict[str, str] = {}
        # What the tree lacks, to what needs it.
        self._missing: dict[str, str] = {}
        # Stem without `lib` to what is not taken.
        self._left_out: dict[str, LeftOut] = {}
        # Taken, but their own needs are not looked at yet.
        self._waiting: deque[BundledLibrary] = deque()

    def follow_own(self) -> None:
        """Take the libraries that the wheel's own binaries need."""
        for binary in self._wheel:
            self._take_needed(binary.needed, binary.path)
            self._follow()

    def open(self, stem: str, by: str, *, required: bool) -> bool:
        """Take a library that is opened by name, and return whether it exists."""
        library = self._take_stem(stem, by, required=required)
        self._follow()
        return library

    def leave_out(self, name: str, reason: str) -> None:
        """Note that the wheel does not get a library; the first reason counts."""
        self._left_out.setdefault(plain(name), LeftOut(name=name, reason=reason))

    def finish(self) -> LibraryBundle:
        """Return the collected libraries, in an order in which they can be loaded.

        Raises:
            WheelError: libraries are missing, or two would have one name.
        """
        if self._missing:
            listed = [f"{n} (needed by {by.rpartition('/')[2]})" for n, by in self._missing.items()]
            raise WheelError(
                f"{self._tree.root} has no {wording.some(listed)}",
                tip="name a whole ROCm; say --provided GLOB for what other wheels supply",
            )
        by_name: dict[str, BundledLibrary] = {}
        for library in self._libraries.values():
            first = by_name.setdefault(library.name, library)
            if first is not library:
                paths = f"{first.binary.path} and {library.binary.path}"
                raise WheelError(
                    f"two libraries would be {library.name} in the wheel: {paths}",
                    tip="name a ROCm tree with one version of each library",
                )
        return LibraryBundle(
            libraries=tuple(by_name[name] for name in self._loading_order(by_name)),
            names={old: name for old, name in self._names.items() if old != name},
            left_out=tuple(self._left_out.values()),
        )

    def _follow(self) -> None:
        while self._waiting:
            library = self._waiting.popleft()
            self._take_needed(library.binary.needed, library.binary.path)
            for entry in self._recipe.opened_by(stem_of(library.name)[0]):
                # A library without the name in it, such as the sample's runtime, cannot open it by that.
                required = entry.required and _names(Path(library.binary.path), entry.opened)
                if not self._take_stem(entry.opened, library.binary.path, required=required):
                    reason = f"the tree has none; {library.name} opens it where there is one"
                    self.leave_out(entry.opened, reason)

    def _take_needed(self, names: Iterable[str], by: str) -> None:
        for name in names:
            elsewhere = name in self._own or self._platform.on_system(name)
            if elsewhere or system_libraries.matches(name, self._provided) or name in self._names:
                continue
            path = self._tree.find(name)
            if path is None:
                self._missing.setdefault(name, by)
            else:
                self._take(name, path)

    def _take_stem(self, stem: str, by: str, *, required: bool) -> bool:
        # One of that stem is enough: two versions of a runtime in one process are one too many.
        names = {*self._own, *(library.name for library in self._libraries.values())}
        if plain(stem) in set(map(key_of, names)):
            return True
        if any(fnmatchcase(plain(stem), _stem_glob(glob)) for glob in self._provided):
            self.leave_out(stem, "a different wheel supplies it")
            return True
        path = self._tree.find_stem(stem)
        if path is not None:
            self._take(path.name, path)
        elif required:
            self._missing.setdefault(stem, by)
        return path is not None

    def _take(self, name: str, path: Path) -> None:
        """Take the library at `path`, which may be a link, for what is needed as `name`."""
        real = path.resolve()  # libamdhip64.so, .so.7 and .so.7.0.1 are one file
        library = self._libraries.get(real)
        if library is None:
            try:
                binary = self._platform.read_library(real)
            except WheelError as error:
                raise WheelError(f"{path} cannot be bundled: {error}", tip="repair the ROCm tree") from error
            library = BundledLibrary(name=binary.soname or path.name, binary=binary)
            self._libraries[real] = library
            self._waiting.append(library)
        self._names[name] = library.name

    def _loading_order(self, by_name: Mapping[str, BundledLibrary]) -> tuple[str, ...]:
        """The names of the libraries: what others need, or open by name, comes first."""
        graph: dict[str, dict[str, None]] = {}
        for name, library in sorted(by_name.items()):
            stems = {entry.opened.lower() for entry in self._recipe.opened_by(stem_of(name)[0])}
            opened = [name for name in by_name if key_of(name) in stems]
            needed = (self._names.get(soname, soname) for soname in library.binary.needed)
            others = (library for library in (*needed, *opened) if library in by_name and library != name)
            graph[name] = dict.fromkeys(others)
        while True:
            try:
                return tuple(graphlib.TopologicalSorter(graph).static_order())
            except graphlib.CycleError as error:
                # Libraries that need each other can be loaded in any order: the loader takes care of both.
                first, second, *_ = error.args[1]
                del graph[second][first]


def _names(path: Path, stem: str) -> bool:
    """Whether a file has the name of a library in it, as one has that opens it by name."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data.find(stem.encode()) >= 0


def _stem_glob(glob: str) -> str:
    """The part of a glob over libraries that their stems match: `amd_comgr` of `libamd_comgr.so.*`."""
    return plain(re.split(r"\.so|\.dll", stem_of(glob)[0])[0])


def sizes(codes: Iterable[CodeObject]) -> dict[str, int]:
    """Target to bytes of its code."""
    counts: dict[str, int] = {}
    for code in codes:
        counts[str(code.target)] = counts.get(str(code.target), 0) + code.size
    return counts


def own_edits(own: Iterable[Binary], bundle: LibraryBundle, package: str) -> Iterator[tuple[str, BinaryEdit]]:
    """The changes that let the wheel's own binaries find the libraries inside.

    PE files have no run path: `_rocm_init.py` adds the folder when the package is imported.
    """
    bundled = {library.name for library in bundle.libraries}
    for binary in own:
        names = {name: bundle.names.get(name, name) for name in binary.needed}
        uses = not bundled.isdisjoint(names.values())
        to_sdk = any(_SDK_FOLDER in path for path in binary.run_paths)
        if binary.format == "pe" or not (uses or to_sdk):
            continue
        # Run paths to the SDK's packages would be searched first, and find any ROCm that is installed there.
        place = installed_path(binary.path)
        inside = ((path, run_path_folder(place, path)) for path in binary.run_paths)
        folders = [
            path
            for path, folder in inside
            if folder is not None and not folder.startswith(("..", _SDK_FOLDER))
        ]
        folders += [run_path_to(place, f"{package}/lib")] if uses else []
        change = BinaryEdit(
            run_path=tuple(dict.fromkeys(folders)),
            replace_needed={old: new for old, new in names.items() if old != new},
        )
        if change.changes(binary):
            yield binary.path, change


def library_files(
    bundle: LibraryBundle, recipe: Recipe, package: str, targets: Sequence[TargetId], folder: Path
) -> Iterator[tuple[str, Path]]:
    """Path in the wheel to the file of each library; those that change get copies in `folder`.

    Raises:
        WheelError: one of them cannot be changed.
    """
    for number, library in enumerate(bundle.libraries):
        source = Path(library.binary.path)
        # DT_NEEDED may name a link of the tree (libamdhip64.so), and in the wheel there are only SONAMEs.
        renames = {name: bundle.names[name] for name in library.binary.needed if name in bundle.names}
        change = BinaryEdit(run_path=("$ORIGIN",), replace_needed=renames)
        changes = library.binary.format == "elf" and change.changes(library.binary)
        if changes or library.trimmed:
            copy = folder / str(number)
            files.copy_into(source, copy)
            copy.chmod(source.stat().st_mode | 0o200)
            try:
                if library.trimmed:
                    _trim(copy, targets)
                if changes:
                    elf.change(copy, change)
            except WheelError as error:
                raise WheelError(f"{source} cannot be bundled: {error}", tip=error.tip) from error
            source = copy
        # Wheels cannot have links: a library that is also opened as libnuma.so is there twice.
        for name in (library.name, *recipe.aliases.get(library.name, ())):
            yield f"{package}/lib/{name}", source


def mark_trimmed(library: BundledLibrary, targets: Sequence[TargetId]) -> BundledLibrary:
    """The library, with the code for other targets marked as to be taken out.

    Where next to nothing of the library would be left, it stays as it is: a file of zeros unpacks to so many
    times its size that readers of wheels take it for a bomb.
    """
    codes = library.binary.code_objects
    removed = tuple(c for c in codes if not (c.compressed or serves((c.target,), targets)))
    size = library.binary.size - sum(code.size for code in removed)
    return library if size * _MOST_ZEROS < library.binary.size else structs.replace(library, trimmed=removed)


def _trim(path: Path, targets: Sequence[TargetId]) -> None:
    """Take the code for other targets out of a file of our own."""
    with formats_view.opening(path) as view:
        bundles = list(bundles_of(view))
    patches: list[Patch] = []
    for bundle in bundles:
        if bundle.packing is not None:  # CCOB: its sizes and its hash would have to be made anew
            continue
        ids = {e.id for e in bundle.device_entries}
        others = {i for i in ids if not serves((target_of_entry(i),), targets)}
        ranges = [(e.offset, e.offset + e.size) for e in bundle.entries if e.id not in others]
        for entry in (e for e in bundle.entries if e.id in others):
            patches.append(Patch(at=bundle.at + entry.id_at, data=offload_bundle.INERT_PREFIX))
            # Entries may share their bytes, and a lying table may point at itself.
            shared = any(entry.offset < end and begin < entry.offset + entry.size for begin, end in ranges)
            if entry.offset >= bundle.table_size and not shared:
                patches.append(Patch(at=bundle.at + entry.offset, zeros=entry.size))
    apply_patches(path, patches)
