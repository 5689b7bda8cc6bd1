"""The findings of `verify`: what is wrong, where, and how to fix it; and the file of allowed findings.

Known findings may be allowed, each with a reason, in a file that is reviewed. That is a TOML file:
`schema = "cairn.allow/1"`, and a table for each finding:

    [[finding]]
    wheel = "torch-*-manylinux_2_28_x86_64.whl"   # a glob of file names
    code = "rpath"
    member = "torch/bin/*"                        # a glob of members; none for the whole wheel
    reason = "test programs, unused in an installed wheel"
    expires = 2027-01-31                          # optional: the last day on which it counts
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from cairn import datafile
from cairn.errors import UsageError

if TYPE_CHECKING:
    from cairn.wheels.contents.binaries import Binary

_Text = Annotated[str, msgspec.Meta(pattern=r"\S")]


class FindingCode(StrEnum):
    """The rules, in the order in which they are checked; docs/reference/findings.md explains each."""

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
    EXTRA_UNDECLARED = "extra-undeclared"
    # What installers refuse, or do in different ways.
    WHEEL_HEADER = "wheel-header"
    DATA_FOLDER = "data-folder"
    ENTRY_POINT = "entry-point"
    LICENCE_MISSING = "licence-missing"
    MEMBER_MISSING = "member-missing"
    NAME_DECEIVES = "name-deceives"
    NAME_FORBIDDEN = "name-forbidden"
    NAME_TWICE = "name-twice"
    STRAY_FILES = "stray-files"
    OVERWRITES = "overwrites"
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
    SCRIPT_INTERPRETER = "script-interpreter"
    PYTHON_SOURCE = "python-source"
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
    SYMBOL_MISSING = "symbol-missing"
    RPATH = "rpath"
    DLL_FOLDER = "dll-folder"
    OPTIONAL_PLUGIN = "optional-plugin"
    # Its device code.
    BUNDLE_MALFORMED = "bundle-malformed"
    CODE_OBJECT_MALFORMED = "code-object-malformed"
    CODE_OBJECT_EMPTY = "code-object-empty"
    KPACK_MALFORMED = "kpack-malformed"
    KPACK_NAME = "kpack-name"
    KPACK_INCOMPLETE = "kpack-incomplete"
    NO_DEVICE_CODE = "no-device-code"
    TARGETS_MISSING = "targets-missing"
    TARGETS_UNEXPECTED = "targets-unexpected"
    SPLIT_DIFFERS = "split-differs"
    # What it says of the machines that it is for; and how it differs from the other wheels of its version.
    VARIANT = "variant"
    SHAPE_DIFFERS = "shape-differs"
    FILES_DIFFER = "files-differ"
    # What it does to those who have the last set; the gate alone asks.
    OVER_BUDGET = "over-budget"
    CONSUMER_BREAKS = "consumer-breaks"


NOTES = frozenset((FindingCode.OPTIONAL_PLUGIN, FindingCode.FILES_DIFFER, FindingCode.STRAY_FILES))
"""What is only said: it does not keep a wheel from being published."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
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
    """The judgement on a wheel.

    Attributes:
        findings: every breach; none when it may be published.
        notes: what its users may want to know.
        not_checked: what was not looked at, so that a good wheel may be wrong in it.
        split: whether it says what was split from it, and must be seen together with its device wheels.
        binaries: those of the wheel, for what is judged of several together, as the next one.
        archived: path to the targets of a kpack archive, each with the keys that it has code under.
    """

    findings: tuple[Finding, ...]
    notes: tuple[Finding, ...] = ()
    not_checked: tuple[str, ...] = ()
    split: bool = False
    binaries: tuple[Binary, ...] = field(default=(), repr=False)
    archived: Mapping[str, Mapping[str, frozenset[str]]] = field(default_factory=dict, repr=False)


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """The properties that a wheel was asked to have.

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
        extras: distribution to the extras that its versions there declare; of others it is not known.
        in_wheels: distribution to the libraries in its wheels there.
        provided_libraries: globs of libraries that its requirements supply.
        members: paths that it must have, as its stack declares them.
        python: the Python that must be able to install it: `3.11`, or `3.13t`, which is free-threaded.
        forbidden_strings: texts that no file may contain: build folders, secrets.
        require_platform_tag: whether binaries need a manylinux or musllinux tag.
    """

    targets: tuple[str, ...] | None = None
    split_targets: tuple[str, ...] = ()
    require_device_code: bool = False
    siblings: Mapping[str, str] = msgspec.field(default_factory=dict)
    beside: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    extras: Mapping[str, frozenset[str]] = msgspec.field(default_factory=dict)
    in_wheels: Mapping[str, frozenset[str]] = msgspec.field(default_factory=dict)
    provided_libraries: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    python: str | None = None
    forbidden_strings: tuple[str, ...] = ()
    require_platform_tag: bool = True


