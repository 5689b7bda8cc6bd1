"""What a channel holds, as it is stored: one small mutable object that names immutable parts."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from packaging.version import Version

from cairn import jsonfile
from cairn.errors import StoreError, UsageError

ProjectStatus = Literal["active", "archived", "quarantined", "deprecated"]
"""The statuses of PEP 792."""


@dataclass(frozen=True, kw_only=True)
class FileRef:
    """Exactly one file: a name and the sha256 of its bytes."""

    filename: str
    sha256: str


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """A file as a channel offers it.

    Attributes:
        filename: as pip sees it; it tells project, version and tags.
        sha256: of its bytes, lowercase hex.
        size: in bytes.
        version: of its distribution, as PEP 700 lists it.
        upload_time: when this channel took it, RFC 3339 in UTC (PEP 700).
        requires_python: the specifier in its metadata.
        metadata_sha256: of the metadata offered beside it (PEP 658); None where there is none to rely on.
        yanked: why it was yanked (PEP 592), or None.
        untested: on what it was not tested, and on whose word it is here all the same, or None.
        sets: the ids of the sets it came with.
    """

    filename: str
    sha256: str
    size: int
    version: str
    upload_time: str
    requires_python: str | None = None
    metadata_sha256: str | None = None
    yanked: str | None = None
    untested: str | None = None
    sets: tuple[str, ...] = ()

    @property
    def ref(self) -> FileRef:
        """Name and bytes alone."""
        return FileRef(filename=self.filename, sha256=self.sha256)


@dataclass(frozen=True, kw_only=True)
class ProjectState:
    """All that a channel offers of one project.

    Attributes:
        name: normalised (PEP 503).
        files: sorted by version, then by name.
        status: PEP 792, with `status_reason` where somebody gave one.
    """

    SCHEMA: ClassVar[str] = "cairn.project/1"

    name: str
    files: tuple[FileEntry, ...]
    status: ProjectStatus = "active"
    status_reason: str | None = None

    def file(self, filename: str) -> FileEntry | None:
        """The file of that name."""
        return next((f for f in self.files if f.filename == filename), None)

    def with_files(self, entries: tuple[FileEntry, ...]) -> ProjectState:
        """This project with `entries` added, each in place of one of the same name."""
        merged = {f.filename: f for f in (*self.files, *entries)}
        ordered = sorted(merged.values(), key=lambda f: (Version(f.version), f.filename))
        return dataclasses.replace(self, files=tuple(ordered))


@dataclass(frozen=True, kw_only=True)
class StagedSet:
    """A set in a channel.

    Attributes:
        set_id: sha256 over its wheels' digests.
        wheels: the wheels of the set.
        closure: these and everything they need, directly or not; what the set's own index holds.
        records: digests of the test records that let it in.
        judgement: digest of what the gate found, which is beside its index; None where no gate was asked.
        untested: why it is here without a passed test, or None.
    """

    SCHEMA: ClassVar[str] = "cairn.staged/1"

    set_id: str
    wheels: tuple[FileRef, ...]
    closure: tuple[FileRef, ...]
    records: tuple[str, ...] = ()
    judgement: str | None = None
    untested: str | None = None


@dataclass(frozen=True, kw_only=True)
class Pending:
    """Pages that a committed change has yet to write, in the order to write them."""

    projects: tuple[str, ...]
    sets: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ChannelState:
    """What decides everything else in a channel.

    Projects and sets are named by the digest of their own objects, so that a change reads and writes only
    what it touches, however large the channel is.

    Attributes:
        generation: how often it has changed.
        projects: normalised name -> digest of its `ProjectState`.
        sets: set id -> digest of its `StagedSet`.
        pending: journal entry -> pages still to be written for it.
    """

    SCHEMA: ClassVar[str] = "cairn.state/1"

    generation: int = 0
    projects: Mapping[str, str] = field(default_factory=dict)
    sets: Mapping[str, str] = field(default_factory=dict)
    pending: Mapping[str, Pending] = field(default_factory=dict)


def encode_state(state: ChannelState) -> bytes:
    """The bytes of `state.json`, on one line: a large channel is written in half the time."""
    # The two long mappings are plain already; walking them would cost more than all the rest.
    plain = jsonfile.to_plain(dataclasses.replace(state, projects={}, sets={}))
    plain |= {"projects": dict(state.projects), "sets": dict(state.sets)}
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def decode_state(data: bytes, *, name: str) -> ChannelState:
    """Read what `encode_state` wrote.

    Raises:
        StoreError: it is not JSON, or a project or a set in it has no digest.
        UsageError: it is of another version, or has missing or mistyped fields.
    """
    try:
        plain: Any = jsonfile.parse(data, name=name)
    except UsageError as error:
        tip = "the store was damaged from outside: restore this file from a copy of the store"
        raise StoreError(str(error), tip=tip) from error
    # A general validator needs seconds for the two long mappings, so these are checked here, by hand.
    long = {}
    if isinstance(plain, dict):
        long = {key: plain.pop(key) for key in ("projects", "sets") if key in plain}
    for key, mapping in long.items():
        if not isinstance(mapping, dict) or not all(isinstance(v, str) for v in mapping.values()):
            raise StoreError(
                f"{name}: {key} is not a mapping of names to digests",
                tip="restore this file from a copy of the store",
            )
    return dataclasses.replace(jsonfile.from_plain(plain, ChannelState, name=name), **long)


def encode_object(value: ProjectState | StagedSet) -> tuple[str, bytes]:
    """The digest and the bytes of a part of the state."""
    data = json.dumps(jsonfile.to_plain(value), ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    return hashlib.sha256(data).hexdigest(), data
