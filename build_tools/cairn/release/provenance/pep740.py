"""Attestations of an index (PEP 740) under the identity of a GitHub Actions workflow, by Sigstore.

The work is pypi-attestations', PyPA's own implementation, which comes with the extra `sign`. Signing needs a
workflow run with `permissions: id-token: write` and the network (Fulcio issues the certificate, Rekor logs
it); checking needs neither, since the roots of trust come with the package.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import msgspec
import requests
from pydantic import ValidationError
from pypi_attestations import (
    Attestation,
    AttestationBundle,
    Distribution,
    GitHubPublisher,
    Provenance,
)
from sigstore.dsse import Statement
from sigstore.errors import Error as SigstoreError
from sigstore.models import ClientTrustConfig
from sigstore.oidc import ExpiredIdentity, IdentityError, IdentityToken, detect_credential
from sigstore.sign import ExpiredCertificate, Signer, SigningContext  # type: ignore[attr-defined]

from cairn.errors import NetworkError, PrerequisiteError
from cairn.release.index.generation import ProvenanceKind
from cairn.release.provenance import dsse
from cairn.release.provenance.dsse import Claims, SignatureError
from cairn.release.trust import signers
from cairn.release.trust.signers import Trust, Workflow

_BUILD_CONFIG_URI = "1.3.6.1.4.1.57264.1.18"
"""Of Fulcio's certificates: the workflow that ran, with its ref (sigstore/fulcio, docs/oid-info.md)."""

_WORKFLOW_REF = re.compile(r"([^/]+/[^/]+)/\.github/workflows/([^/@]+)@.+")


class WorkflowAttester(msgspec.Struct, frozen=True):
    """Signs statements as the workflow that is running.

    Attributes:
        sigstore: signs with the certificate of the workflow.
        workflow: the workflow.
        signer: a key, for what keys alone sign: see `Attester`.
        kind: of its objects.
    """

    sigstore: Signer
    workflow: Workflow
    signer: signers.Signer | None = None
    kind: ClassVar[ProvenanceKind] = "pep740"

    def add(self, previous: bytes | None, claims: Claims) -> bytes:
        """The provenance object of a file with these claims instead of earlier ones about the same set.

        Args:
            previous: the object of this kind that the file has, if any.
            claims: what to vouch for.

        Raises:
            NetworkError: Sigstore could not be reached.
        """
        others = _bundles_of_other_sets(previous, claims)
        try:
            bundle = self.sigstore.sign_dsse(Statement(dsse.encode(claims)))
        except (SigstoreError, ExpiredCertificate, ExpiredIdentity, requests.RequestException) as error:
            raise NetworkError(f"Sigstore did not sign: {error}", tip="run the job again") from error
        publisher = GitHubPublisher(repository=self.workflow.repository, workflow=self.workflow.file)
        bundle_of_publisher = AttestationBundle(
            publisher=publisher, attestations=[Attestation.from_bundle(bundle)]
        )
        return Provenance(attestation_bundles=[*others, bundle_of_publisher]).model_dump_json().encode()


def running_workflow(environ: Mapping[str, str] | None = None) -> Workflow:
    """The GitHub workflow that is running.

    Raises:
        PrerequisiteError: no workflow of GitHub's does.
    """
    variables = os.environ if environ is None else environ
    match = _WORKFLOW_REF.fullmatch(variables.get("GITHUB_WORKFLOW_REF", ""))
    if variables.get("GITHUB_ACTIONS") != "true" or match is None:
        raise PrerequisiteError(
            "this does not run in a GitHub workflow", tip="sign with a key: --sign-key FILE"
        )
    return Workflow(repository=match[1], file=match[2])


