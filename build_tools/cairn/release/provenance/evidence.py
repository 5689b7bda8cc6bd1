"""Read the objects in the chain from a wheel to its commits, and check each against what names it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

import msgspec
from msgspec import structs

from cairn import datafile
from cairn.errors import CairnError, StoreError, UsageError
from cairn.formats import in_toto
from cairn.formats.in_toto import Resource
from cairn.output.wording import short_id
from cairn.release.index import keys
from cairn.release.index.generation import FileEntry, IndexSet, decode_pointer, project_of
from cairn.release.index.listing import index_set
from cairn.release.index.snapshot import MANIFEST_FILE, SET_FILE, Index, read_set
from cairn.release.provenance import attest, dsse
from cairn.release.provenance.attest import Vouched
from cairn.release.provenance.dsse import Claims, SignatureError, UntrustedKeyError
from cairn.release.trust.metadata import File
from cairn.release.trust.signers import PublicKeys, Signer, Trust
from cairn.store.protocol import MissingKeyError, Reader, Store, read_named
from cairn.testing import record as test_record
from cairn.testing.record import TestRecord
from cairn.wheels import build_statement, wheelset
from cairn.wheels.build_statement import BuildStatement
from cairn.wheels.wheelset import BUILDER_FILE, PARAMETERS, WheelSet

BUILDER_SIGNATURE = BUILDER_FILE.replace(".json", ".dsse.json")
"""The builder's signature, beside the statement."""

SET_SIGNATURE = "set.dsse.json"
"""The builder's signature on the set as it was sealed, by its id: it has more files than these wheels."""

_RECORD = "record.json"  # its name in the configuration of a test result


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """An index's statements about a file.

    Attributes:
        state: the state of the index that says so, in words.
        file: the file; None where it offers none of that name.
        warning: what the index says of the whole project (PEP 792); None for one that is active.
        sets: the sets that the file came with and the index still has, by id.
        signed: it is what the index's promoter signed of the file alone, without the evidence for its sets,
            which the statements about the file name.
    """

    state: str
    file: FileEntry | None
    warning: str | None = None
    sets: Mapping[str, IndexSet]
    signed: bool = False


@runtime_checkable
class SignedFiles(Reader, Protocol):
    """A reader that knows what a promoter signed of one file; `trust.client.SignedStore` is one."""

    def signed_file(self, index: str, file_name: str) -> File | None:
        """What was signed of a file; None where the whole state has to be read."""


def offer(reader: Reader, index: str, file_name: str) -> Offer:
    """Read what an index says of a file: what a promoter signed of it, else from its pointer on.

    Raises:
        StoreError: the generation that the pointer names, or a part of it, is missing or was changed.
    """
    if isinstance(reader, SignedFiles) and (signed := reader.signed_file(index, file_name)):
        return _signed_offer(reader, index, file_name, signed)
    pointer = decode_pointer(reader.read(keys.state_key(index)).data, name="state.json")
    offering = Index(cast("Store", reader), index, strict=True)  # only what a reader can do is asked
    snapshot = offering.at(offering.generation(pointer.generation, pointer.digest), pointer.digest)
    now, name = snapshot.generation, project_of(file_name)
    state = f"{index}, number {now.number}: {now.action or 'nothing'} by {now.who}, {now.when}"
    if (part := snapshot.project_parts.get(name)) is None:
        return Offer(state=state, file=None, sets={})
    project, file = offering.file(part, name, file_name)
    status = ": ".join(filter(None, (project.status, project.status_reason)))
    return Offer(
        state=state,
        file=file,
        warning=None if project.status == "active" else f"the project {name} is {status}",
        sets={
            set_id: snapshot.set(set_id) for set_id in (file.sets if file else ()) if snapshot.has_set(set_id)
        },
    )


