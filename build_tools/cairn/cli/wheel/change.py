"""`cairn wheel set-version`, `repair`, `fat`, `split` and `join`: new wheels made of old ones."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import common_options as common
from cairn.cli.answer import Answer, Note, Piece, Table
from cairn.cli.binder import command
from cairn.errors import UsageError
from cairn.options import argument, fill, flag, option, part, repeated
from cairn.output import console
from cairn.wheels.rewrite.version_options import NewVersion

if TYPE_CHECKING:
    from cairn.wheels.fat.build import FatReport
    from cairn.wheels.rewrite.set_version import Change


@dataclass(frozen=True, kw_only=True)
class SetVersion(common.OptionalStoreOptions):
    """Options of `cairn wheel set-version`.

    METADATA, RECORD, WHEEL, folder and file names change together; exact pins among the wheels named and
    on the ROCm SDK follow, and so do version.py and _rocm_init.py inside; everything else is copied as it
    is. All of the wheels are written, or none.

    With --set they are those of a set in a --store, and set.json beside them names it: they are new bytes, so
    publish them as a set of their own, and test that one.

        cairn wheel set-version --rocm-version 7.10.0 --output-dir out dist/*.whl
    """

    wheels: tuple[Path, ...] = argument("WHEEL", "a wheel", nargs="*", convert=converters.file)
    set_id: str | None = option(
        "with --promote: the wheels of this set", "--set", metavar="SET", convert=converters.nonempty
    )
    index: str = common.index("staging")
    new: NewVersion = part(NewVersion)
    output_dir: Path = common.output_dir()
    dry_run: bool = common.dry_run()


def _set_version(request: SetVersion) -> Answer:
    from cairn.wheels.rewrite.set_version import set_versions

    if request.set_id is not None:
        return _next_stage(request, request.set_id)
    if not request.wheels:
        raise UsageError("no wheel is named", tip="name wheels, or a set of a store with --set and --store")
    check = None
    if request.new.requires:  # nothing else of METADATA is a user's text
        from cairn.wheels.verify import written

        check = written.require_edited
    changes = set_versions(
        request.wheels, request.new, request.output_dir, dry_run=request.dry_run, check=check
    )
    return Answer(
        {"dry_run": request.dry_run, "wheels": list(map(_plain_change, changes))}, _version_text(changes)
    )


def _next_stage(request: SetVersion, version: str) -> Answer:
    from cairn.release.index.reading import read_current
    from cairn.release.index.snapshot import Index, whole_id
    from cairn.release.new_version import next_stage

    if request.wheels or request.store is None or request.new != NewVersion(stage=request.new.stage):
        raise UsageError("--set goes with --store and --promote, and with no wheel")
    store, dry_run = request.open_existing_store(), request.dry_run
    set_id = whole_id(common.set_id_of(version), read_current(Index(store, request.index)))
    _, changes = next_stage(store, set_id, request.new.stage or "", request.output_dir, dry_run=dry_run)
    wheels = [{"wheel": c.target, "version": {"old": c.old, "new": c.new}} for c in changes]
    return Answer(
        {"derived_from": set_id, "wheels": wheels, "dry_run": dry_run},
        [f"{'would write' if dry_run else '+'} {change.target}" for change in changes],
    )


def _version_text(changes: Iterable[Change]) -> Iterator[Piece]:
    for change in changes:
        for old, new in change.requirements.items():
            yield Note(f"{change.target.name}: requires {new}, before {old}")
        yield str(change.target)


def _plain_change(change: Change) -> dict[str, object]:
    return {
        "source": change.source,
        "wheel": change.target,
        "version": {"old": change.old, "new": change.new},
        "requirements": [{"old": old, "new": new} for old, new in change.requirements.items()],
        "files": change.files,
    }


@dataclass(frozen=True, kw_only=True)
class Repair:
    """Options of `cairn wheel repair`.

    A wheel that runs on every system of its tag is copied as it is. One whose RECORD is wrong is refused:
    --new-record writes RECORD anew, where you know that the files are right.

        cairn wheel repair --exclude 'libamdhip64.so*' --output-dir out dist/torch-….whl
    """

    wheels: tuple[Path, ...] = common.wheels()
    exclude: tuple[str, ...] = repeated("a library that a different wheel supplies", metavar="GLOB")
    platform: str | None = option("platform tag to give (default: the lowest that fits)")
    sdk: Path | None = option(
        "where the ROCm SDK it was linked with is installed",
        metavar="SITE_PACKAGES",
        convert=converters.folder,
    )
    library_path: tuple[Path, ...] = repeated("a folder of libraries to bundle", convert=converters.folder)
    json: bool = False
    new_record: bool = flag("only write RECORD from the files as they are, and list what it said of them")
    output_dir: Path = common.output_dir()


def _repair(request: Repair) -> Iterator[Answer | Piece]:
    from cairn.wheels.metadata import wheel_info

    if request.new_record and (request.exclude or request.platform or request.sdk or request.library_path):
        raise UsageError("--new-record changes nothing else", tip="repair the wheel that it writes")
    repaired = []
    for wheel in request.wheels:
        path, more = _write_record(wheel, request) if request.new_record else _repair_linked(wheel, request)
        tags = wheel_info.parse_file_name(path.name).tags
        repaired.append({"source": wheel, "wheel": path, "tags": tags, **more})
        if not request.json:
            yield str(path)
    yield Answer({"wheels": repaired})


def _repair_linked(wheel: Path, request: Repair) -> tuple[Path, dict[str, object]]:
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


@dataclass(frozen=True, kw_only=True)
class Fat:
    """Options of `cairn wheel fat`.

    It gets a version of its own, such as 2.9.0+fat.rocm7.10.0.

        cairn wheel fat --output-dir fat dist/torch-….whl /opt/rocm
    """

    wheel: Path = argument("WHEEL", "the linked wheel", convert=converters.file)
    rocm: Path = argument("ROCM_PATH", "the ROCm to take libraries from", convert=converters.folder)
    output_dir: Path = common.output_dir()
    targets: str | None = common.targets("those the wheel has code for")
    version: str | None = option("the whole new version")
    libraries: tuple[str, ...] = repeated("a further library to take", "--library", metavar="NAME")
    provided: tuple[str, ...] = common.provided()
    strict: bool = flag("stop where ROCM_PATH lacks a library that ROCm's torch opens by name")


def fat(request: Fat) -> Answer:
    """Write a fat wheel."""
    from cairn.wheels.fat import build
    from cairn.wheels.fat.recipe import parse_fat_targets

    with console.current().stage(f"putting ROCm into {request.wheel.name}"):
        targets = None if request.targets is None else parse_fat_targets(request.targets)
        report = build.make(fill(build.FatRequest, request, targets=targets))
    return Answer(report, _fat_text(report))


def _fat_text(report: FatReport) -> Iterator[Piece]:
    rows = [(part.name, console.size(part.size), part.files, _by_target(part.sizes)) for part in report.parts]
    yield Table(("carries", "size", "files", "by target"), rows)
    yield Table(("target", "size"), [(name, console.size(count)) for name, count in report.sizes.items()])
    for name in report.dropped:
        yield f"requires no longer: {name}"
    for member in report.changed:
        yield f"run path changed: {member}"
    for reason in dict.fromkeys(item.reason for item in report.left_out):
        names = ", ".join(item.name for item in report.left_out if item.reason == reason)
        yield f"skipped {names}: {reason}"
    yield f"{report.wheel} ({console.size(report.size)})"


def _by_target(sizes: Mapping[str, int]) -> str:
    from cairn.targets import sort_key

    return ", ".join(f"{target} {console.size(sizes[target])}" for target in sorted(sizes, key=sort_key))


def _prefix(text: str) -> str:
    """The beginning of a project's name."""
    from cairn import requirements

    if not requirements.is_project_name(text):
        raise ArgumentTypeError(f"{text[:40]!r} cannot be the beginning of a project's name")
    return text


@dataclass(frozen=True, kw_only=True)
class Split:
    """Options of `cairn wheel split`.

    ROCm 7.14 finds the code of an installed device wheel; older ones need `cairn wheel join`.

        cairn wheel split --output-dir split dist/torch-….whl
    """

    wheel: Path = argument("WHEEL", "a linked wheel", convert=converters.file)
    device_prefix: str = option(
        "stands before the names of device wheels: with amd, amd-torch-device-gfx942 (default: none)",
        metavar="WORD",
        convert=_prefix,
        default="",
    )
    rocm_version: str | None = option(
        "have each device wheel require that of the ROCm SDK, rocm-sdk-device-gfx942==VERSION "
        "(default: the packages of the SDK have all their code)",
        metavar="VERSION",
        convert=converters.nonempty,
    )
    variants: bool = flag(
        "write wheel variants as well, each with the code of one target: uv takes the one for its GPU "
        "where its preview knows the GPU (PEP 825, a draft; default: none)",
    )
    output_dir: Path = common.output_dir()


def _split(request: Split) -> Answer:
    from cairn import requirements
    from cairn.wheels.contents import binaries
    from cairn.wheels.split import join
    from cairn.wheels.split.device_wheel import Terms
    from cairn.wheels.split.split import RUNTIME, split

    try:
        sdk = request.rocm_version and str(requirements.version(request.rocm_version))
    except ValueError as error:
        raise UsageError(f"--rocm-version: {error}", tip="such as 7.14.0") from error
    if request.variants:  # before anything is written
        join.require_processors(binaries.targets_of(request.wheel))
    terms = Terms(prefix=request.device_prefix, sdk=sdk, runtime=RUNTIME)
    host, *devices = split(request.wheel, request.output_dir, terms)
    chosen = devices if request.variants else []
    variants = [join.write_variant(host, device, request.output_dir) for device in chosen]
    return Answer(
        {"host": host, "devices": devices, "variants": variants}, map(str, (host, *devices, *variants))
    )


@dataclass(frozen=True, kw_only=True)
class Join:
    """Options of `cairn wheel join`.

    cairn wheel join split/torch-….whl split/torch_device_gfx942-….whl --output-dir out
    """

    host: Path = argument("HOST", "the host wheel", convert=converters.file)
    devices: tuple[Path, ...] = argument("DEVICE", "a device wheel", nargs="+", convert=converters.file)
    output_dir: Path = common.output_dir()


def _join(request: Join) -> Answer:
    from cairn.wheels.split.join import join

    joined = join(request.host, request.devices, request.output_dir)
    text = [str(joined.path)]
    for library in joined.libraries:
        if library.missing:
            text.append(f"  {library.library}: without {', '.join(library.missing)}")
        elif not library.same_bytes:
            text.append(f"  {library.library}: the original code objects, compressed again")
    return Answer({"wheel": joined.path, "libraries": joined.libraries}, text)


COMMANDS = {
    "set-version": command(SetVersion, _set_version),
    "repair": command(Repair, _repair),
    "fat": command(Fat, fat),
    "split": command(Split, _split),
    "join": command(Join, _join),
}
