"""Changing a wheel in one pass, its RECORD included: what does not change is copied as it is.

METADATA, WHEEL, RECORD, the names of the dist-info and data folders and the file name change together, so
that they always agree (PEP 427, "The .dist-info directory"). METADATA and WHEEL are edited line by line.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from cairn import files
from cairn.errors import WheelError
from cairn.formats import cyclonedx
from cairn.formats.zip import writer
from cairn.formats.zip.reader import Archive, Member, collector_paused
from cairn.formats.zip.writer import CopiedMember, New
from cairn.wheels.metadata import wheel_info
from cairn.wheels.metadata.fields import Headers, core_metadata, parse_headers
from cairn.wheels.metadata.record import RecordRow, format_record, row_of
from cairn.wheels.metadata.wheel_info import WheelInfo
from cairn.wheels.rewrite import record

if TYPE_CHECKING:
    from cairn.wheels.rewrite.elf import BinaryEdit
_new = tuple.__new__  # for 12,000 members in half the time of the named constructor
_REQUIRES = "Requires-Dist"
_TAG = re.compile(r"\w+-\w+-\w+", re.ASCII)
# Names of extras follow the rule for names of projects (PEP 508, PEP 685).
_EXTRA = re.compile(r"[A-Z0-9](?:[A-Z0-9._-]*[A-Z0-9])?", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Edit:
    """The changes to make in a wheel: in METADATA and WHEEL, and in files. A default changes nothing.

    Attributes:
        version: the new version, to be normalised by PEP 440.
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
        digests: path in the wheel to sha256, in hex, of those new files for which it is known already.
        checked: paths of files whose old content the caller has compared with RECORD.
        binaries: path in the wheel of an ELF file to the change of its run paths and needed libraries.
        usual_modes: give each file mode 0644 or 0755, as installers do: others follow the umask of the build.
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
    checked: frozenset[str] = frozenset()
    binaries: Mapping[str, BinaryEdit] = field(default_factory=dict)
    usual_modes: bool = False


def edit_wheel(wheel: Path, edit: Edit, output_dir: Path) -> Path:
    """Write the changed wheel into `output_dir` and return its path; `wheel` itself is never touched.

    Raises:
        WheelError: the wheel cannot be read, RECORD does not list its members or has a different hash for one
            that changes, or the edit names what is not there (or adds what is).
    """
    wheel_info.parse_file_name(wheel.name)
    with collector_paused(), Archive.open(wheel) as archive:
        return edit_archive(archive, wheel_info.read_archive(archive), edit, output_dir)


def new_name(info: WheelInfo, edit: Edit) -> str:
    """The file name that a wheel has after an edit.

    Raises:
        WheelError: there is no such name.
    """
    name = wheel_info.parse_file_name(info.file_name)
    version = str(wheel_info.parsed_version(edit.version)) if edit.version else name.version
    build = name.build if edit.build is None else edit.build and wheel_info.build_number(edit.build)
    tags = name.compressed_tags
    if edit.tags is not None:
        tags = _compressed_tags(edit.tags, like=tags)
    new = f"{'-'.join((name.prefix, version, *((build,) if build else ()), tags))}.whl"
    wheel_info.parse_file_name(new)
    return new


def edit_archive(archive: Archive, info: WheelInfo, edit: Edit, output_dir: Path) -> Path:
    """Like `edit_wheel`, for a wheel that is open and was read already."""
    with ExitStack() as stack:
        _check_edit(archive, info, edit)
        target = output_dir / new_name(info, edit)
        # Every file that goes into a changed one is checked: the new RECORD has a right hash for what is made
        # of it, and would vouch for a file that was tampered with.
        inputs = {f"{info.dist_info}/{name}" for name in ("METADATA", "WHEEL", cyclonedx.NAME)}
        inputs.update(edit.replace_files, edit.remove_files, edit.binaries)
        record.require_right(archive, info, inputs - edit.checked)
        if edit.binaries:
            edit = _with_binaries(archive, edit, stack.enter_context(files.scratch(output_dir, "edit")))
        writer.write(target, _entries(archive, info, edit), archive)
    return target


def _check_edit(archive: Archive, info: WheelInfo, edit: Edit) -> None:
    for path in edit.add_files:
        if path in archive:
            raise WheelError(f"{archive.path.name} already has {path}", tip="replace the file instead")
    for path in (*edit.replace_files, *edit.remove_files, *edit.binaries):
        archive.member(path)
    twice = edit.binaries.keys() & {*edit.replace_files, *edit.remove_files}
    if twice:
        raise WheelError(f"{min(twice)} is to be changed in two ways at once")
    metadata_files = {f"{info.dist_info}/{name}" for name in ("METADATA", "WHEEL", "RECORD")}
    touched = metadata_files & {*edit.add_files, *edit.replace_files, *edit.remove_files}
    if touched:
        raise WheelError(
            f"{min(touched)} is written by the edit itself", tip="change version, tags or requirements"
        )


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
    return dataclasses.replace(edit, replace_files=changed)


