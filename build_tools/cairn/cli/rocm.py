"""`cairn rocm`: fetching ROCm's artifacts, making and installing the SDK's packages."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.cli import arguments, rocm_fetch
from cairn.cli.parser import Subparsers, add_command, add_commands
from cairn.output import console

if TYPE_CHECKING:
    from cairn.rocm.install import InstallRequest
    from cairn.rocm.package import PackageRequest, WrittenPackage


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the commands of the group."""
    commands = add_commands(
        parser,
        description="Fetch what CI built of ROCm, turn it into pip packages, and install them.",
        example="cairn rocm install --python .venv --index-url URL",
    )
    rocm_fetch.add_to(commands)
    _add_package(commands)
    _add_install(commands)


def _add_package(commands: Subparsers) -> None:
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
        type=arguments.folder,
        metavar="DIR",
        help="an installed prefix: the folder with bin, include and lib",
    )
    tree.add_argument(
        "--artifacts",
        type=arguments.folder,
        metavar="DIR",
        help="a folder of artifacts NAME_COMPONENT_TARGET",
    )
    parser.add_argument(
        "--description",
        type=arguments.file,
        metavar="FILE",
        help="the packages.toml that says what goes where",
    )
    parser.add_argument("--rocm-version", required=True, help="such as 7.10.0 or 7.10.0a20251124")
    arguments.add_targets(parser, default="none")
    parser.add_argument("--family", default="", help="name of the family of the targets (default: none)")
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
        output_dir=options.output_dir,
    )
    return write(request, options, dry_run=options.dry_run)


def write(request: PackageRequest, options: argparse.Namespace, *, dry_run: bool) -> int:
    """Make the packages, and print what they are."""
    from cairn.rocm import package

    with console.current().stage("package ROCm"):
        dists = package.package(request, dry_run=dry_run)
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


def _add_install(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "install",
        _install,
        about="install a ROCm SDK into an environment, and say where its parts are",
        example="cairn rocm install --python .venv --index-url http://127.0.0.1:8383/simple/",
    )
    parser.add_argument(
        "--python",
        type=arguments.file_or_folder,
        required=True,
        metavar="PYTHON",
        help="an interpreter, or an environment's folder",
    )
    arguments.add_pip(parser)
    parser.add_argument(
        "--family", help="name of the family of the targets (default: that of the GPU, or the SDK's default)"
    )
    arguments.add_dry_run(parser)
    arguments.add_json(parser)


def install_request(options: argparse.Namespace, *, python: Path, family: str | None) -> InstallRequest:
    """What the options of `cairn.cli.arguments.add_pip` ask for."""
    from cairn.rocm.install import InstallRequest

    return InstallRequest(
        python=python,
        index_url=options.index_url,
        find_links=tuple(options.find_links),
        pip_cache_dir=options.pip_cache_dir,
        version=options.rocm_sdk_version,
        pre=options.pre,
        extras=tuple(extra.strip() for extra in options.rocm_extras.split(",") if extra.strip()),
        family=family,
    )


def _install(options: argparse.Namespace) -> int:
    from cairn.rocm import install

    request = install_request(options, python=options.python, family=options.family)
    if options.dry_run:
        console.current().out(shlex.join(install.install_command(request)))
        return 0
    with console.current().stage(f"install {request.requirement}"):
        info = install.install(request)
    if info is None:
        return 0
    values = {k: str(v) for k, v in (("version", info.version), ("targets", ";".join(info.targets)),
              ("root", info.root), ("bin", info.bin), ("cmake", info.cmake))}  # fmt: skip
    if options.json:
        console.current().json(values)
    else:
        console.current().table(("", ""), list(values.items()))
    return 0
