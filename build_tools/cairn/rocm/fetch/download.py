"""One archive out of a store: checked by the sha256 beside it, and resumed where an earlier try ended."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from cairn import files
from cairn.concurrency import go_on
from cairn.errors import StoreError, UsageError
from cairn.rocm.fetch.choose import Artifact
from cairn.store.protocol import MissingKeyError, OnBytes, Store

_BLOCK = 1 << 20
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")


def expected_sha256(store: Store, artifact: Artifact) -> str | None:
    """What the file beside an archive says of it; None where there is no such file.

    Raises:
        StoreError: the file says no sha256.
    """
    try:
        text = store.read(f"{artifact.key}.sha256sum").data[:200].decode("ascii", errors="replace")
    except MissingKeyError:
        return None
    # The digest alone, or as the program sha256sum writes it: TheRock's tools have both.
    first = (text.split() or [""])[0]
    if not _SHA256.fullmatch(first):
        raise StoreError(
            f"{store.url}/{artifact.key}.sha256sum does not begin with a sha256",
            tip="the upload of the run may not have ended: look at the run",
        )
    return first.lower()


def download(store: Store, artifact: Artifact, path: Path, *, sha256: str | None, on_bytes: OnBytes) -> str:
    """Bring an archive to `path`; what an earlier try brought there is not fetched again.

    Args:
        store: where it is.
        artifact: the archive.
        path: where it goes. It is there only once it is whole; until then, it is beside it, with `.part`.
        sha256: what it must have; None where it is not known.
        on_bytes: called with how many bytes have arrived more.

    Returns:
        Its sha256.

    Raises:
        StoreError: it is not what its sha256 says.
    """
    part = path.with_name(f"{path.name}.part")
    if path.exists():
        if sha256 is not None and files.sha256_of(path) == sha256:
            on_bytes(artifact.size)
            return sha256
        path.unlink()
    for _ in range(2):
        begun = part.stat().st_size if part.exists() and sha256 is not None else 0
        if begun > artifact.size:
            begun = 0
        digest = _fetch(store, artifact.key, part, begun, on_bytes)
        if sha256 in (None, digest):
            part.replace(path)
            return digest
        part.unlink()
        on_bytes(-artifact.size)
        if not begun:
            break  # else what lay there may be at fault: a different build of the same name, a lost write
    raise StoreError(
        f"{store.url}/{artifact.key} is not what its sha256sum says",
        tip="it was damaged, or is being replaced: fetch it again later, or look at the run that made it",
    )


def _fetch(store: Store, key: str, part: Path, begun: int, on_bytes: OnBytes) -> str:
    """Bring what is missing after the first `begun` bytes; the sha256 of the whole."""
    digest = hashlib.sha256()
    with part.open("r+b" if begun else "wb") as file:
        while file.tell() < begun and (block := file.read(min(_BLOCK, begun - file.tell()))):
            digest.update(block)
            on_bytes(len(block))
        with store.open(key, start=begun) as stream:
            while block := stream.read(_BLOCK):
                go_on()
                file.write(block)
                digest.update(block)
                on_bytes(len(block))
        file.truncate()
    return digest.hexdigest()


def refuse_unverified(missing: list[str], *, where: str) -> None:
    """Refuse archives without a sha256 beside them.

    Raises:
        UsageError: there are such.
    """
    if missing:
        raise UsageError(
            f"{len(missing)} archive(s) at {where} have no sha256sum beside them, such as {missing[0]}",
            tip="pass --allow-unverified to take them as they are",
        )
