"""A store with a set that was released the way it should be: tested, judged, signed."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cairn import datafile
from cairn.release import records
from cairn.release.gate.judgement import Demand, GateReport
from cairn.release.index import keys, listing
from cairn.release.index.generation import IndexSet
from cairn.release.index.snapshot import Change, Index, Snapshot
from cairn.release.provenance import chain, evidence
from cairn.release.provenance.attest import Attester, KeyAttester, attest
from cairn.release.provenance.chain import Report
from cairn.release.publish import stage
from cairn.release.trust.signers import Signer, Trust
from cairn.sources.manifest.manifest import Manifest
from cairn.store.memory import MemoryStore
from cairn.store.protocol import Reader
from cairn.testing.record import Counts
from cairn.wheels.wheelset import WheelSet
from helpers.gate import data_of, record_of
from helpers.release import commit, make_set, make_wheel, projects_of, statement_of


def signer(number: int) -> Signer:
    """A key that is the same in every run."""
    return Signer(Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32))


RELEASER, TESTER, STRANGER = signer(1), signer(2), signer(3)
TRUST = Trust(keys={RELEASER.key_id: RELEASER.public}, testers={TESTER.key_id: TESTER.public})

MANIFEST = Manifest(
    stack="sample",
    line="main",
    projects=projects_of("triton", "torch"),
    targets=("cpu",),
    pythons=("3.11",),
    platform="linux_x86_64",
).canonical()


@dataclass(frozen=True, kw_only=True)
class Released:
    """What there is to check.

    Attributes:
        store: everything, under its keys.
        wheels: the files of the set, torch last.
        made: the sealed set.
        listed: how `release` lists it.
    """

    store: MemoryStore
    wheels: tuple[Path, ...]
    made: WheelSet
    listed: IndexSet

    def check(self, wheel: Path | None = None, trust: Trust | None = TRUST, index: str = "release") -> Report:
        """What a user would find of the torch wheel, or of another."""
        wheel = wheel or self.wheels[-1]
        sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
        return chain.check(self.store, index, file_name=wheel.name, sha256=sha256, trust=trust)

    def over(self, store: Reader) -> Released:
        """The same in another store, of which a check only reads."""
        return dataclasses.replace(self, store=cast("MemoryStore", store))

    def provenance_key(self, index: str = "release") -> str:
        """The key of what an index gives as the provenance of the torch wheel."""
        entry = Index(self.store, index).load().project("torch").file(self.wheels[-1].name)
        assert entry is not None
        assert entry.provenance is not None
        return keys.provenance_key(entry.sha256, entry.filename, entry.provenance)


def released(
    folder: Path,
    *,
    version: str = "2.9.0",
    store: MemoryStore | None = None,
    attester: Attester | None = None,
    tested_by: Signer | None = TESTER,
    target: str = "release",
) -> Released:
    """A set of two wheels, brought through staging into an index."""
    store = store or MemoryStore()
    attester = attester or KeyAttester(RELEASER)
    wheels = (
        make_wheel(folder, "triton", f"3.5.{version[-1]}"),
        make_wheel(folder, "torch", version, requires=[f"triton==3.5.{version[-1]}"]),
    )
    given = msgspec.structs.replace(make_set(wheels), manifest_sha256=hashlib.sha256(MANIFEST).hexdigest())
    statement = statement_of(given, wheels, MANIFEST)
    made = stage.stage_set(
        store, "staging", given, wheels, manifest=MANIFEST, statement=statement, attester=attester
    )
    record = data_of(record_of(made, counts=Counts(passed=3), started="2026-11-22T00:00:00Z"))
    digest = records.add(store, record, name="the record").digest
    if tested_by:
        signature = evidence.sign_record(record, tested_by)
        store.write(evidence.signature_key(made.id, digest), signature)
    report = GateReport(
        set_id=made.id,
        target=target,
        judged="2026-11-22T01:02:03.000000Z",
        demands=(Demand(number=1, name="whole", outcome="met", reason="it is"),),
        untested=(),
    )
    judged = datafile.dumps(report).encode()
    judgement = hashlib.sha256(judged).hexdigest()
    store.write(keys.set_key(made.id, f"judgements/{judgement}.json"), judged)
    listed = msgspec.structs.replace(
        listing.index_set(made),
        records=(digest,),
        judgement=judgement,
        builder=hashlib.sha256(evidence.of_builder(store, made)).hexdigest(),
    )
    offer(store, made, listed, attester, target=target)
    return Released(store=store, wheels=wheels, made=made, listed=listed)


def offer(
    store: MemoryStore,
    made: WheelSet,
    listed: IndexSet,
    attester: Attester | None,
    *,
    target: str = "release",
) -> None:
    """List a set of staging in another index, signed or not."""
    source, there = Index(store, "staging").load(), Index(store, target)
    attested = attest(store, made, listed, attester, snapshot=there.load()) if attester else None

    def plan(now_there: Snapshot) -> Change:
        return listing.change_to_promote(source, now_there, made, entry=listed, attested=attested)

    commit(there, "promote", plan)
