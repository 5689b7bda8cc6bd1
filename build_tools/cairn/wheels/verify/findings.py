"""The answer of `verify`: what is wrong, where, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

CODES = frozenset(
    (
        "archive",
        "binary-in-pure-wheel",
        "binary-malformed",
        "bundle-malformed",
        "code-object-empty",
        "code-object-malformed",
        "container-malformed",
        "container-name",
        "content",
        "data-folder",
        "dll-folder",
        "entry-point",
        "forbidden-text",
        "licence-missing",
        "machine",
        "metadata",
        "metadata-invalid",
        "module-abi",
        "name-deceives",
        "name-differs",
        "name-twice",
        "needed",
        "no-device-code",
        "not-executable",
        "platform-tag",
        "python-tag",
        "record-absent",
        "record-hash",
        "record-missing",
        "record-size",
        "requirement-invalid",
        "requirement-unmet",
        "requirement-url",
        "requires-itself",
        "rpath",
        "secret",
        "sibling-not-exact",
        "symbols-too-new",
        "tags-differ",
        "targets-missing",
        "targets-unexpected",
        "version-differs",
        "wheel-header",
    )
)
"""The codes of all findings that there are."""

NEVER_ALLOWED = frozenset(("archive", "metadata"))
"""Those after which nothing, or not all, was looked at."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that a published wheel must not have.

    Attributes:
        code: a short name of the rule, for programs.
        member: the path in the wheel that it is about, or None for the wheel as a whole.
        reason: what is wrong, in one sentence.
        fix: what to do about it.
    """

    code: str
    member: str | None = None
    reason: str
    fix: str


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """What a wheel was asked to be.

    Attributes:
        targets: the targets that every library with device code must have code for, no more and no less;
            `("cpu",)` allows no device code; None does not check.
        require_device_code: whether a wheel without any device code is wrong (when targets are given).
        siblings: distribution to version of the wheels it is built against; where it requires one, then
            exactly that version.
        beside: distribution to the versions of it that are installed with the wheel: its requirements must
            take one of them.
        provided_libraries: globs of libraries that its requirements supply.
        unread: what it requires and what was not looked into, which may have what it lacks.
        python: the Python version it must be good for, such as `3.11`, or `3.13t` for the free-threaded one.
        forbidden_strings: texts that must be in no file: build folders, secrets.
        require_platform_tag: whether binaries need a manylinux or musllinux tag.
    """

    targets: tuple[str, ...] | None = None
    require_device_code: bool = False
    siblings: Mapping[str, str] = field(default_factory=dict)
    beside: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    provided_libraries: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    python: str | None = None
    forbidden_strings: tuple[str, ...] = ()
    require_platform_tag: bool = True
