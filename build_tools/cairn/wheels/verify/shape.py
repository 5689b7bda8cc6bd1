"""Whether the wheels of one version are of one shape: what they require, and which files they bring.

uv resolves for every platform from the METADATA of one wheel, and takes it for that of all
(astral-sh/uv#10119). So requirements, extras and the rest of what a resolver reads must be the same in all
wheels of a version, with markers where platforms differ. Files differ between platforms, and seldom between
the Pythons of one platform: there a build may have lost some, or packed what it should not. That is a note,
since there may be a reason: numpy has `numpy.distutils` up to Python 3.11 alone.

Not compared are wheels of different variants; files that a repair tool grafts; compiled Python; builds for
PyPy and for free-threaded Python with those for CPython.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from cairn import requirements
from cairn.formats.zip.reader import Archive
from cairn.output import wording
from cairn.wheels.metadata import wheel_info
from cairn.wheels.metadata.wheel_info import WheelInfo, installed_path
from cairn.wheels.verify.findings import Finding, FindingCode

# `_C.cpython-311-x86_64-linux-gnu.so`, `_C.cp311-win_amd64.pyd`, `_C.abi3.so`, `_C.pyd`: one module.
_MODULE = re.compile(r"(?:\.(?:cpython|cp|pypy|graalpy)-?\d[\w-]*|\.abi3t?)?\.(so|pyd|lib)$")
_ENDS = {"so": ".so", "pyd": ".so", "lib": ".lib"}  # numpy packs what its modules on Windows are linked by
# auditwheel, delocate and delvewheel put libraries and notes into places of their own.
_OF_REPAIR = re.compile(
    r"(?:^|/)__pycache__/|\.libs/|/\.dylibs/|\.dist-info/(?:RECORD(?:\.\w+)?|WHEEL|METADATA|DELVEWHEEL|sboms/.*)$"
)
_PLATFORM = re.compile(r"(?P<system>manylinux|musllinux|linux|macosx|win)\d*(?:_\d+)*_(?P<machine>[a-z].*)")

_SAME_METADATA = "give all wheels of a version the same METADATA; use markers where platforms differ"
_LOOK_AT_BUILD = "build it again, and look at what the build packs for each Python"


def differences(wheels: Sequence[Path]) -> Iterator[tuple[Path, Finding]]:
    """What differs without a reason between wheels of one version, each with the wheel that stands out.

    Raises:
        WheelError: a wheel cannot be read.
    """
    names: dict[tuple[str, str, str | None], list[Path]] = {}
    for path in wheels:
        name = wheel_info.parse_file_name(path.name, variants_too=True)
        names.setdefault((name.distribution, name.version, name.variant), []).append(path)
    # A wheel that stands alone is not read again.
    groups = ([_read(path) for path in paths] for paths in names.values() if len(paths) > 1)
    for group in groups:
        for what, read in _OF_RESOLVERS.items():
            values = [(info, read(info)) for info, _ in group]
            yield from _findings(FindingCode.SHAPE_DIFFERS, _SAME_METADATA, what, values)
        by_build: dict[tuple[str, str], list[tuple[WheelInfo, frozenset[str]]]] = {}
        for info, files in group:
            for build in _builds(info):
                by_build.setdefault(build, []).append((info, files))
        for build, several in by_build.items():
            where = f"for {' '.join(build)}, "
            yield from _findings(FindingCode.FILES_DIFFER, _LOOK_AT_BUILD, "file", several, where)


def overwritten(wheels: Sequence[Path]) -> Iterator[tuple[Path, Finding]]:
    """Files that wheels of two projects, installed together, would write in one place with other content.

    Raises:
        WheelError: a wheel cannot be read.
    """
    infos = [_read(path)[0] for path in wheels] if len(wheels) > 1 else []
    owners: dict[str, list[tuple[WheelInfo, str | None]]] = {}
    for info in infos if len({info.distribution for info in infos}) > 1 else []:
        for row in info.record:
            owners.setdefault(installed_path(row.path), []).append((info, row.digest))
    for path, ((first, digest), *others) in owners.items():
        for info, content in others:
            if info.distribution != first.distribution and content != digest and _meet(info, first):
                reason = f"{first.file_name} has other content there, and one is written over the other"
                fix = "leave it out of one of the wheels"
                yield info.path, Finding(code=FindingCode.OVERWRITES, member=path, reason=reason, fix=fix)


def _meet(first: WheelInfo, second: WheelInfo) -> bool:
    """Whether there may be a Python that takes both."""
    pythons, systems = [], []
    for info in (first, second):
        pythons.append({tag.split("-")[0] for tag in info.tags if "-abi3-" not in tag and tag[:2] != "py"})
        systems.append({system for _, system in _builds(info)})
    same_python = not all(pythons) or pythons[0] & pythons[1]
    return bool(same_python and ("any" in systems[0] | systems[1] or systems[0] & systems[1]))


def _read(wheel: Path) -> tuple[WheelInfo, frozenset[str]]:
    """What a wheel says about itself, and the paths of its files as those of other Pythons have them."""
    with Archive.open(wheel) as archive:
        info = wheel_info.read_archive(archive, variants_too=True)
        files = (_neutral(member.name) for member in archive.members if not member.is_dir)
        return info, frozenset(path for path in files if path)


def _requirements(info: WheelInfo) -> frozenset[str]:
    return frozenset(map(requirements.neutral, info.requires_dist))


def _entry_points(info: WheelInfo) -> frozenset[str]:
    groups = info.entry_points.items()
    return frozenset(f"{group}: {name} = {place}" for group, names in groups for name, place in names.items())


_OF_RESOLVERS: dict[str, Callable[[WheelInfo], frozenset[str]]] = {
    "requirement": _requirements,
    "extra": lambda info: frozenset(map(canonicalize_name, info.extras)),
    "Requires-Python": lambda info: frozenset([info.requires_python] if info.requires_python else ()),
    "entry point": _entry_points,
}


def _findings(
    code: FindingCode, fix: str, what: str, group: Sequence[tuple[WheelInfo, frozenset[str]]], where: str = ""
) -> Iterator[tuple[Path, Finding]]:
    """The wheels of a group that have other values than most of it."""
    # Of several that are as frequent, the first.
    usual = Counter(values for _, values in group).most_common(1)[0][0]
    example = next(info.file_name for info, values in group if values == usual)
    for info, values in group:
        if values != usual:
            reason = where + _difference(what, usual - values, values - usual, example)
            yield info.path, Finding(code=code, reason=reason, fix=fix)


def _difference(what: str, lacking: frozenset[str], more: frozenset[str], example: str) -> str:
    parts = []
    if lacking:
        parts.append(f"it lacks the {what}{'s' * (len(lacking) > 1)} {wording.some(sorted(lacking))}")
    if more:
        parts.append(f"it has the {what}{'s' * (len(more) > 1)} {wording.some(sorted(more))}")
    return f"{' and '.join(parts)}, unlike {example}"


def _neutral(path: str) -> str:
    """The path in site-packages, the same for every Python; empty for what is not compared."""
    if _OF_REPAIR.search(path):
        return ""
    return _MODULE.sub(lambda match: _ENDS[match[1]], installed_path(path))


def _builds(info: WheelInfo) -> Iterator[tuple[str, str]]:
    """The kinds of interpreter and system that it is for, among which files must be the same."""
    seen = set()
    for tag in info.tags:
        python, abi, platform = tag.split("-")
        match = _PLATFORM.fullmatch(platform)
        system = platform if match is None else f"{match['system']} {match['machine']}"
        kind = "abi3" if abi.startswith("abi3") else python.rstrip("0123456789")
        seen.add((f"{kind}t" if abi.endswith("t") and kind == "cp" else kind, system))
    yield from sorted(seen)
