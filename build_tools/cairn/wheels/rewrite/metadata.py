"""Changing METADATA and WHEEL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from packaging.utils import canonicalize_name

from cairn.errors import WheelError
from cairn.wheels.metadata import wheel_info
from cairn.wheels.metadata.fields import Headers, core_metadata, parse_headers

_REQUIRES = "Requires-Dist"
_TAG = re.compile(r"\w+-\w+-\w+", re.ASCII)
# Names of extras follow the rule for names of projects (PEP 508, PEP 685).
_EXTRA = re.compile(r"[A-Z0-9](?:[A-Z0-9._-]*[A-Z0-9])?", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class MetadataEdit:
    """What to change in METADATA and WHEEL; a field left alone changes nothing.

    Attributes:
        version: the new version, to be normalised by PEP 440.
        build: the new build number; an empty text drops it.
        tags: the tags that replace all others, such as `cp311-cp311-manylinux_2_28_x86_64`.
        add_requirements: whole requirements to add (one that is there already is not added again).
        rewrite_requirements: requirement as METADATA writes it to what it becomes; it must be there.
        replace_requirements: project name to the whole requirement that takes its place; it must be there.
        remove_requirements: names of projects no longer required; they must be there.
        add_extras: extras to declare.
        remove_extras: extras no longer declared.
    """

    version: str | None = None
    build: str | None = None
    tags: tuple[str, ...] | None = None
    add_requirements: tuple[str, ...] = ()
    rewrite_requirements: Mapping[str, str] = field(default_factory=dict)
    replace_requirements: Mapping[str, str] = field(default_factory=dict)
    remove_requirements: tuple[str, ...] = ()
    add_extras: tuple[str, ...] = ()
    remove_extras: tuple[str, ...] = ()


def edited_metadata(data: bytes, edit: MetadataEdit) -> bytes:
    """METADATA with the edit made and every other line as it was.

    Raises:
        WheelError: a requirement is malformed, or one to be replaced or removed is not there.
    """
    headers = parse_headers(data, name="METADATA")
    if edit.version:
        headers = headers.replaced("Version", [str(wheel_info.parsed_version(edit.version))])
    if edit.rewrite_requirements:
        headers = _with_rewritten(headers, edit.rewrite_requirements)
    headers = _without(headers, edit.remove_requirements)
    for name, text in edit.replace_requirements.items():
        headers = _with_replaced(headers, name, text)
    removed = {canonicalize_name(extra) for extra in edit.remove_extras}
    headers = headers.mapped("Provides-Extra", lambda e: None if canonicalize_name(e) in removed else e)
    headers = _with_added(headers, edit)
    result = headers.to_bytes()
    _check(result, headers)
    return result


def edited_wheel(data: bytes, edit: MetadataEdit) -> bytes:
    """The file WHEEL with the edit made and every other line as it was.

    Raises:
        WheelError: a tag is malformed.
    """
    headers = parse_headers(data, name="WHEEL")
    if edit.tags is not None:
        headers = headers.replaced("Tag", sorted(t for tag in edit.tags for t in wheel_info.expand_tags(tag)))
    if edit.build is not None:
        headers = headers.replaced("Build", [edit.build] if edit.build else [])
    return headers.to_bytes()


def compressed(tags: Sequence[str], *, like: str | None = None) -> str:
    """Tags as one compressed tag set for a file name (PEP 425).

    Args:
        tags: the tags, single ones or sets.
        like: the tag set of the file name before, whose order stays where it has the same parts.

    Raises:
        WheelError: no tag set gives exactly these, or one is malformed.
    """
    single = {tag for text in tags for tag in wheel_info.expand_tags(text)}
    wrong = next((tag for tag in sorted(single) if not _TAG.fullmatch(tag)), None)
    if wrong is not None:
        raise WheelError(
            f"{wrong!r} is not a wheel tag", tip="a tag is written like cp311-cp311-linux_x86_64"
        )
    columns = zip(*(tag.split("-") for tag in sorted(single)), strict=True)
    parts = []
    for new, before in zip(columns, (like or "--").split("-"), strict=False):
        remaining = [part for part in dict.fromkeys(before.split(".")) if part in new]
        parts.append(".".join([*remaining, *sorted(set(new).difference(remaining))]))
    result = "-".join(parts)
    # A set in a file name stands for every combination of its parts, so not every list of tags has one.
    if not single or set(wheel_info.expand_tags(result)) != single:
        raise WheelError(f"no file name can stand for the tags {', '.join(sorted(single)) or '(none)'}")
    return result


def _names(requirements: Iterable[str]) -> set[str]:
    return set(map(wheel_info.required_name, requirements))


def _without(headers: Headers, names: Iterable[str]) -> Headers:
    removed: set[str] = {canonicalize_name(name) for name in names}
    _must_have(headers, removed)
    return headers.mapped(_REQUIRES, lambda text: None if _names([text]) & removed else text)


def _with_rewritten(headers: Headers, texts: Mapping[str, str]) -> Headers:
    missing = texts.keys() - set(headers.all(_REQUIRES))
    if missing:
        raise WheelError(f"METADATA does not require {min(missing)}", tip="add the requirement instead")
    return headers.mapped(_REQUIRES, lambda text: texts.get(text, text))


def _with_replaced(headers: Headers, name: str, text: str) -> Headers:
    canonical = canonicalize_name(name)
    if _names([text]) != {canonical}:
        raise WheelError(f"{text!r} cannot replace the requirement of {name}")
    _must_have(headers, {canonical})
    placed = False

    def change(old: str) -> str | None:
        nonlocal placed
        if _names([old]) != {canonical}:
            return old
        first, placed = not placed, True
        return text if first else None

    return headers.mapped(_REQUIRES, change)


def _with_added(headers: Headers, edit: MetadataEdit) -> Headers:
    wrong = next((extra for extra in edit.add_extras if not _EXTRA.fullmatch(extra)), None)
    if wrong is not None:
        raise WheelError(f"{wrong!r} is not the name of an extra", tip="write it like device-gfx942")
    extras = {canonicalize_name(extra) for extra in headers.all("Provides-Extra")}
    headers = headers.added(
        "Provides-Extra", (e for e in edit.add_extras if canonicalize_name(e) not in extras)
    )
    present = {str(wheel_info.requirement(text)) for text in headers.all(_REQUIRES)}
    new = [text for text in edit.add_requirements if str(wheel_info.requirement(text)) not in present]
    return headers.added(_REQUIRES, new)


def _must_have(headers: Headers, names: set[str]) -> None:
    missing = names - _names(headers.all(_REQUIRES))
    if missing:
        raise WheelError(
            f"METADATA does not require {', '.join(sorted(missing))}", tip="add the requirement instead"
        )


def _check(data: bytes, headers: Headers) -> None:
    """Read the result as installers do, by an email parser, and compare: tricks with line ends show here."""
    raw = core_metadata(data, name="METADATA")
    if (raw.get("version"),) != headers.all("Version") or tuple(raw.get("requires_dist", ())) != headers.all(
        _REQUIRES
    ):
        raise WheelError("METADATA cannot be edited: its headers are malformed", tip="build the wheel again")
