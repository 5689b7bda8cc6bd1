"""Upstream's scripts for artifacts, SDK packages and fat wheels: their flags, over our commands.

`--target` is the name of `--artifact-group` on older pages of upstream's.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from cairn import converters
from cairn.cli import binder, rocm
from cairn.cli import common_options as common
from cairn.cli.answer import Answer
from cairn.cli.parser import Parser
from cairn.cli.wheel import change, verify
from cairn.errors import UsageError
from cairn.options import Exclusive, argument, fill, flag, option, switch

_LAYOUT = Exclusive()


@dataclass(frozen=True, kw_only=True)
class FetchArtifacts(rocm.Artifacts):
    """Options of the script.

    Fetch the artifacts of a CI run of TheRock, and unpack them.

        python fetch_artifacts.py --run-id 17123441166 --target gfx110X-all --output-dir out
    """

    artifact_group: str | None = option(
        "only what is for this group, such as gfx110X-all, and for all (default: everything)",
        *("--artifact-group", "--target"),
        metavar="GROUP",
    )
    amdgpu_targets: str = option(
        "single targets whose artifacts are wanted too, joined by commas: gfx942,gfx1100",
        metavar="TARGETS",
        default="",
    )
    jobs: int = option(
        "downloads at once",
        "--download-concurrency",
        metavar="DOWNLOAD_CONCURRENCY",
        convert=converters.positive,
        default=10,
    )
    unpack_jobs: int = option(
        "archives unpacked at once",
        "--extract-concurrency",
        metavar="EXTRACT_CONCURRENCY",
        convert=converters.positive,
        default=4,
    )
    output_dir: Path = common.output_dir(default=Path("build/artifacts"))
    dry_run: bool = switch("say what would be fetched")
    extract: bool = flag("a folder per artifact (this is the default)", group=_LAYOUT)
    no_extract: bool = flag("the archives alone", group=_LAYOUT)
    flatten: bool = flag("all artifacts in one tree", group=_LAYOUT)
    delete_after_extract: bool = switch("remove the archives once they are unpacked", default=True)


def fetch_artifacts(script: Path) -> Parser:
    """The parser of `fetch_artifacts.py`, which is over `cairn rocm fetch`."""
    # As upstream has it: in a workflow, the run is one of the workflow's own repository.
    defaults = {"run_github_repo": os.environ.get("GITHUB_REPOSITORY") or "ROCm/TheRock"}
    if (kind := os.environ.get("RELEASE_TYPE")) in rocm.RELEASE_TYPES:
        defaults["release_type"] = kind
    return binder.script(script, FetchArtifacts, _fetch, defaults=defaults)


def _fetch(request: FetchArtifacts) -> Answer:
    from cairn.rocm.fetch.fetch import FetchRequest

    if request.run_id is None and request.store is None:
        raise UsageError("--run-id is missing", tip="it is the number in the address of the run")
    fetch_request = fill(
        FetchRequest,
        request,
        filters=request.filters(
            groups=(request.artifact_group,) if request.artifact_group else (),
            targets=tuple(filter(None, map(str.strip, request.amdgpu_targets.split(",")))),
        ),
        layout="flatten" if request.flatten else "archives" if request.no_extract else "extract",
        keep_archives=not request.delete_after_extract,
        verified_only=not request.allow_unverified,
    )
    return rocm.fetch_artifacts(request, fetch_request, dry_run=request.dry_run)


_FAMILIES = "families that artifacts for {} must be there for, joined by commas or semicolons"
_DISTS = "dist"  # below --dest-dir, where upstream's other scripts and pages look for them


@dataclass(frozen=True, kw_only=True)
class BuildPythonPackages:
    """Options of the script.

    Turn a tree of ROCm's artifacts into the pip packages of the SDK, in DIR/dist.

        python build_python_packages.py --artifact-dir artifacts --dest-dir packages
    """

    artifact_dir: Path = option(
        "a folder of artifacts, such as fetch_artifacts.py leaves", convert=converters.folder, required=True
    )
    dest_dir: Path = option("folder to write into", convert=converters.new_folder, required=True)
    version: str = option(
        "of the packages (default: ROCm's own version in the artifacts, with .dev0)", default=""
    )
    linux_amdgpu_families: str = option(_FAMILIES.format("linux"), metavar="FAMILIES", default="")
    windows_amdgpu_families: str = option(_FAMILIES.format("windows"), metavar="FAMILIES", default="")


def build_python_packages(script: Path) -> Parser:
    """The parser of `build_python_packages.py`, which is over `cairn rocm package`."""
    return binder.script(script, BuildPythonPackages, _package)


def _package(request: BuildPythonPackages) -> Answer:
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
    windows = rocm.own_platform() == "windows"
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
    return rocm.write_packages(package_request, dry_run=False)


@dataclass(frozen=True, kw_only=True)
class PatchFatWheel(change.Fat):
    """Options of the scripts.

    Write a wheel that carries the ROCm libraries and data it needs, for the wanted targets alone, and
    that works without any ROCm SDK package. It gets a version of its own, such as 2.9.0+fat.rocm7.10.0.

        python patch_fat_wheel.py torch-….whl /opt/rocm --output-path fat
    """

    output_dir: Path = option(
        "folder of the new wheel", "--output-path", convert=converters.new_folder, required=True
    )


def patch_fat_wheel(script: Path, *, windows: bool) -> Parser:
    """The parser of `patch_fat_wheel.py`, or of the script for Windows wheels, over `cairn wheel fat`."""

    def run(request: PatchFatWheel) -> Answer:
        if windows != ("-win" in request.wheel.name):
            sibling = "patch_fat_wheel.py" if windows else "windows_patch_fat_wheel.py"
            raise UsageError(f"{request.wheel.name} is not for this script", tip=f"use {sibling}")
        return change.fat(request)

    parser = binder.script(script, PatchFatWheel, run)
    parser.epilog = str(parser.epilog).replace("patch_fat_wheel.py", script.name)
    return parser


@dataclass(frozen=True, kw_only=True)
class SanityCheck:
    """Options of the script.

    Check the wheels of a folder for everything that a published wheel must satisfy.

        python sanity_check_wheel.py out
    """

    wheel_dir: Path = argument("DIR", "folder of the wheels", convert=converters.folder)


def sanity_check_wheel(script: Path) -> Parser:
    """The parser of `sanity_check_wheel.py`."""
    return binder.script(script, SanityCheck, _check)


def _check(request: SanityCheck) -> Answer:
    wheels = tuple(sorted(request.wheel_dir.glob("*.whl")))
    if not wheels:
        raise UsageError(f"{request.wheel_dir} has no wheels", tip="name the folder that has them")
    return verify.run(verify.Verify(wheels=wheels))
