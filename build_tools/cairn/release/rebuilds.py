"""Verdicts of rebuilders: who built a set again elsewhere, and whether the wheels came out the same.

A verdict is an in-toto statement with the predicate for test results (`formats.in_toto`), in a DSSE envelope
under the key of the rebuilder. It lies beside its set, is create-only, and stays where the set is collected.
What it says of another set, or of other bytes, is worth nothing here: the set and the digest of every wheel
are in what is signed. The public key is in it, too, so that everybody can tell by its id whose it is; the
name beside it is what the rebuilder goes by. Of several verdicts under one key the last one counts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from cairn import datafile
from cairn.errors import CairnError, StoreError, UsageError
from cairn.formats import in_toto
from cairn.formats.in_toto import Resource
from cairn.output.safe_text import require_lines
from cairn.output.wording import short_id
from cairn.release.index import commit, keys, marks, write
from cairn.release.ledger_entries import Event
from cairn.release.provenance import dsse
from cairn.release.provenance.dsse import SignatureError
from cairn.release.trust.signers import PublicKey, Signer
from cairn.store.protocol import Store
from cairn.wheels import build_statement
from cairn.wheels.build_statement import Builder
from cairn.wheels.contents.reproducibility import MemberDifference
from cairn.wheels.wheelset import WheelSet

_PREFIX = "rebuilds/"
_SET, _MANIFEST = "set", "manifest"
_PASSED, _FAILED = "PASSED", "FAILED"


class RebuiltWheel(datafile.Value, omit_defaults=True):
    """A wheel of a set, and what came out when it was built again.

    Attributes:
        file_name: of the released wheel.
        sha256: of the released wheel.
        rebuilt: sha256 of what came out; None where no wheel of that name did.
        same_inputs: whether the rebuild had the very inputs that the builder names; None where the builder
            names none.
        differences: the members that are not the same, and why.
    """

    file_name: str
    sha256: str
    rebuilt: str | None
    same_inputs: bool | None = None
    differences: tuple[MemberDifference, ...] = ()

    @property
    def is_identical(self) -> bool:
        """Whether the same bytes came out."""
        return self.rebuilt == self.sha256


class Rebuild(datafile.Value):
    """A verdict: the wheels of a set beside those of a rebuild.

    Attributes:
        set_id: the set.
        manifest_sha256: of the manifest that was built again.
        wheels: every wheel of the set.
        rebuilder: the name that the rebuilder goes by; the key decides who it is.
        finished: when, RFC 3339 in UTC.
        machine: what it was built on, in the rebuilder's words, by name.
    """

    set_id: str
    manifest_sha256: str
    wheels: tuple[RebuiltWheel, ...]
    rebuilder: str
    finished: str
    machine: Mapping[str, str] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        require_lines(self.rebuilder, what="a rebuilder needs a name", tip="--who WHO")
        datetime.fromisoformat(self.finished)

    @property
    def is_identical(self) -> bool:
        """Whether every wheel came out the same."""
        return all(wheel.is_identical for wheel in self.wheels)


class StoredRebuild(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict in a store.

    Attributes:
        digest: of its envelope.
        rebuild: what it says.
        key_id: the key whose signature holds.
    """

    digest: str
    rebuild: Rebuild
    key_id: str

    @property
    def by(self) -> str:
        """The rebuilder: the name, and the key that decides who it is."""
        return f"{self.rebuild.rebuilder} (key {short_id(self.key_id)})"


