"""The files in a wheel that state its version, or the ROCm version it is for.

Sources: the setup.py of torch, torchaudio and torchvision write `version.py`, torch reads `_rocm_init.py`;
setuptools-scm's `_version_as_tuple`;
ROCm/TheRock's promote_packages.py lists those and what the SDK's packages have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from packaging.version import InvalidVersion, Version

from cairn.errors import WheelError
from cairn.formats.zip.reader import Archive
from cairn.wheels.metadata import wheel_info
from cairn.wheels.rewrite.repin import RocmChange, is_sdk

_LOADER = "/_rocm_init.py"
_MODULES = ("/version.py", "/_version.py", _LOADER, "/_dist_info.py", "/git_version_info_installed.py")
_MANIFEST = "/share/therock/therock_manifest.json"
_LARGEST = 1 << 20  # bytes of a file with a version
# A string literal that may be a version; `version_tuple = (2, 9, 0)`, perhaps annotated, as setuptools-scm
# writes it; the argument of ROCm's loader, where `odd` is anything but a literal or None.
_LITERAL = re.compile(r"""(?P<quote>['"])(?P<text>[0-9][^'"\\\r\n]{0,200})(?P=quote)""")
_TUPLE = re.compile(r"(?P<name>\bversion_tuple[ ]*(?::[^=\n]{1,200})?=[ ]*)\((?P<items>[^()#\n]{1,300})\)")
_CHECKED = re.compile(r"""\bcheck_version\s*=\s*(?:(?P<quote>['"])[^'"\\\r\n]*(?P=quote)|None\b|(?P<odd>))""")


def rewritten(
    archive: Archive, distribution: str, old: str, new: str, rocm: RocmChange | None
) -> dict[str, bytes]:
    """Path in the wheel to new content, for each file that states a version that changes.

    Args:
        archive: the wheel.
        distribution: its project's canonical name.
        old: the version so far.
        new: the version to be.
        rocm: how the ROCm version in it changes; None when it stays, or there is none.

    Raises:
        WheelError: a file states a version in a way that cannot be changed.
    """
    literals = {Version(old): str(Version(new))}
    if rocm is not None and rocm.old is not None and not is_sdk(distribution):
        literals[Version(rocm.old)] = rocm.new
    changed = {}
    for name in _candidates(archive):
        before = archive.read(name, limit=_LARGEST).decode("utf-8", "surrogateescape")
        after = _LITERAL.sub(partial(_literal, versions=literals), before)
        after = _TUPLE.sub(partial(_tuple, old=Version(old), new=Version(new)), after)
        if rocm is not None and name.endswith(_LOADER):
            after = _CHECKED.sub(partial(_checked, new=rocm.new, name=name), after)
        _check_left(after, name, old, new)
        if after != before:
            changed[name] = after.encode("utf-8", "surrogateescape")
    return changed


def _candidates(archive: Archive) -> Iterator[str]:
    for member in archive.members:
        name = member.name
        # A package's own only: `version.py` deeper down may state the version of something bundled.
        if name.endswith(_MODULES):
            if wheel_info.installed(name).count("/") == 1:
                yield name
        elif name.endswith(_MANIFEST):
            yield name


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


def _check_left(text: str, name: str, old: str, new: str) -> None:
    """Refuse a module that still names the old version, written in a way that is not understood here."""
    local = Version(old).local
    if local is None or local == Version(new).local:
        return
    # The local part alone: versions are put together from parts, and PEP 440 takes `.`, `-` and `_` for one.
    spelt = r"[._-]".join(map(re.escape, local.split(".")))
    leftover = re.compile(rf"(?<![0-9A-Za-z]){spelt}(?![0-9A-Za-z])(?![._-][0-9A-Za-z])", re.IGNORECASE)
    for line in text.splitlines():
        if leftover.search(line) and not line.lstrip().startswith("#"):
            raise WheelError(
                f"{name} names {old} in the line {line.strip()[:100]!r}, which cannot be changed safely",
                tip="build the wheel under its new version",
            )
