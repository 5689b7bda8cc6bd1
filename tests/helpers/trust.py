"""A store with a root: who holds which key, and what somebody with some of them can write."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from cairn.release.trust import anchor, client, metadata, root
from cairn.release.trust.anchor import Anchor
from cairn.release.trust.metadata import TIMESTAMP, Version, sealed
from cairn.release.trust.online import Promoter
from cairn.release.trust.signers import PRIVATE_NAME, Signer, Trust
from cairn.store.memory import MemoryStore
from cairn.store.protocol import Reader, Store
from helpers.provenance import signer

OFFLINE = [signer(number) for number in (11, 12, 13)]
PROMOTER, TIMEKEEPER, BUILDER, TESTER = (signer(number) for number in (21, 22, 23, 24))


def key_file(folder: Path, one: Signer) -> Path:
    """A private key in a file, as `--sign-key` takes it."""
    path = folder / one.key_id[:8] / PRIVATE_NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(one.pem())
    path.chmod(0o600)
    return path


@contextlib.contextmanager
def acting_as(folder: Path, one: Signer) -> Iterator[None]:
    """Sign with a key until the block ends."""
    with anchor.acting(key=key_file(folder, one)):
        yield


def rooted(store: Store, *, threshold: int = 2) -> Anchor:
    """Give a store a root with three offline keys, and a key for each role."""
    named = {
        "promoter": [PROMOTER.public],
        "timestamp": [TIMEKEEPER.public],
        "builder": [BUILDER.public],
        "tester": [TESTER.public],
    }
    return root.publish(store, root.first(OFFLINE, named, threshold))


def trust_of_roles() -> Trust:
    """Whose word counts by that root."""
    keys = [{one.key_id: one.public} for one in (PROMOTER, TESTER, BUILDER)]
    return Trust(keys=keys[0], testers=keys[1], builders=keys[2])


def looked_at(store: Store, trusted: Anchor) -> dict[str, str]:
    """What a promoter names who has looked at a store, and vouches for it as it is now by this root."""
    unsigned = Promoter(store, trusted, former=True).unsigned(root.gated(store))
    return {name: label for name, (label, _) in unsigned.items()}


def somebody_new(
    store: Reader, trusted: Anchor, folder: Path, patch: pytest.MonkeyPatch
) -> client.SignedStore:
    """The store as it is seen by a machine that knows the root, and has never seen the store."""
    patch.setenv("CAIRN_CACHE_DIR", str(folder))
    with anchor.acting(root=trusted.fingerprint):
        own = anchor.anchor(store)
    assert own is not None
    return client.SignedStore(store, own)


def again(store: Reader, seen: client.SignedStore) -> client.SignedStore:
    """The same machine, later."""
    patched = os.environ["CAIRN_CACHE_DIR"]
    os.environ["CAIRN_CACHE_DIR"] = str(seen.anchor.folder.parent.parent)
    try:
        with anchor.acting(root=seen.anchor.fingerprint):
            own = anchor.anchor(store)
    finally:
        os.environ["CAIRN_CACHE_DIR"] = patched
    assert own is not None
    return client.SignedStore(store, own)


def stamp(store: MemoryStore, by: Sequence[Signer], *, snapshot: int, expires: str | None = None) -> None:
    """Write a timestamp that leads to a snapshot, as whoever holds these keys can."""
    old = metadata.opened(store.read(TIMESTAMP).data, metadata.Timestamp, {}, name="it", threshold=0)
    new = msgspec.structs.replace(
        old,
        version=old.version + 1,
        expires=expires or old.expires,
        meta={"snapshot.json": Version(version=snapshot)},
    )
    store.write(TIMESTAMP, sealed(new, *by))
