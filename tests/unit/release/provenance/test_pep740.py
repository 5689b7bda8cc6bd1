"""Attestations of a workflow, by PyPA's implementation and a Sigstore of our own."""

import base64
import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from pypi_attestations import Provenance
from sigstore.sign import Signer
from sigstore.verify import Verifier

from cairn.errors import PrerequisiteError, UsageError
from cairn.release.provenance import attest, pep740
from cairn.release.provenance.dsse import SignatureError
from cairn.release.provenance.pep740 import WorkflowAttester
from cairn.release.trust.signers import Trust, Workflow
from cairn.wheels import build_statement
from cairn.wheels.build_statement import Builder
from helpers.provenance import TESTER, TRUST, Released, released
from helpers.sigstore import OwnSigner, OwnSigstore

WORKFLOW = Workflow(repository="ROCm/TheRock", file="release.yml")
BUILDER = Builder(id="https://github.com/ROCm/TheRock/.github/workflows/release.yml@refs/heads/main")
TRUSTED = Trust(workflows=(WORKFLOW,), testers={TESTER.key_id: TESTER.public})


@pytest.fixture(scope="module")
def sigstore() -> Iterator[OwnSigstore]:
    """In place of the real one, whose roots come with the package."""
    own = OwnSigstore()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            Verifier, "production", lambda *, offline: Verifier(trusted_root=_offline(own, offline))
        )
        patch.setattr(build_statement, "this_builder", lambda: BUILDER)
        yield own


def _offline(own: OwnSigstore, offline: bool) -> Any:  # noqa: FBT001 - as Sigstore names it
    assert offline, "the network was asked for"
    return own.trusted_root()


def attester(signer: OwnSigner, workflow: Workflow = WORKFLOW) -> WorkflowAttester:
    return WorkflowAttester(typing_signer(signer), workflow)


def typing_signer(signer: OwnSigner) -> Signer:
    return signer  # type: ignore[return-value]  # what is used of one


@pytest.fixture(scope="module")
def made(sigstore: OwnSigstore, tmp_path_factory: pytest.TempPathFactory) -> Released:
    signer = sigstore.signer("ROCm/TheRock", "release.yml")
    return released(tmp_path_factory.mktemp("released"), attester=attester(signer))


def provenance(made: Released) -> tuple[bytes, str, str]:
    torch = next(wheel for wheel in made.made.wheels if wheel.distribution == "torch")
    return made.store.objects[made.provenance_key()], torch.file_name, torch.sha256


def check(data: bytes, made: Released, trust: Trust = TRUSTED) -> str:
    _, file_name, sha256 = provenance(made)
    (one,) = attest.vouched(data, trust, kind="pep740", file_name=file_name, sha256=sha256)
    assert one.by is not None
    return one.by


def test_what_a_workflow_signed_is_followed_to_its_commits(made: Released) -> None:
    report = made.check(trust=TRUSTED)
    assert not report.broken
    assert not report.warnings
    texts = {link.name: link.text for link in report.links}
    assert texts["provenance"] == f"signed by github:ROCm/TheRock/release.yml, built by {BUILDER.id}"
    assert len(report.sources) == 2


def test_the_object_is_that_of_pep_740(made: Released) -> None:
    data, _, _ = provenance(made)
    plain = json.loads(data)
    assert plain["version"] == 1
    (bundle,) = plain["attestation_bundles"]
    assert bundle["publisher"]["kind"] == "GitHub"
    assert (bundle["publisher"]["repository"], bundle["publisher"]["workflow"]) == (
        "ROCm/TheRock",
        "release.yml",
    )
    (attestation,) = bundle["attestations"]
    assert set(attestation) == {"version", "verification_material", "envelope"}
    statement = json.loads(base64.b64decode(attestation["envelope"]["statement"]))
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    Provenance.model_validate_json(data)  # raises where it is none


