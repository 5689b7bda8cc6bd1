"""The rules that a file or a set must meet before an index takes it.

Some rules are about the file alone (its name and its metadata), others about what the index has already.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from packaging.metadata import RawMetadata
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, is_normalized_name
from packaging.version import Version

from cairn import requirements, targets
from cairn.errors import GateError, StoreError, WheelError
from cairn.output import wording
from cairn.release.index import keys
from cairn.release.index.generation import (
    MIRRORED,
    PUBLISHED,
    FileEntry,
    FileRef,
    ProjectState,
    project_of,
    version_of,
)
from cairn.release.index.snapshot import Snapshot
from cairn.release.publish import compatibility
from cairn.release.publish.compatibility import overlap
from cairn.release.publish.distribution import Needs
from cairn.wheels.metadata import device_names, wheel_info
from cairn.wheels.metadata.fields import core_metadata
from cairn.wheels.metadata.rocm_version import sorts_above
from cairn.wheels.metadata.wheel_info import parse_file_name
from cairn.wheels.wheelset import WheelSet

# Fields with values of one line (core metadata specification). The others may be texts, such as a licence.
_ONE_LINE = (
    *("name", "version", "summary", "requires_python", "license_expression", "home_page", "download_url"),
    *("classifiers", "requires_dist", "provides_extra", "keywords", "platforms", "project_urls"),
)
_TEXTS = ("author", "author_email", "maintainer", "maintainer_email", "license", "description")
_URLS = ("home_page", "download_url", "project_urls")
_LABEL = "label"  # of an address: a line of text
_FOLD = re.compile(r"\r?\n[ \t]+")  # how a long value goes on in the next line (RFC 822)
# What a browser takes for a tag, and is not `Name <name@example.org>`.
_TAG = re.compile(r"<[A-Za-z/!?][^<>@]*>")
# Control characters, and those that turn the direction of the text that follows (UAX 9).
_CONTROL = re.compile(r"[^\t\n\f\r\x20-\x7e\x80-\U0010ffff]|[\x80-\x9f\u202a-\u202e\u2066-\u2069]")
_WEB = re.compile(r"(https?|mailto):", re.IGNORECASE)
_SCHEME = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]*\s*:")
_ROCM = ("rocm-sdk-core", "rocm")  # the packages of the SDK whose version is that of its runtime


def name_problems(filename: str, *, build: str) -> tuple[str, ...]:
    """All problems of a file's name.

    Each file has one valid name: two spellings would be two files, and an installer may take either.

    Args:
        filename: of a wheel or an sdist.
        build: what its version belongs to (`FileEntry.build`). Other indexes have files with older spellings,
            and a mirror keeps their names; a set's wheels are ours to name.
    """
    try:
        return tuple(f"{filename}: {reason}" for reason in _name_problems(filename, build))
    except (StoreError, WheelError) as error:  # it is not a name at all
        return (str(error),)


def metadata_problems(filename: str, metadata: bytes, *, build: str) -> tuple[str, ...]:
    """All problems of a file's metadata that keep it off a page, or from being used.

    Args:
        filename: of a wheel or an sdist.
        metadata: its METADATA or PKG-INFO.
        build: see `name_problems`.
    """
    raw = core_metadata(metadata, name=f"the metadata of {filename}")
    extras = raw.get("provides_extra", ()) if build != MIRRORED else ()
    unusable = (
        f"{filename} has an extra that cannot be asked for: {requirements.shown(extra)}"
        for extra in extras
        if not is_normalized_name(canonicalize_name(extra))
    )
    return (*unusable, *_unshowable(filename, raw))


def _unshowable(filename: str, raw: RawMetadata) -> Iterator[str]:
    yield from (
        f"{filename}: {field.replace('_', '-').title()} {problem}: {requirements.shown(value)}"
        for field in (*_ONE_LINE, *_TEXTS)
        for kind, value in _values(raw, field)
        if (problem := _problem(kind, value))
    )


def _name_problems(filename: str, build: str) -> Iterator[str]:
    version = Version(version_of(filename))
    if filename.endswith(".whl"):
        parts = parse_file_name(filename, variants_too=True)
        prefix, spelt = parts.prefix, filename.split("-")[1]
        if parts.build is not None:
            # PEP 427
            yield f"it has the build tag {parts.build!r}, of which installers take the highest, tested or not"
        if parts.variant is not None and build != PUBLISHED:
            # It would be offered with a set that was tested without it, or without what its index says of it.
            yield f"it is the wheel variant {parts.variant}, which no gate can judge; publish it by itself"
        if unknown := compatibility.unknown_tags(filename):
            yield f"no installer knows its tags {', '.join(unknown)}"
    else:
        prefix, _, spelt = filename.removesuffix(".tar.gz").removesuffix(".zip").rpartition("-")
    if build != MIRRORED:
        yield from _spelling(prefix, spelt, build)
        if version.epoch:
            yield f"version {version} has an epoch, above which no later version of the project would sort"


def _spelling(prefix: str, version: str, build: str) -> Iterator[str]:
    """PEP 427 and 625: the normalised name with `_` for `-`, and the normalised version."""
    # The ROCm SDK writes a family into names as it is spelt: rocm_sdk_libraries_gfx94X_dcgpu.
    spelt = prefix.lower() if build == PUBLISHED else prefix
    if spelt != (normalised := canonicalize_name(prefix).replace("-", "_")):
        yield f"the name is to be spelt {normalised}"
    if version != str(Version(version)):
        yield f"the version is to be spelt {Version(version)}"


def _values(raw: RawMetadata, field: str) -> Iterator[tuple[str, str]]:
    """Yield the values of a field, each with the field whose rules hold for it."""
    value: Any = raw.get(field)
    if isinstance(value, str):
        yield field, value
    elif isinstance(value, dict):  # project_urls: label, such as `CI: GitHub Actions`, to address
        yield from ((_LABEL, text) for text in value)
        yield from ((field, text) for text in value.values())
    elif value:
        yield from ((field, text) for text in value)


def _problem(field: str, value: str) -> str | None:
    if field in _TEXTS:
        return "has a control character" if _CONTROL.search(value) else None
    line = _FOLD.sub(" ", value)
    if not line.isprintable():
        return "has a line end or a character that is not printable"
    if field != "requires_python" and _TAG.search(line):
        return "has HTML"
    if field in _URLS and _SCHEME.match(line) and not _WEB.match(line):
        return "is not an address of the web"
    return None


def refuse_gated(index: str) -> None:
    """Refuse an index that takes sets through the gate alone.

    Raises:
        GateError: `index` is one of these.
    """
    if keys.is_gated(keys.checked_index(index)):
        raise GateError(
            f"nothing is put into {index} directly: sets reach it through the gate",
            tip=f"publish into staging, then: cairn release promote SET --to {index}",
        )


def refuse_other_family(index: str, wheel_set: WheelSet) -> None:
    """Refuse a set of another family, if the index is of one.

    Raises:
        GateError: the set is for a different family, or for none.
    """
    family = index.partition("/")[2]
    members = targets.families().get(family, (family,))
    processors = _processors(wheel_set)
    if family and not (processors and processors <= set(members)):
        raise GateError(
            f"the set is for {wheel_set.family}, not for {family}",
            tip=f"name the index {index.partition('/')[0]}, or that of its own family",
        )


def _processors(wheel_set: WheelSet) -> set[str]:
    """The processors that a set is for."""
    return {targets.parse_target_id(name).processor for name in wheel_set.targets if name != targets.CPU}


def name_clashes(target: Snapshot, refs: Sequence[FileRef]) -> tuple[str, ...]:
    """The files whose names `target` has with other bytes."""
    clashes = []
    for ref in refs:
        entry = target.project(project_of(ref.filename)).file(ref.filename)
        if entry is not None and entry.sha256 != ref.sha256:
            clashes.append(f"{ref.filename} is there with sha256 {entry.sha256}")
    return tuple(clashes)


def file_problems(target: Snapshot, files: Sequence[FileEntry]) -> tuple[str, ...]:
    """All reasons why these files cannot come into `target`: names, other bytes, other builds."""
    of_names = (problem for f in files for problem in name_problems(f.filename, build=f.build))
    return (*of_names, *name_clashes(target, [file.ref for file in files]), *second_builds(target, files))


def second_builds(target: Snapshot, files: Sequence[FileEntry]) -> tuple[str, ...]:
    """The reasons why an installer would mix builds that were tested apart, if `target` had these files.

    pip takes any file of a version that fits, and of a project the highest version. So one version is one
    build, in one spelling, with one file for each Python and platform; and a project that sets bring comes
    from nowhere else. Files of other indexes may lie beside each other, as they do there.
    """
    problems: dict[str, None] = {}
    fresh: dict[str, list[FileEntry]] = {}
    for file in files:
        name = project_of(file.filename)
        beside = [*_of_version(target.project(name), file.version), *fresh.setdefault(name, [])]
        for neighbour in beside:
            if neighbour.filename != file.filename and (reason := _mixed(file, neighbour)):
                problems[f"{file.filename} beside {neighbour.filename}, {reason}"] = None
        fresh[name].append(file)
    for name, new in fresh.items():
        problems |= dict.fromkeys(_two_origins(name, new, target.project(name).files))
    return tuple(problems)


def _of_version(project: ProjectState, version: str) -> Sequence[FileEntry]:
    """The files of a project's version, however it is spelt."""
    parsed, files = Version(version), project.files  # which are sorted by version
    begin = bisect.bisect_left(files, parsed, key=lambda file: Version(file.version))
    end = bisect.bisect_right(files, parsed, key=lambda file: Version(file.version))
    return files[begin:end]


