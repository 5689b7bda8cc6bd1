"""`cairn rocm install`: a ROCm SDK into an environment, and where its parts are."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from cairn import converters
from cairn.cli import fields
from cairn.cli.answer import Answer, Table
from cairn.cli.binder import command
from cairn.options import option
from cairn.output import console


@dataclass(frozen=True, kw_only=True)
class Install(fields.SdkOptions):
    """What `cairn rocm install` is asked for.

    cairn rocm install --python .venv --index-url http://127.0.0.1:8383/simple/
    """

    python: Path = option(
        "an interpreter, or an environment's folder",
        metavar="PYTHON",
        convert=converters.file_or_folder,
        required=True,
    )
    family: str | None = option(
        "name of the family of the targets (default: that of the GPU, or the SDK's default)"
    )
    dry_run: bool = fields.dry_run()
    json: bool = fields.json()


def run(request: Install) -> Answer | None:
    """Run the command."""
    from cairn.rocm import install
    from cairn.venv import PackageSource

    install_request = install.InstallRequest(
        python=request.python,
        source=PackageSource(
            index_url=request.index_url,
            find_links=request.find_links,
            cache_dir=request.pip_cache_dir,
            pre=request.pre,
        ),
        version=request.rocm_sdk_version,
        extras=request.rocm_extras,
        family=request.family,
    )
    if request.dry_run:
        console.current().out(shlex.join(install.install_command(install_request)))
        return None
    with console.current().stage(f"install {install_request.requirement}"):
        info = install.install(install_request)
    if info is None:
        return None
    values = {
        "version": info.version,
        "targets": ";".join(info.targets),
        "root": info.root,
        "bin": info.bin,
        "cmake": info.cmake,
    }
    return Answer(values, [Table(("", ""), values.items())])


COMMANDS = {"install": command(Install, run)}
