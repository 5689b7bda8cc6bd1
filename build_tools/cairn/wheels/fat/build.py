"""Making a fat wheel: a linked wheel with the ROCm libraries and data that it needs inside.

All that goes in is found before anything is written. What is in the wheel already is copied compressed; only
what is added or must change is packed. The fat wheel needs no SDK package, says so in its METADATA, and has a
version of its own. The report says what it got, by library and target, and what it did not get.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import structs
from packaging.utils import canonicalize_name

from cairn import files
from cairn.errors import WheelError
from cairn.formats import cyclonedx
from cairn.formats.zip.reader import Archive
from cairn.output import console
from cairn.requirements import is_sdk
from cairn.targets import TargetId, parse_target_id
from cairn.wheels.contents.binaries import targets_of
from cairn.wheels.fat import data_files, package_files, platform
from cairn.wheels.fat.libraries import (
    Collector,
    LeftOut,
    LibraryBundle,
    library_files,
    mark_trimmed,
    own_edits,
    sizes,
)
from cairn.wheels.fat.platform import platform_of
from cairn.wheels.fat.recipe import plain, recipe, serves
from cairn.wheels.fat.rocm_tree import RocmTree, key_of, stem_of, system_folders
from cairn.wheels.metadata import wheel_info
from cairn.wheels.metadata.wheel_info import WheelInfo
from cairn.wheels.rewrite import wheel
from cairn.wheels.rewrite.wheel import Edit
from cairn.wheels.verify import Expectation, FindingCode
from cairn.wheels.verify.written import judge_source, require_no_worse

__all__ = ["FatReport", "FatRequest", "make"]


class FatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters for making a fat wheel.

    Attributes:
        wheel: the linked wheel.
        rocm: the ROCm tree to take from.
        output_dir: where the fat wheel goes.
        targets: the targets it is to serve; None for those that the wheel has code for.
        version: its version; by default the old one with `fat` before the rest of its local part.
        libraries: names or stems of further libraries to take.
        provided: globs of libraries that other wheels supply.
        strict: whether a listed library that the tree lacks is an error, though nothing needs it.
    """

    wheel: Path
    rocm: Path
    output_dir: Path
    targets: tuple[TargetId, ...] | None = None
    version: str | None = None
    libraries: tuple[str, ...] = ()
    provided: tuple[str, ...] = ()
    strict: bool = False


class CarriedPart(msgspec.Struct, frozen=True, kw_only=True):
    """A library, or the data of one.

    Attributes:
        name: its path in the package's folder.
        size: bytes.
        sizes: target to bytes that serve it; data that serves all targets counts as `any`.
        files: how many files.
    """

    name: str
    size: int
    sizes: Mapping[str, int]
    files: int = 1


class FatReport(msgspec.Struct, frozen=True, kw_only=True):
    """The fat wheel, and what it carries.

    Attributes:
        wheel: the new wheel.
        version: its version.
        targets: the targets that it serves.
        parts: what it carries.
        sizes: target to bytes that serve it, of all parts.
        changed: binaries of the wheel whose run paths or needs changed.
        dropped: requirements that it has no longer.
        left_out: what it does not carry, and why.
        size: bytes of the wheel.
    """

    wheel: str
    version: str
    targets: tuple[str, ...]
    parts: tuple[CarriedPart, ...]
    sizes: Mapping[str, int]
    changed: tuple[str, ...]
    dropped: tuple[str, ...]
    left_out: tuple[LeftOut, ...]
    size: int


def make(request: FatRequest) -> FatReport:
    """Write the fat wheel into `output_dir`.

    Raises:
        UsageError: no such ROCm tree.
        WheelError: a library, its data or the hook that loads them is missing; or `verify` has findings on
            the fat wheel that it has not on the linked one.
    """
    expected = Expectation(provided_libraries=request.provided, require_platform_tag=False)
    with Archive.open(request.wheel) as archive, files.filling(request.output_dir) as output:
        work = _Work(request, archive)
        with tempfile.TemporaryDirectory(prefix=".fat.", dir=output) as folder:
            change = work.edit(Path(folder))
            path = wheel.edit_archive(archive, work.info, change, output)
        brought = tuple(work.findings_of_tree())
        require_no_worse(path, expected, [judge_source(archive, expected)], brought=brought)
    return work.report(change, request.output_dir / path.name)


