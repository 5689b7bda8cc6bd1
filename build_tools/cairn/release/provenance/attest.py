"""Statements about every wheel of a set, written beside the wheels before an index offers them."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Protocol

from cairn.errors import StoreError
from cairn.release.index import keys
from cairn.release.index.generation import FileEntry, IndexSet, ProvenanceKind
from cairn.release.index.snapshot import MANIFEST_FILE, Snapshot
from cairn.release.provenance.attested import Attested
from cairn.release.provenance.statement import Claims, claims_of
from cairn.store.protocol import Store
from cairn.wheels import build_statement
from cairn.wheels.wheelset import WheelSet


class Attester(Protocol):
    """Who vouches: `objects.KeyAttester` or `pep740.WorkflowAttester`."""

    kind: ProvenanceKind

    def add(self, previous: bytes | None, claims: Claims) -> bytes:
        """The provenance object of a file with these claims instead of earlier ones about the same set.

        Args:
            previous: the object of this kind that the file has, if any.
            claims: what to vouch for.
        """


def attest(
    store: Store,
    wheel_set: WheelSet,
    listed: IndexSet,
    attester: Attester,
    *,
    snapshot: Snapshot,
) -> Mapping[str, Attested]:
    """Vouch for every wheel of a set as an index is about to offer it.

    Writes objects that nothing names yet: the index names them by their digests once it is committed.

    Args:
        store: has the set with its manifest; gets the objects.
        wheel_set: the sealed set.
        listed: the set as the index is going to list it: its evidence is part of what is said.
        attester: who vouches.
        snapshot: the index as it is; what it has of a wheel from other sets stays beside what is new.

    Returns:
        The provenance of each wheel, by file name.

    Raises:
        StoreError: the set's manifest, or what a wheel has already, is missing, was changed, or is of another
            kind.
        NetworkError: Sigstore could not be reached.
    """
    key = keys.set_key(wheel_set.id, MANIFEST_FILE)
    sources = build_statement.sources_in(
        store.read(key).data, sha256=wheel_set.manifest_sha256, name=f"{store.url}/{key}"
    )
    claims = claims_of(
        wheel_set, listed, sources=sources, index=snapshot.index.name, builder=build_statement.this_builder()
    )
    provenance = {}
    for wheel in wheel_set.wheels:
        present = snapshot.project(wheel.distribution).file(wheel.file_name)
        others = {*present.sets} & {*snapshot.set_ids} - {wheel_set.id} if present else ()
        previous = _previous(store, present, attester.kind) if present and others else None
        own = dataclasses.replace(claims, file_name=wheel.file_name, sha256=wheel.sha256)
        data = attester.add(previous, own)
        new = hashlib.sha256(data).hexdigest()
        store.write(keys.provenance_key(wheel.sha256, wheel.file_name, new), data)
        provenance[wheel.file_name] = Attested(provenance=new, provenance_kind=attester.kind)
    return provenance


def _previous(store: Store, file: FileEntry, kind: ProvenanceKind) -> bytes | None:
    """What is vouched for the file as one of other sets, which stays."""
    if file.provenance is None:
        return None
    if file.provenance_kind != kind:
        raise StoreError(
            f"{file.filename} is also of a set that was signed in another way, which would be lost",
            tip="sign both as a workflow, or both with a key",
        )
    data = store.read(keys.provenance_key(file.sha256, file.filename, file.provenance)).data
    if hashlib.sha256(data).hexdigest() != file.provenance:
        raise StoreError(
            f"the provenance of {file.filename} was changed: what others signed for it would be lost",
            tip="restore it from a copy of the store",
        )
    return data
