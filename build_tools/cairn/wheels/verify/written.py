"""Refusing wheels that came out worse than what they were made of.

Every command that writes a wheel judges it before it stands where it was to be, and compares the findings
with those on its sources. What was copied is not read again: `formats.zip.writer` has compared it, byte for
byte.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

from cairn.errors import WheelError
from cairn.formats.zip.reader import Archive
from cairn.wheels.verify import judge_archive, judge_together
from cairn.wheels.verify.contents import Contents
from cairn.wheels.verify.findings import Expectation, Finding, FindingCode, Verdict

Judged: TypeAlias = tuple[Verdict, Contents]
"""What `judge_source` returns."""

_OF_VERSION = re.compile(r"^[^/]+(\.(?:dist-info|data))(?=/|$)")
# What moves with the code from libraries into archives, and back.
_OF_DEVICE_CODE = frozenset(
    (
        FindingCode.BUNDLE_MALFORMED,
        FindingCode.CODE_OBJECT_MALFORMED,
        FindingCode.CODE_OBJECT_EMPTY,
        FindingCode.KPACK_MALFORMED,
    )
)


def judge_source(archive: Archive, expected: Expectation, *, before: Sequence[Contents] = ()) -> Judged:
    """Judge a wheel by itself, its symbols too; for `before` see `contents.read`."""
    verdict, read = judge_archive(archive, expected, before=before)
    return judge_together({archive.path: verdict}, {})[archive.path], read


def require_no_worse(
    wheel: Path,
    expected: Expectation,
    sources: Sequence[Judged],
    *,
    brought: Collection[tuple[FindingCode, str]] = (),
) -> None:
    """Refuse a wheel with a finding that none of its sources has, of its code and on its member.

    Args:
        wheel: the wheel, where it was written for now.
        expected: what its sources were judged by.
        sources: the verdicts on what it was made of.
        brought: code and member of the findings that files from elsewhere brought with them.

    Raises:
        WheelError: there is one.
    """
    with Archive.open(wheel) as archive:
        verdict, _ = judge_source(archive, expected, before=[read for _, read in sources])
    _compare(wheel, verdict, [before for before, _ in sources], brought)


def require_edited(source: Archive, wheel: Path) -> None:
    """Refuse a wheel whose metadata have a finding after an edit of them that they did not have before.

    Raises:
        WheelError: there is one.
    """
    expected = Expectation(require_platform_tag=False)
    with Archive.open(wheel) as archive:
        before, after = (
            judge_archive(each, expected, only={m.name for m in each.members if ".dist-info/" in m.name})[0]
            for each in (source, archive)
        )
    _compare(wheel, after, [before])


def _compare(
    wheel: Path,
    verdict: Verdict,
    sources: Iterable[Verdict],
    brought: Collection[tuple[FindingCode, str]] = (),
) -> None:
    had = Counter(_place(finding) for before in sources for finding in before.findings)
    new = []
    for finding in verdict.findings:
        had[_place(finding)] -= 1
        if had[_place(finding)] < 0 and (finding.code, finding.member) not in brought:
            new.append(finding)
    if new:
        first, more = new[0], f" (and {len(new) - 1} more)" if len(new) > 1 else ""
        where = f"{first.member}: " if first.member else ""
        raise WheelError(
            f"{wheel.name} would be worse than before: [{first.code}] {where}{first.reason}{more}",
            tip=first.fix,
        )


def _place(finding: Finding) -> tuple[str, str]:
    """The code and the member of a finding, which are the same on a wheel of a different version."""
    member = "" if finding.code in _OF_DEVICE_CODE else finding.member or ""
    return finding.code, _OF_VERSION.sub(r"\1", member, count=1)
