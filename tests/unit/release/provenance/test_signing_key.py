"""Keys in files: made once, private, and the same that openssl knows."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from cairn.errors import UsageError
from cairn.release.trust import signers
from cairn.release.trust.signers import PRIVATE_NAME, PUBLIC_NAME


def test_a_new_key_is_for_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = signers.create(tmp_path / "new")
    finally:
        os.umask(before)
    private, public = tmp_path / "new" / PRIVATE_NAME, tmp_path / "new" / PUBLIC_NAME
    assert private.stat().st_mode & 0o777 == 0o600
    assert b"PRIVATE" not in public.read_bytes()
    assert signers.signer(private).key_id == signers.public_key(public).key_id == made.key_id


@pytest.mark.parametrize("there", [PRIVATE_NAME, PUBLIC_NAME])
def test_a_key_is_never_overwritten_nor_written_through_a_link(tmp_path: Path, there: str) -> None:
    (tmp_path / "file").mkdir()
    (tmp_path / "file" / there).write_text("precious")
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / there).symlink_to(tmp_path / "elsewhere")
    for folder in ("file", "link"):
        with pytest.raises(UsageError, match="is there already"):
            signers.create(tmp_path / folder)
    assert [path.read_text() for path in (tmp_path / "file").iterdir()] == ["precious"]
    assert not (tmp_path / "elsewhere").exists()


def test_a_key_that_others_may_read_does_not_sign(tmp_path: Path) -> None:
    signers.create(tmp_path)
    (tmp_path / PRIVATE_NAME).chmod(0o640)
    with pytest.raises(UsageError, match="others may read"):
        signers.signer(tmp_path / PRIVATE_NAME)


def test_the_id_is_what_openssl_says(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    made = signers.create(tmp_path)
    command = ["openssl", "pkey", "-pubin", "-in", tmp_path / PUBLIC_NAME, "-outform", "DER"]
    der = subprocess.run(command, capture_output=True, check=True).stdout
    assert hashlib.sha256(der).hexdigest() == made.key_id


def test_a_key_is_written_as_cryptography_does_and_read_as_openssl_wraps_it() -> None:
    made = signers.Signer(PRIVATE)
    assert made.pem() == _pem(PRIVATE)
    assert made.public.pem() == PUBLIC
    for data in (
        PUBLIC,
        PUBLIC.replace(b"\n", b"\r\n"),
        b"of ann\n" + PUBLIC,
        PUBLIC.replace(b"UD", b"U\nD"),
    ):
        assert signers.PublicKey.of_pem(data, "it").key_id == made.key_id


def _pem(key: object) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())  # type: ignore[attr-defined]


PRIVATE = Ed25519PrivateKey.from_private_bytes(b"\1" * 32)
CURVE = generate_private_key(SECP256R1())


PUBLIC = PRIVATE.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
CURVE_PUBLIC = CURVE.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
PROTECTED = PRIVATE.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
OTHER = "not an Ed25519 (private|public) key in PEM"


@pytest.mark.parametrize(
    ("use", "data", "said"),
    [
        (signers.signer, b"", OTHER),
        (signers.signer, PUBLIC, OTHER),
        (signers.signer, _pem(PRIVATE).replace(b"MC4", b"Mc4"), OTHER),
        (signers.signer, _pem(PRIVATE).replace(b"MC4C", b"MC4"), OTHER),
        (signers.signer, _pem(CURVE), OTHER),
        (signers.signer, PROTECTED, "protected by a passphrase"),
        (lambda path: signers.trust_of([str(path)]), b"", "not an Ed25519 public key"),
        (lambda path: signers.trust_of([str(path)]), _pem(PRIVATE), "is a private key"),
        (lambda path: signers.trust_of([str(path)]), CURVE_PUBLIC, OTHER),
    ],
    ids=[
        "empty",
        "public",
        "other bytes",
        "cut",
        "curve",
        "passphrase",
        "trust empty",
        "trust private",
        "trust curve",
    ],
)
def test_what_does_not_sign_or_cannot_be_trusted_is_refused(
    tmp_path: Path, use: Callable[[Path], object], data: bytes, said: str
) -> None:
    path = tmp_path / "key"
    path.write_bytes(data)
    path.chmod(0o600)
    with pytest.raises(UsageError, match=said):
        use(path)


def test_the_variable_names_a_key_where_no_option_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def chosen(option: Path | None) -> str | None:
        signer = signers.chosen_signer(option)
        return signer and signer.key_id

    one, two = signers.create(tmp_path / "1"), signers.create(tmp_path / "2")
    assert chosen(None) is None
    monkeypatch.setenv(signers.VARIABLE, str(tmp_path / "1" / PRIVATE_NAME))
    assert chosen(None) == one.key_id
    assert chosen(tmp_path / "2" / PRIVATE_NAME) == two.key_id
    monkeypatch.setenv(signers.VARIABLE, "")
    assert chosen(None) is None


def test_trust_is_in_keys_and_in_workflows(tmp_path: Path) -> None:
    made = signers.create(tmp_path)
    found = signers.trust_of([str(tmp_path / PUBLIC_NAME), "github:ROCm/TheRock/release.yml"])
    assert list(found.keys) == [made.key_id]
    assert found.workflows == (signers.Workflow(repository="ROCm/TheRock", file="release.yml"),)
    (at,) = signers.trust_of(["github:ROCm/TheRock/release.yml@refs/heads/main"]).workflows
    assert (at.file, at.ref, str(at)) == (
        "release.yml",
        "refs/heads/main",
        "github:ROCm/TheRock/release.yml@refs/heads/main",
    )
    assert found
    assert not signers.trust_of([])


@pytest.mark.parametrize(
    "name", ["github:", "github:ROCm/release.yml", "github:a/b/../c.yml", "github:a/b/c.yml@main"]
)
def test_a_workflow_is_named_in_full(name: str) -> None:
    with pytest.raises(UsageError, match="names no workflow"):
        signers.trust_of([name])
