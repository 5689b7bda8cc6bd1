"""Bringing a set into a channel, with an index of its own that holds exactly what it needs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cairn import datafile
from cairn.errors import StoreError
from cairn.release.index import keys
from cairn.release.index.generation import StagedSet
from cairn.release.index.snapshot import Channel
from cairn.release.publish import distribution, rules
from cairn.release.publish.compatibility import Platform
from cairn.release.publish.distribution import Dist
from cairn.release.publish.files import publish_dists
from cairn.release.publish.resolve import closure
from cairn.store.protocol import Store
from cairn.wheels.wheelset import WheelSet

SET_FILE = "set.json"


def stage_set(
    store: Store,
    channel: str,
    wheel_set: WheelSet,
    wheels: Sequence[Path],
    *,
    requirements: Sequence[str] = (),
) -> StagedSet:
    """Publish a set, and an index that holds exactly the set and everything it needs.

    Args:
        store: where the channel lives.
        channel: its name; what the set needs must be in it already.
        wheel_set: the set.
        wheels: its files, wherever they lie.
        requirements: what the set needs besides what it names itself.

    Raises:
        GateError: sets come into the channel through the gate alone, or it is of a different family.
        StoreError: the files are not those of the set, or something that they need is not in the channel.
    """
    rules.refuse_gated(channel)
    rules.refuse_other_family(channel, wheel_set)
    dists = _files_of(wheel_set, wheels)
    target = Channel(store, channel)
    platform = Platform(python=wheel_set.python, tag=wheel_set.platform)
    found = closure(
        target.load(), roots=dists, requirements=(*wheel_set.requirements, *requirements), platform=platform
    )
    if found.missing:
        raise StoreError(
            f"{channel} lacks what the set needs: {'; '.join(map(str, found.missing))}",
            tip="publish it, or fetch it with cairn index mirror",
        )
    refs = tuple(sorted((item.ref for item in dists), key=lambda ref: ref.filename))
    whole = tuple(sorted({*refs, *found.files}, key=lambda ref: ref.filename))
    staged = StagedSet(set_id=wheel_set.set_id, wheels=refs, closure=whole)
    publish_dists(target, dists, "stage", staged=staged, dry_run=True)  # refuse before anything is written
    # Before the commit, so that a set in the state always has it. If the writer dies here, it lies beside no
    # set until the set is staged again.
    store.write(keys.set_key(channel, wheel_set.set_id, SET_FILE), datafile.dumps(wheel_set).encode())
    publish_dists(target, dists, "stage", staged=staged)
    return target.load().set(wheel_set.set_id)


def read_set(store: Store, channel: str, set_id: str) -> WheelSet:
    """The `set.json` kept beside a set's index."""
    key = keys.set_key(channel, set_id, SET_FILE)
    return datafile.loads(store.read(key).data, WheelSet, name=f"{store.url}/{key}")


def _files_of(wheel_set: WheelSet, wheels: Sequence[Path]) -> tuple[Dist, ...]:
    dists = tuple(distribution.read(path) for path in wheels)
    given = {item.path.name: item.sha256 for item in dists}
    wanted = {wheel.file_name: wheel.sha256 for wheel in wheel_set.wheels}
    wrong = sorted({name for name, _ in given.items() ^ wanted.items()})
    if wrong:
        raise StoreError(
            f"these files are not those of the set: {', '.join(wrong)}",
            tip="give the very files set.json was made of",
        )
    return dists
