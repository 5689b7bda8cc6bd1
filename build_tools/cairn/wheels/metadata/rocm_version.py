"""Versions of wheels that are built against a ROCm version.

| channel    | ROCm version              | suffix of the wheel's version         |
| ---------- | ------------------------- | ------------------------------------- |
| stable     | `7.10.0`                  | `+rocm7.10.0`                         |
| prerelease | `7.10.0rc1`               | `+rocm7.10.0rc1`                      |
| nightly    | `7.10.0a20251124`         | `+rocm7.10.0a20251124`                |
| nightly-bkc | `7.10.0a20251124+bkc.20251126` | `+rocm7.10.0a20251124-bkc.20251126` |
| dev        | `7.10.0.dev0+efed3c`      | `+devrocm7.10.0.dev0-efed3c`          |
| stable     | `10.0.0` and later        | `+rocmv.10.0.0.0`                     |
| prerelease | `10.0.0rc1`               | `+rocmv.10.0.0.rc.1`                  |
| nightly    | `10.0.0a20270101`         | `+rocmv.10.0.0.a.20270101`            |
| nightly-bkc | `10.0.0a20270101+bkc.20270103` | `+rocmv.10.0.0.a.20270101.bkc.20270103` |
| dev        | `10.0.0.dev0+efed3c`      | `+devrocmv.10.0.0.dev.0.efed3c`       |

A `bkc` ("best known configuration") is a nightly, built again later from sources chosen by hand; the second
date says when. It sorts above that nightly and below the next one. Each of these suffixes is read, also as
upstream writes it: `+rocm10.1.0a20260811.bkc.20260813`.

A night of another commit with the same version is a build of its own: `+rocm7.10.0.again.1` sorts above
`+rocm7.10.0`, below `+rocm7.10.1`, and below a `bkc` of the same nightly. A next stage drops it.

Why ROCm 10 is written differently: PEP 440 compares a segment of a local version as a number only when it is
digits alone, and as text otherwise. In the first form the major version hides in the text `rocm10`, which
sorts below `rocm7`, so pip would never offer the newer wheel; nor can `+rocm.10.0` help, for `rocm` alone
sorts below `rocm7` too. From ROCm 10 on every number is therefore a segment of its own, behind the text
`rocmv`, which sorts above every `rocm0` to `rocm9`. A final release ends in one more `0`: PEP 440 sorts a
number above any text, hence above `a` and `rc`, which is the order wanted. With that pip's order is the order
of the ROCm versions, in each channel and for all numbers to come (10 above 9, 100 above 99, rc10 above rc9).

Up to ROCm 9 the published form stays, with two known flaws that `sorts_above` catches before a release: a
pre-release of a patch (`7.10.1a…`) sorts below the final release before it, and `rc10` below `rc9`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from itertools import zip_longest
from typing import Literal, TypeAlias

from packaging.version import InvalidVersion, Version

from cairn.errors import UsageError, WheelError
from cairn.wheels.metadata.wheel_info import parsed_version

Channel: TypeAlias = Literal["stable", "prerelease", "nightly", "nightly-bkc", "dev"]

_SUFFIX = re.compile(r"\+[a-z0-9]+(?:[._-][a-z0-9]+)*", re.ASCII | re.IGNORECASE)
_SHORT_NUMBER = re.compile(r"[0-9]{1,9}")
_AGAIN = re.compile(r"(?P<before>.*)[+.]again\.(?P<number>[0-9]{1,9})", re.ASCII)
_BKC = re.compile(r"bkc\.[0-9]{8}", re.ASCII)
_FIRST_SEGMENTED = 10  # the first major version of ROCm whose numbers are segments of their own
_RELEASE_PARTS = 3
_FAT = "fat"  # a segment of ours: the wheel carries the ROCm libraries itself
# ROCm/TheRock 89553ce, external-builds/pytorch/build_prod_wheels.py
_MARK = "rocm"
_DEV_MARK = "devrocm"
_SEGMENTED = "v"  # what follows a mark in the segmented form
_FINAL = "0"  # what ends a final release in the segmented form


def suffix(rocm_version: str) -> str:
    """What to append to a project's version, `+` included; see the table above.

    Args:
        rocm_version: the version of the ROCm packages that the wheel needs.

    Raises:
        WheelError: the ROCm version belongs to no channel.
    """
    version = parsed_version(rocm_version)
    mark = _DEV_MARK if channel_of(rocm_version) == "dev" else _MARK
    if version.release[0] >= _FIRST_SEGMENTED:
        text = _segmented(version)
    else:
        # The way published so far; the dash is what upstream writes, and PEP 440 reads it as a dot.
        text = f"{version.public}-{version.local}" if version.local else version.public
    return f"+{mark}{text}"


def check_suffix(suffix: str) -> None:
    """Refuse what cannot be appended to a version, since it goes into file names and environments as it is.

    Raises:
        UsageError: not `+` and a local version (PEP 440, "Local version identifiers").
    """
    if not _SUFFIX.fullmatch(suffix):
        raise UsageError(
            f"{suffix[:100]!r} cannot be appended to a version",
            tip="a suffix is + and letters, digits and dots: +rocm7.10.0",
        )


def with_suffix(base: str, suffix: str) -> str:
    """`base` with a suffix from `suffix()`; a local part that `base` has already stays before it.

    Raises:
        WheelError: not a version.
    """
    joined = f"{base}.{suffix.removeprefix('+')}" if parsed_version(base).local else f"{base}{suffix}"
    parsed_version(joined)
    return joined


def again(version: str, number: int) -> str:
    """Mark a version, or a suffix of one, as that of a later build; 0 is the first, which has no mark."""
    return f"{version}{'.' if '+' in version else '+'}again.{number}" if number else version


def without_again(version: str) -> tuple[str, int]:
    """Return a version without the mark of `again`, and its number."""
    match = _AGAIN.fullmatch(version)
    return (match["before"], int(match["number"])) if match else (version, 0)


def with_rocm(version: str, rocm_version: str) -> str:
    """A wheel's version, naming a new ROCm version: in the place of the one it names, else at its end.

    Raises:
        WheelError: not a version; a ROCm version of no channel; a local part such as `cpu` or `cu128`, which
            is that of a different kind of build; a fat wheel, whose libraries are of a different release.
    """
    parsed = parsed_version(version)
    split = _split(parsed)
    local = Version(without_again(str(parsed))[0]).local
    before = split[0] if split else tuple(local.split(".")) if local else ()
    strange = next((part for part in before if part != _FAT and not part.startswith("git")), None)
    if strange is not None:
        raise WheelError(
            f"{version} is the version of a different kind of build ({strange})",
            tip="give the whole version: --version",
        )
    if split and _FAT in before and Version(split[1]).release != parsed_version(rocm_version).release:
        raise WheelError(
            f"a wheel of {version} carries ROCm {split[1]} itself", tip="make it again: `cairn wheel fat`"
        )
    local = ".".join((*before, suffix(rocm_version).removeprefix("+")))
    return str(Version(f"{parsed.public}+{local}"))


def rocm_version_of(version: str) -> str | None:
    """The ROCm version that a wheel's version names, or None.

    Raises:
        WheelError: not a version.
    """
    split = _split(parsed_version(version))
    return None if split is None else split[1]


def channel_of(rocm_version: str) -> Channel:
    """The channel that a ROCm version belongs to.

    Raises:
        WheelError: a version of no channel, such as one that is both a pre-release and a dev release.
    """
    version = parsed_version(rocm_version)
    kind = version.pre[0] if version.pre else None
    known_local = version.dev is not None or (kind == "a" and _is_bkc(version))
    if version.epoch or (kind and version.dev is not None) or (version.local and not known_local):
        raise WheelError(
            f"the ROCm version {version} belongs to no channel",
            tip="write 7.10.0, 7.10.0rc1, 7.10.0a20251124 (perhaps +bkc.20251126) or 7.10.0.dev0+commit",
        )
    if version.dev is not None:
        return "dev"
    if kind == "a":
        return "nightly-bkc" if version.local else "nightly"
    return "prerelease" if kind else "stable"


def promote(version: str, stage: str) -> str:
    """A wheel's version one stage further: the ROCm version in it when it names one, else its own.

    `2.9.0+rocm7.10.0a20260501` becomes `2.9.0+rocm7.10.0rc1`, then `2.9.0+rocm7.10.0`; all else stays.

    Args:
        version: the version so far.
        stage: `rc1`, `rc2`, … or `final`.

    Raises:
        WheelError: not a version, an unknown stage, a dev build, or a step back.
    """
    parsed = parsed_version(version)
    split = _split(parsed)
    if split is None:
        return _staged(parsed, stage)
    before, rocm = split
    local = ".".join((*before, suffix(_staged(Version(rocm), stage)).removeprefix("+")))
    return f"{parsed.public}+{local}"


def sorts_above(new: str, existing: Iterable[str]) -> str | None:
    """Check that pip would prefer `new` to every existing version.

    Returns:
        None when `new` is not below any of `existing` (an equal version is fine: more of its files
        may come); else a sentence that names the version above it and why it is.

    Raises:
        WheelError: not a version.
    """
    version = parsed_version(new)
    highest = max((parsed_version(text) for text in existing), default=version)
    if highest <= version:
        return None
    return f"{new} sorts below {highest}, which the index has already: {_reason(version, highest)}"


def _is_bkc(version: Version) -> bool:
    return _BKC.fullmatch(version.local or "") is not None


def _segmented(version: Version) -> str:
    release = list(version.release)
    while len(release) > _RELEASE_PARTS and not release[-1]:
        release.pop()
    release += [0] * (_RELEASE_PARTS - len(release))
    parts = [_SEGMENTED, *map(str, release)]
    if version.pre:
        parts += [version.pre[0], str(version.pre[1])]
    elif version.dev is None:
        parts.append(_FINAL)
    if version.post is not None:
        parts += ["post", str(version.post)]
    if version.dev is not None:
        parts += ["dev", str(version.dev)]
    return ".".join(parts + ([version.local] if version.local else []))


def _split(version: Version) -> tuple[tuple[str, ...], str] | None:
    """The local segments before the ROCm version, and the ROCm version."""
    version = Version(without_again(str(version))[0])
    segments = version.local.split(".") if version.local else []
    for index, segment in enumerate(segments):
        for mark in (_DEV_MARK, _MARK):
            if segment.startswith(mark):
                rest = [segment.removeprefix(mark), *segments[index + 1 :]]
                rocm = _read(rest, dev=mark == _DEV_MARK)
                return None if rocm is None else (tuple(segments[:index]), rocm)
    return None


def _read(parts: list[str], *, dev: bool) -> str | None:
    if dev:
        parts, local = _cut_commit(parts)
    else:  # a nightly: which configuration it is of stands behind its date
        at = parts.index("bkc") if "bkc" in parts else len(parts)
        parts, local = parts[:at], parts[at:]
    if parts[0] == _SEGMENTED:
        parts = parts[1:]
        final = not dev and all(part.isdecimal() for part in parts[: _RELEASE_PARTS + 1])
        if final:
            # `10.0.0.0.post.1`: without the zero that marks a final release.
            count = next((i for i, part in enumerate(parts) if not part.isdecimal()), len(parts))
            parts = parts[: count - 1] + parts[count:]
        text = ".".join(parts)
    else:
        text = ".".join(part for part in parts if part)
    with contextlib.suppress(InvalidVersion):
        return str(Version("+".join((text, *([".".join(local)] if local else [])))))
    return None


def _cut_commit(parts: list[str]) -> tuple[list[str], list[str]]:
    """A dev version's parts up to its dev number, and those after it."""
    for index, part in enumerate(parts):
        if part.startswith("dev"):
            end = index + (1 if part != "dev" else 2)
            return parts[:end], parts[end:]
    return parts, []


