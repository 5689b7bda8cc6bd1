"""Making the SDK's packages of a ROCm tree: of a prefix, artifacts or Debian's packages."""

from __future__ import annotations

import posixpath
import re
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import structs

from cairn import files, requirements, targets
from cairn.errors import UsageError, WheelError
from cairn.formats.offload import code_object
from cairn.formats.view import opening
from cairn.output import Progress, silent
from cairn.rocm import assign_files, binaries, debian, packages_toml, write_packages
from cairn.rocm import tree as rocm_tree
from cairn.rocm.assign_files import Layout, Package, PackageMember
from cairn.rocm.packages_toml import Description
from cairn.rocm.tree import RocmTree
from cairn.rocm.write_packages import SdkRelease
from cairn.targets import known_targets, that_run, unbuilt_targets

_NAME = re.compile(r"[A-Za-z0-9]+(?:[._-][A-Za-z0-9]+)*")


class PackageRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to package.

    Attributes:
        prefix: an installed prefix; or
        artifacts: a tree of artifacts; or
        debs: Debian's packages, or folders with them.
        description: its packages.toml; None is TheRock's for artifacts, and that of Debian's
            packages for these, or where they are installed.
        version: ROCm's version (PEP 440).
        targets: the targets its libraries were compiled for; empty takes them from the artifacts.
        family: name for the one package of libraries of a prefix; empty derives it from the targets.
        libraries_for_all: one package has the libraries for all families, out of which
            `cairn.build.device_packages` then takes the device code.
        trim: what is for other targets alone is left out of the libraries.
        output_dir: where the packages go.
    """

    prefix: Path | None = None
    artifacts: Path | None = None
    debs: tuple[Path, ...] = ()
    description: Path | None = None
    version: str
    targets: tuple[str, ...] = ()
    family: str = ""
    libraries_for_all: bool = False
    trim: bool = False
    output_dir: Path


class WrittenPackage(msgspec.Struct, frozen=True, kw_only=True):
    """One file that was, or would be, written.

    Attributes:
        path: where it is.
        distribution: the name it is installed by.
        files: how many files of the tree it holds.
        size: bytes; 0 where it was not written.
        sha256: of its bytes; empty where it was not written.
        lacks: its libraries, and folders of kernels, that have no code for some of the targets, and these.
        absent: its commands whose programs the tree lacks; of `rocm`, the packages that its extras name and
            that the tree has no file for.
    """

    path: Path
    distribution: str
    files: int
    size: int = 0
    sha256: str = ""
    lacks: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    absent: tuple[str, ...] = ()


def package(
    request: PackageRequest, *, dry_run: bool = False, say: Progress = silent
) -> tuple[WrittenPackage, ...]:
    """Make the packages of an SDK: core, libraries of every family, devel, and the `rocm` sdist.

    Args:
        request: what is to be packaged.
        dry_run: write nothing, and return what would be written.
        say: progress callback.

    Raises:
        UsageError: the tree, its description, the version or the targets make no sense.
        WheelError: a file needs a library that nothing provides.
    """
    try:
        normal = str(requirements.version(request.version))
    except ValueError:
        normal = ""
    if normal != request.version:
        raise UsageError(
            f"{request.version!r} is not a version of ROCm as packages spell it",
            tip=f"write {normal}" if normal else "write 7.10.0, or 7.10.0a20251124 for a nightly",
        )
    _check_targets(request)
    with tempfile.TemporaryDirectory(prefix="cairn-rocm-") as staging:
        tree, described = _read(request, Path(staging, "debs"), say)
        families = _families(request, tree)
        plan = assign_files.plan(tree, described, families, libraries_for_all=request.libraries_for_all)
        _check_needs(plan, described)
        if request.artifacts is not None:
            _check_libraries(plan, tree, described)
        only = _processors(families) if request.trim else frozenset()
        if only:
            plan = assign_files.without_databases(plan, only)
        release = SdkRelease(
            version=request.version, families=families, description=described, tree=tree, only=only
        )
        if dry_run:
            return tuple(_write_all(plan, release, request.output_dir, Path(staging), say, dry_run=True))
        with files.filling(request.output_dir) as made:  # an SDK that lacks a part is none
            packages = tuple(_write_all(plan, release, made, Path(staging), say, dry_run=False))
        return tuple(structs.replace(item, path=request.output_dir / item.path.name) for item in packages)


def _read(request: PackageRequest, unpacked: Path, say: Progress) -> tuple[RocmTree, Description]:
    """The tree that a request names, and what describes it."""
    if sum((request.prefix is not None, request.artifacts is not None, bool(request.debs))) != 1:
        raise UsageError("name one tree to package", tip="--prefix, --artifacts or --debs")
    packages = None if request.description is None else packages_toml.read(request.description)
    if request.artifacts is not None:
        packages = packages or packages_toml.therock()
        runtime = (packages.core, packages.libraries, packages.profiler)
        needed = tuple(glob for component in runtime for glob in component.artifacts)
        return rocm_tree.read_artifacts(request.artifacts, needed=needed), packages
    if request.debs:
        packages = packages or packages_toml.debian()
        return rocm_tree.read_debs(request.debs, unpacked, say=say), packages
    assert request.prefix is not None  # noqa: S101 - see the first lines
    if packages is None and debian.database(request.prefix).is_dir():
        packages = packages_toml.debian()
    if packages is None:
        raise UsageError("a prefix needs a packages.toml", tip="name it with --description")
    return rocm_tree.read_prefix(request.prefix, packages), packages


def _check_targets(request: PackageRequest) -> None:
    """Refuse targets that make no sense before gigabytes are unpacked; artifacts may name theirs."""
    if request.targets:
        targets.parse_targets(request.targets)
    elif request.artifacts is None:
        raise _no_targets()


def _no_targets() -> UsageError:
    return UsageError(
        "for which GPU targets is this tree?", tip="name them, such as --targets gfx942,gfx1100"
    )


def _families(request: PackageRequest, tree: RocmTree) -> dict[str, tuple[str, ...]]:
    """Family to targets, one package of libraries each."""
    names: Iterable[str] = tree.targets
    if request.targets:
        if request.family and not _NAME.fullmatch(request.family):
            raise UsageError(
                f"{request.family!r} cannot be part of a package's name",
                tip="a family is named like gfx110X-all",
            )
        names = targets.parse_targets(request.targets)
        # Of a prefix, the libraries are for all of them at once.
        if request.family or not tree.targets:
            return {request.family or targets.family_of(names): tuple(names)}
    elif not tree.targets:
        raise _no_targets()
    # Artifacts are named by a family, or by a target that gets a package of its own.
    families: Mapping[str, tuple[str, ...]] = targets.families()
    return {name: families.get(name, (name,)) for name in names}


def _processors(families: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
    """What the code that GPUs of these families run is compiled for."""
    names = {name.partition(":")[0] for members in families.values() for name in members}
    # Code for a generic target runs on each of its members.
    return frozenset(names | {name for name, runs in targets.generic_targets().items() if names & set(runs)})


def _check_needs(plan: Layout, described: Description) -> None:
    binary = next((m.binary for m in plan.core.members if m.binary), None)
    if binary is None:
        return
    system = binaries.system_libraries(binary.machine) | frozenset(described.system)
    missing = sorted(set(assign_files.unmet(plan, system)))
    if missing:
        shown = ", ".join(f"{name} (for {path})" for path, name in missing[:5])
        raise WheelError(
            f"{len(missing)} needed libraries are in no package: {shown}",
            tip="add them to [core] files, or to `system` if every machine has them",
        )


def _check_libraries(plan: Layout, tree: RocmTree, described: Description) -> None:
    """Refuse artifacts without libraries for a family: the extra that names them could not be installed."""
    lacking = [item.family or "any target" for item in plan.libraries if not item.members]
    if lacking and described.libraries.files:
        others = f", and some for {', '.join(tree.targets)}" if tree.targets else ""
        raise UsageError(
            f"the artifacts have no libraries for {', '.join(lacking)}{others}",
            tip="fetch those of these GPUs, or name the targets that are there; for an SDK without libraries "
            "name a packages.toml (--description) with `files = []` under [libraries]",
        )


def _write_all(
    plan: Layout, release: SdkRelease, folder: Path, staging: Path, say: Progress, *, dry_run: bool
) -> Iterator[WrittenPackage]:
    for item in plan.packages:
        if item.component in ("libraries", "profiler") and not item.members:
            continue
        path = folder / write_packages.wheel_name(item, plan, release)
        if not dry_run and item.component == "devel":
            write_packages.write_devel_wheel(path, plan, release, staging=staging, say=say)
        elif not dry_run:
            write_packages.write_runtime_wheel(path, item, plan, release, staging=staging, say=say)
        package = written(path, item.distribution, len(item.members), dry_run=dry_run)
        lacks = without_code(item, _targets_of(item, release))
        absent = write_packages.absent_programs(item, plan, release)
        yield structs.replace(package, lacks=lacks, absent=absent)
    path = folder / f"rocm-{release.version}.tar.gz"  # PEP 625
    if not dry_run:
        write_packages.write_sdist(path, plan, release)
    package = written(path, "rocm", 0, dry_run=dry_run)
    yield structs.replace(package, absent=write_packages.absent_packages(plan, release))


def _targets_of(item: Package, release: SdkRelease) -> tuple[str, ...]:
    """The targets that a package is for: only libraries are for some."""
    if item.component != "libraries":
        return ()
    families = release.families
    return tuple(name for family in ([item.family] if item.family else families) for name in families[family])


def written(path: Path, name: str, count: int, *, dry_run: bool) -> WrittenPackage:
    """The `WrittenPackage` of one file, with `count` files of the tree in it."""
    size, sha256 = (0, "") if dry_run else (path.stat().st_size, files.sha256_of(path))
    return WrittenPackage(path=path, distribution=name, files=count, size=size, sha256=sha256)


def without_code(package: Package, targets: Collection[str]) -> Mapping[str, tuple[str, ...]]:
    """The parts of a package without code for some of its targets, and these.

    A part is a library with device code, or a folder of kernels such as `rocblas/4.4.1/library`. A library
    without any, such as hipBLAS, needs none.

    Args:
        package: the libraries.
        targets: what they are for; features do not count.

    Raises:
        WheelError: the device code of a library is malformed.
    """
    compiled: dict[str, set[str]] = {}
    all_targets = (*known_targets(), *unbuilt_targets())
    for member in package.members:
        if folder := code_object.folder_of(member.path):
            if processor := code_object.named_processor(member.path, all_targets):
                compiled.setdefault(folder, set()).add(processor)
        elif processors := set(_compiled_for(member)):
            compiled[posixpath.basename(member.path)] = processors
    names = dict.fromkeys(name.partition(":")[0] for name in targets)
    lacks = {}
    for part, processors in compiled.items():
        runs = {each for processor in processors for each in that_run(processor)}
        if absent := tuple(name for name in names if name not in runs):
            lacks[part] = absent
    return lacks


def _compiled_for(member: PackageMember) -> Iterator[str]:
    """What the code in a library is compiled for."""
    if member.binary is None or member.binary.section(code_object.SECTION) is None:
        return
    try:
        with opening(member.source) as view:
            for bundle in code_object.bundles_of(view):
                for entry in bundle.device_entries:
                    yield code_object.target_of_entry(entry.id).processor
    except WheelError as error:
        raise WheelError(f"{member.path}: {error}") from error
