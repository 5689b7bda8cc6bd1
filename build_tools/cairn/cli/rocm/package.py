"""`cairn rocm package`: pip packages of a ROCm SDK, from a prefix or from artifacts."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import arguments
from cairn.cli.parser import Subparsers, add_command
from cairn.output import console

if TYPE_CHECKING:
    from cairn.rocm.package import PackageRequest, WrittenPackage


def add_to(commands: Subparsers) -> None:
    """Add `package`."""
    parser = add_command(
        commands,
        "package",
        _package,
        about="turn an installed prefix, or a tree of artifacts, into the packages of a ROCm SDK",
        example="cairn rocm package --prefix /opt/rocm --description packages.toml "
        "--rocm-version 7.10.0 --targets gfx942,gfx1100 --output-dir dist",
    )
    tree = parser.add_mutually_exclusive_group(required=True)
    tree.add_argument(
        "--prefix",
        type=converters.folder,
        metavar="DIR",
        help="an installed prefix: the folder with bin, include and lib",
    )
    tree.add_argument(
        "--artifacts",
        type=converters.folder,
        metavar="DIR",
        help="a folder of artifacts NAME_COMPONENT_TARGET",
    )
    parser.add_argument(
        "--description",
        type=converters.file,
        metavar="FILE",
        help="the packages.toml that says what goes where",
    )
    parser.add_argument("--rocm-version", required=True, help="such as 7.10.0 or 7.10.0a20251124")
    arguments.add_targets(parser, default="none")
    parser.add_argument("--family", default="", help="name of the family of the targets (default: none)")
    parser.add_argument(
        "--split",
        action="store_true",
        help="put device code into wheels of its own, one for each target",
    )
    arguments.add_output_dir(parser)
    arguments.add_dry_run(parser)
    arguments.add_json(parser)


def _package(options: argparse.Namespace) -> int:
    from cairn.rocm import package

    request = package.PackageRequest(
        prefix=options.prefix,
        artifacts=options.artifacts,
        description=options.description,
        version=options.rocm_version,
        targets=(options.targets,) if options.targets else (),
        family=options.family,
        libraries_for_all=options.split,
        output_dir=options.output_dir,
    )
    return write(request, options, dry_run=options.dry_run)


def write(request: PackageRequest, options: argparse.Namespace, *, dry_run: bool) -> int:
    """Make the packages, and print what they are."""
    from cairn.build import split_sdk
    from cairn.rocm import package
    from cairn.wheels.metadata import rocm_version
    from cairn.wheels.split.split import RUNTIME

    with console.current().stage("package ROCm"):
        if request.libraries_for_all and not dry_run:
            dists = split_sdk.package(request)
        else:
            dists = package.package(request, dry_run=dry_run)
    if request.libraries_for_all and rocm_version.is_before(request.version, RUNTIME):
        console.current().warn(f"ROCm {RUNTIME} is the first known to find code in such packages")
    if options.json:
        console.current().json([_plain(dist) for dist in dists])
    else:
        rows = [(d.path.name, str(d.files), console.size(d.size), d.sha256[:12]) for d in dists]
        console.current().table(("package", "files", "size", "sha256"), rows)
    return 0


def _plain(dist: WrittenPackage) -> dict[str, object]:
    return {
        "path": str(dist.path),
        "distribution": dist.distribution,
        "files": dist.files,
        "size": dist.size,
        "sha256": dist.sha256,
    }