def test_another_workflow_is_not_trusted(made: Released) -> None:
    data, _, _ = provenance(made)
    for other in (
        Workflow(repository="ROCm/TheRock", file="ci.yml"),
        Workflow(repository="evil/TheRock", file="release.yml"),
    ):
        with pytest.raises(SignatureError, match="does not vouch for"):
            check(data, made, Trust(workflows=(other,)))
        assert check(data, made, Trust(workflows=(other, WORKFLOW))) == str(WORKFLOW)
    with pytest.raises(SignatureError, match="no workflow that signs"):
        check(data, made, TRUST)


def test_a_workflow_may_be_trusted_at_one_ref_alone(made: Released) -> None:
    data, _, _ = provenance(made)
    here = Workflow(repository="ROCm/TheRock", file="release.yml", ref="refs/heads/main")
    assert check(data, made, Trust(workflows=(here,))) == str(here)
    for ref in ("refs/heads/mine", "refs/heads/mai", "main", "refs/tags/refs/heads/main"):
        other = Workflow(repository="ROCm/TheRock", file="release.yml", ref=ref)
        with pytest.raises(SignatureError, match="@refs/heads/main does"):
            check(data, made, Trust(workflows=(other,)))


@pytest.mark.parametrize(
    ("repository", "ref", "own", "said"),
    [
        # Anybody may name another workflow as the publisher; the certificate has the true one.
        ("evil/fork", "refs/heads/main", True, "does not vouch for"),
        # The statement says that `main` built it, and a workflow of a branch signed that.
        ("ROCm/TheRock", "refs/heads/mine", True, r"signed that .*@refs/heads/main built"),
        ("ROCm/TheRock", "refs/heads/main", False, "does not vouch for"),
    ],
    ids=["another repository", "another branch", "another Sigstore"],
)
def test_a_workflow_signs_for_itself_alone(
    sigstore: OwnSigstore, tmp_path: Path, *, repository: str, ref: str, own: bool, said: str
) -> None:
    signer = (sigstore if own else OwnSigstore()).signer(repository, "release.yml", ref=ref)
    theirs = released(tmp_path, attester=attester(signer))
    data, _, _ = provenance(theirs)
    assert json.loads(data)["attestation_bundles"][0]["publisher"]["repository"] == "ROCm/TheRock"
    with pytest.raises(SignatureError, match=said):
        check(data, theirs)


def _flip(text: str, at: int = 20, bit: int = 1) -> str:
    raw = bytearray(base64.b64decode(text))
    raw[at] ^= bit
    return base64.b64encode(raw).decode()


ATTACKS: dict[str, Callable[[dict[str, Any]], object]] = {
    "the statement": lambda a: a["envelope"].update(statement=_flip(a["envelope"]["statement"], -20)),
    "the signature": lambda a: a["envelope"].update(signature=_flip(a["envelope"]["signature"])),
    "the certificate": lambda a: a["verification_material"].update(
        certificate=_flip(a["verification_material"]["certificate"], -5)
    ),
    "the promise of the log": lambda a: a["verification_material"]["transparency_entries"][0][
        "inclusionPromise"
    ].update(signedEntryTimestamp=_flip(_entry(a)["inclusionPromise"]["signedEntryTimestamp"])),
    "what the log has": lambda a: _entry(a).update(
        canonicalizedBody=_flip(_entry(a)["canonicalizedBody"], 200)
    ),
    "the time in the log": lambda a: _entry(a).update(integratedTime="1"),
    "a promise less": lambda a: _entry(a).pop("inclusionPromise"),
    "an entry of another kind": lambda a: _entry(a)["kindVersion"].update(version="x"),
    "no signature": lambda a: a["envelope"].update(signature=""),
    "a certificate of version 11": lambda a: a["verification_material"].update(
        certificate=_flip(a["verification_material"]["certificate"], 12, 0x08)
    ),
    "no entry of the log": lambda a: a["verification_material"].update(transparency_entries=[]),
    "another version": lambda a: a.update(version=2),
}