def _entries(archive: Archive, info: WheelInfo, edit: Edit) -> list[CopiedMember | New]:
    """Every member of the new wheel: kept order, added files before the dist-info folder, RECORD last.

    PEP 427 recommends that the dist-info folder stands at the end of the archive, physically.
    """
    about = f"{info.dist_info}/"
    changed = _changed_content(archive, info, edit)
    moved = _moved(archive, info, edit)
    # With RECORD go RECORD.jws and RECORD.p7s, the signatures that were made over it.
    removed = {*edit.remove_files, *info.unlisted}
    first: list[CopiedMember | New] = []
    last: list[CopiedMember | New] = []
    for member in archive.members:
        name = member.name
        if name in removed:
            continue
        where = last if name.startswith(about) else first
        if name in changed:
            content = changed[name]
            where.append(New(name=moved.get(name, name), content=content, executable=member.executable))
        else:
            unchanged = _with_usual_mode(member) if edit.usual_modes else member
            where.append(_new(CopiedMember, (unchanged, moved.get(name, name))))
    for path, content in sorted(edit.add_files.items()):
        where = last if path.startswith(about) else first
        where.append(New(name=moved.get(path, path), content=content))
    entries = first + last
    record = moved.get(f"{about}RECORD", f"{about}RECORD")
    # RECORD row by row: old ones in their order, those of added files after them, its own last.
    written = (entry for entry in entries if isinstance(entry, New))
    new = {entry.name: row_for(entry, edit.digests.get(entry.name)) for entry in written}
    rows = []
    for row in info.record:
        if row.path not in removed:
            path = moved.get(row.path, row.path)
            rows.append(new.pop(path, row if path == row.path else row._replace(path=path)))
    text = format_record([*rows, *new.values(), RecordRow(record)])
    return [*entries, New(name=record, content=text.encode())]


def _with_usual_mode(member: Member) -> Member:
    """The member with the mode that a new file would have; a folder, a link, or one without any as it is."""
    if not stat.S_ISREG(member.mode):
        return member
    mode = stat.S_IFREG | (0o755 if member.executable else 0o644)
    return member._replace(external=mode << 16 | member.external & 0xFFFF)


def _moved(archive: Archive, info: WheelInfo, edit: Edit) -> dict[str, str]:
    """Path in the wheel to the new one, for what is in the two folders whose names carry the version."""
    if not edit.version:
        return {}
    old = info.dist_info.removesuffix(".dist-info")
    new = f"{old.rpartition('-')[0]}-{wheel_info.parsed_version(edit.version)}"
    folders = (f"{info.dist_info}/", f"{info.data_folder}/")
    paths = (*(member.name for member in archive.members if old in member.name), *edit.add_files)
    return {path: new + path.removeprefix(old) for path in paths if path.startswith(folders)}


def _changed_content(archive: Archive, info: WheelInfo, edit: Edit) -> dict[str, Path | bytes]:
    """New content by the old path; METADATA and WHEEL only where they do change."""
    changed: dict[str, Path | bytes] = dict(edit.replace_files)
    new = _edited_metadata(info.metadata, edit)
    if new != info.metadata:
        changed[f"{info.dist_info}/METADATA"] = new
    wheel = archive.read(f"{info.dist_info}/WHEEL")
    new = _edited_wheel_file(wheel, edit)
    if new != wheel:
        changed[f"{info.dist_info}/WHEEL"] = new
    bill = f"{info.dist_info}/{cyclonedx.NAME}"
    if edit.version and bill in archive and bill not in changed:
        # Our own bill of materials names the version.
        version = str(wheel_info.parsed_version(edit.version))
        changed[bill] = cyclonedx.with_version(archive.read(bill), version)
    return changed


def row_for(new: New, digest: str | None = None) -> RecordRow:
    """The row of RECORD for a new file; `digest` is its sha256 in hex where that is known already."""
    if isinstance(new.content, Path):
        digest = digest or files.sha256_of(new.content)
        return row_of(new.name, bytes.fromhex(digest), new.content.stat().st_size)
    return row_of(new.name, hashlib.sha256(new.content).digest(), len(new.content))


