"""`cairn wheel`: look at, compare, check and change built wheels."""

from __future__ import annotations

import argparse
from pathlib import Path

from cairn import console, jsonfile
from cairn.cli import wheel_fat, wheel_split, wheel_text
from cairn.cli.groups import Subparsers
from cairn.errors import UsageError, WheelError
from cairn.targets import parse_targets
from cairn.wheels import metadata, repair, version
from cairn.wheels.diff import diff
from cairn.wheels.edit import Edit, apply
from cairn.wheels.summary import summarise
from cairn.wheels.verify import Expectation, verify


def register(subparsers: Subparsers) -> None:
    """Add the command group to the program."""
    parser = subparsers.add_parser(
        "wheel",
        help="look at, compare, check and change wheels",
        description="Look at, compare, check and change built wheels. No wheel is ever changed in place.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_show(commands)
    _add_diff(commands)
    _add_verify(commands)
    _add_set_version(commands)
    _add_repair(commands)
    wheel_fat.register(commands)
    wheel_split.register(commands)


def _add_show(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "show",
        help="name, tags, requirements, sizes, targets and needed libraries",
        epilog="example: cairn wheel show out/torch-2.9.0+rocm7.10.0-cp311-cp311-manylinux_2_28_x86_64.whl",
        allow_abbrev=False,
    )
    _add_wheels(parser)
    _add_json(parser)
    parser.set_defaults(run=_show)


def _add_diff(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "diff",
        help="what changed between two wheels",
        epilog="example: cairn wheel diff yesterday/torch-….whl today/torch-….whl",
        allow_abbrev=False,
    )
    parser.add_argument("first", type=Path, metavar="FIRST")
    parser.add_argument("second", type=Path, metavar="SECOND")
    _add_json(parser)
    parser.set_defaults(run=_diff)


def _add_verify(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "verify",
        help="whether a wheel may be published",
        description="Check everything that a published wheel must satisfy and list every breach.",
        epilog="example: cairn wheel verify --targets gfx942,gfx1100 --sibling triton=3.5.0 "
        "--provided 'libamdhip64.so*' out/torch-….whl",
        allow_abbrev=False,
    )
    _add_wheels(parser)
    parser.add_argument("--targets", help="targets or families it must have code for, or cpu for none")
    parser.add_argument(
        "--require-device-code", action="store_true", help="a wheel without any device code is wrong"
    )
    parser.add_argument("--python", help="Python version it must be good for, such as 3.11")
    parser.add_argument(
        "--sibling", action="append", default=[], metavar="NAME=VERSION", help="a wheel it was built against"
    )
    parser.add_argument(
        "--provided", action="append", default=[], metavar="GLOB", help="a library its requirements supply"
    )
    parser.add_argument(
        "--forbid", action="append", default=[], metavar="TEXT", help="a text that no file may contain"
    )
    _add_json(parser)
    parser.set_defaults(run=_verify)


def _add_set_version(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "set-version",
        help="write a wheel under another version",
        description="Write a wheel under another version: METADATA, RECORD, WHEEL, folder and file names "
        "change together, all else is copied as it is.",
        epilog="example: cairn wheel set-version --rocm-version 7.10.0 --output-dir out dist/torch-….whl",
        allow_abbrev=False,
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
    _add_output(parser)
    parser.set_defaults(run=_set_version)


def _add_repair(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "repair",
        help="give a wheel its platform tag and the libraries it lacks",
        epilog="example: cairn wheel repair --exclude 'libamdhip64.so*' --output-dir out dist/torch-….whl",
        allow_abbrev=False,
    )
    _add_wheels(parser)
    parser.add_argument(
        "--exclude", action="append", default=[], metavar="GLOB", help="a library that another wheel supplies"
    )
    parser.add_argument("--platform", help="platform tag to give (default: the lowest that fits)")
    parser.add_argument(
        "--sdk", type=Path, metavar="SITE_PACKAGES", help="where the ROCm SDK it was linked with is installed"
    )
    parser.add_argument(
        "--library-path", action="append", default=[], type=Path, metavar="DIR", help="libraries to bundle"
    )
    _add_output(parser)
    parser.set_defaults(run=_repair)


def _show(options: argparse.Namespace) -> int:
    found = [summarise(path) for path in options.wheels]
    screen = console.current()
    if options.json:
        screen.json([jsonfile.to_plain(summary) for summary in found])
    for summary in () if options.json else found:
        wheel_text.show(screen, summary)
    return 0


def _diff(options: argparse.Namespace) -> int:
    found = diff(options.first, options.second)
    screen = console.current()
    if options.json:
        screen.json(jsonfile.to_plain(found))
    else:
        wheel_text.show_difference(screen, found)
    return 0


def _verify(options: argparse.Namespace) -> int:
    expected = _expectation(options)
    found = {path: verify(path, expected) for path in options.wheels}
    screen = console.current()
    if options.json:
        screen.json({str(path): [jsonfile.to_plain(f) for f in findings] for path, findings in found.items()})
    for path, findings in () if options.json else found.items():
        wheel_text.show_findings(screen, path, findings)
    return WheelError.exit_code if any(found.values()) else 0


def _expectation(options: argparse.Namespace) -> Expectation:
    pairs = [text.partition("=") for text in options.sibling]
    for name, separator, value in pairs:
        if not (name and separator and value):
            raise UsageError(f"{name!r} is no sibling", tip="write --sibling triton=3.5.0")
    return Expectation(
        targets=parse_targets(options.targets) if options.targets else None,
        require_device_code=options.require_device_code,
        siblings={name: value.lstrip("=") for name, _, value in pairs},
        provided_libraries=tuple(options.provided),
        python=options.python,
        forbidden_strings=tuple(options.forbid),
    )


def _set_version(options: argparse.Namespace) -> int:
    for wheel in options.wheels:
        info = metadata.read(wheel)
        required = {metadata.requirement(text).name for text in info.requires_dist}
        wanted = {metadata.requirement(text).name: text for text in options.require}
        edit = Edit(
            version=_new_version(info.version, options),
            build=options.build_number,
            replace_requirements={name: text for name, text in wanted.items() if name in required},
            add_requirements=tuple(text for name, text in wanted.items() if name not in required),
        )
        console.current().out(str(apply(wheel, edit, options.output_dir)))
    return 0


def _new_version(old: str, options: argparse.Namespace) -> str:
    if options.promote:
        return version.promote(old, options.promote)
    if options.rocm_version:
        public = metadata.parsed_version(old).public
        return version.with_suffix(public, version.suffix(options.rocm_version))
    return str(options.version)


def _repair(options: argparse.Namespace) -> int:
    for wheel in options.wheels:
        made = repair.repair_linked(
            wheel,
            options.output_dir,
            exclude=options.exclude,
            platform=options.platform,
            sdk=options.sdk,
            search=options.library_path,
        )
        console.current().out(str(made))
    return 0


def _add_wheels(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("wheels", nargs="+", type=Path, metavar="WHEEL")


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON for a program to read")


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output-dir", type=Path, required=True, help="where the new wheel goes")
