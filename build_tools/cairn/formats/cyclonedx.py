"""The software bill of materials of a package, CycloneDX 1.6 in JSON.

Nothing in it depends on when or where the package was built.

Source: https://cyclonedx.org/docs/1.6/json/
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from packaging.version import Version

from cairn.errors import WheelError

NAME = "sboms/cairn.cdx.json"
"""Where the bill of materials is in a dist-info folder (PEP 770)."""

_SCHEMA = "http://cyclonedx.org/schema/bom-1.6.schema.json"


@dataclass(frozen=True, kw_only=True)
class Source:
    """A repository that went into a wheel.

    Attributes:
        name: such as `torch` or `third_party/fbgemm`.
        commit: upstream's commit.
        origin: a URL that works elsewhere too, or None for a path of this machine.
    """

    name: str
    commit: str
    origin: str | None = None


def document(
    name: str,
    version: str,
    *,
    sources: Sequence[Source],
    rocm_version: str | None,
    bundled: Sequence[dict[str, Any]] = (),
) -> bytes:
    """The bill of materials of a wheel.

    Args:
        name: the wheel's canonical project name.
        version: its version.
        sources: its own repository first.
        rocm_version: of the ROCm SDK it was built against; None for a build without.
        bundled: components from `bundled_file`.
    """
    main = _package(name, version)
    parts = [_source(source) for source in sources]
    if rocm_version is not None:
        parts.append(_package("rocm", rocm_version) | {"type": "framework"})
    parts += bundled
    pedigree = {}
    if sources:
        url = {"url": sources[0].origin} if sources[0].origin else {}
        pedigree = {"pedigree": {"commits": [{"uid": sources[0].commit, **url}]}}
    component = {
        "$schema": _SCHEMA,
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "tools": {"components": [{"type": "application", "name": "cairn"}]},
            "component": main | pedigree,
        },
        "components": parts,
        "dependencies": [
            {"ref": main["bom-ref"], "dependsOn": sorted({part["bom-ref"] for part in parts})},
            *({"ref": ref} for ref in sorted({part["bom-ref"] for part in parts})),
        ],
    }
    return _dumps(component)


def with_version(data: bytes, version: str, bundled: Sequence[dict[str, Any]] = ()) -> bytes:
    """A bill of materials that Cairn wrote, for the same wheel under a different version.

    Args:
        data: the bill.
        version: the version to be.
        bundled: components to add, from `bundled_file`.

    Raises:
        WheelError: it is malformed.
    """
    refs = [part["bom-ref"] for part in bundled]
    try:
        document = json.loads(data)
        old = document["metadata"]["component"]
        new = old | _package(old["name"], version)
        document["metadata"]["component"] = new
        document["components"] += bundled
        for entry in document["dependencies"]:
            if entry["ref"] == old["bom-ref"]:
                entry["ref"] = new["bom-ref"]
                if refs:
                    entry["dependsOn"] = sorted({*entry["dependsOn"], *refs})
        document["dependencies"] += [{"ref": ref} for ref in refs]
        return _dumps(document)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise WheelError(f"{NAME} is not a bill of materials", tip="build the wheel again") from error


def commits(data: bytes) -> dict[str, str]:
    """The commits that a bill of materials of Cairn's names, by repository; the wheel's own comes first.

    Raises:
        WheelError: it is malformed, or says two things of one repository.
    """
    try:
        document = json.loads(data)
        components = [
            (part["name"], part["version"])
            for part in document["components"]
            if part["bom-ref"] == f"source:{part['name']}@{part['version']}"
        ]
        (main,) = (commit["uid"] for commit in document["metadata"]["component"]["pedigree"]["commits"])
        sources = {str(name): str(commit) for name, commit in components}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise WheelError(f"{NAME} names no commits", tip="build the wheel again") from error
    if len(sources) != len(components) or main != next(iter(sources.values()), None):
        raise WheelError(f"{NAME} says two things of one repository", tip="build the wheel again")
    return sources


def _dumps(document: dict[str, Any]) -> bytes:
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def _package(name: str, version: str) -> dict[str, Any]:
    # Package URL, type pypi; `+` of a local version stands for a space there unless it is escaped.
    purl = f"pkg:pypi/{name}@{str(Version(version)).replace('+', '%2B')}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def _source(source: Source) -> dict[str, Any]:
    document: dict[str, Any] = {
        "type": "library",
        "bom-ref": f"source:{source.name}@{source.commit}",
        "name": source.name,
        "version": source.commit,
    }
    if source.origin:
        document["externalReferences"] = [{"type": "vcs", "url": source.origin}]
    return document


def bundled_file(path: str, sha256: str) -> dict[str, Any]:
    """The component for a library that was bundled into the wheel at `path`."""
    return {
        "type": "library",
        "bom-ref": f"file:{path}",
        "name": path.rpartition("/")[2],
        "hashes": [{"alg": "SHA-256", "content": sha256}],
    }


def component(name: str, version: str, purl: str, sha256: str = "") -> dict[str, Any]:
    """The component for a package of a distribution whose files went in, by its package URL.

    Args:
        name: its name there.
        version: its version there.
        purl: its package URL.
        sha256: of the package's file, where that is known.
    """
    hashes = {"hashes": [{"alg": "SHA-256", "content": sha256}]} if sha256 else {}
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        **hashes,
    }
