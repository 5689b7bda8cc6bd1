"""The bill of materials of a fat wheel: that of the linked one, and the bundled libraries (PEP 770)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cairn.errors import WheelError
from cairn.formats.zip.reader import Archive
from cairn.wheels.metadata import cyclonedx, wheel_info
from cairn.wheels.metadata.wheel_info import WheelInfo


def fat_document(
    archive: Archive, info: WheelInfo, version: str, rocm_version: str | None, digests: Mapping[str, str]
) -> bytes:
    """The bill of materials, as CycloneDX.

    Args:
        archive: the linked wheel.
        info: what it says about itself.
        version: the version of the fat wheel.
        rocm_version: of the ROCm tree, or None where it does not say.
        digests: path in the wheel to the sha256 of each bundled library, in hex.

    Raises:
        WheelError: the linked wheel's bill of materials is malformed.
    """
    bundled = [cyclonedx.bundled_file(path, digest) for path, digest in sorted(digests.items())]
    path = f"{info.dist_info}/{wheel_info.SBOM}"
    if path not in archive:
        rocm = rocm_version if _is_version(rocm_version) else None
        return cyclonedx.document(info.distribution, version, sources=(), rocm_version=rocm, bundled=bundled)
    return _extended(cyclonedx.with_version(archive.read(path), version), bundled)


def _extended(data: bytes, bundled: list[dict[str, Any]]) -> bytes:
    refs = [part["bom-ref"] for part in bundled]
    try:
        document = json.loads(data)
        document["components"] += bundled
        own = document["dependencies"][0]
        own["dependsOn"] = sorted({*own["dependsOn"], *refs})
        document["dependencies"] += [{"ref": ref} for ref in refs]
        return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise WheelError(
            f"{wheel_info.SBOM} is not a bill of materials", tip="build the wheel again"
        ) from error


def _is_version(text: str | None) -> bool:
    try:
        return bool(text) and bool(wheel_info.parsed_version(text or ""))
    except WheelError:
        return False