class _Work:
    """Reads the wheel and the ROCm tree, plans the changes, and reports them.

    Attributes:
        info: what the wheel says about itself.
    """

    def __init__(self, request: FatRequest, archive: Archive) -> None:
        """Read the wheel and the ROCm tree.

        Raises:
            UsageError: no such ROCm tree.
            WheelError: the wheel cannot be made fat.
        """
        self._request = request
        self._archive = archive
        self.info = wheel_info.read_archive(archive)
        package_files.fat_version(self.info.version)  # refuses a wheel that is fat already
        self._platform = platform_of(self.info)
        self._package = package_files.package_of(archive, self.info)
        # DLLs have no run path: only the hook can add their folder to where Windows looks.
        on_windows = self._platform.system == "windows"
        self._hooked = package_files.is_hooked(archive, self._package, needed=on_windows)
        self._own = self._platform.read_wheel(archive)
        self._preloads = package_files.preloads(archive, self._package)
        self._targets = request.targets or tuple(map(parse_target_id, targets_of(request.wheel)))
        if not self._targets:
            raise WheelError(
                f"{request.wheel.name} has no device code to take the targets from",
                tip="name them: --targets gfx942,gfx1100",
            )
        self._recipe = recipe(self._platform.system)
        self._tree = RocmTree(request.rocm, system=() if on_windows else system_folders())
        bundle = self._collect()
        if not bundle.libraries:
            raise WheelError(
                f"{request.rocm} has no library for {request.wheel.name}", tip="name a ROCm tree"
            )
        # Only marked here: the libraries are changed when they are written.
        marked = tuple(mark_trimmed(library, self._targets) for library in bundle.libraries)
        self._bundle = structs.replace(bundle, libraries=marked)
        self._folders, missing = data_files.collect(self._bundle, self._tree, self._recipe, self._targets)
        self._left_out = (*bundle.left_out, *missing)

    def _collect(self) -> LibraryBundle:
        """Collect the libraries to bundle: the required ones first, then others that the tree has.

        Raises:
            WheelError: libraries are missing (all are named), or one cannot be read.
        """
        request, rules = self._request, self._recipe
        collector = Collector(self._own, self._tree, rules, self._platform, provided=request.provided)
        collector.follow_own()
        for shortname in self._preloads:
            stem = rules.shortnames.get(shortname, shortname)
            collector.open(stem, f"the wheel's _rocm_init.py (as {shortname})", required=True)
        for name in request.libraries:
            collector.open(stem_of(name)[0], "the command line", required=True)
        for listed in rules.libraries:
            known = listed.belongs_to(self._tree.rocm_version)
            if not collector.open(listed.stem, "--strict", required=known and request.strict):
                reason = "the ROCm tree has none, and nothing in the wheel needs it"
                foreign = f"not part of ROCm {self._tree.rocm_version}"
                collector.leave_out(listed.stem, reason if known else foreign)
        return collector.finish()

    def edit(self, folder: Path) -> Edit:
        """All changes of the wheel; `folder` gets copies of the libraries that must change."""
        info, package, archive, bundle = self.info, self._package, self._archive, self._bundle
        version = self._request.version or package_files.fat_version(info.version)
        version = str(wheel_info.parsed_version(version))
        libraries = dict(library_files(bundle, self._recipe, package, self._targets, folder))
        digests = {path: files.sha256_of(source) for path, source in libraries.items()}
        # The generated files: the package's version, the bill of materials, what loads the libraries.
        texts = package_files.version_file(archive, package, info.version, version)
        texts[f"{info.dist_info}/{cyclonedx.NAME}"] = self._bill_of_materials(version, digests)
        if self._hooked:
            loaded = package_files.module_text(self._loaded_at_import())
            texts[f"{package}/{package_files.MODULE}"] = loaded.encode()
        # pip must not install an SDK that the wheel no longer uses.
        dropped, extras = _sdk_requirements(info)
        return Edit(
            version=version,
            tags=platform.tags_of(
                info,
                self._platform,
                self._own,
                [library.binary for library in bundle.libraries],
                names=bundle.names.keys(),
                provided=self._request.provided,
            ),
            remove_requirements=dropped,
            remove_extras=extras,
            add_files={
                **libraries,
                **{f"{package}/{path}": file for data in self._folders for path, file in data.files.items()},
                **{path: text for path, text in texts.items() if path not in archive},
            },
            replace_files={path: text for path, text in texts.items() if path in archive},
            digests=digests,
            binaries=dict(own_edits(self._own, bundle, package)),
        )

    def findings_of_tree(self) -> Iterator[tuple[FindingCode, str]]:
        """The findings on libraries that they have in the ROCm tree already, of which the user is warned."""
        for library in self._bundle.libraries:
            if library.binary.executable_stack:
                console.current().warn(
                    f"{library.name} asks for a stack that code can be run from, as in {self._request.rocm}: "
                    "glibc 2.41 and later do not load it"
                )
                for name in (library.name, *self._recipe.aliases.get(library.name, ())):
                    yield FindingCode.EXECUTABLE_STACK, f"{self._package}/lib/{name}"

    def _bill_of_materials(self, version: str, digests: Mapping[str, str]) -> bytes:
        """The linked wheel's bill of materials, with the bundled libraries by their sha256 (PEP 770)."""
        bundled = [cyclonedx.bundled_file(path, digest) for path, digest in sorted(digests.items())]
        linked = self._archive.read_any(f"{self.info.dist_info}/{cyclonedx.NAME}")
        if linked is not None:
            return cyclonedx.with_version(linked, version, bundled)
        rocm = self._tree.rocm_version
        try:
            wheel_info.parsed_version(rocm or "")
        except WheelError:  # the tree says nothing, or nothing that is a version
            rocm = None
        name = self.info.distribution
        return cyclonedx.document(name, version, sources=(), rocm_version=rocm, bundled=bundled)

    def _loaded_at_import(self) -> list[str]:
        """The libraries to load at import, in order: those of the linked wheel, then those opened by name."""
        # What is opened by name is found by the loader where it is loaded already, wherever it lies.
        opened = {entry.opened.lower() for entry in self._recipe.opened}
        stems = {plain(self._recipe.shortnames.get(name, name)) for name in self._preloads}
        stems = stems or {plain(entry.stem) for entry in self._recipe.libraries}
        return [b.name for b in self._bundle.libraries if key_of(b.name) in stems | opened]

    def report(self, change: Edit, path: Path) -> FatReport:
        """The report on the wheel that was written."""
        parts = [
            CarriedPart(name=f"lib/{library.name}", size=library.binary.size, sizes=library.sizes)
            for library in self._bundle.libraries
        ]
        for data in self._folders:
            size = sum(file.stat().st_size for file in data.files.values())
            parts.append(CarriedPart(name=data.target, size=size, sizes=data.sizes, files=len(data.files)))
        totals: dict[str, int] = {}
        for part in parts:
            for target, size in part.sizes.items():
                totals[target] = totals.get(target, 0) + size
        return FatReport(
            wheel=str(path),
            version=str(change.version),
            targets=tuple(map(str, self._targets)),
            parts=tuple(parts),
            sizes=dict(sorted(totals.items())),
            changed=tuple(change.binaries),
            dropped=change.remove_requirements,
            left_out=(*self._left_out, *self._shortfalls()),
            size=path.stat().st_size,
        )

    def _shortfalls(self) -> Iterator[LeftOut]:
        """The parts without code or files for some wanted targets, and what was left out for others."""
        for library in self._bundle.libraries:
            name = f"lib/{library.name}"
            # All of its code counts, since what is trimmed is for none of the wanted targets.
            code_targets = [code.target for code in library.binary.code_objects]
            lacking = [str(t) for t in self._targets if code_targets and not serves(code_targets, (t,))]
            if lacking:
                yield LeftOut(name=name, reason=f"it has no code for {', '.join(lacking)}")
            if library.trimmed:
                removed = sizes(library.trimmed)
                of_targets, size = ", ".join(sorted(removed)), sum(removed.values())
                yield LeftOut(name=name, reason=f"its code for {of_targets} ({size} bytes) was taken out")
        for data in self._folders:
            if data.left_out:
                reason = f"{data.left_out} files of {data.left_out_size} bytes are for other targets"
                yield LeftOut(name=data.target, reason=reason)
            if data.lacking:
                yield LeftOut(name=data.target, reason=f"it has no file for {', '.join(data.lacking)}")


def _sdk_requirements(info: WheelInfo) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The requirements on SDK packages, and the extras that require nothing else, such as `device-gfx942`."""
    requirements = [wheel_info.requirement(text) for text in info.requires_dist]
    names = {canonicalize_name(required.name) for required in requirements}
    dropped = set(filter(is_sdk, names))
    extras = []
    for extra in info.extras:
        mark = f'extra == "{canonicalize_name(extra)}"'
        projects = [
            canonicalize_name(required.name) for required in requirements if mark in str(required.marker)
        ]
        if projects and dropped.issuperset(projects):
            extras.append(extra)
    return tuple(sorted(dropped)), tuple(extras)