def _edited_metadata(data: bytes, edit: Edit) -> bytes:
    """METADATA with the edit made and every other line as it was.

    Raises:
        WheelError: a requirement is malformed, or one to be replaced or removed is not there.
    """
    headers = parse_headers(data, name="METADATA")
    if edit.version:
        headers = headers.replaced("Version", [str(wheel_info.parsed_version(edit.version))])
    texts = edit.rewrite_requirements
    if missing := texts.keys() - set(headers.all(_REQUIRES)):
        raise WheelError(f"METADATA does not require {min(missing)}", tip="add the requirement instead")
    headers = headers.mapped(_REQUIRES, lambda text: texts.get(text, text))
    dropped: set[str] = {canonicalize_name(name) for name in edit.remove_requirements}
    _must_have(headers, dropped)
    headers = headers.mapped(_REQUIRES, lambda text: None if _names([text]) & dropped else text)
    for name, text in edit.replace_requirements.items():
        headers = _with_replaced(headers, name, text)
    removed = {canonicalize_name(extra) for extra in edit.remove_extras}
    headers = headers.mapped("Provides-Extra", lambda e: None if canonicalize_name(e) in removed else e)
    headers = _with_added(headers, edit)
    result = headers.to_bytes()
    # Read as installers do, by an email parser, and compared: tricks with line ends show here.
    raw = core_metadata(result, name="METADATA")
    texts_read = ([raw.get("version")], raw.get("requires_dist", []), raw.get("provides_extra", []))
    if texts_read != tuple(list(headers.all(name)) for name in ("Version", _REQUIRES, "Provides-Extra")):
        raise WheelError("METADATA cannot be edited: its headers are malformed", tip="build the wheel again")
    return result


def _edited_wheel_file(data: bytes, edit: Edit) -> bytes:
    """The file WHEEL with the edit made and every other line as it was.

    Raises:
        WheelError: a tag is malformed.
    """
    headers = parse_headers(data, name="WHEEL")
    if edit.tags is not None:
        headers = headers.replaced("Tag", sorted(t for tag in edit.tags for t in wheel_info.expand_tags(tag)))
    if edit.build is not None:
        headers = headers.replaced("Build", [edit.build] if edit.build else [])
    return headers.to_bytes()


def _compressed_tags(tags: Sequence[str], *, like: str | None = None) -> str:
    """Tags as one compressed tag set for a file name (PEP 425).

    Args:
        tags: the tags, single ones or sets.
        like: the tag set of the file name before, whose order stays where it has the same parts.

    Raises:
        WheelError: no tag set gives exactly these, or one is malformed.
    """
    single = {tag for text in tags for tag in wheel_info.expand_tags(text)}
    wrong = next((tag for tag in sorted(single) if not _TAG.fullmatch(tag)), None)
    if wrong is not None:
        raise WheelError(
            f"{wrong!r} is not a wheel tag", tip="a tag is written like cp311-cp311-linux_x86_64"
        )
    columns = zip(*(tag.split("-") for tag in sorted(single)), strict=True)
    parts = []
    for new, before in zip(columns, (like or "--").split("-"), strict=False):
        remaining = [part for part in dict.fromkeys(before.split(".")) if part in new]
        parts.append(".".join([*remaining, *sorted(set(new).difference(remaining))]))
    result = "-".join(parts)
    # A set in a file name stands for every combination of its parts, so not every list of tags has one.
    if not single or set(wheel_info.expand_tags(result)) != single:
        raise WheelError(f"no file name can stand for the tags {', '.join(sorted(single)) or '(none)'}")
    return result


def _names(requirements: Iterable[str]) -> set[str]:
    return set(map(wheel_info.required_name, requirements))


def _with_replaced(headers: Headers, name: str, text: str) -> Headers:
    canonical = canonicalize_name(name)
    if _names([text]) != {canonical}:
        raise WheelError(f"{text!r} cannot replace the requirement of {name}")
    _must_have(headers, {canonical})
    placed = False

    def change(old: str) -> str | None:
        nonlocal placed
        if _names([old]) != {canonical}:
            return old
        first, placed = not placed, True
        return text if first else None

    return headers.mapped(_REQUIRES, change)


def _with_added(headers: Headers, edit: Edit) -> Headers:
    wrong = next((extra for extra in edit.add_extras if not _EXTRA.fullmatch(extra)), None)
    if wrong is not None:
        raise WheelError(f"{wrong!r} is not the name of an extra", tip="write it like device-gfx942")
    extras = {canonicalize_name(extra) for extra in headers.all("Provides-Extra")}
    headers = headers.added(
        "Provides-Extra", (e for e in edit.add_extras if canonicalize_name(e) not in extras)
    )
    present = {str(wheel_info.requirement(text)) for text in headers.all(_REQUIRES)}
    new = [text for text in edit.add_requirements if str(wheel_info.requirement(text)) not in present]
    return headers.added(_REQUIRES, new)


def _must_have(headers: Headers, names: set[str]) -> None:
    missing = names - _names(headers.all(_REQUIRES))
    if missing:
        raise WheelError(
            f"METADATA does not require {', '.join(sorted(missing))}", tip="add the requirement instead"
        )
