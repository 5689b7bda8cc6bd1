"""The commits in a manifest, read from its bytes alone.

Whoever releases or checks wheels needs no more of a manifest than its digest and its commits, and does not
depend on the part of Cairn that makes checkouts.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import msgspec

from cairn import datafile
from cairn.errors import StoreError

_SCHEMA = "cairn.manifest/1"


@dataclass(frozen=True, kw_only=True)
class Source:
    """One project's sources.

    Attributes:
        name: of the project.
        origin: where they come from, without credentials.
        hashtag: what was asked for.
        commit: what that was, in full.
    """

    name: str
    origin: str
    hashtag: str
    commit: str


class _Project(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    origin: str
    hashtag: str
    commit: str


class _Manifest(msgspec.Struct, frozen=True, kw_only=True):
    schema: str
    projects: tuple[_Project, ...]


def sources_in(data: bytes, *, sha256: str, name: str) -> tuple[Source, ...]:
    """The commits in a manifest of this digest.

    Args:
        data: the manifest in its canonical spelling, as a store keeps it.
        sha256: the digest by which a set names it.
        name: stands for it in errors.

    Raises:
        StoreError: it is a different manifest, was changed, or is of another version.
    """
    if hashlib.sha256(data).hexdigest() != sha256:
        raise StoreError(f"{name} was changed: it is not the manifest {sha256[:12]} that the set names")
    try:
        read = datafile.decode(data, _Manifest)
    except msgspec.DecodeError as error:
        raise StoreError(f"{name} is not a manifest: {error}") from error
    if read.schema != _SCHEMA:
        raise StoreError(f"{name} has schema {read.schema[:100]!r}, expected {_SCHEMA!r}")
    return tuple(Source(**msgspec.structs.asdict(project)) for project in read.projects)
