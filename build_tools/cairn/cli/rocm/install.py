"""`cairn rocm install`: a ROCm SDK into an environment, and where its parts are."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import arguments
from cairn.cli.parser import Subparsers, add_command
from cairn.output import console

if TYPE_CHECKING:
    from cairn.rocm.install import InstallRequest


def add_to(commands: Subparsers) -> None:
    """Add `install`."""
    parser = add_command(
        commands,
        "install",
        _install,
        about="install a ROCm SDK into an environment, and say where its parts are",
        example="cairn rocm install --python .venv --index-url http://127.0.0.1:8383/simple/",
    )
    parser.add_argument(
        "--python",
        type=converters.file_or_folder,
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


def _request(options: argparse.Namespace) -> InstallRequest:
    from cairn.rocm.install import InstallRequest

    return InstallRequest(
        python=options.python,
        index_url=options.index_url,
        find_links=tuple(options.find_links),
        pip_cache_dir=options.pip_cache_dir,
        version=options.rocm_sdk_version,
        pre=options.pre,
        extras=arguments.sdk_extras(options),
        family=options.family,
    )


def _install(options: argparse.Namespace) -> int:
    from cairn.rocm import install

    request = _request(options)
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
