"""Findings of `verify` that are known and let through, each with a reason, in a file that is reviewed.

A TOML file: `schema = "cairn.allow/1"`, and a table for each finding:

    [[finding]]
    wheel = "torch-*-manylinux_2_28_x86_64.whl"   # a glob of file names
    code = "rpath"
    member = "torch/bin/*"                        # a glob of members; none for the whole wheel
    reason = "test programs, unused in an installed wheel"
    expires = 2027-01-31                          # optional: the first day on which it no longer counts
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

import msgspec

from cairn import datafile
from cairn.errors import UsageError
from cairn.wheels.verify.findings import Finding, FindingCode

_Text = Annotated[str, msgspec.Meta(pattern=r"\S")]
# After these nothing, or not everything, was looked at.
_NEVER_ALLOWED = frozenset((FindingCode.ARCHIVE, FindingCode.METADATA))


class AllowedFinding(datafile.Value):
    """One entry.

    Attributes:
        wheel: a glob of the file names of wheels.
        code: of the finding.
        member: a glob of the members it is about, or None for one about the wheel as a whole.
        reason: why it may be there.
        expires: the first day on which the entry no longer counts, or None.
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


@dataclass(frozen=True, kw_only=True)
class JudgedFindings:
    """The findings on some wheels, sorted by whether they are allowed.

    Attributes:
        findings: wheel to those that stand.
        allowed: wheel to those that are let through, each with the entry that does it.
        notes: entries that have expired, and those that let nothing through.
    """

    findings: Mapping[Path, tuple[Finding, ...]]
    allowed: Mapping[Path, tuple[tuple[Finding, AllowedFinding], ...]]
    notes: tuple[str, ...]


def read(paths: Iterable[Path]) -> dict[str, AllowedFinding]:
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


def judge(
    by_path: Mapping[Path, Sequence[Finding]], entries: Mapping[str, AllowedFinding], *, today: dt.date
) -> JudgedFindings:
    """Sort the findings by whether an entry of `read` lets them through."""
    current = {
        where: entry for where, entry in entries.items() if entry.expires is None or today < entry.expires
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
    return JudgedFindings(findings=standing, allowed=allowed, notes=tuple(_notes(entries, used, today)))


def _notes(entries: Mapping[str, AllowedFinding], used: set[str], today: dt.date) -> Iterator[str]:
    for where, entry in entries.items():
        if entry.expires is not None and today >= entry.expires:
            yield f"{where}: expired on {entry.expires}, and no longer counts"
        elif where not in used:
            about = entry.member or "the wheel as a whole"
            yield f"{where}: no wheel here that matches {entry.wheel} has {entry.code} of {about}"
