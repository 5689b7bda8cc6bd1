"""The provenance of the wheels of a set: written before an index offers them, and read to verify them.

A provenance object lies beside each file and says what is vouched for, and by whom. There are two kinds, and
neither can be taken for the other. Under the identity of a GitHub workflow it is the object of PEP 740
(`pep740`), for every tool that reads those. Elsewhere a key of somebody's own signs, which PEP 740 does not
provide for: then it is `cairn.provenance/1`, plain DSSE envelopes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import msgspec
from msgspec import structs

from cairn import datafile, extras
from cairn.errors import StoreError
from cairn.output.wording import short_id
from cairn.release.index import keys
from cairn.release.index.generation import Attested, FileEntry, IndexSet, ProvenanceKind
from cairn.release.index.snapshot import MANIFEST_FILE, Snapshot
from cairn.release.provenance import dsse
from cairn.release.provenance.dsse import Claims, Envelope, SignatureError, UntrustedKeyError, claims_of
from cairn.release.trust.signers import Signer, Trust
from cairn.store.protocol import Reader, Store, read_named
from cairn.wheels import build_statement
from cairn.wheels.build_statement import Source
from cairn.wheels.wheelset import WheelSet

if TYPE_CHECKING:
    from cairn.release.provenance.pep740 import WorkflowAttester


def attest(
    store: Store,
    wheel_set: WheelSet,
    entry: IndexSet,
    attester: Attester,
    *,
    snapshot: Snapshot,
) -> Mapping[str, Attested]:
    """Vouch for every wheel of a set as an index is about to offer it.

    Writes objects that nothing names yet: the index names them by their digests once it is committed.

    Args:
        store: has the set with its manifest; gets the objects.
        wheel_set: the sealed set.
        entry: the set as the index is going to list it: its evidence is part of what is said.
        attester: who vouches.
        snapshot: the index as it is; what it has of a wheel from other sets stays beside what is new.

    Returns:
        The provenance of each wheel, by file name.

    Raises:
        StoreError: the set's manifest, or what a wheel has already, is missing, was changed, or is of another
            kind.
        NetworkError: Sigstore could not be reached.
    """
    sources, builder = sources_of(store, wheel_set), build_statement.this_builder()
    claims = claims_of(wheel_set, entry, sources=sources, index=snapshot.index.name, builder=builder)
    provenance = {}
    for wheel in wheel_set.wheels:
        present = snapshot.project(wheel.distribution).file(wheel.file_name)
        others = {*present.sets} & {*snapshot.set_ids} - {wheel_set.id} if present else ()
        previous = _previous(store, present, attester.kind) if present and others else None
        wheel_claims = structs.replace(claims, file_name=wheel.file_name, sha256=wheel.sha256)
        data = attester.add(previous, wheel_claims)
        new = hashlib.sha256(data).hexdigest()
        store.write(keys.provenance_key(wheel.sha256, wheel.file_name, new), data)
        provenance[wheel.file_name] = Attested(provenance=new, provenance_kind=attester.kind)
    return provenance


def sources_of(reader: Reader, wheel_set: WheelSet) -> tuple[Source, ...]:
    """The commits that a set was built from.

    Raises:
        StoreError: its manifest is missing or was changed.
    """
    key = keys.set_key(wheel_set.id, MANIFEST_FILE)
    data, name = reader.read(key).data, f"{reader.url}/{key}"
    return build_statement.sources_in(data, sha256=wheel_set.manifest_sha256, name=name)


def _previous(store: Store, file: FileEntry, kind: ProvenanceKind) -> bytes | None:
    """The file's earlier provenance of this kind, with statements about other sets, which stay."""
    if file.provenance is None:
        return None
    if file.provenance_kind != kind:
        raise StoreError(
            f"{file.filename} is also of a set that was signed in another way, which would be lost",
            tip="sign both as a workflow, or both with a key",
        )
    key = keys.provenance_key(file.sha256, file.filename, file.provenance)
    return read_named(store, key, file.provenance, name=f"what others signed for {file.filename}")


class Provenance(datafile.Value, tag_field="schema", tag="cairn.provenance/1"):
    """Statements about one file, each signed by keys of somebody's own; it is not an object of PEP 740.

    Attributes:
        envelopes: one for each set that has the file, with an in-toto statement as its payload.
    """

    envelopes: tuple[Envelope, ...]