def _signed_offer(reader: Reader, index: str, file_name: str, signed: File) -> Offer:
    """What a promoter signed of a file, as `offer` has it: a few kilobytes, however large the index is."""
    about = signed.about
    marks: dict[str, Any] = {name: getattr(about, name) for name in ("yanked", "failed", "untested")}
    sets, wheel = {}, None
    for set_id in about.sets:
        wheel_set = read_set(cast("Store", reader), set_id)  # it reads no more than a reader can
        wheel = next((wheel for wheel in wheel_set.wheels if wheel.file_name == file_name), wheel)
        sets[set_id] = structs.replace(index_set(wheel_set), added="", **marks)
    file = FileEntry(
        filename=file_name,
        sha256=signed.hashes["sha256"],
        size=signed.length,
        version=wheel.version if wheel else "",
        # These pages say, which nobody signs: `sealed_set` compares the file with the set instead.
        requires_python=wheel.requires_python if wheel else None,
        metadata_sha256=wheel.metadata_sha256 if wheel else None,
        build=next(iter(sets.values())).manifest_sha256 if sets else "",
        provenance=about.provenance,
        provenance_kind=about.kind,
        sets=tuple(sets),
        **marks,
    )
    return Offer(
        state=f"{index}, as its promoter signed it",
        file=file,
        warning=about.status,
        sets=sets,
        signed=True,
    )


def with_evidence(entry: IndexSet, claims: Claims) -> IndexSet:
    """A set of a `signed_offer`, with the evidence that the statement about one of its files names."""
    by = {"records": claims.records, "judgement": claims.judgement, "untested": claims.untested}
    return structs.replace(entry, **by, builder=claims.built)


def vouched(reader: Reader, index: str, file: FileEntry, trust: Trust | None) -> Mapping[str, Vouched]:
    """The statements about a file of an index, by the set each is about.

    Raises:
        StoreError: there are none, the object is missing or was changed, or nobody trusted signed them.
    """
    if file.provenance is None:
        left = "check digests alone: --allow-unsigned"
        if trust is not None and trust.builders is not None and keys.is_gated(index):
            line = f"cairn release promote {short_id(file.sets[0])} --to {index} --again WHO --reason WHY"
            left = f"whoever releases has the gate judge it again: {line}"
        raise StoreError(f"nobody has signed where {file.filename} comes from; {left}")
    key = keys.provenance_key(file.sha256, file.filename, file.provenance)
    data = read_named(reader, key, file.provenance, name=f"the provenance of {file.filename}")
    statements = attest.vouched(
        data, trust, kind=file.provenance_kind, file_name=file.filename, sha256=file.sha256
    )
    return {statement.claims.set_id: statement for statement in statements}


def sealed_set(reader: Reader, entry: IndexSet, file: FileEntry) -> WheelSet:
    """The set that an index lists, checked to have the file among its wheels.

    Raises:
        StoreError: it is missing, was changed, is another set, or does not have the file.
        WheelError: its id is not that of its content.
        UsageError: it cannot be read.
    """
    name = f"the set {short_id(entry.set_id)}"
    data = reader.read(keys.set_key(entry.set_id, SET_FILE)).data
    wheel_set = wheelset.loads(data, name=SET_FILE)
    # The id is of what it says; another spelling of the same would go unnoticed, and only Cairn writes it.
    if wheel_set.set_id != entry.set_id or data != wheelset.dumps(wheel_set):
        raise StoreError(f"set.json was changed: it is not {name}")
    listed_fields = {field: getattr(entry, field) for field in ("manifest_sha256", *PARAMETERS)}
    differing = [field for field, value in listed_fields.items() if getattr(wheel_set, field) != value]
    if entry.projects != {wheel.distribution: wheel.version for wheel in wheel_set.wheels}:
        differing.append("projects")
    if differing:
        raise StoreError(f"{name} and the index say different things of its {', '.join(differing)}")
    wheel = next((w for w in wheel_set.wheels if w.file_name == file.filename), None)
    if wheel is None or (wheel.sha256, wheel.size) != (file.sha256, file.size):
        raise StoreError(f"{name} does not have {file.filename} with sha256 {short_id(file.sha256)}")
    # Installers resolve by these, before they have the file; where no metadata is offered, by the file's own.
    metadata = wheel.metadata_sha256 if file.metadata_sha256 is None else file.metadata_sha256
    offered = (file.version, file.requires_python, metadata, file.build)
    if offered != (wheel.version, wheel.requires_python, wheel.metadata_sha256, wheel_set.manifest_sha256):
        raise StoreError(f"{name} and the index say different things of the metadata of {file.filename}")
    return wheel_set


