"""What must hold of a distribution file by itself, before an index takes it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from packaging.metadata import RawMetadata
from packaging.utils import canonicalize_name, is_normalized_name
from packaging.version import Version

from cairn import requirements
from cairn.errors import StoreError, WheelError
from cairn.release.index.generation import MIRRORED, PUBLISHED, version_of
from cairn.release.publish import compatibility
from cairn.wheels.metadata.fields import core_metadata
from cairn.wheels.metadata.wheel_info import parse_file_name

# Fields with values of one line (core metadata specification). The others may be texts, such as a licence.
_ONE_LINE = (
    *("name", "version", "summary", "requires_python", "license_expression", "home_page", "download_url"),
    *("classifiers", "requires_dist", "provides_extra", "keywords", "platforms", "project_urls"),
)
_TEXTS = ("author", "author_email", "maintainer", "maintainer_email", "license", "description")
_URLS = ("home_page", "download_url", "project_urls")
_FOLD = re.compile(r"\r?\n[ \t]+")  # how a long value goes on in the next line (RFC 822)
# What a browser takes for a tag, and is not `Name <name@example.org>`.
_TAG = re.compile(r"<[A-Za-z/!?][^<>@]*>")
# Control characters, and those that turn the direction of the text that follows (UAX 9).
_CONTROL = re.compile(r"[^\t\n\f\r\x20-\x7e\x80-\U0010ffff]|[\x80-\x9f\u202a-\u202e\u2066-\u2069]")
_WEB = re.compile(r"(https?|mailto):", re.IGNORECASE)
_SCHEME = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]*\s*:")


def name_problems(filename: str, *, build: str) -> tuple[str, ...]:
    """Why a file cannot be called so, of all that is wrong with the name.

    One file has one possible name: else two spellings would be two files, and an installer takes either.

    Args:
        filename: of a wheel or an sdist.
        build: what its version belongs to (`FileEntry.build`). Other indexes have files with older spellings,
            and a mirror keeps their names; a set's wheels are ours to name.
    """
    try:
        return tuple(f"{filename}: {reason}" for reason in _name_problems(filename, build))
    except (StoreError, WheelError) as error:  # it is not a name at all
        return (str(error),)


def metadata_problems(filename: str, metadata: bytes, *, build: str) -> tuple[str, ...]:
    """Why the metadata of a file cannot be shown on a page, or not be used, of all that is wrong with it.

    Args:
        filename: of a wheel or an sdist.
        metadata: its METADATA or PKG-INFO.
        build: see `name_problems`.
    """
    raw = core_metadata(metadata, name=f"the metadata of {filename}")
    extras = raw.get("provides_extra", ()) if build != MIRRORED else ()
    unusable = (
        f"{filename} has an extra that cannot be asked for: {requirements.shown(extra)}"
        for extra in extras
        if not is_normalized_name(canonicalize_name(extra))
    )
    return (*unusable, *_unshowable(filename, raw))


def _unshowable(filename: str, raw: RawMetadata) -> Iterator[str]:
    yield from (
        f"{filename}: {field.replace('_', '-').title()} {problem}: {requirements.shown(value)}"
        for field in (*_ONE_LINE, *_TEXTS)
        for value in _values(raw, field)
        if (problem := _problem(field, value))
    )


def _name_problems(filename: str, build: str) -> Iterator[str]:
    version = Version(version_of(filename))
    if filename.endswith(".whl"):
        parts = parse_file_name(filename, variants_too=True)
        prefix, spelt = parts.prefix, filename.split("-")[1]
        if parts.build is not None:
            # PEP 427: an installer takes the highest build of a version, tested or not.
            yield f"it has the build tag {parts.build!r}; build it again under a new version"
        if parts.variant is not None and build != PUBLISHED:
            # It would be offered with a set that was tested without it, or without what its index says of it.
            yield f"it is the wheel variant {parts.variant}, which no gate can judge; publish it by itself"
        if unknown := compatibility.unknown_tags(filename):
            yield f"no installer knows its tags {', '.join(unknown)}"
    else:
        prefix, _, spelt = filename.removesuffix(".tar.gz").removesuffix(".zip").rpartition("-")
    if build != MIRRORED:
        yield from _spelling(prefix, spelt, build)
        if version.epoch:
            yield f"version {version} has an epoch, above which no later version of the project would sort"


def _spelling(prefix: str, version: str, build: str) -> Iterator[str]:
    """PEP 427 and 625: the normalised name with `_` for `-`, and the normalised version."""
    # The ROCm SDK writes a family into names as it is spelt: rocm_sdk_libraries_gfx94X_dcgpu.
    spelt = prefix.lower() if build == PUBLISHED else prefix
    if spelt != (normalised := canonicalize_name(prefix).replace("-", "_")):
        yield f"the name is to be spelt {normalised}"
    if version != str(Version(version)):
        yield f"the version is to be spelt {Version(version)}"


def _values(raw: RawMetadata, field: str) -> Iterator[str]:
    value: Any = raw.get(field)
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):  # project_urls: label to address
        yield from (text for pair in value.items() for text in pair)
    elif value:
        yield from value


def _problem(field: str, value: str) -> str | None:
    if field in _TEXTS:
        return "has a control character" if _CONTROL.search(value) else None
    line = _FOLD.sub(" ", value)
    if not line.isprintable():
        return "has a line end or a character that is not printable"
    if field != "requires_python" and _TAG.search(line):
        return "has HTML"
    if field in _URLS and _SCHEME.match(line) and not _WEB.match(line):
        return "is not an address of the web"
    return None
