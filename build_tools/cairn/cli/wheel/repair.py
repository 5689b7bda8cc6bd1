"""`cairn wheel repair`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cairn import converters
from cairn.cli import fields
from cairn.cli.answer import Answer
from cairn.cli.binder import command
from cairn.errors import UsageError
from cairn.options import flag, option, repeated
from cairn.output import console


@dataclass(frozen=True, kw_only=True)
class Repair:
    """What `cairn wheel repair` is asked for.

    A wheel that runs on every system of its tag is copied as it is. One whose RECORD is wrong is refused:
    --new-record writes RECORD anew, where you know that the files are right.

        cairn wheel repair --exclude 'libamdhip64.so*' --output-dir out dist/torch-….whl
    """

    wheels: tuple[Path, ...] = fields.wheels()
    exclude: tuple[str, ...] = repeated("a library that a different wheel supplies", metavar="GLOB")
    platform: str | None = option("platform tag to give (default: the lowest that fits)")
    sdk: Path | None = option(
        "where the ROCm SDK it was linked with is installed",
        metavar="SITE_PACKAGES",
        convert=converters.folder,
    )
    library_path: tuple[Path, ...] = repeated(
        "a folder of libraries to bundle", metavar="DIR", convert=converters.folder
    )
    new_record: bool = flag("only write RECORD from the files as they are, and list what it said of them")
    output_dir: Path = fields.output_dir()
    json: bool = fields.json()


def run(request: Repair) -> Answer:
    """Run the command."""
    from cairn.wheels.metadata import wheel_info

    if request.new_record and (request.exclude or request.platform or request.sdk or request.library_path):
        raise UsageError("--new-record changes nothing else", tip="repair the wheel that it writes")
    repaired = []
    for wheel in request.wheels:
        path, more = _write_record(wheel, request) if request.new_record else _repair(wheel, request)
        tags = wheel_info.parse_file_name(path.name).tags
        repaired.append({"source": wheel, "wheel": path, "tags": tags, **more})
        if not request.json:
            console.current().out(str(path))
    return Answer({"wheels": repaired})


def _repair(wheel: Path, request: Repair) -> tuple[Path, dict[str, object]]:
    import filecmp

    from cairn.wheels import repair

    path = repair.repair_linked(
        wheel,
        request.output_dir,
        exclude=request.exclude,
        platform=request.platform,
        sdk=request.sdk,
        search=request.library_path,
    )
    if filecmp.cmp(wheel, path, shallow=False):
        console.current().info(f"{wheel.name}: nothing to repair, copied as it is")
    return path, {}


def _write_record(wheel: Path, request: Repair) -> tuple[Path, dict[str, object]]:
    from cairn.wheels.rewrite import record

    written = record.write(wheel, request.output_dir)
    for text in written.differences:
        console.current().info(f"{wheel.name}: RECORD was wrong: {text}")
    return written.path, {"record": written.differences}


COMMANDS = {"repair": command(Repair, run)}
