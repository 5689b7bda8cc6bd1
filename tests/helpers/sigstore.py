"""A Sigstore of our own: Fulcio's certificates and Rekor's log entries, made here with keys made here.

What Sigstore's own verifier checks is all there and real: the chain to a root, the timestamp of the log of
certificates (RFC 6962), the inclusion proof, the checkpoint and the promise of Rekor, the signature. Only the
servers and GitHub's word on who is running are missing.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import rfc8785
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from sigstore import dsse
from sigstore.models import Bundle, TransparencyLogEntry, TrustedRoot
from sigstore_models.trustroot.v1 import TrustedRoot as TrustedRootMessage

GITHUB = "https://token.actions.githubusercontent.com"
_FULCIO = "1.3.6.1.4.1.57264.1."  # docs/oid-info.md of sigstore/fulcio
_SCT_LIST = x509.ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")  # RFC 6962, section 3.3

Key = ec.EllipticCurvePrivateKey


class OwnSigstore:
    """Stands in for Fulcio, its certificate log, and Rekor."""

    def __init__(self) -> None:
        self._ca, self._ct, self._rekor = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a test")])
        self._root = (
            _certificate(self._ca.public_key(), subject=name, issuer=name)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(cert_sign=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._ca.public_key()), critical=False)
            .sign(self._ca, hashes.SHA256())
        )

    def trusted_root(self) -> TrustedRoot:
        """What comes with the package sigstore for the real one."""

        def log(key: Key) -> dict[str, object]:
            return {
                "baseUrl": "https://log.example",
                "hashAlgorithm": "SHA2_256",
                "publicKey": {
                    "rawBytes": _b64(_spki(key)),
                    "keyDetails": "PKIX_ECDSA_P256_SHA_256",
                    "validFor": {"start": "2021-01-01T00:00:00Z"},
                },
                "logId": {"keyId": _b64(_key_id(key))},
            }

        authority = {
            "subject": {"organization": "a test", "commonName": "a test"},
            "uri": "https://fulcio.example",
            "certChain": {"certificates": [{"rawBytes": _b64(self._root.public_bytes(Encoding.DER))}]},
            "validFor": {"start": "2021-01-01T00:00:00Z"},
        }
        return TrustedRoot(
            TrustedRootMessage.from_json(
                json.dumps(
                    {
                        "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
                        "tlogs": [log(self._rekor)],
                        "certificateAuthorities": [authority],
                        "ctlogs": [log(self._ct)],
                        "timestampAuthorities": [],
                    }
                )
            )
        )

    def signer(self, repository: str, workflow: str, ref: str = "refs/heads/main") -> OwnSigner:
        """What signs as a workflow of GitHub's."""
        key = ec.generate_private_key(ec.SECP256R1())
        return OwnSigner(self, key, self._leaf(key, repository, workflow, ref))

    def _leaf(self, key: Key, repository: str, workflow: str, ref: str) -> x509.Certificate:
        uri = f"https://github.com/{repository}/.github/workflows/{workflow}@{ref}"
        claims = {8: GITHUB, 12: f"https://github.com/{repository}", 13: "c" * 40, 14: ref, 18: uri}
        serial, begin = x509.random_serial_number(), datetime.now(UTC).replace(microsecond=0)

        def build() -> x509.CertificateBuilder:
            builder = _certificate(
                key.public_key(), subject=x509.Name([]), issuer=self._root.subject, serial=serial, begin=begin
            )
            builder = (
                builder.add_extension(_usage(digital_signature=True), critical=True)
                .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
                .add_extension(
                    x509.AuthorityKeyIdentifier.from_issuer_public_key(self._ca.public_key()), critical=False
                )
                .add_extension(
                    x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)]), critical=True
                )
            )
            for number, text in claims.items():
                oid = x509.ObjectIdentifier(f"{_FULCIO}{number}")
                builder = builder.add_extension(x509.UnrecognizedExtension(oid, _utf8(text)), critical=False)
            return builder

        bare = build().sign(self._ca, hashes.SHA256())
        stamp = x509.UnrecognizedExtension(_SCT_LIST, self._timestamp(bare.tbs_certificate_bytes, begin))
        return build().add_extension(stamp, critical=False).sign(self._ca, hashes.SHA256())

    def _timestamp(self, tbs: bytes, at: datetime) -> bytes:
        """A list with one signed certificate timestamp (RFC 6962, sections 3.2 and 3.3)."""
        millis = int(at.timestamp() * 1000)
        entry = _key_id(self._ca) + struct.pack("!I", len(tbs))[1:] + tbs
        signed = struct.pack("!BBQH", 0, 0, millis, 1) + entry + struct.pack("!H", 0)
        signature = self._ct.sign(signed, ec.ECDSA(hashes.SHA256()))
        one = struct.pack("!B32sQH", 0, _key_id(self._ct), millis, 0)
        one += struct.pack("!BBH", 4, 3, len(signature)) + signature  # SHA-256, ECDSA (RFC 5246, 7.4.1.4.1)
        listed = struct.pack("!H", len(one)) + one
        return _der(4, struct.pack("!H", len(listed)) + listed)

    def logged(self, envelope: dsse.Envelope, certificate: x509.Certificate) -> TransparencyLogEntry:
        """An entry of Rekor's, of a log that has no other."""
        payload, signature = envelope._inner.payload, envelope.signature
        pem = certificate.public_bytes(Encoding.PEM)
        body = json.dumps(
            {
                "apiVersion": "0.0.1",
                "kind": "dsse",
                "spec": {
                    "envelopeHash": {"algorithm": "sha256", "value": "0" * 64},
                    "payloadHash": {"algorithm": "sha256", "value": hashlib.sha256(payload).hexdigest()},
                    "signatures": [{"signature": _b64(signature), "verifier": _b64(pem)}],
                },
            },
            separators=(",", ":"),
            sort_keys=True,
        ).encode()
        root = hashlib.sha256(b"\0" + body).digest()
        note = f"log.example - 1\n1\n{_b64(root)}\n"
        seal = _b64(_key_id(self._rekor)[:4] + self._rekor.sign(note.encode(), ec.ECDSA(hashes.SHA256())))
        promised: Mapping[str, int | str] = {
            "body": _b64(body),
            "integratedTime": int(datetime.now(UTC).timestamp()),
            "logID": _key_id(self._rekor).hex(),
            "logIndex": 0,
        }
        promise = self._rekor.sign(rfc8785.dumps(dict(promised)), ec.ECDSA(hashes.SHA256()))
        proof = {
            "logIndex": 0,
            "rootHash": root.hex(),
            "treeSize": 1,
            "hashes": [],
            "checkpoint": f"{note}\n\N{EM DASH} log.example {seal}\n",
        }
        verification = {"inclusionProof": proof, "signedEntryTimestamp": _b64(promise)}
        return TransparencyLogEntry._from_v1_response({"0": {**promised, "verification": verification}})