def encode(rebuild: Rebuild, builder: Builder, key: PublicKey | None = None) -> bytes:
    """The statement of a verdict, as JSON in UTF-8.

    Args:
        rebuild: the verdict.
        builder: this machine.
        key: of the rebuilder; None where nobody signs.
    """
    same = {wheel.file_name: wheel.is_identical for wheel in rebuild.wheels}
    about = {
        "rebuilder": rebuild.rebuilder,
        "finished": rebuild.finished,
        "machine": dict(rebuild.machine),
        "builder": {"id": builder.id, "version": builder.version},
        **({"key": key.pem().decode()} if key else {}),
    }
    return msgspec.json.encode(
        in_toto.TestResultStatement(
            subject=tuple(
                Resource(
                    name=wheel.file_name,
                    digest={"sha256": wheel.sha256},
                    annotations=_plain(wheel),
                )
                for wheel in rebuild.wheels
            ),
            predicate=in_toto.TestResult(
                result=_PASSED if rebuild.is_identical else _FAILED,
                configuration=(
                    Resource(name=_SET, digest={"sha256": rebuild.set_id}, annotations=about),
                    Resource(name=_MANIFEST, digest={"sha256": rebuild.manifest_sha256}),
                ),
                passed_tests=tuple(name for name, identical in same.items() if identical),
                failed_tests=tuple(name for name, identical in same.items() if not identical),
            ),
        )
    )


def _plain(wheel: RebuiltWheel) -> dict[str, Any]:
    plain = datafile.to_plain(wheel)
    return {name: value for name, value in plain.items() if name not in ("file_name", "sha256")}


def decode(payload: bytes, *, name: str) -> tuple[Rebuild, PublicKey]:
    """Read the statement of a verdict, and the key that it says it is signed with.

    Raises:
        SignatureError: it is not one, or contradicts itself.
    """
    try:
        read = datafile.convert(datafile.parse_json(payload, name=name), in_toto.TestResultStatement)
        rebuild, key = _read(read)
    except (UsageError, msgspec.ValidationError, KeyError, TypeError, ValueError) as error:
        raise SignatureError(f"{name} is not the verdict of a rebuilder: {error}") from error
    if (read.predicate.result == _PASSED) != rebuild.is_identical:
        raise SignatureError(f"{name} contradicts itself: {read.predicate.result[:20]} beside its digests")
    return rebuild, key


def _read(read: in_toto.TestResultStatement) -> tuple[Rebuild, PublicKey]:
    if (read.type, read.predicate_type) != (in_toto.STATEMENT_TYPE, in_toto.TEST_RESULT_TYPE):
        raise UsageError(f"it is of the types {read.type[:100]}, {read.predicate_type[:100]}")
    configuration = {resource.name: resource for resource in read.predicate.configuration}
    about = configuration[_SET].annotations
    key = PublicKey.of_pem(datafile.convert(about["key"], str).encode(), "its key")
    rebuild = Rebuild(
        set_id=configuration[_SET].digest["sha256"],
        manifest_sha256=configuration[_MANIFEST].digest["sha256"],
        wheels=tuple(
            datafile.convert(
                {**resource.annotations, "file_name": resource.name, "sha256": resource.digest["sha256"]},
                RebuiltWheel,
            )
            for resource in read.subject
        ),
        rebuilder=datafile.convert(about["rebuilder"], str),
        finished=datafile.convert(about["finished"], str),
        machine=datafile.convert(about.get("machine", {}), dict[str, str]),
    )
    return rebuild, key


def keep(
    store: Store, wheel_set: WheelSet, rebuild: Rebuild, signer: Signer
) -> tuple[StoredRebuild, str | None]:
    """Sign a verdict, put it beside its set, and have every page of the set say so.

    Returns:
        The verdict, and why the pages do not say so yet: in a store with a root, a rebuilder signs no index.

    Raises:
        StoreError: the verdict is of other wheels than the set's.
    """
    payload = encode(rebuild, build_statement.this_builder(), signer.public)
    data = datafile.dumps(dsse.sign(payload, dsse.IN_TOTO, signer)).encode()
    digest = hashlib.sha256(data).hexdigest()
    earlier = _verified(data, digest, wheel_set, name="the verdict")
    write.create(store, keys.set_key(wheel_set.id, f"{_PREFIX}{digest}.dsse.json"), data)
    why = "; ".join(sentences(rebuild))
    event = Event(
        kind="rebuild", set_id=wheel_set.id, who=earlier.by, when=rebuild.finished, why=why, record=digest
    )
    commit.note_events(store, [event])
    try:
        marks.update_marks(store, wheel_set.id, "record", why=f"rebuilt by {earlier.by}")
    except CairnError as error:
        return earlier, str(error)
    return earlier, None if commit.can_change_gated(store) else commit.LAGGING