def _entry(attestation: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = attestation["verification_material"]["transparency_entries"][0]
    return found


@pytest.mark.parametrize("change", ATTACKS.values(), ids=ATTACKS)
def test_an_attestation_that_was_touched_shows(made: Released, change: Callable[[Any], object]) -> None:
    data, _, _ = provenance(made)
    plain = copy.deepcopy(json.loads(data))
    change(plain["attestation_bundles"][0]["attestations"][0])
    changed = json.dumps(plain).encode()
    assert json.loads(changed) != json.loads(data)
    with pytest.raises(SignatureError):
        check(changed, made)


@pytest.mark.parametrize(
    ("publisher", "words"),
    [
        ({"repository": "pypa/pip"}, "pypa/pip"),
        ({"workflow": "other.yml"}, "other.yml"),
        ({"kind": "GitLab", "workflow_filepath": "x"}, "None"),
    ],
)
def test_an_object_does_not_name_another_publisher(
    made: Released, publisher: dict[str, str], words: str
) -> None:
    plain = json.loads(provenance(made)[0])
    plain["attestation_bundles"][0]["publisher"].update(publisher)
    with pytest.raises(SignatureError, match=f"{words}.* is named for it"):
        check(json.dumps(plain).encode(), made)


def test_an_object_without_attestations_vouches_for_nothing(made: Released) -> None:
    nothing = b'[{"publisher": {"kind": "GitHub"}, "attestations": []}]'
    for bundles in (b"[]", nothing, b"7"):
        with pytest.raises(SignatureError):
            check(b'{"version": 1, "attestation_bundles": ' + bundles + b"}", made)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"attestation_bundles"', b'"attestation_bundles": [], "attestation_bundles"'),
        (b'"publisher"', b'"publisher": {"kind": "GitHub"}, "publisher"'),
        (b'"version"', b'"schema": "cairn.provenance/1", "version"'),
        (b'"version"', b'"x": NaN, "version"'),
    ],
    ids=["bundles twice", "publisher twice", "dressed up as Cairn's", "no number"],
)
def test_an_object_that_two_readers_take_for_different_things_counts_for_neither(
    made: Released, old: bytes, new: bytes
) -> None:
    data, _, _ = provenance(made)
    assert old in data
    with pytest.raises((SignatureError, UsageError)):
        check(data.replace(old, new, 1), made)


def test_an_attestation_of_another_file_does_not_count(made: Released) -> None:
    data, _, _ = provenance(made)
    with pytest.raises(SignatureError, match="does not match"):
        attest.vouched(
            data, TRUSTED, kind="pep740", file_name="torch-2.9.0-py3-none-any.whl", sha256="0" * 64
        )
    with pytest.raises(SignatureError, match="does not match"):
        attest.vouched(
            data, TRUSTED, kind="pep740", file_name="torch-2.9.1-py3-none-any.whl", sha256=provenance(made)[2]
        )


def test_a_wheel_of_two_sets_is_attested_for_each(made: Released, sigstore: OwnSigstore) -> None:
    data, file_name, sha256 = provenance(made)
    (one,) = attest.vouched(data, TRUSTED, kind="pep740", file_name=file_name, sha256=sha256)
    signer = attester(sigstore.signer("ROCm/TheRock", "release.yml"))
    other = signer.add(data, structs.replace(one.claims, set_id="0" * 64))
    again = signer.add(other, one.claims)
    found = attest.vouched(again, TRUSTED, kind="pep740", file_name=file_name, sha256=sha256)
    assert [vouched.claims.set_id for vouched in found] == ["0" * 64, made.made.id]


def test_only_a_workflow_signs_as_one() -> None:
    given = {
        "GITHUB_ACTIONS": "true",
        "GITHUB_WORKFLOW_REF": "ROCm/TheRock/.github/workflows/a.yml@refs/tags/v1",
    }
    assert pep740.running_workflow(given) == Workflow(repository="ROCm/TheRock", file="a.yml")
    for less in given:
        with pytest.raises(PrerequisiteError, match="does not run in a GitHub workflow"):
            pep740.running_workflow({name: value for name, value in given.items() if name != less})


def test_a_job_without_the_permission_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKFLOW_REF", "a/b/.github/workflows/c.yml@refs/heads/main")
    monkeypatch.delenv("ACTIONS_ID_TOKEN_REQUEST_URL", raising=False)
    with pytest.raises(PrerequisiteError, match="gives the job no identity"), pep740.workflow_attester(None):
        pass
