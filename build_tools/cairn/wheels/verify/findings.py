"""The answer of `verify`: what is wrong, where, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class FindingCode(StrEnum):
    """What may be wrong, in the order in which it is checked; docs/reference/findings.md explains each."""

    # The file as an archive: after this, nothing else is looked at.
    ARCHIVE = "archive"
    # What the wheel says about itself.
    METADATA = "metadata"
    METADATA_INVALID = "metadata-invalid"
    NAME_DIFFERS = "name-differs"
    VERSION_DIFFERS = "version-differs"
    TAGS_DIFFER = "tags-differ"
    PYTHON_TAG = "python-tag"
    # What it requires.
    REQUIREMENT_INVALID = "requirement-invalid"
    REQUIREMENT_URL = "requirement-url"
    REQUIREMENT_UNMET = "requirement-unmet"
    REQUIRES_ITSELF = "requires-itself"
    SIBLING_NOT_EXACT = "sibling-not-exact"
    # What installers refuse, or do in different ways.
    WHEEL_HEADER = "wheel-header"
    DATA_FOLDER = "data-folder"
    ENTRY_POINT = "entry-point"
    LICENCE_MISSING = "licence-missing"
    NAME_DECEIVES = "name-deceives"
    NAME_FORBIDDEN = "name-forbidden"
    NAME_TWICE = "name-twice"
    # RECORD against the archive.
    RECORD_MISSING = "record-missing"
    RECORD_ABSENT = "record-absent"
    RECORD_HASH = "record-hash"
    RECORD_SIZE = "record-size"
    # Every member, as it streams by.
    CONTENT = "content"
    FORBIDDEN_TEXT = "forbidden-text"
    SECRET = "secret"  # noqa: S105 - the name of a rule
    NOT_EXECUTABLE = "not-executable"
    # What loaders and interpreters make of its binaries.
    BINARY_MALFORMED = "binary-malformed"
    MODULE_ABI = "module-abi"
    MODULE_INIT = "module-init"
    BINARY_IN_PURE_WHEEL = "binary-in-pure-wheel"
    PLATFORM_TAG = "platform-tag"
    MACHINE = "machine"
    SYMBOLS_TOO_NEW = "symbols-too-new"
    MACOS_TOO_NEW = "macos-too-new"
    EXECUTABLE_STACK = "executable-stack"
    NEEDED = "needed"
    RPATH = "rpath"
    DLL_FOLDER = "dll-folder"
    OPTIONAL_PLUGIN = "optional-plugin"
    # Its device code.
    BUNDLE_MALFORMED = "bundle-malformed"
    CODE_OBJECT_MALFORMED = "code-object-malformed"
    CODE_OBJECT_EMPTY = "code-object-empty"
    KPACK_MALFORMED = "kpack-malformed"
    KPACK_NAME = "kpack-name"
    NO_DEVICE_CODE = "no-device-code"
    TARGETS_MISSING = "targets-missing"
    TARGETS_UNEXPECTED = "targets-unexpected"
    SPLIT_DIFFERS = "split-differs"
    # What it says of the machines that it is for.
    VARIANT = "variant"


NOTES = frozenset((FindingCode.OPTIONAL_PLUGIN,))
"""What is only said: it does not keep a wheel from being published."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that a published wheel must not have, or a note (see `NOTES`).

    Attributes:
        code: the rule, for programs.
        member: the path in the wheel that it is about, or None for the wheel as a whole.
        reason: what is wrong, in one sentence.
        fix: what to do about it.
    """

    code: FindingCode
    member: str | None = None
    reason: str
    fix: str


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What was seen of a wheel.

    Attributes:
        findings: every breach; none when it may be published.
        notes: what its users may want to know.
        not_checked: what was not looked at, so that a good wheel may be wrong in it.
    """

    findings: tuple[Finding, ...]
    notes: tuple[Finding, ...] = ()
    not_checked: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """What a wheel was asked to be.

    Attributes:
        targets: the targets that every library with device code must have code for, no more and no less;
            `("cpu",)` allows no device code; None does not check.
        split_targets: the targets that every library of a host wheel must have had code for when that was
            split off; where there are none, `targets`.
        require_device_code: whether a wheel without any device code is wrong (when targets are given).
        siblings: distribution to version of the wheels it is built against; where it requires one, then
            exactly that version.
        beside: distribution to the versions of it that are installed with the wheel, one of which its
            requirements must accept.
        provided_libraries: globs of libraries that its requirements supply.
        unread: requirements that were not given, so that libraries it lacks may be in them.
        python: the Python that must be able to install it: `3.11`, or `3.13t`, which is free-threaded.
        forbidden_strings: texts that no file may contain: build folders, secrets.
        require_platform_tag: whether binaries need a manylinux or musllinux tag.
    """

    targets: tuple[str, ...] | None = None
    split_targets: tuple[str, ...] = ()
    require_device_code: bool = False
    siblings: Mapping[str, str] = field(default_factory=dict)
    beside: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    provided_libraries: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    python: str | None = None
    forbidden_strings: tuple[str, ...] = ()
    require_platform_tag: bool = True
