"""What `cairn wheel show` prints: a summary of a wheel, and the tree of what its binaries need."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from msgspec import structs

from cairn.formats import kpack
from cairn.formats.offload import SPLIT_RECORD
from cairn.formats.zip.reader import Archive, Limits, Member
from cairn.output import safe_text
from cairn.targets import in_order
from cairn.wheels.contents import binaries, system_libraries
from cairn.wheels.contents.binaries import Binary, Format
from cairn.wheels.contents.code_archives import CodeArchive, named_targets, read_archives
from cairn.wheels.metadata import wheel_info
from cairn.wheels.metadata.wheel_info import WheelInfo, installed_path

_LONGEST_LINK = 4096
_VERSION_MODULE = re.compile(r"[^/]+/_?version\.py")
_LONGEST_MODULE = 65_536
# As the setup.py of torch, vision and audio write it; some annotate it.
_GIT_VERSION = re.compile(rb"^git_version\s*(?::[^=\n]*)?=\s*[\"']([0-9a-f]{7,64})[\"']", re.MULTILINE)
# In site-packages; where that lies below a prefix, too.
_OF_SITE = re.compile(
    r"(?:.*/(?:site|dist)-packages/)?(?:[^/]+(?P<pth>\.pth)|(?:site|user)customize(?:\.[^/]+|/__init__\.[^/]+))"
)
_PTH_CODE = re.compile(rb"^(?:\xef\xbb\xbf)?(import[ \t].*)", re.MULTILINE)
_LONGEST_SHOWN = 199
Kind: TypeAlias = Literal["host", "device", "variant"]


# What is printed as JSON, in this order.
_SHOWN = (
    *("file_name", "distribution", "version", "build", "variant", "tags", "requires_python", "requires_dist"),
    *("extras", "entry_points", "size", "unpacked_size", "members", "metadata_sha256", "targets", "binaries"),
    *("kind", "archives", "builds", "links", "start_up", "git_version", "named_targets", "record_problems"),
    "unread",
)


@dataclass(frozen=True, kw_only=True)
class Summary(WheelInfo):
    """The summary of one wheel.

    Attributes:
        unpacked_size: bytes of its members, unpacked.
        members: how many there are.
        targets: every target it has device code for.
        binaries: those of Linux, then those of Windows.
        kind: `host` for what is left of a wheel that was split, `device` for nothing but device code,
            `variant` for the first with archives of its own.
        archives: those that it brings for libraries of its host wheel.
        builds: what must be the same of a host wheel and its device wheels; none where it was not split.
        links: its symbolic links and where they lead, as `a -> b`; no wheel may be published that has any.
        start_up: what Python runs of it at each start: code in `.pth` files, and modules that `site` imports.
        git_version: the commit that its version module names (`torch/version.py`); None where there is none.
        named_targets: the targets that file names tell.
        record_problems: where RECORD and the directory of the archive disagree; hashes are not looked at.
        unread: bytes that would have to be fetched to read its binaries and archives, where they were not
            read: then it has none of what they tell; None where they were read.
    """

    unpacked_size: int
    members: int
    targets: tuple[str, ...]
    binaries: tuple[Binary, ...]
    kind: Kind | None
    archives: tuple[CodeArchive, ...]
    builds: tuple[str, ...]
    links: tuple[str, ...]
    start_up: tuple[str, ...]
    git_version: str | None
    named_targets: tuple[str, ...]
    record_problems: tuple[str, ...]
    unread: int | None = None

    def to_plain(self) -> dict[str, Any]:
        """What `cairn wheel show --json` prints: plain values, under names that programs rely on."""
        plain = {"libraries" if name == "binaries" else name: getattr(self, name) for name in _SHOWN}
        if self.unread is not None:  # nothing is known of them, which is not "none"
            return plain | dict.fromkeys(("targets", "libraries", "kind", "archives", "builds"))
        plain["libraries"] = [
            {
                "member": binary.path,
                "machine": binary.machine,
                "size": binary.size,
                "soname": binary.soname,
                "needed": binary.needed,
                "run_paths": binary.run_paths,
                "targets": binary.targets,
                "device_code_size": binary.device_code_size,
                "kpack_search_paths": binary.reference.kpack_search_paths if binary.reference else (),
            }
            for binary in self.binaries
        ]
        plain["archives"] = [structs.asdict(archive) for archive in self.archives]
        return plain


def summarise(wheel: Path) -> Summary:
    """Read a wheel.

    Raises:
        WheelError: it cannot be read.
    """
    wheel_info.parse_file_name(wheel.name, variants_too=True)
    with Archive.open(wheel, limits=Limits(links=True)) as archive:
        return summarise_archive(archive)


def summarise_archive(archive: Archive) -> Summary:
    """Like `summarise`, of an open archive; without its binaries where that is on a server."""
    info = wheel_info.read_archive(archive, variants_too=True)
    is_remote = archive.raw.is_remote
    read = () if is_remote else binaries.read_archive(archive)
    archives = () if is_remote else read_archives(archive)
    targets = [name for binary in read for name in binary.targets]
    targets += [name for archive in archives for name in archive.targets]
    looked_for = kpack.builds_in(bundle.reference.kernel_name for bundle in read if bundle.reference)
    return Summary(
        **vars(info),
        unpacked_size=sum(member.size for member in archive.members),
        members=len(archive.members),
        targets=in_order(targets),
        binaries=read,
        kind=_kind(read, archives, has_record=f"{info.dist_info}/{SPLIT_RECORD}" in archive),
        archives=archives,
        builds=tuple(sorted({*looked_for, *(name for archive in archives for name in archive.builds)})),
        links=tuple(_link(archive, member) for member in archive.members if member.is_link),
        start_up=tuple(_start_up(archive)),
        git_version=next(_git_versions(archive), None),
        named_targets=named_targets(member.name for member in archive.members),
        record_problems=tuple(_record_problems(archive, info)),
        unread=binaries.packed_size(archive) if is_remote else None,
    )


def _record_problems(archive: Archive, info: WheelInfo) -> Iterator[str]:
    sizes = {member.name: member.size for member in archive.members if not member.is_dir}
    missing, absent = info.unmatched(sizes)
    yield from (f"RECORD does not list {path}" for path in missing)
    yield from (f"RECORD lists {path}, which is not there" for path in absent)
    for row in info.record:
        if row.size is not None and row.path in sizes and sizes[row.path] != row.size:
            yield f"RECORD gives {row.path} {row.size} bytes, and it has {sizes[row.path]}"


def _git_versions(archive: Archive) -> Iterator[str]:
    for member in archive.members:
        if _VERSION_MODULE.fullmatch(member.name) and member.size <= _LONGEST_MODULE and not member.is_link:
            for match in _GIT_VERSION.finditer(archive.read(member.name, limit=_LONGEST_MODULE)):
                yield match[1].decode()


def _start_up(archive: Archive) -> Iterator[str]:
    """What CPython's `site` runs (`addpackage`, `execsitecustomize`): by member, of `.pth` files by line."""
    for member in archive.members:
        if (match := _OF_SITE.fullmatch(installed_path(member.name))) is None or member.is_link:
            continue
        if match["pth"] is None or member.size > _LONGEST_MODULE:
            yield member.name
            continue
        for line in _PTH_CODE.findall(archive.read(member.name, limit=_LONGEST_MODULE)):
            text = safe_text.visible(line.decode("utf-8", "backslashreplace").rstrip())
            yield f"{member.name}: {text[:_LONGEST_SHOWN]}{'…' * (len(text) > _LONGEST_SHOWN)}"


