"""What we sign, as the tools of others read it: in-toto's, PyPA's, Sigstore's, and slsa-verifier's rules."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from google.protobuf.message import Message
from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
from in_toto_attestation.predicates.test_result.v0 import test_result_pb2
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement

from cairn.release import rebuilds
from cairn.release.provenance import attest, dsse, evidence
from cairn.release.provenance.dsse import SignatureError
from cairn.release.rebuilds import Rebuild, RebuiltWheel
from cairn.release.trust.signers import Trust, Workflow
from cairn.wheels.build_statement import Builder
from helpers.provenance import RELEASER, TESTER, Released, released

SDIST = os.environ.get("CAIRN_TEST_ATTESTATIONS")
PREDICATES: Mapping[str, type[Message]] = {
    "https://slsa.dev/provenance/v1": provenance_pb2.Provenance,  # type: ignore[attr-defined]
    "https://in-toto.io/attestation/test-result/v0.1": test_result_pb2.TestResult,  # type: ignore[attr-defined]
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Released:
    return released(tmp_path_factory.mktemp("released"))


def payload(data: bytes) -> bytes:
    """What an envelope is around."""
    return dsse.unverified_payload(dsse.loads(data, dsse.Envelope, name="it"), name="it")


def statements(made: Released) -> Mapping[str, bytes]:
    """One statement of each role."""
    (record,) = made.listed.records
    provenance = json.loads(made.store.objects[made.provenance_key()])["envelopes"][0]
    rebuild = Rebuild(
        set_id=made.made.id,
        manifest_sha256=made.made.manifest_sha256,
        wheels=tuple(
            RebuiltWheel(file_name=one.file_name, sha256=one.sha256, rebuilt="f" * 64)
            for one in made.made.wheels
        ),
        rebuilder="ann",
        finished="2026-11-26T10:00:00Z",
    )
    return {
        "builder": made.store.objects[f"sets/{made.made.id}/builder.json"],
        "promoter": payload(json.dumps(provenance).encode()),
        "tester": payload(made.store.objects[evidence.signature_key(made.made.id, record)]),
        "rebuilder": rebuilds.encode(rebuild, Builder(id="urn:x"), RELEASER.public),
    }


@pytest.mark.parametrize("role", ["builder", "promoter", "tester", "rebuilder"])
def test_in_toto_s_reader_takes_every_statement_and_knows_all_of_its_fields(
    made: Released, role: str
) -> None:
    data = statements(made)[role]
    read = json_format.Parse(data, statement_pb2.Statement())  # type: ignore[attr-defined]
    Statement.copy_from_pb(read).validate()
    plain = json.loads(data)
    json_format.ParseDict(plain["predicate"], PREDICATES[plain["predicateType"]]())
    names = [subject["name"] for subject in plain["subject"]]
    assert len(names) == (1 if role == "promoter" else 2)
    if role in ("builder", "promoter"):  # slsa-verifier refuses a field that in-toto-golang does not know
        assert all(set(subject) == {"name", "digest"} for subject in plain["subject"])


def test_a_record_is_signed_as_a_test_result_and_one_that_was_signed_by_itself_still_counts(
    made: Released,
) -> None:
    (digest,) = made.listed.records
    record = made.store.objects[f"sets/{made.made.id}/records/{digest}.json"]
    predicate = json.loads(statements(made)["tester"])["predicate"]
    assert predicate["result"] == "PASSED"
    assert predicate["configuration"][0]["digest"] == {"sha256": digest}
    trust = Trust(testers={TESTER.key_id: TESTER.public})

    def signers(envelope: dsse.Envelope) -> tuple[str, ...]:
        key = evidence.signature_key(made.made.id, digest)
        kept = made.store.objects[key]
        made.store.objects[key] = attest.datafile.dumps(envelope).encode()
        try:
            return evidence.record_signers(made.store, made.made.id, record, trust)
        finally:
            made.store.objects[key] = kept

    assert signers(dsse.sign(record, dsse.RECORD, TESTER)) == (TESTER.key_id,)
    # A statement of the same key on anything else is no signature of the record.
    for role in ("builder", "promoter", "rebuilder"):
        with pytest.raises(SignatureError, match="is not what its signature is over"):
            signers(dsse.sign(statements(made)[role], dsse.IN_TOTO, TESTER))
    other = statements(made)["tester"].replace(digest.encode(), b"0" * 64)
    with pytest.raises(SignatureError, match="is not what its signature is over"):
        signers(dsse.sign(other, dsse.IN_TOTO, TESTER))


@pytest.mark.skipif(not SDIST, reason="CAIRN_TEST_ATTESTATIONS names no unpacked sdist of pypi-attestations")
def test_what_a_real_workflow_signed_holds_by_the_roots_that_come_with_sigstore() -> None:
    assets = Path(SDIST or "") / "test" / "assets"
    name = "pypi_attestations-0.0.19.tar.gz"
    data = (assets / f"{name}.provenance").read_bytes()
    sha256 = attest.hashlib.sha256((assets / name).read_bytes()).hexdigest()
    trusted = Workflow(repository="trailofbits/pypi-attestations", file="release.yml")

    def refusal(data: bytes = data, workflow: Workflow = trusted, digest: str = sha256) -> str:
        with pytest.raises(SignatureError) as raised:
            attest.vouched(data, Trust(workflows=(workflow,)), kind="pep740", file_name=name, sha256=digest)
        return str(raised.value)

    # Its signature holds; what it says is PyPI's statement about an upload, not one of ours.
    assert "is not a statement about a wheel of Cairn's" in refusal()
    assert "does not vouch for" in refusal(digest="0" * 64)
    assert "does not vouch for" in refusal(workflow=Workflow(repository="evil/fork", file="release.yml"))
    plain: dict[str, Any] = json.loads(data)
    envelope = plain["attestation_bundles"][0]["attestations"][0]["envelope"]
    envelope["signature"] = envelope["signature"][:8] + "AAAA" + envelope["signature"][12:]
    assert "does not vouch for" in refusal(data=json.dumps(plain).encode())
