"""mirror.lock.toml: the files of other indexes that the sets of a stack need, each by its sha256.

It is made once, reviewed as a change of the repository, and from then on decides what a mirror may hold:
`mirror_resolve` writes it, `mirror_sync` fetches what it names and says where index and lock differ.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import Version

from cairn import datafile, files, requirements
from cairn.datafile import toml_text
from cairn.errors import UsageError, WheelError
from cairn.release.index.generation import FileRef
from cairn.release.publish.compatibility import Platform
from cairn.stack import Stack
from cairn.wheels.metadata.wheel_info import parse_file_name

FILE = "mirror.lock.toml"
"""Its name, beside the stack.toml."""

_HEADER = """\
# What the sets of this stack need of other indexes, for each Python and platform: bytes, by their sha256.
# `cairn index mirror lock` writes this file; review a change of it like one of the code.
"""
_SHA256 = re.compile("[0-9a-f]{64}")
# The ROCm SDK comes from ROCm alone: who registers one of its names elsewhere must not get into a lock.
_SDK = re.compile(r"rocm(-sdk(-.+)?)?")


class Asked(datafile.Value):
    """What one project, or the user, asks of other indexes.

    Attributes:
        by: the project's canonical name.
        requires: its requirements as its metadata has them, those of the stack's own projects left out.
        extras: its extras, all of which count.
    """

    by: str
    requires: tuple[str, ...]
    extras: tuple[str, ...] = ()


class LockedFile(datafile.Value):
    """A wheel that the mirror may hold.

    Attributes:
        name: the project's canonical name.
        version: as in its file name.
        file_name: its file name.
        sha256: of its bytes, in hex.
        size: in bytes; None where its index does not say (PEP 503 has no place for it).
    """

    name: str
    version: str
    file_name: str
    sha256: str
    size: int | None = None


class MirrorLock(datafile.Value, tag_field="schema", tag="cairn.mirror-lock/1"):
    """What a mirror holds, and for what it was resolved: every one of `pythons` on every one of `platforms`.

    Attributes:
        stack: the name of the stack.
        pythons: versions of Python, such as `3.11`.
        platforms: such as `linux_x86_64`.
        asked: what led to the files.
        files: by project, version and name.
    """

    stack: str
    pythons: tuple[str, ...]
    platforms: tuple[str, ...]
    asked: tuple[Asked, ...] = ()
    files: tuple[LockedFile, ...] = ()


def read(path: Path) -> MirrorLock:
    """Read a lock.

    Raises:
        UsageError: there is none, or it is malformed, or it names what no mirror may hold.
    """
    lock = datafile.read(path, MirrorLock, tip="make it: cairn index mirror lock --stack STACK WHEEL …")
    for file in lock.files:
        if problem := _problem(file):
            raise UsageError(f"{path}: {problem}", tip="restore the file, or make it again")
    counts = collections.Counter(file.file_name for file in lock.files)
    if repeated := next((name for name, count in counts.items() if count > 1), None):
        raise UsageError(f"{path} names {repeated} twice", tip="keep one of the two, or make the lock again")
    places(lock)
    for text in (text for asked in lock.asked for text in asked.requires):
        try:
            requirements.requirement(text)
        except ValueError as error:
            raise UsageError(f"{path}: {error}") from error
    return lock


def of(stack: Stack) -> MirrorLock | None:
    """The lock beside a stack.toml; None where there is none. Raises like `read`."""
    path = path_of(stack)
    return read(path) if path.exists() else None


def write(path: Path, lock: MirrorLock) -> None:
    """Write a lock atomically."""
    files.write_text(path, dumps(lock))


def dumps(lock: MirrorLock) -> str:
    """The text of a lock: a line for each requirement and file, so that a review shows what came and went."""
    lines = [_HEADER, f'schema = "{MirrorLock.__struct_config__.tag}"', f"stack = {toml_text(lock.stack)}"]
    lines += [f"pythons = {_texts(lock.pythons)}", f"platforms = {_texts(lock.platforms)}", "", "asked = ["]
    for asked in lock.asked:
        extras = f"extras = {_texts(asked.extras)}, " if asked.extras else ""
        lines.append(f"    {{ by = {toml_text(asked.by)}, {extras}requires = [")
        lines += [f"        {toml_text(text)}," for text in asked.requires]
        lines.append("    ] },")
    lines += ["]", "", "files = ["]
    for file in lock.files:
        fields = [
            f"{field} = {toml_text(getattr(file, field))}"
            for field in ("name", "version", "file_name", "sha256")
        ]
        fields += [f"size = {file.size}"] if file.size is not None else []
        lines.append(f"    {{ {', '.join(fields)} }},")
    return "\n".join([*lines, "]", ""])


def in_order(locked: Iterable[LockedFile]) -> tuple[LockedFile, ...]:
    """The files as a lock lists them, each once."""
    distinct = {file.file_name: file for file in locked}
    return tuple(sorted(distinct.values(), key=lambda f: (f.name, Version(f.version), f.file_name)))


def changes(old: MirrorLock | None, new: MirrorLock) -> tuple[str, ...]:
    """What a review of `new` should see: files that come, go or change their bytes, a line for each."""
    before = {file.file_name: file.sha256 for file in old.files} if old else {}
    after = {file.file_name: file.sha256 for file in new.files}
    lines = []
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            lines.append(f"- {name}")
        elif name not in before:
            lines.append(f"+ {name}")
        elif before[name] != after[name]:
            lines.append(f"! {name}: other bytes under the same name, sha256 {after[name]}")
    return tuple(lines)


def not_in(lock: MirrorLock, files: Iterable[FileRef]) -> tuple[str, ...]:
    """Which of these files no review has seen: a sentence for each that a lock does not name, or not so."""
    locked = {file.file_name: file.sha256 for file in lock.files}
    return tuple(
        f"{ref.filename} with sha256 {ref.sha256} is not in the lock of the mirror"
        for ref in files
        if locked.get(ref.filename) != ref.sha256
    )


def places(lock: MirrorLock) -> tuple[Platform, ...]:
    """Every Python and platform that a lock covers."""
    return tuple(Platform(python=p, tag=tag) for p in lock.pythons for tag in lock.platforms)


def places_of(stack: Stack) -> tuple[Platform, ...]:
    """Every Python and platform that a stack is for; this one, where it does not say."""
    here = Platform.here()
    pythons, platforms = stack.pythons or (here.python,), stack.platforms or (here.tag,)
    return tuple(Platform(python=python, tag=tag) for python in pythons for tag in platforms)


def path_of(stack: Stack) -> Path:
    """Where the lock of a stack is."""
    return Path(stack.folder, FILE)


def is_of_sdk(name: str) -> bool:
    """Whether a project is part of the ROCm SDK."""
    return _SDK.fullmatch(name) is not None


def lines_for(asked: Iterable[Asked], platform: Platform) -> Iterator[str]:
    """What is asked on a platform: requirements without markers, sorted, each once."""
    lines = set()
    for one in asked:
        for text in one.requires:
            requirement = requirements.requirement(text)
            extras = ("", *one.extras)
            if requirement.marker is None or any(
                requirement.marker.evaluate(platform.markers() | {"extra": extra}) for extra in extras
            ):
                of_it = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
                lines.add(f"{canonicalize_name(requirement.name)}{of_it}{requirement.specifier}")
    yield from sorted(lines)


def _problem(file: LockedFile) -> str | None:
    """Why a file cannot be in a lock."""
    try:
        name = parse_file_name(file.file_name)
    except WheelError as error:
        return str(error)
    if (name.distribution, name.version) != (file.name, file.version):
        return f"{file.file_name} is not of {file.name} {file.version}"
    if not _SHA256.fullmatch(file.sha256):
        return f"what is given for {file.file_name} is not a sha256"
    return f"{file.name} is of the ROCm SDK, which comes from ROCm alone" if is_of_sdk(file.name) else None


def _texts(values: Iterable[str]) -> str:
    return f"[{', '.join(map(toml_text, values))}]"
