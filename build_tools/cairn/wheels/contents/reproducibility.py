"""Where two builds of one wheel differ, member by member, and why.

The causes are those that diffoscope and the Reproducible Builds project (https://reproducible-builds.org/docs/)
tell apart: a time, a path of the machine, an order that nobody fixed, another compiler. A time, path or
compiler's name is one where the lines or strings that differ do so in it; what still differs once all of them
count as the same is `content`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from cairn import datafile
from cairn.errors import CairnError
from cairn.formats import elf
from cairn.formats.zip.reader import Archive, Member
from cairn.output.safe_text import visible

Cause = Literal["time", "path", "order", "compiler", "mode", "packing", "content", "missing", "added"]
"""Why a member differs: `packing` is how the archive holds equal contents, `missing` and `added` are members
that only the first or only the second wheel has."""

WHOLE = "(archive)"
"""Stands for the member where a difference is of the archive alone."""

_LARGEST = 256 << 20  # bytes; of a larger member nobody waits for an explanation
_SHOWN = 100  # characters of an example
_TEXT = re.compile(rb"[\x20-\x7e\t]{4,}")  # what strings(1) shows
_MASKS: tuple[tuple[Cause, re.Pattern[bytes]], ...] = (
    ("compiler", re.compile(rb"(?:GCC: \(|clang version |LLVM|Linker: |rustc )[\x20-\x7e]*")),
    (
        "time",
        re.compile(
            rb"\d{4}-[01]\d-[0-3]\d(?:[T ][0-2]\d:[0-5]\d(?::[0-5]\d(?:\.\d+)?)?(?:Z|[+-][01]\d:?\d\d)?)?"
            rb"|(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) )?(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
            rb" [ 0-3]\d (?:[0-2]\d:[0-5]\d:[0-5]\d )?\d{4}"
            rb"|(?<!\d)[0-2]\d:[0-5]\d:[0-5]\d(?!\d)|(?<!\d)1[5-9]\d{8}(?!\d)"
        ),
    ),
    ("path", re.compile(rb"(?:[A-Za-z]:)?(?:[/\\][^/\\\0:;,'\"<>|\s]+){2,}[/\\]?")),
)


class MemberDifference(datafile.Value):
    """A member that is not the same in two builds of a wheel.

    Attributes:
        member: its path; `(archive)` where all members are alike and their archive is not.
        causes: why.
        example: the first thing that differs, as it is in each, on one line.
    """

    member: str
    causes: tuple[Cause, ...]
    example: str


def differences(first: Path, second: Path) -> tuple[MemberDifference, ...]:
    """Compare two builds of a wheel, whose bytes differ.

    The list of digests in RECORD is left out where it differs only by members that are named themselves.

    Raises:
        WheelError: one of them cannot be read.
    """
    with Archive.open(first) as first_archive, Archive.open(second) as second_archive:
        before = {member.name: member for member in first_archive.members}
        after = {member.name: member for member in second_archive.members}
        result = [_only(name, "missing") for name in before if name not in after]
        result += [_only(name, "added") for name in after if name not in before]
        for name in sorted(before.keys() & after.keys()):
            if (
                difference := _of_member(first_archive, before[name], second_archive, after[name])
            ) is not None:
                result.append(difference)
        named = {difference.member for difference in result}
        records = {name for name in named if name.endswith(".dist-info/RECORD")}
        for name in records & before.keys() & after.keys():
            if _lists_only(first_archive.read(name), second_archive.read(name), named):
                result = [difference for difference in result if difference.member != name]
        common = [name for name in before if name in after]
        if common != [name for name in after if name in before]:
            result.append(
                MemberDifference(member=WHOLE, causes=("order",), example="the members are in another order")
            )
    return tuple(result) or (
        MemberDifference(
            member=WHOLE, causes=("packing",), example="equal members, deflated or laid out in another way"
        ),
    )


def _only(name: str, cause: Cause) -> MemberDifference:
    which = "first" if cause == "missing" else "second"
    return MemberDifference(member=name, causes=(cause,), example=f"only the {which} wheel has it")


def _of_member(first: Archive, before: Member, second: Archive, after: Member) -> MemberDifference | None:
    """What differs in a member that both wheels have; None if nothing does."""
    causes: list[Cause] = []
    examples: list[str] = []
    if before.stamp != after.stamp:
        causes.append("time")
        examples.append(f"ZIP time {_moment(before.stamp)} and {_moment(after.stamp)}")
    if before.mode != after.mode:
        causes.append("mode")
        examples.append(f"mode {before.mode:o} and {after.mode:o}")
    same = (before.size, before.crc) == (after.size, after.crc) and (
        first.digest(before.name) == second.digest(after.name)
    )
    if not same and max(before.size, after.size) > _LARGEST:
        causes.append("content")
        examples.append(f"{before.size:,} and {after.size:,} bytes, too large to be explained")
    elif not same:
        contents = (archive.read(before.name, limit=_LARGEST) for archive in (first, second))
        why, example = explain(before.name, *contents)
        causes += why
        examples.append(example)
    if not causes:
        return None
    return MemberDifference(
        member=before.name, causes=tuple(dict.fromkeys(causes)), example="; ".join(examples)
    )


def explain(name: str, first: bytes, second: bytes) -> tuple[tuple[Cause, ...], str]:
    """Why the contents of a member differ, and the first thing that does, as it is in each."""
    if name.endswith(".pyc") and first[16:] == second[16:] and first[:8] == second[:8]:
        # Magic number, flags, and then the source's time and size (PEP 552).
        return ("time",), "the time of the source in the header"
    text = b"\0" not in first and b"\0" not in second
    units_of_first, units_of_second = (
        data.splitlines() if text else _TEXT.findall(data) for data in (first, second)
    )
    causes: list[Cause] = []
    example = _example(units_of_first, units_of_second)
    for cause, pattern in _MASKS:
        matches = [
            Counter(match for unit in units for match in pattern.findall(unit))
            for units in _differing(units_of_first, units_of_second)
        ]
        if matches[0] != matches[1]:
            causes.append(cause)
        units_of_first, units_of_second = (
            [pattern.sub(b"\0", unit) for unit in units] for units in (units_of_first, units_of_second)
        )
    if any(_differing(units_of_first, units_of_second)):
        causes.append("content")
    elif units_of_first != units_of_second or (not causes and (text or Counter(first) == Counter(second))):
        causes.append("order")
    elif not causes:
        causes.append("content")
    return tuple(causes), example or _place(first, second)


def _differing(first: Sequence[bytes], second: Sequence[bytes]) -> tuple[Counter[bytes], Counter[bytes]]:
    """The lines or strings that only one of the two has."""
    a, b = Counter(first), Counter(second)
    return a - b, b - a


def _example(first: Sequence[bytes], second: Sequence[bytes]) -> str:
    """The first lines or strings that are not the same."""
    for a, b in zip(first, second, strict=False):
        if a != b:
            return f"{_shown(a, b)} and {_shown(b, a)}"
    rest = [*first[len(second) :], *second[len(first) :]]
    return f"only one has {_shown(rest[0], b'')}" if rest else ""


def _shown(unit: bytes, beside: bytes) -> str:
    """A line, from shortly before the place where it begins to differ from the one beside it."""
    same = next((i for i, (a, b) in enumerate(zip(unit, beside, strict=False)) if a != b), 0)
    start = max(0, same - _SHOWN // 2)
    return repr(visible(unit[start : start + _SHOWN].decode("utf-8", "replace")))


def _place(first: bytes, second: bytes) -> str:
    """Where two binaries without a differing text begin to differ."""
    at = next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), None)
    if at is None:
        return f"{len(first):,} and {len(second):,} bytes"
    return f"byte {at:,}{''.join(_section(first, at))}"


def _section(data: bytes, at: int) -> Iterator[str]:
    if not elf.is_elf(data):
        return
    try:
        sections = elf.read(data).sections
    except CairnError:
        return
    for section in sections:
        if section.offset <= at < section.offset + section.size:
            yield f", in {section.name}"


def _lists_only(first: bytes, second: bytes, named: set[str]) -> bool:
    """Whether two RECORDs differ by lines of these members alone, and in the same order."""
    lines = [data.decode("utf-8", "replace").splitlines() for data in (first, second)]
    rest = [[line for line in each if line.rsplit(",", 2)[0].strip('"') not in named] for each in lines]
    return rest[0] == rest[1]


def _moment(stamp: int) -> str:
    """A DOS date and time (APPNOTE.TXT 4.4.6) in words."""
    date, time = stamp >> 16, stamp & 0xFFFF
    day = f"{(date >> 9) + 1980}-{date >> 5 & 15:02}-{date & 31:02}"
    return f"{day} {time >> 11:02}:{time >> 5 & 63:02}:{(time & 31) * 2:02}"
