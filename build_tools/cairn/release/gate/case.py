"""A case for the gate: a set, its source and target, and its files on this machine."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from packaging.utils import canonicalize_name

from cairn.release.index import keys
from cairn.release.index.generation import FileRef
from cairn.release.index.listing import change_to_promote, index_set
from cairn.release.index.snapshot import Snapshot
from cairn.release.publish.mirror_lock import MirrorLock
from cairn.release.trust.signers import Trust
from cairn.release.weighing import Bypass, SetRecords
from cairn.stack import Project, Stack
from cairn.store import transfer
from cairn.store.protocol import Store
from cairn.targets import CPU, parse_target_id
from cairn.wheels.metadata import device_names
from cairn.wheels.wheelset import SetWheel, WheelSet


@dataclass(frozen=True, kw_only=True)
class Case:
    """What the gate judges, and by which stack, records and lock.

    Attributes:
        source: the index that has the set.
        target: the index that is to have it.
        wheel_set: the set.
        stack: the stack that it must be of, on its release line.
        set_records: its test records, and the answers to failed ones.
        trust: whose word counts; a builder's is asked for where its builders are named.
        bypass: the statement of a named user that replaces a passed record.
        mirror_lock: what a mirror may hold, by hash; None asks for no lock.
        python: the interpreter to install with; None takes one that is at hand.
        moment: now.
    """

    source: Snapshot
    target: Snapshot
    wheel_set: WheelSet
    stack: Stack
    set_records: SetRecords = field(default_factory=SetRecords)
    trust: Trust | None = None
    bypass: Bypass | None = None
    mirror_lock: MirrorLock | None = None
    python: Path | None = None
    moment: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def store(self) -> Store:
        """The store that holds both indexes."""
        return self.source.index.store

    @property
    def staged(self) -> str:
        """When the set was staged; empty where it was promoted by an earlier Cairn, which did not say."""
        entry = self.source.set(self.wheel_set.id)
        return entry.staged or ("" if keys.is_gated(self.source.index.name) else entry.added)

    @functools.cached_property
    def after(self) -> Snapshot:
        """`target` as it would be after the promotion."""
        entry = index_set(self.wheel_set)
        return self.target.with_change(
            change_to_promote(self.source, self.target, self.wheel_set, entry=entry)
        )

    def project_of(self, wheel: SetWheel) -> Project | None:
        """The stack's project that builds a wheel of the set; for a device wheel, that of its host wheel."""
        makers = [
            project
            for project in self.stack.projects
            if wheel.distribution == canonicalize_name(project.distribution)
            or device_names.processor_of(wheel.distribution, project.distribution)
        ]
        # Of `torch` and `my-torch`, both of which a name may end with, the longer one.
        return max(makers, key=lambda project: len(project.distribution), default=None)

    def code_of(self, wheel: SetWheel) -> tuple[str, ...]:
        """The targets that a wheel must have device code for; `("cpu",)` if it must have none.

        This does not rely on `set.json`: anybody who seals a set again can have it say anything.
        """
        project = self.project_of(wheel)
        if self.wheel_set.for_cpu or project is None or not project.device_code:
            return (CPU,)
        if (processor := self.processor_of(wheel)) is not None:
            return tuple(t for t in self.wheel_set.targets if parse_target_id(t).processor == processor)
        devices = (wheel for wheel in self.wheel_set.wheels if self.processor_of(wheel) is not None)
        split = any(self.project_of(device) == project for device in devices)
        return (CPU,) if split else self.wheel_set.targets

    def processor_of(self, wheel: SetWheel) -> str | None:
        """The processor that a device wheel of the set has code for; None for any other wheel."""
        project = self.project_of(wheel)
        return device_names.processor_of(wheel.distribution, project.distribution) if project else None


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a set on this machine.

    Attributes:
        paths: file name to the file.
        missing: file name to why it cannot be read.
    """

    paths: Mapping[str, Path]
    missing: Mapping[str, str]


@contextlib.contextmanager
def opened(case: Case) -> Iterator[Files]:
    """Make every file that the set installs available until the block ends."""
    by_name = {name: keys.file_key(sha256, name) for name, sha256 in sorted(case.wheel_set.sha256s.items())}
    missing = {
        name: f"{name} is missing from the store: no {key}"
        for name, key in by_name.items()
        if not case.store.exists(key)
    }
    present = [key for name, key in by_name.items() if name not in missing]
    with transfer.as_files(case.store, present) as paths:
        yield Files(paths={path.name: path for path in paths.values()}, missing=missing)


def ref(name: str, sha256: str) -> FileRef:
    """A reference to exactly one file."""
    return FileRef(filename=name, sha256=sha256)
