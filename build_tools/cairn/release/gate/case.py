"""What the gate judges, with its files at hand."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from packaging.utils import canonicalize_name

from cairn.release.gate.evidence import Bypass
from cairn.release.index import keys
from cairn.release.index.generation import FileRef
from cairn.release.index.snapshot import Snapshot
from cairn.release.publish.mirror_lock import MirrorLock
from cairn.release.publish.wheel_set import index_set, promotion
from cairn.release.records import Kept
from cairn.stack import Project, Stack
from cairn.store import transfer
from cairn.store.protocol import Store
from cairn.targets import CPU, parse_target_id
from cairn.wheels.metadata import device_names
from cairn.wheels.wheelset import SetWheel, WheelSet


@dataclass(frozen=True, kw_only=True)
class Case:
    """What the gate judges.

    Attributes:
        source: the index that has the set.
        target: the index that is to have it.
        wheel_set: the set.
        stack: the stack that it must be of, on its release line.
        kept: its test records, and what was said to them.
        bypass: a named user's word in place of a passed record.
        lock: what a mirror may hold, by hash; None asks for no lock.
        python: the interpreter to install with; None takes one that is at hand.
        moment: now.
    """

    source: Snapshot
    target: Snapshot
    wheel_set: WheelSet
    stack: Stack
    kept: Kept = field(default_factory=Kept)
    bypass: Bypass | None = None
    lock: MirrorLock | None = None
    python: Path | None = None
    moment: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def store(self) -> Store:
        """Where both indexes live."""
        return self.source.index.store

    @functools.cached_property
    def after(self) -> Snapshot:
        """`target` as it will be."""
        entry = index_set(self.wheel_set)
        return self.target.with_change(promotion(self.source, self.target, self.wheel_set, entry=entry))

    @property
    def for_cpu(self) -> bool:
        """Whether the set is for no GPU."""
        return self.wheel_set.targets in ((), (CPU,))

    def project_of(self, wheel: SetWheel) -> Project | None:
        """The project of the stack that a wheel of the set is made by; a device wheel is its host's."""
        makers = [
            project
            for project in self.stack.projects
            if wheel.distribution == canonicalize_name(project.distribution)
            or device_names.processor_of(wheel.distribution, project.distribution)
        ]
        # Of `torch` and `my-torch`, both of which a name may end with, the longer one.
        return max(makers, key=lambda project: len(project.distribution), default=None)

    def code_of(self, wheel: SetWheel) -> tuple[str, ...]:
        """The targets that a wheel must have device code for; `("cpu",)` for one that must have none.

        What `set.json` says of the wheel is not asked: whoever seals a set again may have it say anything.
        """
        project = self.project_of(wheel)
        if self.for_cpu or project is None or not project.device_code:
            return (CPU,)
        if (processor := self.processor_of(wheel)) is not None:
            return tuple(t for t in self.wheel_set.targets if parse_target_id(t).processor == processor)
        devices = (one for one in self.wheel_set.wheels if self.processor_of(one) is not None)
        split = any(self.project_of(device) == project for device in devices)
        return (CPU,) if split else self.wheel_set.targets

    def processor_of(self, wheel: SetWheel) -> str | None:
        """The processor whose code a device wheel of the set has; None for any other wheel."""
        project = self.project_of(wheel)
        return device_names.processor_of(wheel.distribution, project.distribution) if project else None


@dataclass(frozen=True, kw_only=True)
class Files:
    """The files of a set on this machine.

    Attributes:
        paths: file name to the file.
        missing: file name to why it cannot be read.
    """

    paths: Mapping[str, Path]
    missing: Mapping[str, str]


@contextlib.contextmanager
def opened(case: Case) -> Iterator[Files]:
    """Every file that the set installs, at hand until the block ends."""
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
    """Exactly one file."""
    return FileRef(filename=name, sha256=sha256)