def builder_statement(reader: Reader, wheel_set: WheelSet) -> BuildStatement:
    """The builder's statement of a set.

    Raises:
        StoreError: the store has no such statement, or it cannot be read.
    """
    return build_statement.decode(of_builder(reader, wheel_set), name=BUILDER_FILE)


def builder_problems(reader: Reader, wheel_set: WheelSet, wheels: Sequence[Path]) -> Iterator[str]:
    """Contradictions of a set and its builder's statement, or of these wheels and the manifest's commits."""
    try:
        statement = of_builder(reader, wheel_set)
        manifest = reader.read(keys.set_key(wheel_set.id, MANIFEST_FILE)).data
    except MissingKeyError:
        yield "its manifest is missing"
    except CairnError as error:
        yield str(error)
    else:
        yield from build_statement.problems(wheel_set, wheels, manifest=manifest, statement=statement)


def trust_in(entry: IndexSet, trust: Trust) -> Trust:
    """Whose word counts for a set of which a promoter of today has signed how an index lists it.

    That signature is over digests of all the evidence, so that keys which the root names no more have added
    nothing to it since. For a set that was yanked, such as for a stolen key, they do not count.
    """
    return trust.with_former() if entry.yanked is None else trust


def builder_signers(
    reader: Reader, wheel_set: WheelSet, trust: Trust, *, entry: IndexSet | None = None
) -> tuple[str, ...]:
    """The ids of the builders' keys that signed the statement about a set; one signed the sealed set, too.

    Args:
        reader: what has the statement.
        wheel_set: the set.
        trust: whose word counts.
        entry: the set as an index lists it, where a promoter of today has signed that: then the keys of
            former builders count for the statement that it names.

    Raises:
        StoreError: there is no statement, no builder that the root names signed it or the set, or it was
            changed.
    """
    name = "the builder's statement"
    data = of_builder(reader, wheel_set)
    if entry is not None and entry.builder == hashlib.sha256(data).hexdigest():
        trust = trust_in(entry, trust)
    of, tip = trust.builders or {}, "whoever built it stages it again: cairn index publish --set --sign-key"
    signers = _signers(reader, keys.set_key(wheel_set.id, BUILDER_SIGNATURE), data, of, name=name, tip=tip)
    # Whoever can write to the store could seal the same wheels with other files.
    key, sealed = keys.set_key(wheel_set.id, SET_SIGNATURE), wheel_set.id.encode()
    _signers(reader, key, sealed, of, name="the set as its builder staged it", tip=tip)
    return signers


def require_builder(reader: Reader, wheel_set: WheelSet, wheels: Sequence[Path]) -> None:
    """Refuse a set if `builder_problems` finds any problem.

    Raises:
        StoreError: it has.
    """
    if problems := tuple(builder_problems(reader, wheel_set, wheels)):
        raise StoreError(
            f"the set {short_id(wheel_set.id)} is not what its builder says: {'; '.join(problems)}"
        )


def of_builder(reader: Reader, wheel_set: WheelSet) -> bytes:
    """The bytes of the builder's statement of a set.

    Raises:
        StoreError: the store has none.
    """
    try:
        return reader.read(keys.set_key(wheel_set.id, BUILDER_FILE)).data
    except MissingKeyError as error:
        raise StoreError("there is no builder's statement: nobody says that they built it") from error


def record(reader: Reader, wheel_set: WheelSet, digest: str) -> tuple[bytes, TestRecord]:
    """A test record of a set, with its bytes.

    Raises:
        StoreError: it is missing, was changed, or is of something else.
        UsageError: it cannot be read.
    """
    title = f"the record {short_id(digest)}"
    data = read_named(reader, keys.set_key(wheel_set.id, f"records/{digest}.json"), digest, name=title)
    test = test_record.loads(data, name=title)
    names = [wheel.file_name for wheel in wheel_set.wheels]
    if test.set_id != wheel_set.set_id:
        raise StoreError(f"{title} is of another set: {short_id(str(test.set_id))}")
    if problem := test_record.disagreement(test, wheel_set.sha256s, names):
        raise StoreError(f"{title} is not of the set: {problem}")
    return data, test


