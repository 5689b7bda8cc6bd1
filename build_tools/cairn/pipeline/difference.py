"""What changed between two sets, or between the sets of two nights: wheel by wheel, with the manifests."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeAlias

import msgspec

from cairn import datafile
from cairn.errors import StoreError, UsageError, WheelError
from cairn.output import Progress
from cairn.output.wording import short_id
from cairn.pipeline import bisect
from cairn.release.index import keys
from cairn.release.index.generation import IndexSet
from cairn.release.index.reading import read_current
from cairn.release.index.snapshot import MANIFEST_FILE, Index, Snapshot, missing, read_set, whole_id
from cairn.sources.manifest import changelog, manifest
from cairn.sources.manifest.changelog import Changelog
from cairn.sources.manifest.manifest import Manifest
from cairn.store.protocol import Store, read_or_none
from cairn.wheels import wheelset
from cairn.wheels.interface import difference
from cairn.wheels.interface.changes import Delta, change
from cairn.wheels.interface.difference import Difference
from cairn.wheels.wheelset import SetWheel, WheelSet


class SetDifference(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between two sets.

    Attributes:
        title: which they are of: `release/2.9 3.11 linux_x86_64 gfx110X-all`.
        before, after: the beginnings of their ids, or what they are called where they are open.
        distributions: those that only one has.
        same: those whose wheels have the same bytes.
        wheels: what changed of the others.
        closure: the files that are installed with them.
        changes: what changed between the manifests; None where one of them is not at hand.
    """

    title: str
    before: str
    after: str
    distributions: Delta
    same: tuple[str, ...]
    wheels: tuple[Difference, ...]
    closure: Delta
    changes: Changelog | None


_Side: TypeAlias = tuple[str, WheelSet, Manifest | None, Callable[[SetWheel], AbstractContextManager[Path]]]
"""One of the two: its name, the set, its manifest, and what opens a wheel of it."""


def of_files(old: Path, new: Path, *, python: bool, commits: bool, say: Progress) -> SetDifference:
    """Compare two `set.json` that lie beside their wheels, and beside a `manifest.json` where there is one.

    Raises:
        WheelError: a wheel is missing, cannot be read, or is not the one of its set.
    """
    return _between(_on_disk(old), _on_disk(new), python=python, commits=commits, say=say)


def in_store(  # noqa: PLR0913 - an index, two names of sets, and what to look at
    store: Store, index: str, old: str, new: str, *, python: bool, commits: bool, say: Progress
) -> Iterator[SetDifference]:
    """Compare sets of an index, each as soon as it is asked for.

    Args:
        store: where the index lives.
        index: its name.
        old: the beginning of a set's id, or a date: the last sets of that day or before, one of each kind.
        new: likewise.
        python: whether to compare public Python names.
        commits: whether to name the commits between.
        say: progress callback.

    Raises:
        StoreError: the index has no such sets.
        UsageError: no two of them are of one Python, platform and family.
    """
    snapshot = read_current(Index(store, index))
    if not snapshot.exists:
        raise missing(store, index)
    first, last = _sets_of(snapshot, old, index), _sets_of(snapshot, new, index)
    # One set against one: whatever they are of. Several: those of one kind.
    pairs = (
        [(next(iter(first.values())), next(iter(last.values())))]
        if len(first) == len(last) == 1
        else [(first[kind], last[kind]) for kind in sorted(first.keys() & last.keys())]
    )
    if not pairs:
        raise UsageError(
            "the two have no sets of one line, family, Python and platform", tip="name two sets by their ids"
        )
    for a, b in pairs:
        if a.set_id == b.set_id and len(pairs) > 1:
            continue
        yield _between(
            _stored(store, a.set_id), _stored(store, b.set_id), python=python, commits=commits, say=say
        )


def _sets_of(snapshot: Snapshot, text: str, index: str) -> Mapping[tuple[str, ...], IndexSet]:
    moment = bisect.moment_of(text)
    if moment is None:
        wheel_set = snapshot.set(whole_id(text, snapshot))
        return {bisect.kind_of(wheel_set): wheel_set}
    every = sorted(snapshot.sets(), key=lambda wheel_set: (wheel_set.added, wheel_set.set_id))
    newest = {
        bisect.kind_of(wheel_set): wheel_set for wheel_set in every if bisect.added_before(wheel_set, moment)
    }
    if not newest:
        raise StoreError(f"{index} has no set of {text} or before", tip="see cairn release log")
    return newest


def _stored(store: Store, set_id: str) -> _Side:
    stored = read_or_none(store, key := keys.set_key(set_id, MANIFEST_FILE))
    frozen = datafile.loads(stored.data, Manifest, name=f"{store.url}/{key}") if stored else None
    return (
        short_id(set_id),
        read_set(store, set_id),
        frozen,
        lambda wheel: store.as_file(keys.file_key(wheel.sha256, wheel.file_name)),
    )


def _on_disk(path: Path) -> _Side:
    wheel_set = wheelset.read(path)
    beside = path.parent / MANIFEST_FILE

    def file(wheel: SetWheel) -> AbstractContextManager[Path]:
        place = path.parent / wheel.file_name
        if not place.is_file():
            raise WheelError(f"{path} names {wheel.file_name}, which is not beside it", tip="put it there")
        return contextlib.nullcontext(place)

    name = short_id(wheel_set.set_id) if wheel_set.set_id else str(path)
    return name, wheel_set, manifest.read(beside) if beside.is_file() else None, file


def _between(before: _Side, after: _Side, *, python: bool, commits: bool, say: Progress) -> SetDifference:
    old_name, old_set, old_manifest, open_old = before
    new_name, new_set, new_manifest, open_new = after
    old = {wheel.distribution: wheel for wheel in old_set.wheels}
    new = {wheel.distribution: wheel for wheel in new_set.wheels}
    both = [name for name in new if name in old]
    differing = [name for name in both if old[name].sha256 != new[name].sha256]
    wheels = []
    for name in differing:
        say(f"{name} {old[name].version} and {new[name].version}")
        with open_old(old[name]) as first, open_new(new[name]) as second:
            wheels.append(difference.diff(first, second, python=python))
    changes = None
    if old_manifest and new_manifest:
        changes = changelog.between(old_manifest, new_manifest, commits=commits, say=say)
    parts = (new_set.line, new_set.python, new_set.platform, new_set.family)
    return SetDifference(
        title=" ".join(parts),
        before=old_name,
        after=new_name,
        distributions=change(old, new),
        same=tuple(name for name in both if name not in differing),
        wheels=tuple(wheels),
        closure=change(
            (file.file_name for file in old_set.closure), (file.file_name for file in new_set.closure)
        ),
        changes=changes,
    )