class OwnSigner:
    """The part of `sigstore.sign.Signer` that signs statements."""

    def __init__(self, sigstore: OwnSigstore, key: Key, certificate: x509.Certificate) -> None:
        self._sigstore, self._key, self._certificate = sigstore, key, certificate

    def sign_dsse(self, statement: dsse.Statement) -> Bundle:
        """See `sigstore.sign.Signer.sign_dsse`."""
        envelope = dsse._sign(self._key, statement)
        entry = self._sigstore.logged(envelope, self._certificate)
        return Bundle._from_parts(cert=self._certificate, content=envelope, log_entry=entry)


def _certificate(
    key: ec.EllipticCurvePublicKey,
    *,
    subject: x509.Name,
    issuer: x509.Name,
    serial: int | None = None,
    begin: datetime | None = None,
) -> x509.CertificateBuilder:
    begin = begin or datetime.now(UTC) - timedelta(hours=1)
    return x509.CertificateBuilder(
        subject_name=subject,
        issuer_name=issuer,
        public_key=key,
        serial_number=serial or x509.random_serial_number(),
        not_valid_before=begin,
        not_valid_after=begin + timedelta(hours=2),
    )


def _usage(*, digital_signature: bool = False, cert_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=cert_sign,
        crl_sign=cert_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _spki(key: Key) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _key_id(key: Key) -> bytes:
    return hashlib.sha256(_spki(key)).digest()


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _der(tag: int, content: bytes) -> bytes:
    """A DER value (X.690, section 8.1)."""
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content


def _utf8(text: str) -> bytes:
    return _der(12, text.encode())
