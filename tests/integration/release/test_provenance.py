"""A release that is signed, through the real gate, and a user who checks it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import pytest

from cairn.cli.main import main
from cairn.release.promote import promote
from cairn.release.provenance import evidence
from cairn.release.provenance.attest import KeyAttester
from cairn.release.publish import stage
from cairn.release.records import NewRecord
from cairn.release.trust import signers
from cairn.release.trust.signers import PRIVATE_NAME, PUBLIC_NAME
from cairn.store.folder import LocalStore
from helpers.gate import data_of, record_of, stack_of
from helpers.provenance import MANIFEST
from helpers.release import audit, make_set, make_wheel, statement_of

pytestmark = pytest.mark.slow


def test_a_signed_release_is_checked_by_whoever_installs_it(store: LocalStore, tmp_path: Path) -> None:
    signers.create(tmp_path / "keys")
    signer = signers.signer(tmp_path / "keys" / PRIVATE_NAME)
    wheels = [
        make_wheel(tmp_path, "torch", "2.9.0"),
        make_wheel(tmp_path, "triton", "2.9.0", requires=["torch==2.9.0"]),
    ]
    given = msgspec.structs.replace(make_set(wheels), manifest_sha256=hashlib.sha256(MANIFEST).hexdigest())
    attester = KeyAttester(signer)
    statement = statement_of(given, wheels, MANIFEST)
    made = stage.stage_set(
        store, "staging", given, wheels, manifest=MANIFEST, statement=statement, attester=attester
    )
    record = data_of(record_of(made))
    done = promote(store, made.id, stack=stack_of(made), records=[NewRecord(data=record)], attester=attester)
    assert done.report_digest is not None
    key = evidence.signature_key(made.id, hashlib.sha256(record).hexdigest())
    store.write(key, evidence.sign_record(record, signer))

    trust = ["--trust", str(tmp_path / "keys" / PUBLIC_NAME)]
    named = [str(path) for path in wheels]
    for index in ("staging", "release"):
        assert main(["index", "verify", *named, "--store", store.url, "--index", index, *trust]) == 0
        assert audit(store, index, hashes=True) == ()
    assert promote(store, made.id, stack=stack_of(made), attester=attester).already_present
    # What the gate has found is part of what was signed.
    judgement = store.path / "sets" / made.id / "judgements" / f"{done.report_digest}.json"
    judgement.write_bytes(judgement.read_bytes().replace(b'"met"', b'"met "'))
    assert main(["index", "verify", *named, "--store", store.url, *trust]) == 9
