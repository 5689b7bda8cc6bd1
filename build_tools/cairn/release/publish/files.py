"""Wheels and sdists into a channel: first they are checked, then their bytes put, then the commit is made."""

from __future__ import annotations

import collections
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from packaging.utils import canonicalize_name

from cairn.errors import StoreError
from cairn.release.index import keys, write
from cairn.release.index.commit import ChannelChange, Kind, commit
from cairn.release.index.generation import FileEntry, StagedSet, now
from cairn.release.index.snapshot import Channel, Snapshot
from cairn.release.publish import distribution, rules
from cairn.release.publish.distribution import Dist
from cairn.store.protocol import Store, sha256_of


class NameTakenError(StoreError):
    """A channel has other bytes under that name."""


@dataclass(frozen=True, kw_only=True)
class Published:
    """What publishing did.

    Attributes:
        added: the files that are new in the channel.
        already: names of those that were there, with the same bytes.
    """

    added: tuple[FileEntry, ...]
    already: tuple[str, ...] = ()


def publish(store: Store, channel: str, files: Sequence[Path], *, dry_run: bool = False) -> Published:
    """Offer wheels and sdists in a channel.

    Args:
        store: where the channel lives.
        channel: its name.
        files: the distributions; those that are there with the same bytes are left as they are.
        dry_run: say what would be added, and write nothing.

    Raises:
        GateError: sets come into the channel through the gate alone.
        NameTakenError: a name is taken by other bytes.
        StoreError: a file is neither a wheel nor an sdist.
        WheelError: a wheel is malformed.
    """
    rules.refuse_gated(channel)
    return publish_dists(
        Channel(store, channel), tuple(distribution.read(path) for path in files), "publish", dry_run=dry_run
    )


def publish_dists(
    channel: Channel,
    dists: Sequence[Dist],
    kind: Kind,
    *,
    staged: StagedSet | None = None,
    dry_run: bool = False,
) -> Published:
    """Like `publish`, for distributions that were read already, and with the set that they are."""
    taken = now()
    published = Published(added=())

    def plan(snapshot: Snapshot) -> ChannelChange:
        nonlocal published
        fresh: dict[str, list[FileEntry]] = collections.defaultdict(list)
        needs: dict[str, set[str]] = collections.defaultdict(set)
        already, taken_names = [], []
        for item in dists:
            needs[item.name] |= {str(canonicalize_name(r.name)) for r in item.needs.requires}
            entry = snapshot.project(item.name).file(item.path.name)
            if entry is not None and entry.sha256 != item.sha256:
                taken_names.append(item.path.name)
            wanted = _with_set(entry or _entry(item, taken), staged)
            if entry is None or wanted != entry:
                fresh[item.name].append(wanted)
            else:
                already.append(item.path.name)
        if taken_names:
            raise NameTakenError(
                f"{snapshot.channel.name} has other bytes under {', '.join(sorted(taken_names))}",
                tip="a published name never changes its bytes: build it again under a new version",
            )
        ordered = write.dependencies_first({name: needs[name] for name in fresh})
        added = tuple(entry for name in ordered for entry in fresh[name])
        published = Published(added=added, already=tuple(already))
        return ChannelChange(
            projects=tuple(snapshot.project(name).with_files(tuple(fresh[name])) for name in ordered),
            sets=(staged,) if staged is not None and staged.set_id not in snapshot.state.sets else (),
        )

    plan(channel.load())  # what is refused is refused before anything is written
    if not dry_run:
        # Bytes before names: a page that names a file is only ever written when the file is there.
        _put_files(channel.store, dists)
        commit(channel, kind, plan)
    return published


def _with_set(entry: FileEntry, staged: StagedSet | None) -> FileEntry:
    if staged is None or staged.set_id in entry.sets:
        return entry
    return msgspec.structs.replace(entry, sets=(*entry.sets, staged.set_id))


def _entry(item: Dist, taken: str) -> FileEntry:
    return FileEntry(
        filename=item.path.name,
        sha256=item.sha256,
        size=item.size,
        version=item.version,
        upload_time=taken,
        requires_python=item.requires_python,
        # An sdist that decides late must be built to be known: its PKG-INFO would mislead a resolver.
        metadata_sha256=hashlib.sha256(item.metadata).hexdigest() if item.needs.reliable else None,
    )


def _put_files(store: Store, dists: Sequence[Dist]) -> None:
    for item in dists:
        key = keys.file_key(item.sha256, item.path.name)
        if not _intact(store, key, item.sha256):
            store.put_file(key, item.path)
        sidecar = keys.sidecar_key(item.sha256, item.path.name)
        if not _intact(store, sidecar, hashlib.sha256(item.metadata).hexdigest()):
            store.write(sidecar, item.metadata)


def _intact(store: Store, key: str, sha256: str) -> bool:
    """Whether the store holds just these bytes; damaged ones are repaired by publishing the file again."""
    if not store.exists(key):
        return False
    with store.open(key) as stream:
        return sha256_of(stream) == sha256
