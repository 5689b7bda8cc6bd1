"""`cairn rocm package`: pip packages of a ROCm SDK, from a prefix or from artifacts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import fields
from cairn.cli.answer import Answer, Table
from cairn.cli.binder import command
from cairn.options import Exclusive, flag, option
from cairn.output import console

if TYPE_CHECKING:
    from cairn.rocm.package import PackageRequest

_TREE = Exclusive(required=True)


@dataclass(frozen=True, kw_only=True)
class Package:
    """What `cairn rocm package` is asked for.

    cairn rocm package --prefix /opt/rocm --description packages.toml --rocm-version 7.10.0
    --targets gfx942,gfx1100 --output-dir dist
    """

    prefix: Path | None = option(
        "an installed prefix: the folder with bin, include and lib",
        metavar="DIR",
        convert=converters.folder,
        group=_TREE,
    )
    artifacts: Path | None = option(
        "a folder of artifacts NAME_COMPONENT_TARGET", metavar="DIR", convert=converters.folder, group=_TREE
    )
    description: Path | None = option(
        "the packages.toml that says what goes where", metavar="FILE", convert=converters.file
    )
    rocm_version: str = option("such as 7.10.0 or 7.10.0a20251124", required=True)
    targets: str | None = fields.targets("none")
    family: str = option("name of the family of the targets (default: none)", default="")
    split: bool = flag("put device code into wheels of its own, one for each target")
    output_dir: Path = fields.output_dir()
    dry_run: bool = fields.dry_run()
    json: bool = fields.json()


def _package(request: Package) -> Answer:
    from cairn.rocm.package import PackageRequest

    package_request = PackageRequest(
        prefix=request.prefix,
        artifacts=request.artifacts,
        description=request.description,
        version=request.rocm_version,
        targets=(request.targets,) if request.targets else (),
        family=request.family,
        libraries_for_all=request.split,
        output_dir=request.output_dir,
    )
    return write(package_request, dry_run=request.dry_run)


def write(request: PackageRequest, *, dry_run: bool) -> Answer:
    """Make the packages."""
    from cairn.build import device_packages
    from cairn.rocm import package
    from cairn.wheels.metadata import rocm_version
    from cairn.wheels.split.split import RUNTIME

    screen = console.current()
    with screen.stage("package ROCm"):
        if request.libraries_for_all and not dry_run:
            dists = device_packages.package_sdk(request)
        else:
            dists = package.package(request, dry_run=dry_run)
    if request.libraries_for_all and rocm_version.is_before(request.version, RUNTIME):
        screen.warn(f"ROCm {RUNTIME} is the first known to find code in such packages")
    rows = [(d.path.name, d.files, console.size(d.size), d.sha256[:12]) for d in dists]
    return Answer(dists, [Table(("package", "files", "size", "sha256"), rows)])


COMMANDS = {"package": command(Package, _package)}
