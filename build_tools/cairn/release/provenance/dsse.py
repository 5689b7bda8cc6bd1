"""Signatures over exact bytes: DSSE envelopes (https://github.com/secure-systems-lab/dsse, version 1.0.2).

What is signed is the payload with its type in front of it, so that a signature over a test record can never
be passed off as one over a statement about a wheel. The bytes are in the envelope as they were signed, and
nothing is parsed before its signature holds.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import TypeVar

from cairn import datafile
from cairn.errors import StoreError, UsageError
from cairn.release.trust.signers import PublicKeys, Signer

IN_TOTO = "application/vnd.in-toto+json"
"""The payload type of an in-toto statement, by its specification."""

RECORD = "application/vnd.cairn.record+json"
"""The payload type of a test record by itself, which 0.1 signed."""

SET = "application/vnd.cairn.set+id"
"""The payload type of the id of a sealed set."""

_RESTORE = "get it again from whoever released it; do not install what it is about"
V = TypeVar("V", bound=datafile.Value)

_SHOWN = 16  # digits of a key's id in a message


class SignatureError(StoreError):
    """No trusted signer vouches for these bytes."""


class UntrustedKeyError(SignatureError):
    """None of the keys that the user trusts has signed the bytes, whoever else may have."""


class Signature(datafile.Value):
    """One key's signature.

    Attributes:
        sig: base64.
        keyid: which key made it, as a hint where to look; the key itself decides.
    """

    sig: str
    keyid: str = ""


class Envelope(datafile.Value, rename="camel"):
    """Bytes with signatures over them.

    Attributes:
        payload_type: what the bytes are.
        payload: the bytes, in base64.
        signatures: at least one.
    """

    payload_type: str
    payload: str
    signatures: tuple[Signature, ...]


@dataclass(frozen=True, kw_only=True)
class Signed:
    """A payload with the trusted keys that signed it.

    Attributes:
        payload: the very bytes.
        key_ids: the trusted keys whose signatures hold.
    """

    payload: bytes
    key_ids: tuple[str, ...]


def pae(payload_type: str, payload: bytes) -> bytes:
    """The bytes that a signature is over: DSSE's pre-authentication encoding."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def sign(payload: bytes, payload_type: str, signer: Signer) -> Envelope:
    """Sign these bytes; return an envelope with one signature."""
    sig = base64.b64encode(signer.sign(pae(payload_type, payload))).decode()
    return Envelope(
        payload_type=payload_type,
        payload=base64.b64encode(payload).decode(),
        signatures=(Signature(sig=sig, keyid=signer.key_id),),
    )


def loads(data: bytes, kind: type[V], *, name: str) -> V:
    """Read an envelope, or what is made of such; `name` stands for it in errors.

    Raises:
        SignatureError: it is not one, has a field that DSSE does not have, or a name twice.
    """
    try:
        return datafile.loads(data, kind, name=name)
    except UsageError as error:
        raise SignatureError(f"not an envelope with a signature: {error}", tip=_RESTORE) from error


def verify(envelope: Envelope, payload_type: str, keys: PublicKeys, *, name: str) -> Signed:
    """Return the payload of an envelope, if a trusted key signed it as bytes of this type.

    A signature that names none of the trusted keys is passed over (DSSE allows several signers, of whom we
    need not know each); one that names a trusted key and is not its own is an error, whoever else signed.

    Args:
        envelope: what came with the bytes.
        payload_type: what the caller takes them for.
        keys: the trusted keys.
        name: stands for the envelope in errors.

    Raises:
        SignatureError: it is of another type, no trusted key signed it, or a signature does not hold.
    """
    if envelope.payload_type != payload_type:
        text = f"{name} is signed as {envelope.payload_type[:100]!r}, not as {payload_type}"
        raise SignatureError(text, tip=_RESTORE)
    if not envelope.signatures:
        raise SignatureError(f"{name} has no signature", tip=_RESTORE)
    payload = _decoded(envelope.payload, f"the payload of {name}")
    message = pae(payload_type, payload)
    key_ids = []
    for signature in envelope.signatures:
        raw = _decoded(signature.sig, f"a signature of {name}")
        # The id is optional in DSSE and not authenticated: it narrows the choice, no more.
        named = [signature.keyid] if signature.keyid else list(keys)
        key_ids += [key for key in named if key in keys and keys[key].holds(raw, message)]
        if signature.keyid in keys and signature.keyid not in key_ids:
            raise SignatureError(
                f"{name} is not what key {signature.keyid[:_SHOWN]} signed: it was changed, or is another's",
                tip=_RESTORE,
            )
    if not key_ids:
        signers = ", ".join(s.keyid[:_SHOWN] or "an unnamed key" for s in envelope.signatures)
        raise UntrustedKeyError(
            f"{name} is signed by {signers}, which is not trusted",
            tip="if you know that key to be the releaser's, give its public half: --trust FILE",
        )
    return Signed(payload=payload, key_ids=tuple(dict.fromkeys(key_ids)))


def unverified_payload(envelope: Envelope, *, name: str) -> bytes:
    """The payload of an envelope, with no signature checked: for callers that asked for that.

    Raises:
        SignatureError: they are not base64.
    """
    return _decoded(envelope.payload, f"the payload of {name}")


def _decoded(text: str, what: str) -> bytes:
    # "Either standard or URL-safe base64 encodings are allowed … verifiers MUST accept either" (protocol.md).
    standard = text.replace("-", "+").replace("_", "/")
    try:
        data = base64.b64decode(standard, validate=True)
    except (binascii.Error, ValueError) as error:
        raise SignatureError(f"{what} is not base64", tip=_RESTORE) from error
    # Unused bits of the last digit would let one text be changed into another with the same meaning.
    if base64.b64encode(data).decode() != standard:
        raise SignatureError(f"{what} is not base64 as anybody writes it", tip=_RESTORE)
    return data