def _mixed(file: FileEntry, second: FileEntry) -> str | None:
    """Why a file cannot be beside another; None if it can, such as one of another version."""
    if file.version != second.version:
        same = Version(file.version) == Version(second.version)
        return f"which spells the same version {second.version}" if same else None
    if file.build != second.build:
        return "of a different build"
    if file.build != MIRRORED and overlap(file.filename, second.filename):
        return "for the same Python and platform"
    return None


def _two_origins(name: str, new: Sequence[FileEntry], present: Sequence[FileEntry]) -> Iterator[str]:
    """The reasons against a project of sets and a mirror: an installer takes the higher version."""
    every = (*new, *present)
    mirrored = next((file for file in every if file.build == MIRRORED), None)
    built = next((file for file in every if file.build not in (MIRRORED, PUBLISHED)), None)
    if mirrored and built:
        yield f"{built.filename} beside {mirrored.filename}: {name} would come from sets and from a mirror"


def sorting_below(target: Snapshot, wheels: Sequence[FileRef]) -> tuple[str, ...]:
    """The reasons why installers would prefer what `target` has of the same major and minor version."""
    # Only within a line: 2.8.2 may come after 2.9.0, and no one who asks for 2.9 gets it. Yanked versions are
    # left out, since an installer passes over them.
    problems = []
    for ref in wheels:
        name = wheel_info.parse_file_name(ref.filename)
        line = Version(name.version).release[:2]
        have = {file.version for file in target.project(name.distribution).files if file.yanked is None}
        problem = sorts_above(name.version, (v for v in have if Version(v).release[:2] == line))
        if problem:
            problems.append(f"{name.distribution} {problem}")
    return tuple(problems)