class Vouched(msgspec.Struct, frozen=True, kw_only=True):
    """A statement, and its signer.

    Attributes:
        claims: what it says.
        by: the key or the workflow, as text; None where signatures were not asked for.
    """

    claims: Claims
    by: str | None


class KeyAttester(msgspec.Struct, frozen=True):
    """Signs statements with a key.

    Attributes:
        signer: the key.
        kind: of its objects.
    """

    signer: Signer
    kind: ClassVar[ProvenanceKind] = "local-key"

    def add(self, previous: bytes | None, claims: Claims) -> bytes:
        """The provenance object of a file, with these claims in place of earlier ones about the same set.

        Args:
            previous: the object of this kind that the file has, if any.
            claims: what to vouch for.
        """
        others = _of_other_sets(previous, claims) if previous else ()
        envelope = dsse.sign(dsse.encode(claims), dsse.IN_TOTO, self.signer)
        return datafile.dumps(Provenance(envelopes=(*others, envelope))).encode()


Attester: TypeAlias = "KeyAttester | WorkflowAttester"
"""Who signs statements. The `signer` of either signs what a workflow does not: None where there is no key."""


def vouched(
    data: bytes, trust: Trust | None, *, kind: ProvenanceKind | None, file_name: str, sha256: str
) -> Sequence[Vouched]:
    """The statements in a provenance object, each with its signer.

    Args:
        data: the object.
        trust: whose word counts; None asks for no signature.
        kind: what the index calls it.
        file_name: of the file that it lies beside.
        sha256: of that file.

    Raises:
        SignatureError: it is of another kind, nobody who is trusted signed, a statement was changed, or is
            about another file.
        UsageError: it is not JSON.
        PrerequisiteError: it is of PEP 740, and the extra `sign` is missing.
    """
    name = f"the provenance of {file_name}"
    plain = datafile.parse_json(data, name=name)
    is_pep740 = isinstance(plain, dict) and "attestation_bundles" in plain and "schema" not in plain
    if is_pep740 != (kind == "pep740") or kind is None:
        text = f"{name} is {'' if is_pep740 else 'not '}an object of PEP 740, and the index calls it {kind}"
        raise SignatureError(text)
    vouchers: Sequence[Vouched]
    if is_pep740:
        extras.demand("sign")
        from cairn.release.provenance import pep740  # noqa: PLC0415 - half a second, and an extra

        statements = pep740.statements(data, trust, file_name=file_name, sha256=sha256)
        vouchers = [Vouched(claims=dsse.decode(payload, name=name), by=by) for payload, by in statements]
    else:
        vouchers = _by_keys(dsse.loads(data, Provenance, name=name).envelopes, trust, name)
    if not vouchers:
        raise SignatureError(f"{name} holds no statement")
    for voucher in vouchers:
        claims = voucher.claims
        if (claims.file_name, claims.sha256) != (file_name, sha256):
            text = f"{name} is about {claims.file_name[:200]} with sha256 {short_id(claims.sha256)}"
            raise SignatureError(f"{text}, not about this file with {short_id(sha256)}")
    sets = [voucher.claims.set_id for voucher in vouchers]
    if len(set(sets)) != len(sets):
        raise SignatureError(f"{name} has two statements about one set")
    return vouchers


def _by_keys(envelopes: Sequence[Envelope], trust: Trust | None, name: str) -> Sequence[Vouched]:
    """The statements that a trusted key signed; others may have signed for sets of their own."""
    vouchers, strange = [], None
    for envelope in envelopes:
        try:
            if trust is None:
                payload, by = dsse.unverified_payload(envelope, name=name), None
            else:
                signed = dsse.verify(envelope, dsse.IN_TOTO, trust.keys, name=name)
                payload, by = signed.payload, f"key {', '.join(key[:16] for key in signed.key_ids)}"
        except UntrustedKeyError as error:
            strange = error
        else:
            vouchers.append(Vouched(claims=dsse.decode(payload, name=name), by=by))
    if strange is not None and not vouchers:
        raise strange
    return vouchers


def _of_other_sets(previous: bytes, claims: Claims) -> Sequence[Envelope]:
    name = f"the provenance of {claims.file_name}"

    def set_id(envelope: Envelope) -> str:
        return dsse.decode(dsse.unverified_payload(envelope, name=name), name=name).set_id

    envelopes = dsse.loads(previous, Provenance, name=name).envelopes
    return [envelope for envelope in envelopes if set_id(envelope) != claims.set_id]
