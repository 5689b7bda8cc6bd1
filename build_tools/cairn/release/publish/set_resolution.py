"""Whether an index leads an installer to exactly a set, and how much it reads to get there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cairn.release.index import keys, render
from cairn.release.index.generation import FileRef, project_of
from cairn.release.index.snapshot import Snapshot, refs_of
from cairn.release.publish import distribution
from cairn.release.publish.compatibility import Platform
from cairn.release.publish.resolve import Closure, closure
from cairn.wheels.wheelset import WheelSet


@dataclass(frozen=True, kw_only=True)
class Resolution:
    """What uv makes of a set that is asked for whole, with every extra.

    Attributes:
        problems: a sentence for everything that is missing, and for every file that uv takes and the set does
            not have, or the other way round.
        metadata_bytes: what an installer reads to choose: pages and metadata, and no file.
    """

    problems: tuple[str, ...]
    metadata_bytes: int


def resolve_set(snapshot: Snapshot, wheel_set: WheelSet) -> Resolution:
    """Resolve a set from an index alone, for the set's Python and platform.

    Args:
        snapshot: the index, as it is or as it will be (`Snapshot.with_change`).
        wheel_set: a sealed set, whose files the store has.

    Raises:
        StoreError: requirements that can each be met contradict each other, or metadata was lost.
        UsageError: uv has no name for the platform.
    """
    asked = (*_asked(snapshot, wheel_set), *wheel_set.requirements)
    platform = Platform(python=wheel_set.python, tag=wheel_set.platform)
    found = closure(snapshot, roots=(), requirements=asked, platform=platform)
    missing = [f"{snapshot.index.name} lacks {item}" for item in found.missing]
    return Resolution(
        problems=(*missing, *_differences(found.files, refs_of(wheel_set))),
        metadata_bytes=_bytes_read(snapshot, found),
    )


def _asked(snapshot: Snapshot, wheel_set: WheelSet) -> Iterator[str]:
    """The set's own wheels, each exactly and with all its extras."""
    store = snapshot.index.store
    for wheel in wheel_set.wheels:
        data = store.read(keys.sidecar_key(wheel.sha256, wheel.file_name)).data
        extras = ",".join(distribution.needs_of(data, filename=wheel.file_name).extras)
        yield f"{wheel.distribution}{f'[{extras}]' if extras else ''}=={wheel.version}"


def _differences(taken: Sequence[FileRef], wanted: Sequence[FileRef]) -> Iterator[str]:
    """Where what uv takes is not the set, project by project."""
    names = sorted({project_of(ref.filename) for ref in set(taken) ^ set(wanted)})
    for name in names:
        sides = (
            " and ".join(ref.filename for ref in refs if project_of(ref.filename) == name) or f"no {name}"
            for refs in (taken, wanted)
        )
        instead, of_set = sides
        if instead == of_set:
            yield f"{instead} has other bytes than in the set"
        else:
            yield f"an installer takes {instead}, and the set has {of_set}"


def _bytes_read(snapshot: Snapshot, found: Closure) -> int:
    store, prefix = snapshot.index.store, keys.simple_prefix(snapshot.index.name)
    pages = (render.project_page(snapshot.project(name), prefix=prefix).json for name in found.read)
    sidecars = (keys.sidecar_key(ref.sha256, ref.filename) for refs in found.read.values() for ref in refs)
    return sum(map(len, pages)) + sum(len(store.read(key).data) for key in sidecars)
