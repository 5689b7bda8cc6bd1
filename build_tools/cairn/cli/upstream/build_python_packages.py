"""The command line of upstream's `build_python_packages.py`: its name and flags, over `cairn rocm package`.

Source of the flags: ROCm/TheRock, build_tools and docs/packaging/python_packaging.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cairn import converters
from cairn.cli import binder, fields
from cairn.cli.answer import Answer
from cairn.cli.guard import guarded
from cairn.cli.parser import Parser
from cairn.cli.rocm import fetch, package
from cairn.errors import UsageError
from cairn.options import option

_FAMILIES = "families that artifacts for {} must be there for, joined by commas or semicolons"
_DISTS = "dist"  # below --dest-dir, where upstream's other scripts and pages look for them


@dataclass(frozen=True, kw_only=True)
class BuildPythonPackages:
    """What the script is asked for.

    Turn a tree of ROCm's artifacts into the pip packages of the SDK, in DIR/dist.

        python build_python_packages.py --artifact-dir artifacts --dest-dir packages
    """

    artifact_dir: Path = option(
        "a folder of artifacts, such as fetch_artifacts.py leaves",
        metavar="DIR",
        convert=converters.folder,
        required=True,
    )
    dest_dir: Path = option(
        "folder to write into", metavar="DIR", convert=converters.new_folder, required=True
    )
    version: str = option(
        "of the packages (default: ROCm's own version in the artifacts, with .dev0)", default=""
    )
    linux_amdgpu_families: str = option(_FAMILIES.format("linux"), metavar="FAMILIES", default="")
    windows_amdgpu_families: str = option(_FAMILIES.format("windows"), metavar="FAMILIES", default="")
    json: bool = fields.json()


def main(argv: Sequence[str] | None = None, *, script: str) -> int:
    """Run the script; returns its exit code."""
    return guarded(_parser(Path(script)).parse_args(argv))


def _parser(script: Path) -> Parser:
    return binder.script(script, BuildPythonPackages, _run)


def _run(request: BuildPythonPackages) -> Answer:
    from cairn import targets
    from cairn.rocm import tree
    from cairn.rocm.package import PackageRequest

    artifacts = tree.read_artifacts(request.artifact_dir)
    version = request.version or artifacts.rocm_version()
    if version is None:
        raise UsageError(
            f"no artifact in {request.artifact_dir} says which ROCm it is",
            tip="pass --version, such as 7.10.0",
        )
    # Artifacts of one platform say nothing of the families that are built for the other.
    windows = fetch.own_platform() == "windows"
    families = (request.windows_amdgpu_families if windows else request.linux_amdgpu_families).strip()
    available = targets.parse_targets(artifacts.targets) if artifacts.targets else ()
    required = targets.parse_targets(families) if families else ()
    if lacking := [target for target in required if target not in available]:
        raise UsageError(
            f"there are no artifacts for {', '.join(lacking)}",
            tip="fetch those of every family that is named",
        )
    package_request = PackageRequest(
        artifacts=request.artifact_dir,
        version=request.version or f"{version}.dev0",
        output_dir=request.dest_dir / _DISTS,
    )
    return package.write(package_request, dry_run=False)
