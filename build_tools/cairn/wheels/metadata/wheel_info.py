"""What a wheel says about itself: file name, METADATA, WHEEL, entry points and RECORD.

Sources: the binary distribution format and core metadata specifications of packaging.python.org.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from cairn import requirements
from cairn.errors import WheelError
from cairn.formats.zip.reader import Archive
from cairn.wheels.metadata.fields import core_metadata, parse_headers
from cairn.wheels.metadata.record import UNLISTED, RecordRow, has_odd_line_end, parse_record

if TYPE_CHECKING:
    from packaging.requirements import Requirement

# The first version of METADATA with License-File, for files in `licenses/` of the dist-info folder (PEP 639).
LICENCES_APART = Version("2.4")

_T = TypeVar("_T")
_DIST_INFO = ".dist-info"
_LONGEST_NAME = 255  # bytes that file systems take
# A compressed tag set stands for the product of its parts (PEP 425): a short name can ask for millions.
_MOST_TAGS = 10_000
# What the rules for the parts allow (PEP 427, PEP 440); `~` is in file names of old tools.
FILE_NAME = re.compile(r"[\w.+!~-]+")
"""The characters that the file name of a wheel or an sdist may have."""
_LABEL = re.compile(r"[0-9a-z_.]+")
_PLAIN, _WITH_BUILD = 5, 6  # parts of a file name without the label of a variant
_BUILD_NUMBER = re.compile(r"[0-9][0-9A-Za-z_.]{0,63}")
# The binary distribution format, "The .data directory": these two are the folder that all else goes to.
_SITE = re.compile(r"[^/]+\.data/(?:purelib|platlib)/")
_SEMICOLON = re.compile(r"^\s*;", re.MULTILINE)
_TESTS = frozenset(("test", "tests", "testing", "selftest", "testdata", "test_data", "fixtures"))


@dataclass(frozen=True, kw_only=True)
class FileName:
    """The parts of a wheel's file name.

    Attributes:
        distribution: the project's canonical name.
        version: the version, normalised.
        build: the build number as the file name spells it, or None.
        tags: every tag it is good for, such as `cp311-cp311-manylinux_2_28_x86_64`, sorted.
        compressed_tags: the same as the file name spells them: `py2.py3-none-any`.
        prefix: the project's name as the file name spells it.
        variant: the label of a wheel variant, or None.
    """

    distribution: str
    version: str
    build: str | None
    tags: tuple[str, ...]
    compressed_tags: str
    prefix: str
    variant: str | None = None


@dataclass(frozen=True, kw_only=True)
class WheelInfo:
    """What a wheel says about itself.

    Attributes:
        path: the file.
        file_name: its name.
        distribution: the project's canonical name.
        name: the project's name as METADATA writes it.
        version: the version as METADATA writes it.
        build: the build number of the file name, or None.
        variant: the label of a wheel variant, or None.
        tags: every tag of the file name, sorted.
        dist_info: the name of the dist-info folder.
        metadata: METADATA's bytes.
        metadata_sha256: their sha256 in hex, for an index (PEP 658, PEP 714).
        requires_dist: the requirements as written.
        extras: the extras as written.
        requires_python: the supported Python versions, or None.
        entry_points: group to name to object reference.
        wheel_tags: the tags that WHEEL lists, sorted.
        pure: Root-Is-Purelib of WHEEL: whether its files go to purelib, not platlib.
        size: bytes of the file.
        record: the rows of RECORD.
    """

    path: Path
    file_name: str
    distribution: str
    name: str
    version: str
    build: str | None
    variant: str | None = None
    tags: tuple[str, ...]
    dist_info: str
    metadata: bytes
    metadata_sha256: str
    requires_dist: tuple[str, ...]
    extras: tuple[str, ...]
    requires_python: str | None
    entry_points: Mapping[str, Mapping[str, str]]
    wheel_tags: tuple[str, ...]
    pure: bool
    size: int
    record: tuple[RecordRow, ...] = field(repr=False)

    @property
    def data_folder(self) -> str:
        """The name of the folder for what installers put elsewhere than into site-packages."""
        return f"{self.dist_info.removesuffix(_DIST_INFO)}.data"

    @property
    def unlisted(self) -> frozenset[str]:
        """The paths of RECORD and its signatures, which need no hash in it."""
        return frozenset(f"{self.dist_info}/{name}" for name in UNLISTED)

    def unmatched(self, members: Collection[str]) -> tuple[list[str], list[str]]:
        """Return the members that RECORD does not list, and the paths in it that are no members."""
        listed, names = {row.path for row in self.record}, set(members)
        missing = ((names - self.unlisted) | {f"{self.dist_info}/RECORD"}) - listed
        return sorted(missing), sorted(listed - names)

    @property
    def metadata_version(self) -> Version:
        """Which version of the core metadata METADATA follows; 0 when it does not say."""
        headers = parse_headers(self.metadata, name="METADATA").all("Metadata-Version")
        try:
            return Version(headers[0] if headers else "0")
        except ValueError:
            return Version("0")


def read(path: Path) -> WheelInfo:
    """Read what a wheel says about itself, as tolerant of odd metadata fields as pip is.

    Raises:
        WheelError: not a wheel, or an archive, METADATA, WHEEL, entry points or RECORD that cannot be read;
            or a wheel variant (see `parse_file_name`).
    """
    parse_file_name(path.name)
    with Archive.open(path) as archive:
        return read_archive(archive)


def read_archive(archive: Archive, *, variants_too: bool = False) -> WheelInfo:
    """Like `read`, from an open archive; for `variants_too` see `parse_file_name`."""
    name = parse_file_name(archive.path.name, variants_too=variants_too)
    folder = find_dist_info(archive, name.distribution)
    metadata = archive.read(f"{folder}/METADATA")
    raw = core_metadata(metadata, name="METADATA")
    wheel = parse_headers(archive.read(f"{folder}/WHEEL"), name="WHEEL")
    return WheelInfo(
        path=archive.path,
        file_name=archive.path.name,
        distribution=name.distribution,
        name=_required(raw.get("name"), "Name", archive),
        version=_required(raw.get("version"), "Version", archive),
        build=name.build,
        variant=name.variant,
        tags=name.tags,
        dist_info=folder,
        metadata=metadata,
        metadata_sha256=hashlib.sha256(metadata).hexdigest(),
        requires_dist=tuple(raw.get("requires_dist", ())),
        extras=tuple(raw.get("provides_extra", ())),
        requires_python=raw.get("requires_python"),
        entry_points=_entry_points(archive, folder),
        wheel_tags=_tags(wheel.all("Tag")),
        pure=wheel.all("Root-Is-Purelib") == ("true",),
        size=archive.raw.size,
        record=parse_record(decoded(archive.read(f"{folder}/RECORD"), "RECORD")),
    )


def parse_file_name(name: str, *, variants_too: bool = False) -> FileName:
    """The parts of a wheel's file name (PEP 427).

    Args:
        name: the file name.
        variants_too: take that of a wheel variant as well. Who does not ask for them would drop the label
            from the name of what it writes, or take several variants for one wheel.

    Raises:
        WheelError: it is not one.
    """
    # packaging lets through what its patterns do not look at, such as a line end in a build number.
    if not FILE_NAME.fullmatch(name) or not name.isprintable():
        raise _not_a_wheel(name, "it has a character that no such name may have")
    if len(name) > _LONGEST_NAME:
        raise _not_a_wheel(name, f"it has more than {_LONGEST_NAME} characters")
    plain, label = split_label(name)
    if label is not None and not variants_too:
        raise WheelError(
            f"{requirements.shown(name)} is the wheel variant {label}, where only a plain wheel will do",
            tip="give the wheel that the variants were made of",
        )
    try:
        distribution, version, build, tags = parse_wheel_filename(plain)
    except ValueError as error:  # also of a number with more digits than Python converts
        raise _not_a_wheel(name, str(error)) from error
    # packaging takes the letters of every script, and `..` for a name (PyPA's specification of names). A
    # Cyrillic letter in it looks like torch, and is none.
    if not (name[0].isalnum() and requirements.is_project_name(distribution)):
        reason = "the name of a distribution has letters a-z, digits, and . _ - between them, and no others"
        raise _not_a_wheel(name, reason)
    parts = plain.removesuffix(".whl").split("-")
    return FileName(
        distribution=distribution,
        version=str(version),
        build=parts[2] if build else None,
        tags=tuple(sorted(str(tag) for tag in tags)),
        compressed_tags="-".join(parts[-3:]),
        prefix=parts[0],
        variant=label,
    )


def split_label(file_name: str) -> tuple[str, str | None]:
    """The file name that a wheel has without its label, and the label; None for what is not a variant.

    The third part of a name is a build number where it begins with a digit, else a Python tag.
    """
    parts = file_name.removesuffix(".whl").split("-")
    numbered = len(parts) > _PLAIN and parts[2][:1].isdigit()
    whole = _WITH_BUILD if numbered else _PLAIN
    if not file_name.endswith(".whl") or len(parts) != whole + 1 or not _LABEL.fullmatch(parts[-1]):
        return file_name, None
    return f"{'-'.join(parts[:-1])}.whl", parts[-1]


def _not_a_wheel(name: str, reason: str) -> WheelError:
    return WheelError(
        f"{requirements.shown(name)} is not the name of a wheel: {reason}",
        tip="a wheel is named like torch-2.9.0-cp311-cp311-manylinux_2_28_x86_64.whl",
    )


def platforms_of(tags: Iterable[str]) -> tuple[str, ...]:
    """The platforms that tags name, sorted: `win_amd64` of `cp311-cp311-win_amd64`."""
    return tuple(sorted({tag.split("-")[2] for tag in tags}))


def build_number(text: str) -> str:
    """A build number: digits, then perhaps letters, digits, `_` and `.` (PEP 427, "File name convention").

    Raises:
        WheelError: it is not one.
    """
    if not _BUILD_NUMBER.fullmatch(text):
        raise WheelError(
            f"{text!r} is not a build number", tip="it begins with a digit and is short: 1, 2 or 3_cu"
        )
    return text


def expand_tags(tag: str) -> tuple[str, ...]:
    """A compressed tag set such as `py2.py3-none-any` as single tags.

    Raises:
        WheelError: it does not have three parts.
    """
    parts = tag.split("-")
    if len(parts) != 3:  # noqa: PLR2004 - python, abi, platform
        raise WheelError(f"{tag!r} is not a wheel tag", tip="a tag is written like cp311-cp311-linux_x86_64")
    pythons, abis, platforms = (part.split(".") for part in parts)
    if len(pythons) * len(abis) * len(platforms) > _MOST_TAGS:
        raise WheelError(f"{requirements.shown(tag)} stands for more than {_MOST_TAGS} tags")
    return tuple(f"{p}-{a}-{f}" for p in pythons for a in abis for f in platforms)


def find_dist_info(archive: Archive, distribution: str) -> str:
    """The one dist-info folder.

    Raises:
        WheelError: none, several, or that of a different project.
    """
    tops = {m.name.partition("/")[0] for m in archive.members if _DIST_INFO in m.name}
    folders = sorted(top for top in tops if top.endswith(_DIST_INFO))
    if len(folders) != 1:
        raise WheelError(
            f"{archive.path.name} has {len(folders)} dist-info folders, not one", tip="build the wheel again"
        )
    # The folder spells the name as the build tool did: names are compared in canonical form (PEP 503).
    owner = folders[0].removesuffix(_DIST_INFO).rpartition("-")[0]
    if canonicalize_name(owner) != distribution:
        raise WheelError(
            f"{archive.path.name}: the folder {folders[0]} is not that of {distribution}",
            tip="a wheel cannot be renamed: build it under the name that it is to have",
        )
    return folders[0]


def requirement(text: str) -> Requirement:
    """A requirement.

    Raises:
        WheelError: it is not one.
    """
    try:
        return requirements.requirement(text)
    except ValueError as error:
        raise WheelError(str(error)) from error


def required_name(text: str) -> str:
    """The canonical name of the project that a requirement asks for; for what it raises see `requirement`."""
    return canonicalize_name(requirement(text).name)


def parsed_version(text: str) -> Version:
    """A version.

    Raises:
        WheelError: it is not one by PEP 440.
    """
    try:
        return requirements.version(text)
    except ValueError as error:
        raise WheelError(str(error), tip="versions follow PEP 440: 2.9.0+rocm7.10.0") from error


def decoded(data: bytes, name: str) -> str:
    """A file of the dist-info folder as text.

    Raises:
        WheelError: it is not UTF-8.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise WheelError(f"{name} is not UTF-8") from error


