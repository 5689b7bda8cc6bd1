"""Read the current state of an index: the one way that commands do it.

A store can have a root (docs/explanation/trust.md). Its promoters then sign every index that users install
from, and what `state.json` names counts for nothing by itself: whoever can write to the store can write that.
The other indexes, such as `staging`, are not signed: what they list is believed by the builder's signature
and the sha256 of each file. Writers take their state from `commit.attempts`, which asks for the promoter's
signature too. `Index.load` returns what lies in the store, whoever wrote it: it is for writers and audits.
"""

from __future__ import annotations

from cairn.output import console
from cairn.release.index import keys
from cairn.release.index.snapshot import Index, Snapshot
from cairn.release.trust import anchor
from cairn.release.trust.metadata import TIMESTAMP
from cairn.store.protocol import read_or_none


def read_current(index: Index) -> Snapshot:
    """Return the current state of an index: where its store has a root, the one that a promoter signed.

    Args:
        index: the index, also one that nothing was published into yet; its store may be read-only.

    Raises:
        DamagedIndexError: the state, or what it names, is lost or was changed.
        MetadataError: the store has another root than this machine asks for, its metadata is not signed or
            has expired, or no promoter has signed a state of the index.
    """
    trusted = anchor.anchor(index.store) if keys.is_gated(index.name) else None
    if trusted is None:
        return index.load()
    if trusted.is_new:
        console.current().warn(
            f"{index.store.url} has the root {trusted.fingerprint}, which this machine sees for the first "
            "time, and trusts from now on: compare it with the published one, or name that with --root"
        )
    from cairn.release.trust.client import SignedStore  # noqa: PLC0415 - python-tuf, for stores with a root

    signed = SignedStore(index.store, trusted)
    # python-tuf keeps the timestamp that this machine has seen: one that is gone since is missed.
    seen_timestamp = trusted.folder / "timestamp.json"
    begun = seen_timestamp.is_file() or read_or_none(index.store, TIMESTAMP) is not None
    if not (begun and signed.has_signed(index.name)) and not (current := index.load()).exists:
        return current
    return signed.current(index)
