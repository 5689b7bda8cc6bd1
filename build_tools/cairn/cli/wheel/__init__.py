"""`cairn wheel`: look at, compare, check and change built wheels."""

from __future__ import annotations

import argparse

from cairn.cli import common, paths
from cairn.cli.parser import Subparsers, later

FAT = (
    "Write a wheel that carries the ROCm libraries and data it needs, for the wanted targets alone, and that "
    "works without any ROCm SDK package. It gets a version of its own, such as 2.9.0+fat.rocm7.10.0."
)
"""What `cairn wheel fat` does."""


def register(subparsers: Subparsers) -> None:
    """Add the command group to the program."""
    parser = subparsers.add_parser(
        "wheel",
        help="look at, compare, check and change wheels",
        description="Look at, compare, check and change built wheels. No wheel is ever changed in place.",
        epilog="example: cairn wheel show out/torch-2.9.0+rocm7.10.0-cp311-cp311-manylinux_2_28_x86_64.whl",
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_show(commands)
    _add_diff(commands)
    _add_verify(commands)
    _add_set_version(commands)
    _add_repair(commands)
    _add_fat(commands)
    _add_split(commands)
    _add_join(commands)


def _add_show(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "show",
        help="name, tags, requirements, sizes, targets and needed libraries",
        description="Show a wheel's name, tags, requirements, sizes, targets and needed libraries.",
        epilog="example: cairn wheel show out/torch-2.9.0+rocm7.10.0-cp311-cp311-manylinux_2_28_x86_64.whl",
    )
    _add_wheels(parser)
    common.add_json(parser)
    parser.set_defaults(run=later("wheel.show"))


def _add_diff(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "diff",
        help="what changed between two wheels",
        description="Show what changed between two wheels: metadata, requirements, files, libraries.",
        epilog="example: cairn wheel diff yesterday/torch-….whl today/torch-….whl",
    )
    parser.add_argument("first", type=paths.file, metavar="FIRST", help="the older wheel")
    parser.add_argument("second", type=paths.file, metavar="SECOND", help="the newer wheel")
    common.add_json(parser)
    parser.set_defaults(run=later("wheel.diff"))


def _add_verify(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "verify",
        help="whether a wheel may be published",
        description="Check everything that a published wheel must satisfy and list every breach. Wheels that "
        "are named together bring the libraries of those that require them.",
        epilog="example: cairn wheel verify --targets gfx942,gfx1100 --sibling triton=3.5.0 "
        "--find-links sdk out/*.whl",
    )
    _add_wheels(parser)
    common.add_targets(parser, default="whatever it has code for")
    parser.add_argument(
        "--require-device-code", action="store_true", help="a wheel without any device code is wrong"
    )
    parser.add_argument("--python", help="Python version it must be good for, such as 3.11 or 3.13t")
    parser.add_argument(
        "--sibling", action="append", default=[], metavar="NAME=VERSION", help="a wheel it was built against"
    )
    parser.add_argument(
        "--provided",
        action="append",
        default=[],
        metavar="GLOB",
        help="a library that another wheel supplies",
    )
    parser.add_argument(
        "--find-links",
        action="append",
        default=[],
        type=paths.folder,
        metavar="DIR",
        help="a folder of wheels that its requirements lead to, such as the ROCm SDK's",
    )
    parser.add_argument(
        "--forbid", action="append", default=[], metavar="TEXT", help="a text that no file may contain"
    )
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        type=paths.file,
        metavar="FILE",
        help="findings that are known, in TOML: by wheel, code and member, each with a reason",
    )
    common.add_json(parser)
    parser.set_defaults(run=later("wheel.verify"))


