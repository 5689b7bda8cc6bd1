"""The command line of upstream's `build_python_packages.py`: its name and flags, over `cairn rocm package`.

Source of the flags: ROCm/TheRock, build_tools and docs/packaging/python_packaging.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from cairn import converters
from cairn.cli import arguments
from cairn.cli.guard import guarded
from cairn.cli.parser import Parser
from cairn.cli.rocm import fetch, package
from cairn.errors import UsageError

_DISTS = "dist"  # below --dest-dir, where upstream's other scripts and pages look for them


def main(argv: Sequence[str] | None = None, *, script: str) -> int:
    """Run the script; returns its exit code."""
    return guarded(_parser(Path(script)).parse_args(argv))


def _parser(script: Path) -> argparse.ArgumentParser:
    parser = Parser(
        prog=script.name,
        description="Turn a tree of ROCm's artifacts into the pip packages of the SDK, in DIR/dist.",
        epilog=f"example: python {script.name} --artifact-dir artifacts --dest-dir packages",
    )
    parser.add_argument(
        "--artifact-dir",
        type=converters.folder,
        required=True,
        metavar="DIR",
        help="a folder of artifacts, such as fetch_artifacts.py leaves",
    )
    parser.add_argument(
        "--dest-dir", type=converters.new_folder, required=True, metavar="DIR", help="folder to write into"
    )
    parser.add_argument(
        "--version",
        default="",
        help="of the packages (default: ROCm's own version in the artifacts, with .dev0)",
    )
    for name in ("linux", "windows"):
        parser.add_argument(
            f"--{name}-amdgpu-families",
            default="",
            metavar="FAMILIES",
            help=f"families that artifacts for {name} must be there for, joined by commas or semicolons",
        )
    arguments.add_json(parser)
    parser.set_defaults(run=_run)
    return parser


def _run(options: argparse.Namespace) -> int:
    from cairn import targets
    from cairn.rocm import tree
    from cairn.rocm.package import PackageRequest

    found = tree.read_artifacts(options.artifact_dir)
    version = options.version or found.rocm_version()
    if version is None:
        raise UsageError(
            f"no artifact in {options.artifact_dir} says which ROCm it is",
            tip="pass --version, such as 7.10.0",
        )
    there = targets.parse_targets(found.targets) if found.targets else ()
    # Artifacts of one platform say nothing of the families that are built for the other.
    families = getattr(options, f"{fetch.own_platform()}_amdgpu_families").strip()
    asked = targets.parse_targets(families) if families else ()
    if lacking := [target for target in asked if target not in there]:
        raise UsageError(
            f"there are no artifacts for {', '.join(lacking)}",
            tip="fetch those of every family that is named",
        )
    request = PackageRequest(
        artifacts=options.artifact_dir,
        version=options.version or f"{version}.dev0",
        output_dir=options.dest_dir / _DISTS,
    )
    return package.write(request, options, dry_run=False)
