"""TUF's metadata as Cairn writes it (https://theupdateframework.github.io/specification/, version 1.0.31).

What is signed is canonical JSON, and a file holds exactly those bytes, so that a signature is checked over
the bytes as they lie there: python-tuf, which decodes and encodes them again, comes to the same. A change of
an index of 100,000 wheels reads and writes 100 KB of it, which msgspec does in a few milliseconds.

    metadata/<n>.root.json                   the keys; signed by the offline keys of the root before it
    metadata/timestamp.json                  which snapshot counts; the one mutable object
    metadata/<n>.snapshot.json               the version of everything below
    metadata/<n>.targets.json                which roles vouch for which index
    metadata/<n>.<index>.json                which generation of the index is current
    metadata/<n>.<index>.bin-<x>.json        its files, in as many bins as there are hundreds of them (TAP 15)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from cairn import datafile
from cairn.errors import StoreError
from cairn.release.index.generation import ProvenanceKind

if TYPE_CHECKING:  # a store that nobody signs needs no cryptography
    from cairn.release.trust.signers import PublicKey, Signer, Trust

SPEC_VERSION = "1.0.31"
TIMESTAMP = "metadata/timestamp.json"

FRESH, SLOW, BINS = timedelta(days=7), timedelta(days=90), timedelta(days=365)
"""For how long a timestamp counts; the snapshot, and which index is in which state; the files of an index."""

YEAR = timedelta(days=365)
"""For how long a root counts."""

SOON = timedelta(days=30)
"""Whoever signs is warned, or signs again what is below the root, so long before it counts no more."""

_RESTORE = "restore metadata/ from a copy of the store"
_MOMENT = "%Y-%m-%dT%H:%M:%SZ"
_PUBLIC = re.compile("[0-9a-f]{64}")


def _require(values: Mapping[str, object], name: str) -> None:
    if name not in values:
        raise ValueError(f"it has no {name}")


class _OfStore(msgspec.Struct):
    store: str = ""


class MetadataError(StoreError):
    """Metadata that nobody who may has signed, or that is not what it should be."""


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What is signed of a target besides its bytes: of a generation its number, of a file its marks.

    Attributes:
        ledger: number and digest of the last entry that the ledger had when this was signed.
        root: the version of the root by whose keys the gate let a promotion in; 0 for another change.
    """

    number: int = 0
    files: int = 0
    ledger: tuple[int, str] | None = None
    root: int = 0
    provenance: str | None = None
    kind: ProvenanceKind | None = None
    sets: tuple[str, ...] = ()
    yanked: str | None = None
    failed: str | None = None
    untested: str | None = None
    status: str | None = None