def sign_builder(store: Store, set_id: str, statement: bytes, signer: Signer) -> None:
    """Sign a builder's statement beside its set, in place of another's about the same wheels, and the set."""
    store.write(keys.set_key(set_id, BUILDER_FILE), statement)
    for name, payload, kind in (
        (BUILDER_SIGNATURE, statement, dsse.IN_TOTO),
        (SET_SIGNATURE, set_id.encode(), dsse.SET),
    ):
        envelope = dsse.sign(payload, kind, signer)
        store.write(keys.set_key(set_id, name), datafile.dumps(envelope).encode())


def sign_record(record: bytes, signer: Signer) -> bytes:
    """Sign a record as in-toto's test result on its wheels; return the envelope that lies beside it."""
    read = test_record.loads(record, name="the record")
    result = "PASSED" if read.verdict == "passed" else "FAILED" if read.is_bad else "WARNED"
    statement = in_toto.TestResultStatement(
        subject=tuple(
            Resource(name=wheel.file_name, digest={"sha256": wheel.sha256}) for wheel in read.wheels
        ),
        predicate=in_toto.TestResult(
            result=result,
            configuration=(
                Resource(
                    name=_RECORD,
                    digest={"sha256": hashlib.sha256(record).hexdigest()},
                    annotations={name: getattr(read, name) for name in ("kind", "verdict", "hardware")},
                ),
            ),
        ),
    )
    return datafile.dumps(dsse.sign(msgspec.json.encode(statement), dsse.IN_TOTO, signer)).encode()


def _record_of(payload: bytes, name: str) -> str | None:
    """The digest of the record that a test result is of; None where it is of something else."""
    try:
        read = datafile.convert(datafile.parse_json(payload, name=name), in_toto.TestResultStatement)
    except (UsageError, msgspec.ValidationError):
        return None
    of = [
        resource.digest.get("sha256") for resource in read.predicate.configuration if resource.name == _RECORD
    ]
    types = (read.type, read.predicate_type)
    return of[0] if len(of) == 1 and types == (in_toto.STATEMENT_TYPE, in_toto.TEST_RESULT_TYPE) else None


def signature_key(set_id: str, digest: str) -> str:
    """The key of a record's signature; `digest` is that of the record's bytes."""
    return keys.set_key(set_id, f"records/{digest}.dsse.json")


def record_signers(reader: Reader, set_id: str, record: bytes, trust: Trust) -> tuple[str, ...]:
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
    return _signers(
        reader,
        signature_key(set_id, digest),
        record,
        trust.for_records,
        name=f"the record {short_id(digest)}",
        tip="whoever tested adds it with --sign-key: cairn release record add",
    )


def _signers(
    reader: Reader, key: str, data: bytes, trusted: PublicKeys, *, name: str, tip: str
) -> tuple[str, ...]:
    """The ids of the trusted keys whose signature, under `key`, is over these bytes, or a result of them."""
    try:
        signature = reader.read(key).data
    except MissingKeyError as error:
        raise UntrustedKeyError(f"{name} is not signed", tip=tip) from error
    envelope = dsse.loads(signature, dsse.Envelope, name=f"the signature of {name}")
    by_itself = envelope.payload_type in (dsse.RECORD, dsse.SET)
    signed = dsse.verify(envelope, envelope.payload_type if by_itself else dsse.IN_TOTO, trusted, name=name)
    _require_over(envelope, signed.payload, data, name)
    return signed.key_ids


def require_signature_over(signature: bytes, data: bytes, *, name: str) -> None:
    """Refuse an envelope that is damaged, or over other bytes; whose key signed is not asked.

    Raises:
        SignatureError: it cannot be read, or is over something else.
    """
    envelope = dsse.loads(signature, dsse.Envelope, name=f"the signature of {name}")
    _require_over(envelope, dsse.unverified_payload(envelope, name=name), data, name)


def _require_over(envelope: dsse.Envelope, payload: bytes, data: bytes, name: str) -> None:
    by_itself = envelope.payload_type in (dsse.RECORD, dsse.SET)
    if payload != data and (by_itself or _record_of(payload, name) != hashlib.sha256(data).hexdigest()):
        raise SignatureError(f"{name} is not what its signature is over")