def read(store: Store, wheel_set: WheelSet) -> tuple[tuple[StoredRebuild, ...], tuple[str, ...]]:
    """The verdicts beside a set in their order, and what is wrong with those that do not count."""
    verdicts, problems = [], []
    for item in store.list(keys.set_key(wheel_set.id, _PREFIX)):
        digest = item.key.rpartition("/")[2].removesuffix(".dsse.json")
        name = f"the rebuild {short_id(digest)} of the set {short_id(wheel_set.id)}"
        try:
            verdicts.append(_verified(store.read(item.key).data, digest, wheel_set, name=name))
        except CairnError as error:
            problems.append(str(error))
    ordered = sorted(
        verdicts, key=lambda entry: (datetime.fromisoformat(entry.rebuild.finished), entry.digest)
    )
    return tuple(ordered), tuple(problems)


def _verified(data: bytes, digest: str, wheel_set: WheelSet, *, name: str) -> StoredRebuild:
    """A verdict that is what its digest and its signature say, and is of this very set."""
    if hashlib.sha256(data).hexdigest() != digest:
        raise StoreError(f"{name} was changed: its bytes are not those of its digest")
    envelope = dsse.loads(data, dsse.Envelope, name=name)
    rebuild, key = decode(dsse.unverified_payload(envelope, name=name), name=name)
    dsse.verify(envelope, dsse.IN_TOTO, {key.key_id: key}, name=name)
    if (rebuild.set_id, rebuild.manifest_sha256) != (wheel_set.id, wheel_set.manifest_sha256):
        raise StoreError(f"{name} is of another set: {short_id(rebuild.set_id)}")
    sha256_by_name = {wheel.file_name: wheel.sha256 for wheel in wheel_set.wheels}
    if (
        len(rebuild.wheels) != len(sha256_by_name)
        or {w.file_name: w.sha256 for w in rebuild.wheels} != sha256_by_name
    ):
        raise StoreError(f"{name} is about other wheels than the set has")
    return StoredRebuild(digest=digest, rebuild=rebuild, key_id=key.key_id)


def sentences(rebuild: Rebuild) -> Iterator[str]:
    """What came out differently, a sentence for each wheel."""
    for wheel in rebuild.wheels:
        if wheel.is_identical:
            continue
        if wheel.rebuilt is None:
            yield f"{wheel.file_name} did not come out"
            continue
        causes = dict.fromkeys(cause for difference in wheel.differences for cause in difference.causes)
        yield f"{wheel.file_name} differs ({', '.join(causes) or 'unexplained'})"


def agreeing(store: Store, wheel_set: WheelSet, rebuilders: Mapping[str, str]) -> tuple[str, ...]:
    """The names of those rebuilders whose last verdict on a set is that every wheel came out the same.

    Args:
        store: has the set.
        wheel_set: the set.
        rebuilders: whose verdicts count: name to the id of the key.
    """
    verdicts, _ = read(store, wheel_set)
    last = {verdict.key_id: verdict.rebuild for verdict in verdicts}
    return tuple(sorted(n for n, key in rebuilders.items() if key in last and last[key].is_identical))


def disagreeing(store: Store, wheel_set: WheelSet, rebuilders: Mapping[str, str]) -> Iterator[str]:
    """What else there is to know of the rebuilds of a set: other bytes, and verdicts that do not count."""
    verdicts, problems = read(store, wheel_set)
    last = {verdict.key_id: verdict.rebuild for verdict in verdicts}
    for name, key in sorted(rebuilders.items()):
        if key in last and not last[key].is_identical:
            yield f"{name} got other wheels: {'; '.join(sentences(last[key]))}"
    yield from problems
