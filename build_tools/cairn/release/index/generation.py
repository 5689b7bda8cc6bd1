"""What a channel holds, as it is stored: one small mutable object that names immutable parts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from packaging.version import Version

from cairn import datafile
from cairn.errors import StoreError, UsageError

ProjectStatus = Literal["active", "archived", "quarantined", "deprecated"]
"""The statuses of PEP 792."""


def now() -> str:
    """The time as RFC 3339 in UTC with microseconds, as PEP 700 has it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class FileRef(datafile.Value):
    """Exactly one file: a name and the sha256 of its bytes."""

    filename: str
    sha256: str


class FileEntry(datafile.Value):
    """A file as a channel offers it.

    Attributes:
        filename: as pip sees it; it tells project, version and tags.
        sha256: of its bytes, lowercase hex.
        size: in bytes.
        version: of its distribution, as PEP 700 lists it.
        upload_time: when this channel took it, RFC 3339 in UTC (PEP 700).
        requires_python: the specifier in its metadata.
        metadata_sha256: of the metadata offered beside it (PEP 658); None where it cannot be relied on.
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


class ProjectState(datafile.Value, tag_field="schema", tag="cairn.project/1"):
    """All that a channel offers of one project.

    Attributes:
        name: normalised (PEP 503).
        files: sorted by version, then by name.
        status: PEP 792, with `status_reason` where one was given.
    """

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
        return msgspec.structs.replace(self, files=tuple(ordered))


class StagedSet(datafile.Value, tag_field="schema", tag="cairn.staged/1"):
    """A set in a channel.

    Attributes:
        set_id: sha256 over its wheels' digests.
        wheels: the wheels of the set.
        closure: these and everything they need, directly or not; what the set's own index holds.
        records: digests of the test records that let it in.
        judgement: digest of what the gate found, which is beside its index; None where no gate was asked.
        untested: why it is here without a passed test, or None.
    """

    set_id: str
    wheels: tuple[FileRef, ...]
    closure: tuple[FileRef, ...]
    records: tuple[str, ...] = ()
    judgement: str | None = None
    untested: str | None = None


class Pending(datafile.Value):
    """Pages that a committed change has yet to write, in the order to write them."""

    projects: tuple[str, ...]
    sets: tuple[str, ...] = ()


class ChannelState(datafile.Value, tag_field="schema", tag="cairn.state/1"):
    """What decides everything else in a channel.

    Projects and sets are named by the digest of their own objects, so that a change reads and writes only
    what it touches, however large the channel is.

    Attributes:
        generation: how often it has changed.
        projects: normalised name -> digest of its `ProjectState`.
        sets: set id -> digest of its `StagedSet`.
        pending: journal entry -> pages still to be written for it.
    """

    generation: int = 0
    projects: Mapping[str, str] = msgspec.field(default_factory=dict)
    sets: Mapping[str, str] = msgspec.field(default_factory=dict)
    pending: Mapping[str, Pending] = msgspec.field(default_factory=dict)


def encode_state(state: ChannelState) -> bytes:
    """The bytes of `state.json`, on one line: a large channel is written in half the time."""
    return json.dumps(datafile.to_plain(state), ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def decode_state(data: bytes, *, name: str) -> ChannelState:
    """Read what `encode_state` wrote.

    Raises:
        StoreError: it is not JSON.
        UsageError: it is of a different version, or has missing or mistyped fields.
    """
    try:
        plain: Any = datafile.parse_json(data, name=name)
    except UsageError as error:
        tip = "the store was damaged from outside: restore this file from a copy of the store"
        raise StoreError(str(error), tip=tip) from error
    return datafile.from_plain(plain, ChannelState, name=name)


def encode_object(value: ProjectState | StagedSet) -> tuple[str, bytes]:
    """The digest and the bytes of a part of the state."""
    # The digest is of these very bytes, so one value must always give the same: no spaces, fields in order.
    data = json.dumps(datafile.to_plain(value), ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    return hashlib.sha256(data).hexdigest(), data
