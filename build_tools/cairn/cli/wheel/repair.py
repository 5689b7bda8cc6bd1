"""`cairn wheel repair`."""

from __future__ import annotations

import argparse
from pathlib import Path

from cairn import converters
from cairn.cli import arguments
from cairn.cli.parser import Subparsers, add_command
from cairn.errors import UsageError
from cairn.output import console


def add_to(commands: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "repair",
        run,
        about="give wheels the platform tag that their symbols justify, and the libraries that nothing else "
        "supplies",
        more="A wheel that runs on every system of its tag is copied as it is. One whose RECORD is wrong is "
        "refused: --new-record writes RECORD anew, where you know that the files are right.",
        example="cairn wheel repair --exclude 'libamdhip64.so*' --output-dir out dist/torch-….whl",
    )
    arguments.add_wheels(parser)
    arguments.add_repeated(parser, "--exclude", "GLOB", "a library that a different wheel supplies")
    parser.add_argument("--platform", help="platform tag to give (default: the lowest that fits)")
    parser.add_argument(
        "--sdk",
        type=converters.folder,
        metavar="SITE_PACKAGES",
        help="where the ROCm SDK it was linked with is installed",
    )
    arguments.add_repeated(
        parser, "--library-path", "DIR", "a folder of libraries to bundle", kind=converters.folder
    )
    parser.add_argument(
        "--new-record",
        action="store_true",
        help="only write RECORD from the files as they are, and list what it said of them",
    )
    arguments.add_output_dir(parser)
    arguments.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    if options.new_record:
        return _write_records(options)
    import filecmp

    from cairn.wheels.repair import auditwheel

    screen = console.current()
    made = []
    for wheel in options.wheels:
        path = auditwheel.repair_linked(
            wheel,
            options.output_dir,
            exclude=options.exclude,
            platform=options.platform,
            sdk=options.sdk,
            search=options.library_path,
        )
        made.append(_plain(wheel, path))
        if filecmp.cmp(wheel, path, shallow=False):
            screen.info(f"{wheel.name}: nothing to repair, copied as it is")
        if not options.json:
            screen.out(str(path))
    if options.json:
        screen.json({"wheels": made})
    return 0


def _write_records(options: argparse.Namespace) -> int:
    from cairn.wheels.rewrite import new_record

    if options.exclude or options.platform or options.sdk or options.library_path:
        raise UsageError("--new-record changes nothing else", tip="repair the wheel that it writes")
    screen = console.current()
    made = []
    for wheel in options.wheels:
        written = new_record.write(wheel, options.output_dir)
        for text in written.differences:
            screen.info(f"{wheel.name}: RECORD was wrong: {text}")
        made.append({**_plain(wheel, written.path), "record": list(written.differences)})
        if not options.json:
            screen.out(str(written.path))
    if options.json:
        screen.json({"wheels": made})
    return 0


def _plain(source: Path, made: Path) -> dict[str, object]:
    from cairn.wheels.metadata import wheel_info

    return {
        "source": str(source),
        "wheel": str(made),
        "tags": list(wheel_info.parse_file_name(made.name).tags),
    }