# After these nothing, or not everything, was looked at.
_NEVER_ALLOWED = frozenset((FindingCode.ARCHIVE, FindingCode.METADATA))


class AllowedFinding(datafile.Value):
    """One entry.

    Attributes:
        wheel: a glob of the file names of wheels.
        code: of the finding.
        member: a glob of the members it is about, or None for one about the wheel as a whole.
        reason: why it may be there.
        expires: the last day on which the entry counts, as in every list of exceptions; None for no end.
    """

    wheel: _Text
    code: FindingCode
    member: _Text | None = None
    reason: _Text
    expires: dt.date | None = None

    def covers(self, wheel: str, finding: Finding) -> bool:
        """Whether it is about that finding on the wheel of that file name."""
        if finding.code != self.code or not fnmatchcase(wheel, self.wheel):
            return False
        # `*` of fnmatch matches `/` too: `demo/*` is about everything below demo.
        if self.member is None or finding.member is None:
            return self.member is finding.member
        return fnmatchcase(finding.member, self.member)


class _File(datafile.Value, tag_field="schema", tag="cairn.allow/1"):
    finding: tuple[AllowedFinding, ...] = ()


class JudgedFindings(msgspec.Struct, frozen=True, kw_only=True):
    """The findings on some wheels, sorted by whether they are allowed.

    Attributes:
        findings: wheel to those that stand.
        allowed: wheel to those that are let through, each with the entry that does it.
        notes: entries that have expired, and those that let nothing through.
    """

    findings: Mapping[Path, tuple[Finding, ...]]
    allowed: Mapping[Path, tuple[tuple[Finding, AllowedFinding], ...]]
    notes: tuple[str, ...]


def read_allowed(paths: Iterable[Path]) -> dict[str, AllowedFinding]:
    """The entries of files, each by where it stands: the file, and which of its entries it is.

    Raises:
        UsageError: a file cannot be read, or is malformed; the message names the entry.
    """
    entries: dict[str, AllowedFinding] = {}
    for path in paths:
        seen: dict[tuple[str, str, str | None], str] = {}
        read = datafile.from_plain(datafile.read_toml(path), _File, name=str(path))
        for number, entry in enumerate(read.finding, start=1):
            where = f"{path}, entry {number}"
            if entry.code in _NEVER_ALLOWED:
                reason = "nothing else of the wheel was looked at"
                raise UsageError(f"{where}: {entry.code.value!r} cannot be allowed: {reason}")
            first = seen.setdefault((entry.wheel, entry.code, entry.member), where)
            if first != where:
                raise UsageError(f"{where}: it repeats {first}")
            entries[where] = entry
    return entries


def apply_allowed(
    by_path: Mapping[Path, Sequence[Finding]], entries: Mapping[str, AllowedFinding], *, today: dt.date
) -> JudgedFindings:
    """Sort the findings by whether an entry of `read` lets them through."""
    current = {
        where: entry for where, entry in entries.items() if entry.expires is None or today <= entry.expires
    }
    standing: dict[Path, tuple[Finding, ...]] = {}
    allowed: dict[Path, tuple[tuple[Finding, AllowedFinding], ...]] = {}
    used: set[str] = set()
    for path, findings in by_path.items():
        by = {
            f: next((w for w, entry in current.items() if entry.covers(path.name, f)), None) for f in findings
        }
        standing[path] = tuple(finding for finding, where in by.items() if where is None)
        allowed[path] = tuple((finding, current[where]) for finding, where in by.items() if where)
        used.update(filter(None, by.values()))
    notes = []
    for where, entry in entries.items():
        if where not in current:
            notes.append(f"{where}: expired on {entry.expires}, and no longer counts")
        elif where not in used:
            about = entry.member or "the wheel as a whole"
            notes.append(f"{where}: no wheel here that matches {entry.wheel} has {entry.code} of {about}")
    return JudgedFindings(findings=standing, allowed=allowed, notes=tuple(notes))
