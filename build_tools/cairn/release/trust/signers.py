"""Signers and trust: Ed25519 keys and GitHub workflows.

A key (RFC 8032) is in a PEM file, as `openssl genpkey -algorithm ed25519` writes it too. Its id is the sha256
of its public half in DER (SubjectPublicKeyInfo, RFC 8410), so that
`openssl pkey -pubin -in cairn-sign.pub -outform DER | sha256sum` gives it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import msgspec

from cairn import datafile, platforms
from cairn.errors import UsageError

if TYPE_CHECKING:  # what nobody signed is read, and installed, without cryptography
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

PRIVATE_NAME, PUBLIC_NAME = "cairn-sign.key", "cairn-sign.pub"
"""The files that `create` writes."""

VARIABLE = "CAIRN_SIGN_KEY"
"""Names the file of the private key where no option does."""

TEXT_VARIABLE = "CAIRN_SIGN_PRIVATE_KEY"
"""Is the private key, in PEM, where no option names a file: as jobs get secrets."""

# What stands before the 32 bytes of a key in DER (RFC 8410, section 10). cryptography's readers of all kinds
# of keys take longer to load than a release takes to sign.
_PRIVATE = ("PRIVATE", bytes.fromhex("302e020100300506032b657004220420"))
_PUBLIC = ("PUBLIC", bytes.fromhex("302a300506032b6570032100"))

_WORKFLOW = re.compile(r"github:([A-Za-z0-9-]+/[A-Za-z0-9._-]+)/([A-Za-z0-9._-]+\.ya?ml)(?:@(refs/.+))?")


class PublicKey:
    """A public key.

    Attributes:
        key_id: sha256 of it, in hex.
    """

    def __init__(self, key: Ed25519PublicKey) -> None:
        self._key = key
        self.key_id = hashlib.sha256(_PUBLIC[1] + key.public_bytes_raw()).hexdigest()

    def holds(self, signature: bytes, message: bytes) -> bool:
        """Whether the private key made this signature of this message."""
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415

        try:
            self._key.verify(signature, message)
        except InvalidSignature:
            return False
        return True

    @classmethod
    def of_raw(cls, public: str, key_id: str) -> PublicKey:
        """The key with these 32 bytes in hex, under the id that a root gives it."""
        key = cls(_ed25519().Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)))
        key.key_id = key_id
        return key

    @property
    def raw(self) -> str:
        """The 32 bytes of the key in hex, as TUF's metadata has it."""
        return self._key.public_bytes_raw().hex()

    @classmethod
    def of_pem(cls, data: bytes, name: str) -> PublicKey:
        """The key in a PEM file; `name` stands for it in errors.

        Raises:
            UsageError: it is not an Ed25519 key.
        """
        return cls(_ed25519().Ed25519PublicKey.from_public_bytes(_raw_of(data, _PUBLIC, name)))

    def pem(self) -> bytes:
        """The key as a PEM file."""
        return _pem_of(self._key.public_bytes_raw(), _PUBLIC)


PublicKeys = Mapping[str, PublicKey]
"""Trusted keys, by id."""


class Signer:
    """A private key.

    Attributes:
        public: the other half.
    """

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = PublicKey(key.public_key())

    @property
    def key_id(self) -> str:
        """The id of the key."""
        return self.public.key_id

    def sign(self, message: bytes) -> bytes:
        """Sign a message; the signature has 64 bytes."""
        return self._key.sign(message)

    def pem(self) -> bytes:
        """The key as a PEM file."""
        return _pem_of(self._key.private_bytes_raw(), _PRIVATE)


def _ed25519() -> ModuleType:
    from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415

    return ed25519


def _pem_of(raw: bytes, kind: tuple[str, bytes]) -> bytes:
    text = base64.b64encode(kind[1] + raw).decode()
    return f"-----BEGIN {kind[0]} KEY-----\n{text}\n-----END {kind[0]} KEY-----\n".encode()


def _raw_of(data: bytes, kind: tuple[str, bytes], name: str) -> bytes:
    """The 32 bytes of a key in a PEM file."""
    word, before = kind
    pattern = rf"-----BEGIN {word} KEY-----([A-Za-z0-9+/=\s]+)-----END {word} KEY-----"
    match = re.search(pattern.encode(), data)
    try:
        der = base64.b64decode(match[1]) if match else b""
    except binascii.Error:
        der = b""
    if not der.startswith(before) or len(der) != len(before) + 32:
        tip = "make one: cairn release key create --output-dir DIR"
        raise UsageError(f"{name} is not an Ed25519 {word.lower()} key in PEM", tip=tip)
    return der.removeprefix(before)


