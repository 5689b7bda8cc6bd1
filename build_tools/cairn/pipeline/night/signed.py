"""What jobs leave for the next one, and builds for each other, signed: others may write there, too."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from cairn import datafile
from cairn.build.cache.entry import CacheEntry, DamagedEntryError, Vouch
from cairn.errors import UsageError
from cairn.output import console
from cairn.pipeline.night.plan import NightRun
from cairn.release.provenance import dsse
from cairn.release.provenance.dsse import SignatureError
from cairn.release.trust.signers import PublicKeys, Signer, Trust
from cairn.store.protocol import MissingKeyError

FILE = "signed.json"
"""Beside the files: their digests, with the prefix of their keys, in an envelope."""

Role = Literal["builder", "tester"]
_KIND = "application/vnd.cairn.left+json"


def sign(run: NightRun, prefix: str, digests: Mapping[str, str], signer: Signer | None) -> None:
    """Sign files that are to lie below a prefix; `digests` has the sha256 of each by its name.

    Raises:
        UsageError: the store has a root, and nobody signs.
    """
    if signer is not None:
        run.store.write(prefix + FILE, _sealed(prefix, digests, signer).encode())
    elif run.has_root:
        tip = "--sign-key FILE, or CAIRN_SIGN_KEY: that of a builder for builds, of a tester for tests"
        raise UsageError("in a store with a root, what a job leaves for the next one is signed", tip=tip)


def digests(run: NightRun, prefix: str, *, by: Role) -> Mapping[str, str] | None:
    """Return the sha256 of each file that somebody with this role has signed below a prefix.

    None where no root says who has which role: then whatever lies there counts.

    Raises:
        SignatureError: nobody signed them, nobody with that role, or they lay elsewhere.
    """
    if run.trust is None or run.trust.builders is None:
        return None
    try:
        data = run.store.read(prefix + FILE).data
    except MissingKeyError:
        raise SignatureError(f"{prefix} is not signed", tip="run the job again") from None
    return _opened(data, prefix, run.trust.builders if by == "builder" else run.trust.for_records)


def read(run: NightRun, prefix: str, name: str, *, by: Role) -> bytes:
    """Read a file below a prefix, as somebody with this role has signed it. Raises like `digests`."""
    signed, data = digests(run, prefix, by=by), run.store.read(prefix + name).data
    if signed is not None and signed.get(name) != hashlib.sha256(data).hexdigest():
        raise SignatureError(f"{prefix}{name} was changed since it was signed", tip="run the job again")
    return data


@dataclass(frozen=True, kw_only=True, eq=False)
class BuilderVouch(Vouch):
    """The builders of a root, whose wheels alone count in a cache that machines share; a `Vouch`.

    Attributes:
        builders: their keys.
        signer: the key of this machine.
        signs: it is one of those.
    """

    builders: PublicKeys
    signer: Signer | None
    signs: bool

    @property
    def name(self) -> str:
        """See `Vouch.name`."""
        return name_of(self.builders)

    def sign(self, entry: CacheEntry) -> str:
        """See `Vouch.sign`."""
        return _sealed(entry.key, {entry.file_name: entry.sha256}, self.signer) if self.signer else ""

    def check(self, entry: CacheEntry) -> None:
        """See `Vouch.check`."""
        try:
            if _opened(entry.signed.encode(errors="replace"), entry.key, self.builders) == {
                entry.file_name: entry.sha256
            }:
                return
            problem = "it is not what was signed"
        except SignatureError as error:
            problem = str(error) if entry.signed else "nobody signed it, and the store has a root"
        raise DamagedEntryError(problem)


def name_of(builders: PublicKeys) -> str:
    """A name for just these builders."""
    return hashlib.sha256(" ".join(sorted(builders)).encode()).hexdigest()[:12]


def vouch(trust: Trust | None, signer: Signer | None) -> BuilderVouch | None:
    """Whose wheels count in a cache; None where no root names builders."""
    if trust is None or trust.builders is None:
        return None
    signs = signer is not None and signer.key_id in trust.builders
    if not signs:
        console.current().warn(
            "nothing is put into the cache of wheels: no builder's key is given to sign with"
        )
    return BuilderVouch(builders=trust.builders, signer=signer, signs=signs)


def _sealed(at: str, digests: Mapping[str, str], signer: Signer) -> str:
    payload = json.dumps({"at": at, "files": digests}, sort_keys=True).encode()
    return datafile.dumps(dsse.sign(payload, _KIND, signer))


def _opened(data: bytes, at: str, keys: PublicKeys) -> dict[str, str]:
    envelope = dsse.loads(data, dsse.Envelope, name=f"the signature of {at}")
    left = json.loads(dsse.verify(envelope, _KIND, keys, name=at).payload)
    if left["at"] != at:
        raise SignatureError(f"{at} has what was signed as {left['at']}", tip="run the job again")
    return dict(left["files"])
