"""Changing a wheel in one pass: what does not change is copied as it is.

METADATA, WHEEL, RECORD, the names of the dist-info and data folders and the file name change together, so
that they always agree.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import files
from cairn.errors import WheelError
from cairn.formats.zip import writer
from cairn.formats.zip.reader import Archive, collector_paused
from cairn.formats.zip.writer import Kept, New
from cairn.wheels.metadata import wheel_info
from cairn.wheels.metadata.record import UNLISTED, RecordRow, format_record, row_of
from cairn.wheels.metadata.wheel_info import FileName, WheelInfo
from cairn.wheels.rewrite import metadata, record_check
from cairn.wheels.rewrite.metadata import MetadataEdit

if TYPE_CHECKING:
    from cairn.wheels.rewrite.elf import BinaryEdit


@dataclass(frozen=True, kw_only=True)
class Edit:
    """What shall change; a field left alone changes nothing.

    Attributes:
        version: the new version, normalised by PEP 440.
        build: the new build number; an empty text drops it.
        tags: the tags that replace all others, such as `cp311-cp311-manylinux_2_28_x86_64`.
        add_requirements: whole requirements to add (one that is there already is not added again).
        rewrite_requirements: requirement as METADATA writes it to what it becomes; it must be there.
        replace_requirements: project name to the whole requirement that takes its place; it must be there.
        remove_requirements: names of projects no longer required; they must be there.
        add_extras: extras to declare.
        remove_extras: extras no longer declared.
        add_files: path in the wheel to content; there must be no such file.
        replace_files: path in the wheel to new content; its run bit stays as it is.
        remove_files: paths that must be there.
        digests: path in the wheel to the sha256, in hex, of added files whose it is known already.
        binaries: path in the wheel of an ELF file to the change of its run paths and needed libraries.
    """

    version: str | None = None
    build: str | None = None
    tags: tuple[str, ...] | None = None
    add_requirements: tuple[str, ...] = ()
    rewrite_requirements: Mapping[str, str] = field(default_factory=dict)
    replace_requirements: Mapping[str, str] = field(default_factory=dict)
    remove_requirements: tuple[str, ...] = ()
    add_extras: tuple[str, ...] = ()
    remove_extras: tuple[str, ...] = ()
    add_files: Mapping[str, Path | bytes] = field(default_factory=dict)
    replace_files: Mapping[str, Path | bytes] = field(default_factory=dict)
    remove_files: tuple[str, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)
    binaries: Mapping[str, BinaryEdit] = field(default_factory=dict)


def apply(wheel: Path, edit: Edit, output_dir: Path) -> Path:
    """Write the changed wheel into `output_dir` and return its path; `wheel` itself is never touched.

    Raises:
        WheelError: the wheel cannot be read, RECORD does not list its members or has another hash for one
            that changes, or the edit names what is not there (or adds what is).
    """
    name = wheel_info.parse_file_name(wheel.name)
    with collector_paused(), Archive.open(wheel) as archive:
        return apply_to(archive, wheel_info.read_archive(archive, name), edit, output_dir)


def new_name(info: WheelInfo, edit: Edit) -> str:
    """The file name that a wheel has after an edit.

    Raises:
        WheelError: there is no such name.
    """
    return _Names.of(wheel_info.parse_file_name(info.file_name), info, edit).file_name


def apply_to(archive: Archive, info: WheelInfo, edit: Edit, output_dir: Path) -> Path:
    """Like `apply`, for a wheel that is open and was read already."""
    with ExitStack() as stack:
        _check_record(archive, info)
        _check_files(archive, edit, info)
        names = _Names.of(wheel_info.parse_file_name(info.file_name), info, edit)
        if edit.binaries:
            output_dir.mkdir(parents=True, exist_ok=True)
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix=".edit.", dir=output_dir))
            edit = _with_binaries(archive, edit, Path(folder))
        changed = _changed_content(archive, info, edit)
        # What is made of them gets a right hash: a file that somebody had changed would be vouched for.
        about = (f"{info.dist_info}/{name}" for name in ("METADATA", "WHEEL"))
        record_check.require_right(archive, info, {*changed, *edit.remove_files, *about})
        target = output_dir / names.file_name
        writer.write(target, _entries(archive, info, edit, names, changed), archive)
    return target


def _with_binaries(archive: Archive, edit: Edit, folder: Path) -> Edit:
    """The edit with each binary that it changes as a file to replace the one in the wheel."""
    # Loaded here because most edits change no binary, and it costs more than they do.
    from cairn.wheels.rewrite import elf  # noqa: PLC0415

    changed: dict[str, Path | bytes] = dict(edit.replace_files)
    for number, (path, change) in enumerate(edit.binaries.items()):
        copy = folder / str(number)
        with copy.open("wb") as file:
            file.writelines(archive.stream(archive.member(path)))
        try:
            elf.change(copy, change)
        except WheelError as error:
            raise WheelError(f"{path}: {error}", tip=error.tip) from error
        changed[path] = copy
    return replace(edit, replace_files=changed)


@dataclass(frozen=True, kw_only=True)
class _Names:
    """The new file name, and how the two folders that carry the version are renamed."""

    file_name: str
    stem: str
    folders: Mapping[str, str]

    @classmethod
    def of(cls, name: FileName, info: WheelInfo, edit: Edit) -> _Names:
        version = str(wheel_info.parsed_version(edit.version)) if edit.version else name.version
        build = name.build if edit.build is None else edit.build and wheel_info.build_number(edit.build)
        tags = name.compressed_tags
        if edit.tags is not None:
            tags = metadata.compressed(edit.tags, like=tags)
        parts = (name.prefix, version, *((build,) if build else ()), tags)
        file_name = f"{'-'.join(parts)}.whl"
        wheel_info.parse_file_name(file_name)
        stem = info.dist_info.removesuffix(".dist-info")
        new_stem = f"{stem.rpartition('-')[0]}-{version}" if edit.version else stem
        folders = {f"{stem}{end}": f"{new_stem}{end}" for end in (".dist-info", ".data")}
        return cls(file_name=file_name, stem=stem, folders=folders)

    def renamed(self, path: str) -> str:
        if not path.startswith(self.stem):
            return path
        top, slash, rest = path.partition("/")
        return f"{self.folders.get(top, top)}{slash}{rest}"


def _entries(
    archive: Archive, info: WheelInfo, edit: Edit, names: _Names, changed: Mapping[str, Path | bytes]
) -> list[Kept | New]:
    """Every member of the new wheel: kept order, added files before the dist-info folder, RECORD last."""
    # With RECORD go the signatures that were made over it.
    removed = {*edit.remove_files, *(f"{info.dist_info}/{name}" for name in UNLISTED)}
    plain: list[Kept | New] = []
    about: list[Kept | New] = []
    folder = f"{info.dist_info}/"
    for member in archive.members:
        name = member.name
        if name in removed:
            continue
        where = about if name.startswith(folder) else plain
        if name in changed:
            new = New(name=names.renamed(name), content=changed[name], executable=member.executable)
            where.append(new)
        else:
            where.append(Kept(member, names.renamed(name)))
    for path, content in sorted(edit.add_files.items()):
        where = about if path.startswith(f"{info.dist_info}/") else plain
        where.append(New(name=names.renamed(path), content=content))
    entries = plain + about
    record = format_record(_rows(info, entries, names, removed, edit.digests))
    path = names.renamed(f"{info.dist_info}/RECORD")
    return [*entries, New(name=path, content=record.encode())]


def _changed_content(archive: Archive, info: WheelInfo, edit: Edit) -> dict[str, Path | bytes]:
    """New content by the old path."""
    changed: dict[str, Path | bytes] = dict(edit.replace_files)
    change = MetadataEdit(
        version=edit.version and str(wheel_info.parsed_version(edit.version)),
        build=edit.build,
        tags=edit.tags,
        add_requirements=edit.add_requirements,
        rewrite_requirements=edit.rewrite_requirements,
        replace_requirements=edit.replace_requirements,
        remove_requirements=edit.remove_requirements,
        add_extras=edit.add_extras,
        remove_extras=edit.remove_extras,
    )
    new = metadata.edited_metadata(info.metadata, change)
    if new != info.metadata:
        changed[f"{info.dist_info}/METADATA"] = new
    wheel = archive.read(f"{info.dist_info}/WHEEL")
    new = metadata.edited_wheel(wheel, change)
    if new != wheel:
        changed[f"{info.dist_info}/WHEEL"] = new
    if change.version:
        changed = _listed(archive, info, change.version) | changed
    return changed


def _listed(archive: Archive, info: WheelInfo, version: str) -> dict[str, Path | bytes]:
    """Our own bill of materials, which names the version, where the wheel has one."""
    path = f"{info.dist_info}/{wheel_info.SBOM}"
    if path not in archive:
        return {}
    from cairn.wheels.metadata import cyclonedx  # noqa: PLC0415 - as above

    return {path: cyclonedx.with_version(archive.read(path), version)}


def _rows(
    info: WheelInfo,
    entries: Iterable[Kept | New],
    names: _Names,
    removed: set[str],
    digests: Mapping[str, str],
) -> Iterator[RecordRow]:
    """RECORD row by row: old rows in their order, those of new files before RECORD's own."""
    new = {entry.name: _row(entry, digests.get(entry.name)) for entry in entries if isinstance(entry, New)}
    own = RecordRow(path=names.renamed(f"{info.dist_info}/RECORD"))
    for row in info.record:
        path = names.renamed(row.path)
        if path in new:
            yield new.pop(path)
        elif row.path not in removed:
            yield row if path == row.path else row._replace(path=path)
    yield from new.values()
    yield own


