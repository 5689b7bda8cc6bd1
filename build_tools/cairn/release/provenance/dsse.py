"""DSSE envelopes, and what one holds for a wheel: an in-toto statement with SLSA provenance.

The statement is that of https://in-toto.io/Statement/v1. Its predicate is https://slsa.dev/provenance/v1, one
of the two that PyPI takes as attestations of an index (PEP 740; the other, `publish/v1`, has no content), so
that tools which know nothing of Cairn read who built the file of which commits. What SLSA has no place for is
in the annotations of a by-product that stands for the set: the index, and the evidence on whose strength it
took the set. Readers that refuse unknown fields take annotations; an extension field, as it was once, they do
not.

One and the same wheel gives the same bytes each time: there is no time in them, so a command that is run
again after a crash signs nothing new.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from cairn import datafile
from cairn.errors import StoreError, UsageError
from cairn.formats import in_toto
from cairn.formats.in_toto import PREDICATE_TYPE, STATEMENT_TYPE, Resource
from cairn.release.index.generation import IndexSet
from cairn.release.trust.signers import PublicKeys, Signer
from cairn.wheels import build_statement
from cairn.wheels.build_statement import BUILD_TYPE, Builder, Source
from cairn.wheels.wheelset import PARAMETERS, WheelSet

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


class Signed(msgspec.Struct, frozen=True, kw_only=True):
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
        candidates = [signature.keyid] if signature.keyid else list(keys)
        key_ids += [key for key in candidates if key in keys and keys[key].holds(raw, message)]
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


def _decoded(text: str, subject: str) -> bytes:
    # "Either standard or URL-safe base64 encodings are allowed … verifiers MUST accept either" (protocol.md).
    standard = text.replace("-", "+").replace("_", "/")
    try:
        data = base64.b64decode(standard, validate=True)
    except (binascii.Error, ValueError) as error:
        raise SignatureError(f"{subject} is not base64", tip=_RESTORE) from error
    # Unused bits of the last digit would let one text be changed into another with the same meaning.
    if base64.b64encode(data).decode() != standard:
        raise SignatureError(f"{subject} is not base64 as anybody writes it", tip=_RESTORE)
    return data


class Claims(msgspec.Struct, frozen=True, kw_only=True):
    """The claims of a statement.

    Attributes:
        file_name, sha256: of the wheel.
        parameters: stack, line, Python, platform, family and targets (joined by `;`) of the set.
        manifest_sha256: of the manifest that it was built from.
        sources: the projects of that manifest with their commits, in its order.
        set_id: the set that it is of.
        index: the index that offers it.
        records: digests of the test records that let it in, sorted.
        judgement: digest of what the gate found; None where no gate was asked.
        built: digest of the builder's statement about the set; None in what an earlier Cairn signed.
        untested: why it is there without a passed test, or on what it was not tested; None for a tested one.
        builder: who says so.
    """

    file_name: str = ""
    sha256: str = ""
    parameters: Mapping[str, str]
    manifest_sha256: str
    sources: tuple[Source, ...]
    set_id: str
    index: str
    records: tuple[str, ...] = ()
    judgement: str | None = None
    untested: str | None = None
    builder: Builder
    built: str | None = None


class _Release(msgspec.Struct, frozen=True, kw_only=True):
    set: str
    index: str
    records: tuple[str, ...]
    judgement: str | None
    untested: str | None
    built: str | None = None


class _Predicate(in_toto.Predicate, frozen=True, kw_only=True):
    earlier: _Release | None = msgspec.field(name="cairn_release", default=None)


_SET = "set.json"  # the name of the by-product


class _Statement(in_toto.Statement, frozen=True, kw_only=True):
    predicate: _Predicate


def claims_of(
    wheel_set: WheelSet, entry: IndexSet, *, sources: tuple[Source, ...], index: str, builder: Builder
) -> Claims:
    """The claims about every wheel of a set; the wheel's name and digest are left empty.

    Args:
        wheel_set: the sealed set.
        entry: the set as the index lists it, with the evidence for it.
        sources: the commits of its manifest.
        index: the name of the index.
        builder: who says so.
    """
    return Claims(
        parameters=wheel_set.parameters,
        manifest_sha256=wheel_set.manifest_sha256,
        sources=sources,
        set_id=wheel_set.id,
        index=index,
        records=tuple(sorted(entry.records)),
        judgement=entry.judgement,
        untested=entry.untested,
        builder=builder,
        built=entry.builder,
    )


def encode(claims: Claims) -> bytes:
    """Encode the statement: JSON in UTF-8, always the same bytes for the same claims."""
    return msgspec.json.encode(
        in_toto.Statement(
            subject=(Resource(name=claims.file_name, digest={"sha256": claims.sha256}),),
            predicate=in_toto.Predicate(
                definition=in_toto.Definition(
                    build_type=BUILD_TYPE,
                    external_parameters=claims.parameters,
                    resolved_dependencies=build_statement.dependencies(
                        claims.manifest_sha256, claims.sources
                    ),
                ),
                details=build_statement.details(claims.builder, byproducts=(_release(claims),)),
            ),
        )
    )


def _release(claims: Claims) -> Resource:
    about = {name: getattr(claims, name) for name in ("index", "records", "judgement", "untested", "built")}
    if claims.built is None:  # what was signed before is signed again with the same bytes
        del about["built"]
    return Resource(name=_SET, digest={"sha256": claims.set_id}, annotations=about)


def _read_release(predicate: _Predicate) -> _Release:
    of_set = [item for item in predicate.details.byproducts if item.name == _SET]
    if predicate.earlier is None and len(of_set) == 1:
        return datafile.convert({**of_set[0].annotations, "set": of_set[0].digest.get("sha256")}, _Release)
    if predicate.earlier is None or of_set:
        raise UsageError("it does not name one set")
    return predicate.earlier


def decode(payload: bytes, *, name: str) -> Claims:
    """Decode a statement of Cairn's. Unknown fields are ignored, as in-toto asks.

    Raises:
        SignatureError: it is not such a statement, or is about more or less than one file.
    """
    try:
        plain = datafile.parse_json(payload, name=name)
        read = datafile.convert(plain, _Statement)
        release = _read_release(read.predicate)
    except (UsageError, msgspec.ValidationError) as error:
        raise SignatureError(f"{name} is not a statement about a wheel of Cairn's: {error}") from error
    definition = read.predicate.definition
    wrong = {
        "its type": (read.type, STATEMENT_TYPE),
        "the type of its predicate": (read.predicate_type, PREDICATE_TYPE),
        "the type of its build": (definition.build_type, BUILD_TYPE),
        "its number of subjects": (len(read.subject), 1),
        # "Verifiers SHOULD reject unrecognized or unexpected fields within externalParameters" (SLSA 1.0).
        "its parameters": (sorted(definition.external_parameters), sorted(PARAMETERS)),
    }
    for field_name, (value, expected) in wrong.items():
        if value != expected:
            raise SignatureError(f"{name}: {field_name} is {str(value)[:200]}, expected {expected}")
    if set(read.subject[0].digest) != {"sha256"}:
        raise SignatureError(f"{name} does not name one wheel and one manifest by their sha256")
    try:
        manifest_sha256, sources = build_statement.read_dependencies(definition.resolved_dependencies)
    except UsageError as error:
        raise SignatureError(f"{name}: {error}") from error
    return Claims(
        file_name=read.subject[0].name,
        sha256=read.subject[0].digest["sha256"],
        parameters=definition.external_parameters,
        manifest_sha256=manifest_sha256,
        sources=sources,
        set_id=release.set,
        index=release.index,
        records=release.records,
        judgement=release.judgement,
        untested=release.untested,
        builder=build_statement.read_builder(read.predicate.details),
        built=release.built,
    )