def unserved(
    needs: Iterable[tuple[str, Needs]], has: Callable[[Requirement], bool]
) -> tuple[dict[str, list[str]], list[str]]:
    """The extras for GPUs that cannot be installed, each with what it lacks; and what is wrong with that.

    A host wheel may serve only some of the GPUs that it was built for: the device wheels of the others may
    come later, or never. What the extra of one GPU names belongs together, though, and a wheel none of whose
    extras can be installed serves nobody.

    Args:
        needs: of the files whose extras count, with their names; an sdist that decides late is passed over.
        has: whether what is there meets a requirement.
    """
    absent: dict[str, list[str]] = {}
    problems = []
    for file_name, of_file in needs:
        project = project_of(file_name)
        of_extras = [*device_names.lacking(of_file.requires if of_file.reliable else (), {}, has)]
        unserved = {
            extra: [f"{wheel.name}{wheel.specifier}" for wheel in wheels]
            for extra, wheels, _ in of_extras
            if wheels
        }
        torn = [
            f"{project}[{extra}] lacks {wording.some(unserved[extra])}, and has the rest"
            for extra, _, is_torn in of_extras
            if is_torn
        ]
        if of_extras and len(unserved) == len(of_extras) and not torn:
            every = list(dict.fromkeys(name for names in unserved.values() for name in names))
            torn = [f"{file_name} serves no GPU without one of {wording.some(every)}"]
        problems += torn
        absent |= {f"{project}[{extra}]": names for extra, names in unserved.items()}
    return absent, problems


def split_problems(
    wheel_set: WheelSet, wheels: Sequence[Path], *, floor: str | None = None, all_recorded: bool = False
) -> tuple[str, ...]:
    """The problems of the host and device wheels of a set, a sentence each.

    Every device wheel for a target of the set is there, with all its code as it was before the split; every
    extra asks for device wheels that were split, and each has its extras; the ROCm of the closure finds the
    code.

    Args:
        wheel_set: with its closure.
        wheels: its files.
        floor: the first release of ROCm whose runtime finds the code, as the stack has it; None to believe
            the host wheels.
        all_recorded: each host wheel must say what was split from it.

    Raises:
        WheelError: a wheel cannot be read.
    """
    from cairn.wheels.split import completeness  # noqa: PLC0415 - formats of device code: files have none

    versions = {project_of(file.file_name): version_of(file.file_name) for file in wheel_set.closure}
    rocm = next((versions[name] for name in _ROCM if name in versions), None)
    sentences = completeness.problems(
        wheels,
        processors=_processors(wheel_set),
        rocm=rocm,
        floor=floor,
        all_recorded=all_recorded,
    )
    return tuple(sentences)