def _tags(texts: Iterable[str]) -> tuple[str, ...]:
    expanded: list[str] = []
    for text in texts:
        expanded += expand_tags(text)
        if len(expanded) > _MOST_TAGS:
            raise WheelError(f"WHEEL has more than {_MOST_TAGS} tags")
    return tuple(sorted(expanded))


def _required(value: _T | None, name: str, archive: Archive) -> _T:
    if value is None:
        raise WheelError(
            f"the METADATA of {archive.path.name} has no single {name}", tip="build the wheel again"
        )
    return value


def _entry_points(archive: Archive, folder: str) -> Mapping[str, Mapping[str, str]]:
    path = f"{folder}/entry_points.txt"
    if path not in archive:
        return {}
    import configparser  # noqa: PLC0415 - few wheels have any

    # As the entry points specification reads it: `=` alone, names with their case, no section of defaults.
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, default_section="\0")
    parser.optionxform = str  # type: ignore[method-assign, assignment]
    text = decoded(archive.read(path), "entry_points.txt")
    if has_odd_line_end(text):
        raise WheelError("entry_points.txt has line ends in which its readers differ")
    if _SEMICOLON.search(text.partition("[")[2]):  # in a section
        raise WheelError("entry_points.txt has a comment behind a semicolon, which pip takes for an entry")
    try:
        parser.read_string(text)
    except configparser.Error as error:
        reason = " ".join(error.message.split())
        raise WheelError(f"entry_points.txt cannot be read: {reason}") from error
    if parser.has_section("DEFAULT") and parser.items("DEFAULT"):
        raise WheelError("entry_points.txt has entries in [DEFAULT], which installer adds to every group")
    return {group: dict(parser.items(group)) for group in parser.sections()}


def installed_path(path: str) -> str:
    """The place of a member, counted from site-packages where it goes there: pip merges these folders."""
    return _SITE.sub("", path, count=1) if ".data/" in path and _SITE.match(path) else path


def is_of_tests(path: str) -> bool:
    """Whether a member lies among tests, whose data may be wrong on purpose."""
    return not _TESTS.isdisjoint(map(str.lower, path.split("/")[:-1]))
