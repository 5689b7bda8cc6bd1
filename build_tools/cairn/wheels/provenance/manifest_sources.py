"""The commits in a manifest, read from its bytes alone.

Whoever releases or checks wheels needs no more of a manifest than its digest and its commits, and does not
depend on the part of Cairn that makes checkouts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import msgspec
from packaging.utils import canonicalize_name

from cairn import datafile
from cairn.errors import StoreError
from cairn.wheels.metadata import device_names

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


class _Submodule(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    commit: str


class _Project(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    distribution: str
    origin: str
    hashtag: str
    commit: str
    submodules: tuple[_Submodule, ...] = ()


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
    projects = _read(data, sha256, name).projects
    return tuple(Source(name=p.name, origin=p.origin, hashtag=p.hashtag, commit=p.commit) for p in projects)


def bills_in(data: bytes, *, sha256: str, name: str) -> Mapping[str, Mapping[str, str]]:
    """What the bill of materials of each project's wheel must name: by distribution, repository to commit.

    The arguments and errors are those of `sources_in`.
    """
    return {
        str(canonicalize_name(project.distribution)): {
            project.name: project.commit,
            **{module.path: module.commit for module in project.submodules},
        }
        for project in _read(data, sha256, name).projects
    }


def project_of(distribution: str, known: Collection[str]) -> str | None:
    """Which of these distributions a wheel is of; the own name of a device wheel of one; else None."""
    if distribution in known:
        return distribution
    is_device = any(device_names.processor_of(distribution, host) for host in known)
    return distribution if is_device else None


def _read(data: bytes, sha256: str, name: str) -> _Manifest:
    if hashlib.sha256(data).hexdigest() != sha256:
        raise StoreError(f"{name} was changed: it is not the manifest {sha256[:12]} that the set names")
    try:
        read = datafile.decode(data, _Manifest)
    except msgspec.DecodeError as error:
        raise StoreError(f"{name} is not a manifest: {error}") from error
    if read.schema != _SCHEMA:
        raise StoreError(f"{name} has schema {read.schema[:100]!r}, expected {_SCHEMA!r}")
    return read