@contextlib.contextmanager
def workflow_attester(key: signers.Signer | None) -> Iterator[WorkflowAttester]:
    """Yield an attester for the running workflow; one certificate serves for all that it signs.

    Args:
        key: the attester's `signer`.

    Raises:
        PrerequisiteError: no workflow runs this, or the job may not ask for its identity.
    """
    workflow = running_workflow()
    tip = "give the job `permissions: id-token: write`"
    try:
        if (token := detect_credential()) is None:
            raise PrerequisiteError("GitHub gives the job no identity", tip=tip)
        config = ClientTrustConfig.production()
        # Rekor's second version gives entries that PEP 740's shape has no place for (pypi-attestations' own
        # command does the same).
        config.force_tlog_version = 1
        with SigningContext.from_trust_config(config).signer(IdentityToken(token), cache=True) as signer:
            yield WorkflowAttester(signer, workflow, key)
    except IdentityError as error:
        raise PrerequisiteError(f"GitHub gives the job no identity: {error}", tip=tip) from error
    except (SigstoreError, requests.RequestException) as error:
        raise NetworkError(f"Sigstore gives no certificate: {error}", tip="run the job again") from error


def statements(
    data: bytes, trust: Trust | None, *, file_name: str, sha256: str
) -> Sequence[tuple[bytes, str | None]]:
    """The statements in a PEP 740 object, each with the workflow that vouches for it.

    Who signed is what the certificate says; the object's own `publisher` proves nothing, and must agree.

    Args:
        data: the object.
        trust: whose word counts; None checks no signature.
        file_name: of the file that it lies beside.
        sha256: of that file.

    Raises:
        SignatureError: no trusted workflow signed one of them, or it is about another file.
    """
    # It warns that it asks nobody for newer roots, which is what we want of it.
    logging.getLogger("sigstore").setLevel(logging.ERROR)
    bundles = _read(data).attestation_bundles
    if trust is None:
        return [(attestation.envelope.statement, None) for b in bundles for attestation in b.attestations]
    payloads = []
    for bundle in bundles:
        for attestation in bundle.attestations:
            payload, workflow = _vouched(attestation, trust, file_name, sha256)
            publisher = tuple(getattr(bundle.publisher, name, None) for name in ("repository", "workflow"))
            if publisher != (workflow.repository, workflow.file):
                raise SignatureError(f"{workflow} signed for {file_name}, and {publisher} is named for it")
            payloads.append((payload, str(workflow)))
    return payloads


def _vouched(attestation: Attestation, trust: Trust, file_name: str, sha256: str) -> tuple[bytes, Workflow]:
    """The statement of an attestation, and the trusted workflow that signed it."""
    reason = f"no workflow that signs for {file_name} is trusted"
    for workflow in trust.workflows:
        publisher = GitHubPublisher(repository=workflow.repository, workflow=workflow.file)
        try:
            attestation.verify(publisher, Distribution(name=file_name, digest=sha256), offline=True)
        except Exception as error:  # noqa: BLE001 - what stumbles over an attacker's bytes vouches for none
            reason = f"{workflow} does not vouch for {file_name}: {error}"
            continue
        payload = attestation.envelope.statement
        builder = dsse.decode(payload, name=f"the provenance of {file_name}").builder.id
        ran = attestation.certificate_claims.get(_BUILD_CONFIG_URI, "")
        if ran != builder:
            raise SignatureError(f"{workflow} signed that {builder[:200]} built {file_name}, which it is not")
        if workflow.ref is not None and not ran.endswith(f"/{workflow.file}@{workflow.ref}"):
            reason = f"{workflow} does not vouch for {file_name}: {ran} does"
            continue
        return payload, workflow
    raise SignatureError(reason, tip="give the releaser's workflow: --trust github:OWNER/NAME/WORKFLOW.yml")


def _read(data: bytes) -> Provenance:
    try:
        return Provenance.model_validate_json(data)
    except ValidationError as error:
        raise SignatureError(f"not a provenance object of PEP 740: {error.errors()[0]['msg']}") from error


def _bundles_of_other_sets(previous: bytes | None, claims: Claims) -> list[AttestationBundle]:
    name = f"the provenance of {claims.file_name}"

    def is_of_set(bundle: AttestationBundle) -> bool:
        signed = [attestation.envelope.statement for attestation in bundle.attestations]
        return claims.set_id in [dsse.decode(envelope, name=name).set_id for envelope in signed]

    bundles = _read(previous).attestation_bundles if previous is not None else ()
    return [bundle for bundle in bundles if not is_of_set(bundle)]
