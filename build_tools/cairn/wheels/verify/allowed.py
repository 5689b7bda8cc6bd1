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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from cairn import datafile
from cairn.errors import UsageError
from cairn.wheels.verify.findings import Finding, FindingCode

SCHEMA = "cairn.allow/1"
_KEYS = frozenset(("wheel", "code", "member", "reason", "expires"))
_REQUIRED = ("wheel", "code", "reason")
# After these nothing, or not everything, was looked at.
_NEVER_ALLOWED = frozenset((FindingCode.ARCHIVE, FindingCode.METADATA))


@dataclass(frozen=True, kw_only=True)
class AllowedFinding:
    """One entry.

    Attributes:
        wheel: a glob of the file names of wheels.
        code: of the finding.
        member: a glob of the members it is about, or None for one about the wheel as a whole.
        reason: why it may be there.
        expires: the first day on which the entry no longer counts, or None.
        where: the file, and which of its entries this is.
    """

    wheel: str
    code: FindingCode
    member: str | None = None
    reason: str
    expires: dt.date | None = None
    where: str

    def covers(self, wheel: str, finding: Finding) -> bool:
        """Whether it is about that finding on the wheel of that file name."""
        if finding.code != self.code or not fnmatchcase(wheel, self.wheel):
            return False
        # `*` of fnmatch matches `/` too: `demo/*` is about everything below demo.
        if self.member is None or finding.member is None:
            return self.member is finding.member
        return fnmatchcase(finding.member, self.member)


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The findings on some wheels, sorted by whether they are allowed.

    Attributes:
        findings: wheel to those that stand.
        allowed: wheel to those that are let through, each with the entry that does it.
        notes: entries that have expired, and those that let nothing through.
    """

    findings: Mapping[Path, tuple[Finding, ...]]
    allowed: Mapping[Path, tuple[tuple[Finding, AllowedFinding], ...]]
    notes: tuple[str, ...]


def read(path: Path) -> tuple[AllowedFinding, ...]:
    """Read a file.

    Raises:
        UsageError: it cannot be read, or is malformed; the message names the entry.
    """
    data = datafile.read_toml(path)
    if data.get("schema") != SCHEMA:
        raise UsageError(f"{path}: schema is {data.get('schema')!r}, expected {SCHEMA!r}")
    if unknown := sorted(data.keys() - {"schema", "finding"}):
        raise UsageError(f"{path}: unknown key {unknown[0]}")
    tables = data.get("finding", [])
    if not isinstance(tables, list):
        raise UsageError(f"{path}: finding is not an array of tables: [[finding]]")
    entries = tuple(_entry(table, f"{path}, entry {n}") for n, table in enumerate(tables, start=1))
    seen: dict[tuple[str, str, str | None], AllowedFinding] = {}
    for entry in entries:
        first = seen.setdefault((entry.wheel, entry.code, entry.member), entry)
        if first is not entry:
            raise UsageError(f"{entry.where}: it repeats {first.where}")
    return entries


def judge(
    by_path: Mapping[Path, Sequence[Finding]], entries: Sequence[AllowedFinding], *, today: dt.date
) -> Judged:
    """Sort the findings by whether an entry lets them through."""
    current = [entry for entry in entries if entry.expires is None or today < entry.expires]
    standing: dict[Path, tuple[Finding, ...]] = {}
    allowed: dict[Path, tuple[tuple[Finding, AllowedFinding], ...]] = {}
    for path, findings in by_path.items():
        by = {f: next((entry for entry in current if entry.covers(path.name, f)), None) for f in findings}
        standing[path] = tuple(finding for finding, entry in by.items() if entry is None)
        allowed[path] = tuple((finding, entry) for finding, entry in by.items() if entry is not None)
    used = {entry.where for pairs in allowed.values() for _, entry in pairs}
    return Judged(findings=standing, allowed=allowed, notes=tuple(_notes(entries, used, today)))


def _notes(entries: Sequence[AllowedFinding], used: set[str], today: dt.date) -> Iterator[str]:
    for entry in entries:
        if entry.expires is not None and today >= entry.expires:
            yield f"{entry.where}: expired on {entry.expires}, and no longer counts"
        elif entry.where not in used:
            about = entry.member or "the wheel as a whole"
            yield f"{entry.where}: no wheel here that matches {entry.wheel} has {entry.code} of {about}"


def _entry(table: object, where: str) -> AllowedFinding:
    if not isinstance(table, dict):
        raise UsageError(f"{where}: it is not a table: [[finding]]")
    if unknown := sorted(table.keys() - _KEYS):
        raise UsageError(f"{where}: unknown key {unknown[0]}")
    if missing := [key for key in _REQUIRED if key not in table]:
        raise UsageError(f"{where}: {missing[0]} is missing")
    for key, value in table.items():
        if key == "expires" and type(value) is not dt.date:
            raise UsageError(f"{where}: expires is {value!r}, expected a date such as 2027-01-31")
        if key != "expires" and not (isinstance(value, str) and value.strip()):
            raise UsageError(f"{where}: {key} is {value!r}, expected a string that is not empty")
    return AllowedFinding(**{**table, "code": _code(table["code"], where)}, where=where)


def _code(text: str, where: str) -> FindingCode:
    if text not in set(FindingCode):
        raise UsageError(
            f"{where}: verify has no finding {text!r}", tip="docs/reference/findings.md lists the codes"
        )
    if text in _NEVER_ALLOWED:
        raise UsageError(f"{where}: {text!r} cannot be allowed: nothing else of the wheel was looked at")
    return FindingCode(text)