def _row(new: New, digest: str | None) -> RecordRow:
    if isinstance(new.content, Path):
        digest = digest or files.sha256_of(new.content)
        return row_of(new.name, bytes.fromhex(digest), new.content.stat().st_size)
    return row_of(new.name, hashlib.sha256(new.content).digest(), len(new.content))


def _check_record(archive: Archive, info: WheelInfo) -> None:
    listed = {row.path for row in info.record}
    there = {member.name for member in archive.members if not member.is_dir}
    own = {f"{info.dist_info}/{name}" for name in UNLISTED}
    wrong = sorted((listed ^ there) - own)
    if wrong:
        raise WheelError(
            f"RECORD of {archive.path.name} and its members disagree about {wrong[0]}"
            + (f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""),
            tip="`cairn wheel verify` lists them all; build the wheel again",
        )


def _check_files(archive: Archive, edit: Edit, info: WheelInfo) -> None:
    for path in edit.add_files:
        if path in archive:
            raise WheelError(f"{archive.path.name} already has {path}", tip="replace the file instead")
    for path in (*edit.replace_files, *edit.remove_files, *edit.binaries):
        archive.member(path)
    twice = edit.binaries.keys() & {*edit.replace_files, *edit.remove_files}
    if twice:
        raise WheelError(f"{min(twice)} is to be changed in two ways at once")
    own = {f"{info.dist_info}/{name}" for name in ("METADATA", "WHEEL", "RECORD")}
    touched = own & {*edit.add_files, *edit.replace_files, *edit.remove_files}
    if touched:
        raise WheelError(
            f"{min(touched)} is written by the edit itself", tip="change version, tags or requirements"
        )