def create(folder: Path) -> PublicKey:
    """Generate a key pair and write it to a folder; the private key is readable by its owner alone.

    Raises:
        UsageError: there is a key already. It is never overwritten: what it signed could not be told from
            forgeries any more.
    """
    private, public = folder / PRIVATE_NAME, folder / PUBLIC_NAME
    folder.mkdir(parents=True, exist_ok=True)
    for path in (private, public):
        if path.exists() or path.is_symlink():
            raise UsageError(f"{path} is there already", tip="name a new folder with --output-dir")
    key = Signer(_ed25519().Ed25519PrivateKey.generate())
    # Made with its final mode: at no moment could others open it. O_EXCL follows no link.
    with os.fdopen(os.open(private, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
        file.write(key.pem())
    with public.open("xb") as file:
        file.write(key.public.pem())
    return key.public


def signer(path: Path) -> Signer:
    """Read a private key.

    Raises:
        UsageError: it cannot be read, needs a passphrase, is not an Ed25519 key, or others may read it.
    """
    key = _signer(datafile.bytes_of(path), str(path))
    if platforms.here.others_may_read(path):
        raise UsageError(f"{path}: others may read this private key", tip=f"chmod 600 {path}")
    return key


def _signer(data: bytes, name: str) -> Signer:
    if b"ENCRYPTED" in data:
        tip = f"give it without one, from a place that others cannot read: openssl pkey -in {name}"
        raise UsageError(f"{name} is protected by a passphrase", tip=tip)
    return Signer(_ed25519().Ed25519PrivateKey.from_private_bytes(_raw_of(data, _PRIVATE, name)))


def chosen_signer(path: Path | None) -> Signer | None:
    """The key that the option names, otherwise one of the variables; None if none does.

    Raises:
        UsageError: as of `signer`; a variable that is empty names none.
    """
    if path is None and (text := os.environ.get(TEXT_VARIABLE)):
        return _signer(text.encode(), TEXT_VARIABLE)
    key_file = path or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    return signer(key_file) if key_file else None


def public_key(path: Path) -> PublicKey:
    """Read a public key.

    Raises:
        UsageError: it cannot be read, is not an Ed25519 key, or is the private half.
    """
    data = datafile.bytes_of(path)
    if b"PRIVATE KEY" in data:
        tip = f"give the public half ({PUBLIC_NAME}), and keep this one to yourself"
        raise UsageError(f"{path} is a private key", tip=tip)
    return PublicKey.of_pem(data, str(path))


def public_keys(paths: Sequence[Path]) -> PublicKeys:
    """Read several public keys, by id; raises like `public_key`."""
    keys = [public_key(path) for path in paths]
    return {key.key_id: key for key in keys}


class Workflow(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow of GitHub Actions; PyPI's trusted publishers are named the same way, without the ref.

    Attributes:
        repository: `owner/name`.
        file: its name below `.github/workflows/`.
        ref: the branch or tag that it must run on, in full (`refs/heads/main`); None for any. Whoever may
            push a branch may change the workflow on it.
    """

    repository: str
    file: str
    ref: str | None = None

    def __str__(self) -> str:
        return f"github:{self.repository}/{self.file}" + (f"@{self.ref}" if self.ref else "")


class Trust(msgspec.Struct, frozen=True, kw_only=True):
    """The keys and workflows that a user trusts.

    Attributes:
        keys: public keys, by id.
        workflows: those whose certificates count.
        testers: keys that count for test records alone: a machine that tests must not vouch for wheels.
        builders: keys that count for builders' statements alone, where a root names them. Then each role is
            its own: a promoter's key counts for no record, and for no statement. None where no root does.
        former: what a root named once. These keys sign nothing new; what a promoter of today signs for by its
            digest, they go on vouching for (`with_former`).
    """

    keys: Mapping[str, PublicKey] = msgspec.field(default_factory=dict)
    workflows: tuple[Workflow, ...] = ()
    testers: Mapping[str, PublicKey] = msgspec.field(default_factory=dict)
    builders: Mapping[str, PublicKey] | None = None
    former: Trust | None = None

    def with_former(self) -> Trust:
        """The trust in what a promoter of today has signed for by its digest."""
        old = self.former
        if old is None:
            return self
        return Trust(
            keys={**old.keys, **self.keys},
            workflows=self.workflows,
            testers={**old.testers, **self.testers},
            builders={**(old.builders or {}), **(self.builders or {})},
        )

    @property
    def for_records(self) -> Mapping[str, PublicKey]:
        """The keys that count for test records."""
        return self.testers if self.builders is not None else {**self.testers, **self.keys}

    def __bool__(self) -> bool:
        return bool(self.keys or self.workflows)


def trust_of(names: Sequence[str], testers: Sequence[Path] = ()) -> Trust:
    """The trust that these names stand for: public key files, or `github:OWNER/NAME/WORKFLOW.yml[@REF]`.

    Raises:
        UsageError: a name is neither, or its file is not a public key.
    """
    workflows, keys = [], []
    for name in names:
        if match := _WORKFLOW.fullmatch(name):
            workflows.append(Workflow(repository=match[1], file=match[2], ref=match[3]))
        elif name.startswith("github:"):
            tip = "write github:OWNER/NAME/WORKFLOW.yml, and if you like @refs/heads/main after it"
            raise UsageError(f"{name} names no workflow", tip=tip)
        else:
            keys.append(Path(name))
    return Trust(keys=public_keys(keys), workflows=tuple(workflows), testers=public_keys(testers))
