"""`cairn rocm package`: a ROCm tree in, the SDK's packages out."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cairn import files, requirements, targets
from cairn.errors import UsageError, WheelError
from cairn.rocm import assign_files, binaries, packages_toml, write_packages
from cairn.rocm import tree as rocm_tree
from cairn.rocm.assign_files import Layout
from cairn.rocm.packages_toml import Description
from cairn.rocm.write_packages import Sdk

_NAME = re.compile(r"[A-Za-z0-9]+(?:[._-][A-Za-z0-9]+)*")


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to package.

    Attributes:
        prefix: an installed prefix; or
        artifacts: a tree of artifacts.
        description: its packages.toml; None is TheRock's, for artifacts.
        version: ROCm's version (PEP 440).
        targets: the targets its libraries were compiled for; empty takes them from the artifacts.
        family: name for the one package of libraries of a prefix; empty derives it from the targets.
        output_dir: where the packages go.
    """

    prefix: Path | None = None
    artifacts: Path | None = None
    description: Path | None = None
    version: str
    targets: tuple[str, ...] = ()
    family: str = ""
    output_dir: Path


@dataclass(frozen=True, kw_only=True)
class Dist:
    """One file that was, or would be, written.

    Attributes:
        path: where it is.
        distribution: the name it is installed by.
        files: how many files of the tree it holds.
        size: bytes; 0 where it was not written.
        sha256: of its bytes; empty where it was not written.
    """

    path: Path
    distribution: str
    files: int
    size: int = 0
    sha256: str = ""


def package(request: Request, *, dry_run: bool = False) -> tuple[Dist, ...]:
    """Make the packages of an SDK: core, libraries of every family, devel, and the `rocm` sdist.

    Raises:
        UsageError: the tree, its description, the version or the targets make no sense.
        WheelError: a file needs a library that nothing provides.
    """
    _check_version(request.version)
    described = _description(request)
    tree = _tree(request, described)
    families = _families(request, tree)
    plan = assign_files.plan(tree, described, families)
    _check_needs(plan, described)
    sdk = Sdk(version=request.version, families=families, description=described)
    return tuple(_write_all(plan, sdk, request.output_dir, dry_run=dry_run))


def _check_version(version: str) -> None:
    try:
        normal = str(requirements.version(version))
    except ValueError:
        normal = ""
    if normal != version:
        raise UsageError(
            f"{version!r} is not a version of ROCm as packages spell it",
            tip=f"write {normal}" if normal else "write 7.10.0, or 7.10.0a20251124 for a nightly",
        )


def _description(request: Request) -> Description:
    if (request.prefix is None) == (request.artifacts is None):
        raise UsageError("name one tree to package", tip="either --prefix or --artifacts")
    if request.description is not None:
        return packages_toml.read(request.description)
    if request.artifacts is not None:
        return packages_toml.therock()
    raise UsageError("a prefix needs a packages.toml", tip="name it with --description")


def _tree(request: Request, described: Description) -> rocm_tree.Tree:
    if request.artifacts is not None:
        return rocm_tree.read_artifacts(request.artifacts)
    assert request.prefix is not None  # noqa: S101 - _description refused neither
    return rocm_tree.read_prefix(request.prefix, described)


def _families(request: Request, tree: rocm_tree.Tree) -> dict[str, tuple[str, ...]]:
    if request.targets:
        if request.family and not _NAME.fullmatch(request.family):
            raise UsageError(
                f"{request.family!r} cannot be part of a package's name",
                tip="a family is named like gfx110X-all",
            )
        wanted = targets.parse_targets(request.targets)
        name = request.family or targets.family_of(wanted)
        return {name: wanted} if not tree.targets else _grouped(wanted)
    if not tree.targets:
        raise UsageError(
            "for which GPU targets is this tree?", tip="name them, such as --targets gfx942,gfx1100"
        )
    return _grouped(tree.targets)


def _grouped(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Families as the artifacts are named: by a family, or by a target that stands for its own package."""
    known: Mapping[str, tuple[str, ...]] = targets.families()
    return {name: known.get(name, (name,)) for name in names}


def _check_needs(plan: Layout, described: Description) -> None:
    found = next((m.binary for m in plan.core.members if m.binary), None)
    if found is None:
        return
    system = binaries.system_libraries(found.machine) | frozenset(described.system)
    missing = sorted(set(assign_files.unmet(plan, system)))
    if missing:
        shown = ", ".join(f"{name} (for {path})" for path, name in missing[:5])
        raise WheelError(
            f"{len(missing)} needed libraries are in no package: {shown}",
            tip="add them to [core] files, or to `system` if every machine has them",
        )


def _write_all(plan: Layout, sdk: Sdk, folder: Path, *, dry_run: bool) -> Iterable[Dist]:
    with tempfile.TemporaryDirectory(prefix="cairn-rocm-") as temporary:
        staging = Path(temporary)
        for item in plan.packages:
            if item.component == "libraries" and not item.members:
                continue
            path = folder / write_packages.wheel_name(item, sdk, write_packages.tag_of(item, plan))
            if not dry_run and item.component == "devel":
                write_packages.write_devel_wheel(path, plan, sdk, staging=staging)
            elif not dry_run:
                write_packages.write_runtime_wheel(path, item, plan, sdk, staging=staging)
            yield _dist(path, item.distribution, len(item.members), written=not dry_run)
        path = folder / write_packages.sdist_name(sdk)
        if not dry_run:
            write_packages.write_sdist(path, plan, sdk)
        yield _dist(path, "rocm", 0, written=not dry_run)


def _dist(path: Path, name: str, count: int, *, written: bool) -> Dist:
    if not written:
        return Dist(path=path, distribution=name, files=count)
    return Dist(
        path=path, distribution=name, files=count, size=path.stat().st_size, sha256=files.sha256_of(path)
    )
