"""Giving wheels new versions, so that those that are changed together still fit each other.

The files in a wheel that state its version, or the ROCm version it is for, follow. Sources: the setup.py of
torch, torchaudio and torchvision write `version.py`, torch reads `_rocm_init.py`; setuptools-scm's
`_version_as_tuple`; ROCm/TheRock 89553ce, build_tools/packaging/promote_packages.py lists those, and what
the SDK's packages have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from cairn import files
from cairn.errors import WheelError
from cairn.formats.zip import writer
from cairn.formats.zip.reader import Archive, collector_paused
from cairn.requirements import is_sdk
from cairn.wheels.metadata import device_names, rocm_version, wheel_info
from cairn.wheels.metadata.fields import parse_headers
from cairn.wheels.metadata.rocm_version import channel_of, promote, rocm_version_of, with_rocm
from cairn.wheels.metadata.wheel_info import WheelInfo
from cairn.wheels.rewrite import record
from cairn.wheels.rewrite.version_options import NewVersion
from cairn.wheels.rewrite.wheel import Edit, edit_archive, new_name

_EXACT = ("==", "===")
# An exact pin in the text of a requirement, so that all else of the text stays as it was written; the
# look-behind excludes `>=`, `!=`, `~=`, and the second half of `===`. Upstream's stable releases require the
# SDK by `~=` (ROCm/TheRock, issue 7347), which takes no local version (PEP 440, "Compatible release").
_PIN = re.compile(r"(?<![<>!~=])(?P<operator>={2,3}\s*)(?P<version>[^\s,;()=]+)")
_SDK_PIN = re.compile(r"(?<![<>!~=])(?P<operator>(?:={2,3}|~=)\s*)(?P<version>[^\s,;()=]+)")


@dataclass(frozen=True, kw_only=True)
class RocmChange:
    """The ROCm version that a wheel named so far, or None, and the one it names now."""

    old: str | None
    new: str


@dataclass(frozen=True, kw_only=True)
class RenamedWheel:
    """A wheel whose version changes.

    Attributes:
        file_name: its name so far, for errors.
        distribution: its project's canonical name.
        old: the version so far.
        new: the version to be.
        rocm: how the ROCm version in it changes; None when it stays, or there is none.
        siblings: the versions of wheels that change with it: canonical name to old to new.
        required: canonical names of requirements that the user gives: these are left alone.
    """

    file_name: str
    distribution: str
    old: str
    new: str
    rocm: RocmChange | None = None
    siblings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    required: Collection[str] = ()


def repinned(requirements: Collection[str], wheel: RenamedWheel) -> dict[str, str]:
    """The requirements that must change, as they are written and as they are to be.

    Exact pins follow: on the ROCm SDK (and its `~=`), on wheels that are renamed together, on any other
    project by a version that names the same ROCm, and between a wheel and its device wheels. All others
    stay, if what they allow includes the new version.

    Raises:
        WheelError: a requirement is malformed, excludes the new version without pinning the old one, or pins
            something that does not belong to the wheel as it was.
    """
    changed = {}
    for text in requirements:
        parsed = wheel_info.requirement(text)
        pinned = (
            None if canonicalize_name(parsed.name) in wheel.required else _needed_version(parsed, text, wheel)
        )
        if pinned is not None:
            changed[text] = _replaced(parsed, text, pinned, wheel)
    return changed


def _needed_version(parsed: Requirement, text: str, wheel: RenamedWheel) -> str | None:
    """The version that a requirement must allow and does not."""
    name = canonicalize_name(parsed.name)
    new = None
    if name in wheel.siblings:
        new = _of_sibling(parsed, text, wheel)
    elif wheel.rocm is not None and is_sdk(name):
        new = wheel.rocm.new
    elif wheel.rocm is not None:
        new = _by_rocm(parsed, text, wheel, wheel.rocm)
    # A wheel and its device wheels go together.
    pairs = ((name, wheel.distribution), (wheel.distribution, name))
    if new is None and any(device_names.processor_of(device, host) for device, host in pairs):
        new = wheel.new if any(Version(pin) == Version(wheel.old) for pin in _pins(parsed)) else None
    return None if new is None or parsed.specifier.contains(new, prereleases=True) else new


def _of_sibling(parsed: Requirement, text: str, wheel: RenamedWheel) -> str:
    versions = wheel.siblings[canonicalize_name(parsed.name)]
    fitting = [new for old, new in versions.items() if parsed.specifier.contains(old, prereleases=True)]
    if not fitting:
        beside = f"the {parsed.name} given with it is {', '.join(versions)}"
        raise WheelError(
            f"{wheel.file_name} requires {text}, and {beside}",
            tip="name wheels that belong together, or give the requirement too: --require",
        )
    return fitting[0]


def _by_rocm(parsed: Requirement, text: str, wheel: RenamedWheel, rocm: RocmChange) -> str | None:
    for pin in _pins(parsed):
        if parsed.name.lower().startswith("rocm") and rocm.old and Version(pin) == Version(rocm.old):
            return rocm.new
        named = rocm_version.rocm_version_of(pin)
        if named is None or Version(named) == Version(rocm.new):
            continue
        if rocm.old is not None and Version(named) != Version(rocm.old):
            raise WheelError(
                f"{wheel.file_name} is of ROCm {rocm.old} and requires {text}",
                tip=f"name the wheel of {parsed.name} too, or give the requirement: --require",
            )
        return rocm_version.with_rocm(pin, rocm.new)
    return None


def _pins(parsed: Requirement) -> Iterator[str]:
    for specifier in parsed.specifier:
        if specifier.operator in _EXACT and not specifier.version.endswith(".*"):
            try:
                yield str(Version(specifier.version))
            except InvalidVersion:  # `===` takes any text (PEP 440, "Arbitrary equality")
                continue


def _replaced(parsed: Requirement, text: str, specifier: str, wheel: RenamedWheel) -> str:
    head, mark, tail = text.partition(";")
    pin = _SDK_PIN if is_sdk(canonicalize_name(parsed.name)) and "+" not in specifier else _PIN
    new = pin.sub(lambda match: match["operator"] + specifier, head) + mark + tail
    if new == text or not wheel_info.requirement(new).specifier.contains(specifier, prereleases=True):
        raise WheelError(
            f"{wheel.file_name} requires {text}, which excludes {parsed.name} {specifier}",
            tip=f"give the requirement you want: --require '{parsed.name}=={specifier}'",
        )
    return new


_LOADER = "/_rocm_init.py"
_MODULES = ("/version.py", "/_version.py", _LOADER, "/_dist_info.py", "/git_version_info_installed.py")
_MANIFEST = "/share/therock/therock_manifest.json"
_LARGEST = 1 << 20  # bytes of a file with a version
# A string literal that may be a version; `version_tuple = (2, 9, 0)`, perhaps annotated, as setuptools-scm
# writes it; the argument of ROCm's loader, where `odd` is anything but a literal or None.
_LITERAL = re.compile(r"""(?P<quote>['"])(?P<text>[0-9][^'"\\\r\n]{0,200})(?P=quote)""")
_TUPLE = re.compile(r"(?P<name>\bversion_tuple[ ]*(?::[^=\n]{1,200})?=[ ]*)\((?P<items>[^()#\n]{1,300})\)")
_CHECKED = re.compile(r"""\bcheck_version\s*=\s*(?:(?P<quote>['"])[^'"\\\r\n]*(?P=quote)|None\b|(?P<odd>))""")


@dataclass(frozen=True, kw_only=True)
class Change:
    """The changes in one wheel.

    Attributes:
        source: the wheel.
        target: where the new one is.
        old: its version so far.
        new: its new version.
        requirements: those that follow, as they were written and as they are now.
        files: files inside that state the new version.
    """

    source: Path
    target: Path
    old: str
    new: str
    requirements: Mapping[str, str]
    files: tuple[str, ...]


def set_versions(
    wheels: Sequence[Path],
    request: NewVersion,
    output_dir: Path,
    *,
    dry_run: bool = False,
    check: Callable[[Archive, Path], None] | None = None,
) -> tuple[Change, ...]:
    """Write wheels under their new versions into `output_dir`, all of them or none.

    METADATA, WHEEL, RECORD, folder and file names change together, the exact pins among the wheels and on the
    ROCm SDK follow, and so do the files inside that state a version. The bill of materials still says with
    which ROCm a wheel was built. Each is read again before it is in `output_dir`; `check` gets its source and
    it.

    Raises:
        WheelError: a wheel cannot be read, or has a pin or a file that cannot follow (the message names it).
    """
    for path in wheels:
        wheel_info.parse_file_name(path.name)
    with ExitStack() as stack, collector_paused():
        archives = [stack.enter_context(Archive.open(path)) for path in wheels]
        infos = list(map(wheel_info.read_archive, archives))
        versions = [_new_version(info, request) for info in infos]
        siblings: dict[str, dict[str, str]] = {}
        for info, new in zip(infos, versions, strict=True):
            siblings.setdefault(info.distribution, {})[info.version] = new
        edits = [
            _edit(archive, info, _renamed(info, new, request, siblings), request)
            for archive, info, new in zip(archives, infos, versions, strict=True)
        ]
        targets = [output_dir / new_name(info, e) for info, e in zip(infos, edits, strict=True)]
        for target in targets:
            if targets.count(target) > 1:
                raise WheelError(
                    f"two wheels would both be named {target.name}",
                    tip="give one version to one wheel at a time",
                )
            writer.refuse_source(target, wheels)
        if not dry_run:
            with files.filling(output_dir) as folder:
                for archive, info, edit in zip(archives, infos, edits, strict=True):
                    path = edit_archive(archive, info, edit, folder)
                    _require_written(path, info)
                    if check is not None:
                        check(archive, path)
        return tuple(
            Change(
                source=info.path,
                target=target,
                old=info.version,
                new=new,
                requirements=dict(edited.rewrite_requirements),
                files=tuple(sorted(edited.replace_files)),
            )
            for info, target, new, edited in zip(infos, targets, versions, edits, strict=True)
        )


def _require_written(wheel: Path, source: WheelInfo) -> None:
    """Read a new wheel as others will; what was copied into it has been compared with the source already.

    Raises:
        WheelError: its headers contradict each other, or RECORD is wrong about what the source has not.
    """
    with Archive.open(wheel) as archive:
        info = wheel_info.read_archive(archive)
        folders = ((source.dist_info, info.dist_info), (source.data_folder, info.data_folder))
        rows = set(source.record)
        for old, new in folders:
            of_folder = (row for row in source.record if row.path.startswith(f"{old}/"))
            rows.update(row._replace(path=new + row.path.removeprefix(old)) for row in of_folder)
        record.require_right(archive, info, {row.path for row in info.record if row not in rows})


def _new_version(info: WheelInfo, request: NewVersion) -> str:
    if request.stage is not None:
        return promote(info.version, request.stage)
    if request.rocm_version is None:
        return str(wheel_info.parsed_version(request.version or ""))
    if is_sdk(info.distribution):
        channel_of(request.rocm_version)
        return str(Version(request.rocm_version))
    return with_rocm(info.version, request.rocm_version)


def _renamed(
    info: WheelInfo, new: str, request: NewVersion, siblings: Mapping[str, Mapping[str, str]]
) -> RenamedWheel:
    old_rocm: str | None = info.version
    new_rocm: str | None = new
    if not is_sdk(info.distribution):
        old_rocm, new_rocm = rocm_version_of(info.version), rocm_version_of(new)
    changes = request.rocm_version is not None or old_rocm != new_rocm
    return RenamedWheel(
        file_name=info.file_name,
        distribution=info.distribution,
        old=info.version,
        new=new,
        rocm=RocmChange(old=old_rocm, new=new_rocm) if new_rocm and changes else None,
        siblings=siblings,
        required={wheel_info.required_name(text) for text in request.requires},
    )


def _edit(archive: Archive, info: WheelInfo, renamed: RenamedWheel, request: NewVersion) -> Edit:
    requires = parse_headers(info.metadata, name="METADATA").all("Requires-Dist")
    required = set(map(wheel_info.required_name, requires))
    # Requirements are given for all wheels at once; the wheel that one names does not require itself.
    requirements: dict[str, list[str]] = {}
    for text in request.requires:
        if (name := wheel_info.required_name(text)) != info.distribution:
            requirements.setdefault(name, []).append(text)
    replaced = {name: texts.pop(0) for name, texts in requirements.items() if name in required}
    return Edit(
        version=renamed.new,
        build=request.build,
        rewrite_requirements=repinned(requires, renamed),
        replace_requirements=replaced,
        add_requirements=tuple(text for texts in requirements.values() for text in texts),
        replace_files=_rewritten_files(archive, renamed),
    )


def _rewritten_files(archive: Archive, wheel: RenamedWheel) -> dict[str, bytes]:
    """Path in the wheel to new content, for each file that states a version that changes.

    Raises:
        WheelError: a file states a version in a way that cannot be changed.
    """
    old, new, rocm = Version(wheel.old), Version(wheel.new), wheel.rocm
    literals = {old: str(new)}
    if rocm is not None and rocm.old is not None and not is_sdk(wheel.distribution):
        literals[Version(rocm.old)] = rocm.new
    changed = {}
    for name in (member.name for member in archive.members):
        # A package's own only: `version.py` deeper down may state the version of something bundled.
        required = name.endswith(_MODULES) and wheel_info.installed_path(name).count("/") == 1
        if not required and not name.endswith(_MANIFEST):
            continue
        before = archive.read(name, limit=_LARGEST).decode("utf-8", "surrogateescape")
        after = _LITERAL.sub(partial(_literal, versions=literals), before)
        after = _TUPLE.sub(partial(_tuple, old=old, new=new), after)
        if rocm is not None and name.endswith(_LOADER):
            after = _CHECKED.sub(partial(_checked, new=rocm.new, name=name), after)
        _check_left(after, name, wheel)
        if after != before:
            changed[name] = after.encode("utf-8", "surrogateescape")
    return changed


def _literal(match: re.Match[str], *, versions: dict[Version, str]) -> str:
    try:
        new = versions.get(Version(match["text"]))
    except InvalidVersion:
        return match[0]
    return match[0] if new is None else f"{match['quote']}{new}{match['quote']}"


def _tuple(match: re.Match[str], *, old: Version, new: Version) -> str:
    items = [item.strip().strip("'\"") for item in match["items"].rstrip(", ").split(",")]
    if items != [str(part) for part in _parts(old)]:
        return match[0]
    parts = list(map(repr, _parts(new)))
    return f"{match['name']}({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def _parts(version: Version) -> list[int | str]:
    """A version as setuptools-scm writes it into `version_tuple`."""
    texts = (
        "".join(map(str, version.pre or ())),
        "" if version.post is None else f"post{version.post}",
        "" if version.dev is None else f"dev{version.dev}",
    )
    return [*version.release, *filter(None, (*texts, version.local))]


def _checked(match: re.Match[str], *, new: str, name: str) -> str:
    if match["odd"] is not None:
        raise WheelError(
            f"{name} checks a ROCm version that is not written out", tip="build the wheel for this ROCm"
        )
    return match[0] if match["quote"] is None else f"check_version={match['quote']}{new}{match['quote']}"


def _check_left(text: str, name: str, wheel: RenamedWheel) -> None:
    """Refuse a module that still names the old version, written in a way that is not understood here."""
    old = wheel.old
    local, new = Version(old).local, Version(wheel.new).local
    if local is None or local == new:
        return
    # The local part alone: versions are put together from parts, and PEP 440 takes `.`, `-` and `_` for one.
    new_local, old_local = (
        rf"(?<![0-9A-Za-z]){spelt}(?![0-9A-Za-z])(?![._-][0-9A-Za-z])"
        for spelt in (r"[._-]".join(map(re.escape, part.split("."))) for part in (new or "", local))
    )
    # The old part may be the end of the new one: `rocm7.10.0` of `fat.rocm7.10.0`.
    leftover = re.compile(f"{new_local}|(?P<old>{old_local})", re.IGNORECASE)
    for line in text.splitlines():
        if any(match["old"] for match in leftover.finditer(line)) and not line.lstrip().startswith("#"):
            raise WheelError(
                f"{name} names {old} in the line {line.strip()[:100]!r}, which cannot be changed safely",
                tip="build the wheel under its new version",
            )