class File(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A target: a file of an index."""

    length: int
    hashes: Mapping[str, str]
    custom: Mapping[str, Any] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        if "sha256" not in self.hashes:
            raise ValueError("a target has no sha256")
        _ = self.about

    @property
    def about(self) -> About:
        """The fields of `custom` by their types."""
        return datafile.convert(self.custom, About)


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """The version of a role's metadata."""

    version: int


class Keyed(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of a role, and how many of them must sign."""

    keyids: tuple[str, ...]
    threshold: int = 1


class Delegated(Keyed, frozen=True, kw_only=True):
    """A role that vouches for the targets below some paths."""

    name: str
    paths: tuple[str, ...]
    terminating: bool = True


class Bins(Keyed, frozen=True, kw_only=True):
    """Roles named by the first bits of the sha256 of a target's path."""

    bit_length: int
    name_prefix: str

    def __post_init__(self) -> None:
        if not 1 <= self.bit_length <= 32:  # noqa: PLR2004 - TAP 15
            raise ValueError(f"names of {self.bit_length} bits are no names of bins")


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A public key, as securesystemslib writes those of Ed25519."""

    keytype: str
    scheme: str
    keyval: Mapping[str, str]

    def __post_init__(self) -> None:
        if self.keytype != "ed25519" or not _PUBLIC.fullmatch(self.keyval.get("public", "")):
            raise ValueError(f"a key of type {self.keytype!r} is not one of Ed25519")


class Delegations(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The roles below a role: named ones, or bins."""

    keys: Mapping[str, Key]
    roles: tuple[Delegated, ...] | None = None
    succinct_roles: Bins | None = None


class Signed(msgspec.Struct, frozen=True, kw_only=True, tag_field="_type", omit_defaults=True):
    """The fields of every kind of metadata.

    Attributes:
        store: the fingerprint of the first root, so that what a key signed for one store counts in no other;
            a root has none.
    """

    store: str = ""
    version: int
    expires: str
    spec_version: str = msgspec.field(default_factory=lambda: SPEC_VERSION)  # written, though a default

    def __post_init__(self) -> None:
        if f"{moment(self.expires):{_MOMENT}}" != self.expires:
            raise ValueError(f"{self.expires!r} is no time of TUF's")
        if self.version < 0 or not self.spec_version.startswith("1."):
            raise ValueError(f"version {self.version} of specification {self.spec_version!r} is unknown")


class Timestamp(Signed, frozen=True, kw_only=True, tag="timestamp"):
    """Which snapshot is current."""

    meta: Mapping[str, Version]

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(self.meta, "snapshot.json")


class Snapshot(Signed, frozen=True, kw_only=True, tag="snapshot"):
    """The version of each role's metadata."""

    meta: Mapping[str, Version]

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(self.meta, "targets.json")


class Targets(Signed, frozen=True, kw_only=True, tag="targets"):
    """Files, and the roles that vouch for others."""

    targets: Mapping[str, File]
    delegations: Delegations | None = None


class Root(Signed, frozen=True, kw_only=True, tag="root"):
    """The keys of the roles.

    Attributes:
        consistent_snapshot: true: each version of metadata has a key of its own.
        keys: every key, by id.
        roles: the four of TUF: `targets` and `snapshot` are the promoter's, `timestamp` also that of whoever
            keeps it fresh.
        cairn: builders and testers, which TUF does not know: their signatures are on statements and records;
            and, under `former …`, the keys that a root before this one named.
    """

    consistent_snapshot: bool
    keys: Mapping[str, Key]
    roles: Mapping[str, Keyed]
    cairn: Mapping[str, Keyed] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        for role in ("root", "targets", "snapshot", "timestamp"):
            _require(self.roles, role)

    def of(self, role: str) -> dict[str, PublicKey]:
        """The keys of a role, by id: one of TUF's, `builder` or `tester`."""
        from cairn.release.trust.signers import PublicKey  # noqa: PLC0415 - see above

        keyed = self.cairn.get(role) or self.roles.get(role)
        key_ids = keyed.keyids if keyed is not None else ()
        return {i: PublicKey.of_raw(self.keys[i].keyval["public"], i) for i in key_ids if i in self.keys}

    def trust(self) -> Trust:
        """Whose word counts for what: each role's for its own."""
        from cairn.release.trust.signers import Trust  # noqa: PLC0415 - see above

        former = {role: self.of(f"former {role}") for role in ("promoter", "builder", "tester")}
        return Trust(
            keys=self.of("targets"),
            testers=self.of("tester"),
            builders=self.of("builder"),
            former=Trust(keys=former["promoter"], testers=former["tester"], builders=former["builder"]),
        )


class _Signature(msgspec.Struct, frozen=True):
    keyid: str
    sig: str


class _File(msgspec.Struct, frozen=True):
    signatures: tuple[_Signature, ...]
    signed: msgspec.Raw


M = TypeVar("M", bound=Signed)


def sealed(value: Signed, *signers: Signer) -> bytes:
    """Sign metadata; return the file."""
    return more_signed(
        msgspec.json.encode(_File(signatures=(), signed=msgspec.Raw(canonical(value)))), signers
    )


def more_signed(data: bytes, signers: Iterable[Signer]) -> bytes:
    """Add signatures to a file of metadata; one of the same key goes."""
    file = datafile.decode(data, _File)
    body = bytes(file.signed)
    new = tuple(_Signature(keyid=signer.key_id, sig=signer.sign(body).hex()) for signer in signers)
    old = tuple(
        signature
        for signature in file.signatures
        if signature.keyid not in {signature.keyid for signature in new}
    )
    return msgspec.json.encode(_File(signatures=(*old, *new), signed=file.signed))


def signers_of(data: bytes, keys: Mapping[str, PublicKey]) -> frozenset[str]:
    """The ids of those of these keys whose signatures hold over a file of metadata."""
    file = datafile.decode(data, _File)
    ours, body = [signature for signature in file.signatures if signature.keyid in keys], bytes(file.signed)
    return frozenset(
        signature.keyid
        for signature in ours
        if keys[signature.keyid].holds(bytes.fromhex(signature.sig), body)
    )


def canonical(value: Signed) -> bytes:
    """Encode as canonical JSON; texts must be without control characters, which it does not escape."""
    return msgspec.json.encode(value, order="sorted")


def opened(data: bytes, kind: type[M], keys: Mapping[str, PublicKey], *, name: str, threshold: int = 1) -> M:
    """Read metadata that enough of these keys signed; a threshold of 0 asks for none.

    Raises:
        MetadataError: too few did, it was changed, or is of another kind.
    """
    try:
        signers = signers_of(data, keys)
        if len(signers) < threshold:
            raise MetadataError(
                f"{name} is signed by {len(signers)} of the keys that the root names for it, "
                f"and needs {threshold}",
                tip=_RESTORE,
            )
        return datafile.decode(bytes(datafile.decode(data, _File).signed), kind)
    except (msgspec.DecodeError, ValueError, KeyError) as error:
        raise MetadataError(f"{name} cannot be read: {error}", tip=_RESTORE) from error


def require_of(data: bytes, fingerprint: str, *, name: str) -> bytes:
    """The file of metadata that is given, if it says that it is of the store with this root.

    Raises:
        MetadataError: it is another store's.
    """
    try:
        of = datafile.decode(bytes(datafile.decode(data, _File).signed), _OfStore).store
    except msgspec.DecodeError as error:
        raise MetadataError(f"{name} cannot be read: {error}", tip=_RESTORE) from error
    if of != fingerprint:
        raise MetadataError(f"{name} was signed for another store: {of or 'it names none'}", tip=_RESTORE)
    return data


def key_of(role: str, version: int) -> str:
    """Where a version of a role's metadata lies in a store."""
    return f"metadata/{version}.{role}.json"


def role_of(index: str) -> str:
    """The role that vouches for an index; a channel and a family have no dot."""
    return index.replace("/", ".")


def expiry(after: timedelta) -> str:
    """The time after which metadata signed now does not count."""
    return f"{now() + after:{_MOMENT}}"


def expired(value: Signed, after: timedelta = timedelta()) -> bool:
    """Whether metadata does not count any more, now or after so long."""
    return moment(value.expires) <= now() + after


def now() -> datetime:
    """The time by the clock of this machine, with which all that is signed is dated and judged."""
    return datetime.now(UTC)


def moment(text: str) -> datetime:
    """A time as metadata has it."""
    return datetime.fromisoformat(text)