def _kind(libraries: Sequence[Binary], archives: Sequence[CodeArchive], *, has_record: bool) -> Kind | None:
    if has_record or any(binary.reference for binary in libraries):
        return "variant" if archives else "host"
    # Code objects that are files of their own move into a device wheel as they are.
    only_code = all(binary.is_device_code for binary in libraries)
    return "device" if only_code and (libraries or archives) else None


def _link(archive: Archive, member: Member) -> str:
    # PATH_MAX of Linux: a longer target leads nowhere.
    target = archive.read(member.name, limit=_LONGEST_LINK).decode("utf-8", "backslashreplace")
    return f"{member.name} -> {target}"


def needed_tree(binaries: Sequence[Binary]) -> Iterator[str]:
    """The lines of the tree, from the binaries that no other binary needs.

    A library of the wheel is shown with its own needs the first time it comes; the others are marked
    `(system)`, on every Windows or every Linux of the newest manylinux tag, or `(elsewhere)`.
    """
    # What a PE file needs is never an ELF file, whatever its name.
    shipped = {(binary.format, name): binary for binary in binaries for name in binary.names}
    needs = {(binary.format, name) for binary in binaries for name in binary.needed}
    needed = {shipped[need].path for need in needs & shipped.keys()}
    shown: set[str] = set()
    roots = [binary for binary in binaries if binary.path not in needed]
    for binary in (*roots, *binaries):  # what no root leads to needs each other in a circle
        if binary.path not in shown:
            yield from _lines(binary, shipped, shown)


def _lines(root: Binary, shipped: Mapping[tuple[Format, str], Binary], shown: set[str]) -> Iterator[str]:
    """The lines for a binary and everything that it needs; adds the binaries printed to `shown`."""
    yield root.path
    shown.add(root.path)
    # A stack instead of recursion: a wheel may hold a chain that is longer than Python's own stack.
    open_branches = [(root, [*reversed(root.needed)], "")]
    while open_branches:
        owner, names, indent = open_branches[-1]
        if not names:
            open_branches.pop()
            continue
        name = names.pop()
        last = not names
        library = shipped.get((owner.format, name))
        mark = ""
        if library is None:
            on_system = (
                system_libraries.on_windows(name, owner.machine)
                if owner.format == "pe"
                else system_libraries.newest_policy().has(name)
            )
            mark = " (system)" if on_system else " (elsewhere)"
        elif library.needed and library.path in shown:
            mark = " (above)"
        yield f"{indent}{'└── ' if last else '├── '}{name}{mark}"
        if library is not None and library.path not in shown:
            shown.add(library.path)
            open_branches.append(
                (library, [*reversed(library.needed)], indent + ("    " if last else "│   "))
            )