def _add_set_version(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "set-version",
        help="write a wheel under another version",
        description="Write wheels under other versions: METADATA, RECORD, WHEEL, folder and file names "
        "change together; exact pins among the wheels named and on the ROCm SDK follow, and so do version.py "
        "and _rocm_init.py inside; all else is copied as it is. All of the wheels are written or none.",
        epilog="example: cairn wheel set-version --rocm-version 7.10.0 --output-dir out dist/*.whl",
    )
    _add_wheels(parser)
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--version", help="the whole new version")
    how.add_argument("--rocm-version", help="the ROCm version that the suffix shall name")
    how.add_argument("--promote", metavar="STAGE", help="one stage further: rc1, rc2, … or final")
    parser.add_argument("--build-number", help="the new build number; an empty text drops it")
    parser.add_argument(
        "--require",
        action="append",
        default=[],
        metavar="REQUIREMENT",
        help="add it, or replace its own",
    )
    common.add_output_dir(parser)
    common.add_json(parser)
    common.add_dry_run(parser)
    parser.set_defaults(run=later("wheel.set_version"))


def _add_repair(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "repair",
        help="give a wheel its platform tag and the libraries it lacks",
        description="Write wheels with the platform tag that their symbols justify, and with the libraries "
        "that nothing else supplies. A wheel whose RECORD is wrong is refused.",
        epilog="example: cairn wheel repair --exclude 'libamdhip64.so*' --output-dir out dist/torch-….whl",
    )
    _add_wheels(parser)
    parser.add_argument(
        "--exclude", action="append", default=[], metavar="GLOB", help="a library that another wheel supplies"
    )
    parser.add_argument("--platform", help="platform tag to give (default: the lowest that fits)")
    parser.add_argument(
        "--sdk",
        type=paths.folder,
        metavar="SITE_PACKAGES",
        help="where the ROCm SDK it was linked with is installed",
    )
    parser.add_argument(
        "--library-path",
        action="append",
        default=[],
        type=paths.folder,
        metavar="DIR",
        help="libraries to bundle",
    )
    common.add_output_dir(parser)
    common.add_json(parser)
    parser.set_defaults(run=later("wheel.repair"))


def _add_fat(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "fat",
        help="put the ROCm libraries into a wheel",
        description=FAT,
        epilog="example: cairn wheel fat --output-dir fat dist/torch-….whl /opt/rocm",
    )
    common.add_output_dir(parser)
    add_fat_arguments(parser)
    parser.set_defaults(run=later("wheel.fat"), windows=None)


def add_fat_arguments(parser: argparse.ArgumentParser) -> None:
    """What `cairn wheel fat` and the scripts with upstream's name for it have in common."""
    parser.add_argument("wheel", type=paths.file, metavar="WHEEL", help="the linked wheel")
    parser.add_argument(
        "rocm", type=paths.folder, metavar="ROCM_PATH", help="the ROCm to take libraries from"
    )
    common.add_targets(parser, default="those the wheel has code for")
    parser.add_argument("--version", help="the whole new version")
    parser.add_argument(
        "--library", action="append", default=[], metavar="NAME", help="a library to take besides"
    )
    parser.add_argument(
        "--provided",
        action="append",
        default=[],
        metavar="GLOB",
        help="a library that another wheel supplies",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="stop where ROCM_PATH lacks a library that ROCm's torch opens by name",
    )
    common.add_json(parser)


def _add_split(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "split",
        help="put the device code of each target into a wheel of its own",
        description="Write a host wheel without device code, and one device wheel for each target. The host "
        "wheel needs `cairn wheel join` before its kernels run.",
        epilog="example: cairn wheel split --output-dir split dist/torch-….whl",
    )
    parser.add_argument("wheel", type=paths.file, metavar="WHEEL", help="a linked wheel")
    common.add_output_dir(parser)
    common.add_json(parser)
    parser.set_defaults(run=later("wheel.split"))


def _add_join(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "join",
        help="put device wheels back into their host wheel",
        description="Write a wheel of a host wheel and device wheels that were split from it.",
        epilog="example: cairn wheel join split/torch-….whl split/torch_device_gfx942-….whl --output-dir out",
    )
    parser.add_argument("host", type=paths.file, metavar="HOST", help="the host wheel")
    parser.add_argument("devices", type=paths.file, nargs="+", metavar="DEVICE", help="a device wheel")
    common.add_output_dir(parser)
    common.add_json(parser)
    parser.set_defaults(run=later("wheel.join"))


def _add_wheels(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("wheels", nargs="+", type=paths.file, metavar="WHEEL", help="a wheel")
