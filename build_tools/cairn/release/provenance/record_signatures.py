"""Signatures of test records: each lies beside its record, over the record's very bytes."""

from __future__ import annotations

import hashlib

from cairn import datafile
from cairn.release.index import keys
from cairn.release.provenance import dsse
from cairn.release.provenance.dsse import SignatureError
from cairn.release.provenance.reader import Reader
from cairn.release.provenance.signing_key import Signer
from cairn.release.provenance.trust import Trust
from cairn.store.protocol import MissingKeyError


def sign(record: bytes, signer: Signer) -> bytes:
    """The envelope that lies beside a record."""
    return datafile.dumps(dsse.sign(record, dsse.RECORD, signer)).encode()


def signature_key(set_id: str, digest: str) -> str:
    """Where the signature of a record lies; `digest` is that of the record's bytes."""
    return keys.set_key(set_id, f"records/{digest}.dsse.json")


def signed_by(reader: Reader, set_id: str, record: bytes, trust: Trust) -> tuple[str, ...]:
    """The ids of the trusted keys that signed a record.

    Args:
        reader: what has the signature.
        set_id: the set that the record is of.
        record: its bytes.
        trust: whose word counts.

    Raises:
        SignatureError: it has no signature, no trusted one, or is not what was signed.
    """
    digest = hashlib.sha256(record).hexdigest()
    name = f"the record {digest[:12]}"
    try:
        data = reader.read(signature_key(set_id, digest)).data
    except MissingKeyError as error:
        raise SignatureError(
            f"{name} is not signed", tip="whoever tested adds it with --sign-key: cairn release record add"
        ) from error
    envelope = dsse.loads(data, name=f"the signature of {name}")
    signed = dsse.verify(envelope, dsse.RECORD, {**trust.testers, **trust.keys}, name=name)
    if signed.payload != record:
        raise SignatureError(f"{name} is not what its signature is over")
    return signed.key_ids