def _staged(version: Version, stage: str) -> str:
    if version.dev is not None or (version.local and not _is_bkc(version)):
        raise WheelError(f"{version} is a dev build and cannot be promoted", tip="promote a nightly")
    release = ".".join(map(str, version.release))
    number = stage.removeprefix("rc")
    if stage != "final" and not (stage.startswith("rc") and _SHORT_NUMBER.fullmatch(number)):
        raise WheelError(f"unknown stage {stage!r}", tip="a stage is rc1, rc2, … or final")
    new = release if stage == "final" else f"{release}rc{int(number)}"
    if Version(new) <= version:
        raise WheelError(f"{version} cannot be promoted to {new}: that is not a step forward")
    return new


def _reason(low: Version, high: Version) -> str:
    if Version(low.public) != Version(high.public):
        return f"{low.public} is older than {high.public}"
    pairs = zip_longest((low.local or "").split("."), (high.local or "").split("."), fillvalue="")
    mine, theirs = next(pair for pair in pairs if pair[0] != pair[1])
    if mine.isdecimal() and theirs.isdecimal():
        return f"{mine} is less than {theirs}"
    if mine and theirs and not mine.isdecimal() and not theirs.isdecimal():
        split = _split(low)
        segmented = split is not None and Version(split[1]).release[0] >= _FIRST_SEGMENTED
        advice = f"; write it {low.public}{suffix(split[1])}" if split and segmented else ""
        return f"pip compares {mine!r} with {theirs!r} as text{advice}"
    if mine and theirs:
        return f"to pip a number such as {theirs!r} is above a text such as {mine!r}"
    return f"it has no segment to compare with {theirs!r}"


def is_before(version: str, release: str) -> bool:
    """Whether a ROCm version belongs to a release before `release`; a nightly belongs to its own release.

    Raises:
        WheelError: one of them is not a version.
    """
    return parsed_version(version).release < parsed_version(release).release
