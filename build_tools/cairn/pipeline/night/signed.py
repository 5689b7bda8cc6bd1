"""What jobs leave in the store for the next one, signed: others may be able to write there, too."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Literal

from cairn import datafile
from cairn.errors import UsageError
from cairn.pipeline.night.plan import NightRun
from cairn.release.provenance import dsse
from cairn.release.provenance.dsse import SignatureError
from cairn.release.trust.signers import Signer
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
        payload = json.dumps({"at": prefix, "files": digests}, sort_keys=True).encode()
        run.store.write(prefix + FILE, datafile.dumps(dsse.sign(payload, _KIND, signer)).encode())
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
    envelope = dsse.loads(data, dsse.Envelope, name=prefix + FILE)
    keys = run.trust.builders if by == "builder" else run.trust.for_records
    left = json.loads(dsse.verify(envelope, _KIND, keys, name=prefix).payload)
    if left["at"] != prefix:
        raise SignatureError(f"{prefix} has what was signed as {left['at']}", tip="run the job again")
    return dict(left["files"])


def read(run: NightRun, prefix: str, name: str, *, by: Role) -> bytes:
    """Read a file below a prefix, as somebody with this role has signed it. Raises like `digests`."""
    signed, data = digests(run, prefix, by=by), run.store.read(prefix + name).data
    if signed is not None and signed.get(name) != hashlib.sha256(data).hexdigest():
        raise SignatureError(f"{prefix}{name} was changed since it was signed", tip="run the job again")
    return data
