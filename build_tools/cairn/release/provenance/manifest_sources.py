"""The commits in a manifest, read from its bytes alone.

Whoever releases or checks wheels needs no more of a manifest than its digest and its commits, and does not
depend on the part of Cairn that makes checkouts.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

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
        data: the manifest.
        sha256: the digest by which a set names it: of its canonical spelling.
        name: stands for it in errors.

    Raises:
        StoreError: it is a different manifest, was changed in as much as a space, or is of another version.
        UsageError: it is not JSON.
    """
    plain = datafile.parse_json(data, name=name)
    if not isinstance(plain, dict):
        raise StoreError(f"{name} is not a manifest")
    canonical = _canonical(plain)
    # A manifest is kept as one of these two; the second is how people read it. Other white space would be a
    # change that no digest shows.
    spellings = (canonical, json.dumps(plain, indent=2, ensure_ascii=False).encode() + b"\n")
    if hashlib.sha256(canonical).hexdigest() != sha256 or data not in spellings:
        raise StoreError(f"{name} was changed: it is not the manifest {sha256[:12]} that the set names")
    try:
        read = msgspec.convert(plain, _Manifest)
    except msgspec.ValidationError as error:
        raise StoreError(f"{name} is not a manifest: {error}") from error
    if read.schema != _SCHEMA:
        raise StoreError(f"{name} has schema {read.schema[:100]!r}, expected {_SCHEMA!r}")
    return tuple(Source(**msgspec.structs.asdict(project)) for project in read.projects)


def _canonical(plain: dict[str, Any]) -> bytes:
    """As `Manifest.digest` spells it: sorted, without white space and what early manifests did not have."""
    left = {key: value for key, value in plain.items() if key != "build_env" or value}
    projects = left.get("projects")
    if isinstance(projects, list):
        left["projects"] = [
            {key: value for key, value in one.items() if key != "checkout_dir" or value is not None}
            for one in projects
            if isinstance(one, dict)
        ]
    return json.dumps(left, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
