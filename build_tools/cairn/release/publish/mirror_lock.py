"""mirror.lock.toml: the files of other indexes that the sets of a stack need, each by its sha256.

It is made once (`cairn index mirror lock`), reviewed as a change of the repository, and from then on decides
what a mirror may hold: uv resolves what is asked, once for each Python and platform of the stack (`resolve`).
To fill a mirror from it is the matter of `mirror.sync`, and to hold sets against it of the gate.
"""

from __future__ import annotations

import collections
import posixpath
import re
import sys
import tempfile
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import structs
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from cairn import datafile, files, process, requirements, venv
from cairn.datafile import toml_text
from cairn.errors import NetworkError, UsageError, WheelError
from cairn.package_index import PipSettings
from cairn.release.index.generation import FileRef, project_of
from cairn.release.publish import distribution
from cairn.release.publish.compatibility import Platform
from cairn.release.publish.distribution import Dist
from cairn.stack import Stack
from cairn.wheels.metadata import device_names
from cairn.wheels.metadata.wheel_info import parse_file_name
from cairn.wheels.wheelset import ClosureFile

FILE = "mirror.lock.toml"  # beside the stack.toml

LOCK_SDK = "cairn index mirror lock --stack STACK --rocm-index-url URL"  # makes its [sdk]

_HEADER = """\
# What the sets of this stack need of other indexes, for each Python and platform: bytes, by their sha256.
# `cairn index mirror lock` writes this file; review a change of it like one of the code.
"""

_SHA256 = re.compile("[0-9a-f]{64}")
_TIMEOUT = 600.0  # seconds; hundreds of projects take a few
_PYLOCK = "pylock.toml"  # uv takes the format of its output from this name (PEP 751)


class Asked(datafile.Value):
    """The requirements of one project, or of the user, that other indexes must satisfy.

    Attributes:
        by: the project's canonical name.
        requires: its requirements as its metadata has them, those of the stack's own projects left out.
        extras: its extras, all of which count.
    """

    by: str
    requires: tuple[str, ...]
    extras: tuple[str, ...] = ()


class LockedFile(datafile.Value):
    """A wheel that the mirror may hold.

    Attributes:
        name: the project's canonical name.
        version: as in its file name.
        file_name: its file name.
        sha256: of its bytes, in hex.
        size: in bytes; None where its index does not say (PEP 503 has no place for it).
    """

    name: str
    version: str
    file_name: str
    sha256: str
    size: int | None = None


class MirrorLock(datafile.Value, tag_field="schema", tag="cairn.mirror-lock/1"):
    """The contents of a mirror, resolved for every one of `pythons` on every one of `platforms`.

    Attributes:
        stack: the name of the stack.
        pythons: versions of Python, such as `3.11`.
        platforms: such as `linux_x86_64`.
        asked: what led to the files.
        files: by project, version and name.
        sdk: files of the ROCm SDK that were reviewed, name to sha256, or to several with spaces between where
            families have files of one name: in a store with a root, sets are built with none but these.
        unverified: those of them of which the index gave no sha256, so that it is that of what came: a store
            with a root refuses them until somebody has compared them and takes their names out of here.
    """

    stack: str
    pythons: tuple[str, ...]
    platforms: tuple[str, ...]
    asked: tuple[Asked, ...] = ()
    files: tuple[LockedFile, ...] = ()
    sdk: Mapping[str, str] = {}
    unverified: tuple[str, ...] = ()


def read(path: Path) -> MirrorLock:
    """Read a lock.

    Raises:
        UsageError: there is none, or it is malformed, or it names what no mirror may hold.
    """
    lock = datafile.read(path, MirrorLock, tip="make it: cairn index mirror lock --stack STACK WHEEL …")
    for file in lock.files:
        if problem := _problem(file):
            raise UsageError(f"{path}: {problem}", tip="restore the file, or make it again")
    for name, sha256 in lock.sdk.items():
        if not (is_of_sdk(project_of(name)) and all(map(_SHA256.fullmatch, sha256.split(" ")))):
            raise UsageError(f"{path}: {name} = {sha256!r} is no file of the ROCm SDK with its sha256")
    counts = collections.Counter(file.file_name for file in lock.files)
    if repeated := next((name for name, count in counts.items() if count > 1), None):
        raise UsageError(f"{path} names {repeated} twice", tip="keep one of the two, or make the lock again")
    places(lock)
    for text in (text for entry in lock.asked for text in entry.requires):
        try:
            requirements.requirement(text)
        except ValueError as error:
            raise UsageError(f"{path}: {error}") from error
    return lock


def of(stack: Stack) -> MirrorLock | None:
    """The lock beside a stack.toml; None if there is none. Raises like `read`."""
    path = path_of(stack)
    return read(path) if path.exists() else None


def write(path: Path, lock: MirrorLock) -> None:
    """Write a lock atomically."""
    files.write_text(path, dumps(lock))


def dumps(lock: MirrorLock) -> str:
    """The text of a lock: a line for each requirement and file, so that a diff shows what changed."""
    lines = [_HEADER, f'schema = "{MirrorLock.__struct_config__.tag}"', f"stack = {toml_text(lock.stack)}"]
    lines += [f"pythons = {_texts(lock.pythons)}", f"platforms = {_texts(lock.platforms)}", "", "asked = ["]
    for entry in lock.asked:
        extras = f"extras = {_texts(entry.extras)}, " if entry.extras else ""
        lines.append(f"    {{ by = {toml_text(entry.by)}, {extras}requires = [")
        lines += [f"        {toml_text(text)}," for text in entry.requires]
        lines.append("    ] },")
    lines += ["]", "", "files = ["]
    for file in lock.files:
        fields = [
            f"{field} = {toml_text(getattr(file, field))}"
            for field in ("name", "version", "file_name", "sha256")
        ]
        fields += [f"size = {file.size}"] if file.size is not None else []
        lines.append(f"    {{ {', '.join(fields)} }},")
    lines.append("]")
    if lock.unverified:
        lines += [
            "",
            "# The index gave no sha256 of these: compare the bytes, then delete the name.",
            "unverified = [",
        ]
        lines += [*(f"    {toml_text(name)}," for name in lock.unverified), "]"]
    lines += [*(["", "[sdk]"] if lock.sdk else [])]
    lines += [f"{toml_text(name)} = {toml_text(sha256)}" for name, sha256 in sorted(lock.sdk.items())]
    return "\n".join([*lines, ""])


def in_order(locked: Iterable[LockedFile]) -> tuple[LockedFile, ...]:
    """The files in the order of a lock, each once."""
    distinct = {file.file_name: file for file in locked}
    return tuple(sorted(distinct.values(), key=lambda f: (f.name, Version(f.version), f.file_name)))


def changes(old: MirrorLock | None, new: MirrorLock) -> tuple[str, ...]:
    """The changes for a review of `new`: files that come, go or change their bytes, a line for each."""
    before, after = (
        {**{file.file_name: file.sha256 for file in entry.files}, **entry.sdk} if entry else {}
        for entry in (old, new)
    )
    lines = []
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            lines.append(f"- {name}")
        elif name not in before:
            lines.append(f"+ {name}")
        elif before[name] != after[name]:
            lines.append(f"! {name}: other bytes under the same name, sha256 {after[name]}")
    return tuple(lines)


def not_in(lock: MirrorLock, files: Iterable[FileRef]) -> tuple[str, ...]:
    """The files that a lock does not name, or has with other bytes: a sentence for each."""
    locked = {file.file_name: file.sha256 for file in lock.files}
    return tuple(
        f"{ref.filename} with sha256 {ref.sha256} is not in the lock of the mirror"
        for ref in files
        if locked.get(ref.filename) != ref.sha256
    )


def of_root(stack: Stack) -> MirrorLock:
    """The lock of a stack for builds with ROCm in a store with a root; raises like `read`.

    Raises:
        UsageError: it has no file of the ROCm SDK.
    """
    lock = of(stack)
    if lock is None or not lock.sdk:
        raise UsageError(
            f"in a store with a root, the ROCm SDK of builds is reviewed, and {path_of(stack)} has no [sdk]",
            tip=f"make it: {LOCK_SDK}",
        )
    if lock.unverified:
        raise UsageError(
            f"in a store with a root, the ROCm SDK of builds is reviewed, and of "
            f"{len(lock.unverified)} files in {path_of(stack)} the index gave no sha256: "
            f"{', '.join(lock.unverified[:3])}",
            tip="compare them with what ROCm published, then delete their names from `unverified`",
        )
    return lock


def locked_hashes(lock: MirrorLock) -> dict[str, str]:
    """Every file of a lock, name to the sha256 that it may have."""
    return {**{file.file_name: file.sha256 for file in lock.files}, **lock.sdk}


def unvouched(
    closure: Iterable[ClosureFile], lock: MirrorLock | None, built_with: Mapping[str, str], *, believed: bool
) -> Iterator[str]:
    """The files that a set needs and that nobody vouches for by their sha256: a sentence for each.

    Args:
        closure: the files that a set needs besides its own.
        lock: what was reviewed; None for nothing.
        built_with: the files of the ROCm SDK that the builder says it used, name to sha256.
        believed: what the builder says counts where no [sdk] was reviewed, since it has made them itself.
    """
    locked = {file.file_name: file.sha256 for file in lock.files} if lock else {}
    reviewed = lock.sdk if lock else {}
    by_builder = believed and not reviewed
    for name, sha256 in built_with.items() if not by_builder else ():
        if sha256 not in reviewed.get(name, "").split():
            how = "" if reviewed else f": {LOCK_SDK}"
            yield f"{name} with sha256 {sha256}, which it was built with, is not in the lock's [sdk]{how}"
    sdk = built_with if by_builder else reviewed
    for file in closure:
        of_sdk = is_of_sdk(project_of(file.file_name))
        if file.sha256 not in (sdk if of_sdk else locked).get(file.file_name, "").split():
            why = (
                "of the ROCm SDK that the builder says it used, nor in the lock: build it again with that "
                "SDK, or cairn index mirror lock --stack STACK FILE"
                if of_sdk and by_builder
                else "in the lock's [sdk]"
                if of_sdk
                else "in the lock of the mirror"
                if lock
                else "in a lock, and the stack has none: cairn index mirror lock --stack STACK WHEEL …"
            )
            yield f"{file.file_name} with sha256 {file.sha256} is not {why}"


def meets(lock: MirrorLock, text: str, place: Platform) -> bool:
    """Whether a lock has a file for a requirement at a place, whatever that file needs itself."""
    requirement = Requirement(text)
    if requirement.marker and not requirement.marker.evaluate(place.markers()):
        return True
    return any(
        canonicalize_name(file.name) == canonicalize_name(requirement.name)
        and requirement.specifier.contains(file.version, prereleases=True)
        and place.takes(file.file_name, None)
        for file in lock.files
    )


def places(lock: MirrorLock) -> tuple[Platform, ...]:
    """Every combination of Python and platform that a lock covers."""
    return tuple(Platform(python=p, tag=tag) for p in lock.pythons for tag in lock.platforms)


def places_of(stack: Stack) -> tuple[Platform, ...]:
    """Every combination of Python and platform that a stack is for; this one, if it does not say."""
    here = Platform.here()
    pythons, platforms = stack.pythons or (here.python,), stack.platforms or (here.tag,)
    return tuple(Platform(python=python, tag=tag) for python in pythons for tag in platforms)


def path_of(stack: Stack) -> Path:
    """The path of a stack's lock."""
    return Path(stack.folder, FILE)


def is_of_sdk(name: str) -> bool:
    """Whether a project is part of the ROCm SDK."""
    return requirements.is_sdk(name)


def lines_for(entries: Iterable[Asked], platform: Platform) -> Iterator[str]:
    """The requirements that apply on a platform, without markers, sorted, each once."""
    lines = set()
    for entry in entries:
        for text in entry.requires:
            requirement = requirements.requirement(text)
            if requirement.url is not None:  # by its name alone it would be somebody else's
                raise UsageError(
                    f"a lock takes files of an index alone, and this names an address: {text}",
                    tip="publish it first, and require it by name and version",
                )
            extras = ("", *entry.extras)
            if requirement.marker is None or any(
                requirement.marker.evaluate(platform.markers() | {"extra": extra}) for extra in extras
            ):
                of_it = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
                lines.add(f"{canonicalize_name(requirement.name)}{of_it}{requirement.specifier}")
    yield from sorted(lines)


def _problem(file: LockedFile) -> str | None:
    """The reason why a file cannot be in a lock, or None."""
    try:
        name = parse_file_name(file.file_name)
    except WheelError as error:
        return str(error)
    if (name.distribution, name.version) != (file.name, file.version):
        return f"{file.file_name} is not of {file.name} {file.version}"
    if not _SHA256.fullmatch(file.sha256):
        return f"what is given for {file.file_name} is not a sha256"
    if name.build is not None:
        return f"{file.file_name} has the build tag {name.build!r}, of which installers take the highest"
    return f"{file.name} is of the ROCm SDK, which comes from ROCm alone" if is_of_sdk(file.name) else None


def _texts(values: Iterable[str]) -> str:
    return f"[{', '.join(map(toml_text, values))}]"


def required_by(dists: Iterable[Dist], further: Sequence[str], *, stack: Stack) -> tuple[Asked, ...]:
    """The requirements of a stack's distributions, and of the user, that other indexes must satisfy.

    Args:
        dists: wheels of one or several Pythons and platforms, and sdists; what any of them requires, or takes
            to be built, counts for all.
        further: requirements of the user.
        stack: its own projects with their device wheels, and the ROCm SDK, come from nowhere else.
    """
    dists = tuple(dists)
    made = {str(canonicalize_name(p.distribution)) for p in stack.projects} | {dist.name for dist in dists}
    pairs = ((canonicalize_name(r.name), dist.name) for dist in dists for r in dist.needs.requires)
    made |= {name for name, host in pairs if device_names.processor_of(name, host)}  # some are not given
    by_name: dict[str, tuple[dict[str, None], set[str]]] = {}
    for dist in dists:
        requires, extras = by_name.setdefault(dist.name, ({}, set()))
        every = dist.needs.requires
        if dist.path.suffix != ".whl":  # what builds it has to be there on the machine of who installs it
            with dist.path.open("rb") as stream:
                every += distribution.build_requirements(stream, filename=dist.path.name)
        names = ((str(r), canonicalize_name(r.name)) for r in every)
        requires |= {text: None for text, name in names if name not in made and not is_of_sdk(name)}
        extras |= set(dist.needs.extras)
    by_project = [
        Asked(by=name, requires=tuple(requires), extras=tuple(sorted(extras)))
        for name, (requires, extras) in sorted(by_name.items())
        if requires
    ]
    lines = tuple(dict.fromkeys(str(requirements.requirement(line)) for line in further))
    return (*by_project, Asked(by=stack.name, requires=lines)) if lines else tuple(by_project)


def merged(before: Iterable[Asked], new: Iterable[Asked], *, stack: Stack) -> tuple[Asked, ...]:
    """Merge requirements: new wheels of a project replace its earlier requirements; the user's add up."""
    by_name = {entry.by: entry for entry in before}
    for entry in new:
        if entry.by == stack.name and entry.by in by_name:
            lines = tuple(dict.fromkeys((*by_name[entry.by].requires, *entry.requires)))
            by_name[entry.by] = Asked(by=entry.by, requires=lines)
        else:
            by_name[entry.by] = entry
    return tuple(by_name.values())


def resolve(
    stack: Stack,
    platforms: Sequence[Platform],
    entries: Sequence[Asked],
    *,
    settings: PipSettings,
    before: MirrorLock | None = None,
    sdk: Mapping[str, str] | None = None,
) -> tuple[MirrorLock, dict[str, str]]:
    """Resolve requirements into a lock, from the index that pip is set up for; also where its files are.

    Args:
        stack: whose lock it is.
        platforms: every Python and platform that it is to cover.
        entries: what to resolve.
        settings: where uv looks.
        before: an earlier lock, whose versions are kept where they still do.
        sdk: files of the ROCm SDK, name to sha256.

    Raises:
        NetworkError: a requirement cannot be met there, or the index cannot be reached; uv's explanation.
        UsageError: uv has no name for a platform, or no mirror may hold a file that it chooses.
    """
    locked: dict[LockedFile, str] = {}
    earlier = before.files if before is not None else ()
    sizes = {file.sha256: file.size for file in earlier}  # an index may have stopped saying it
    for platform in platforms:
        lines = tuple(lines_for(entries, platform))
        usable = [f for f in earlier if platform.takes(f.file_name, None)]
        locked.update(_locked(lines, platform, settings=settings, locked_files=usable))
    if problems := dict.fromkeys(filter(None, map(_problem, locked))):
        raise UsageError(
            f"not locked, since no mirror may hold it: {'; '.join(problems)}",
            tip="have a different version be taken: --require 'NAME!=VERSION'",
        )
    lock = MirrorLock(
        stack=stack.name,
        pythons=tuple(dict.fromkeys(platform.python for platform in platforms)),
        platforms=tuple(dict.fromkeys(platform.tag for platform in platforms)),
        asked=tuple(entries),
        files=in_order(structs.replace(file, size=file.size or sizes.get(file.sha256)) for file in locked),
        sdk=sdk or {},
    )
    return lock, {file.file_name: address for file, address in locked.items()}


def _locked(
    lines: Sequence[str], platform: Platform, *, settings: PipSettings, locked_files: Sequence[LockedFile]
) -> Iterator[tuple[LockedFile, str]]:
    """The locked files for one platform, each with its address."""
    with tempfile.TemporaryDirectory(prefix="cairn-lock-") as folder:
        output, constraints = Path(folder, _PYLOCK), Path(folder, "constraints.txt")
        constraints.write_text("".join(_constraints(locked_files)), encoding="utf-8")
        command = [venv.uv_program(), "pip", "compile", "-", "--no-config", "--quiet", "--no-header"]
        command += ["--no-build", "--no-python-downloads", "--python", sys.executable]
        command += [*settings.uv_options(), *platform.uv_options(anywhere=True), "--output-file", str(output)]
        # What is asked now may not go with the versions that are locked: then all is resolved anew.
        for options in (["--constraints", str(constraints)], []):
            answer = process.run(
                [*command, *options],
                env=settings.uv_environment(),
                stdin="\n".join(lines).encode(),
                timeout=_TIMEOUT,
                check=False,
                confined=False,
            )
            if answer.returncode == 0 or "No solution found" not in answer.output:
                break
        if answer.returncode != 0:
            message = " ".join(answer.output.split())
            raise NetworkError(
                f"uv cannot resolve what is asked for {platform}: {message[-600:]}",
                tip="see python3 -m pip config list for the index that is asked",
            )
        packages = datafile.read_toml(output).get("packages", [])
    for package in packages:
        yield from _files_of(package, platform)


def _constraints(locked_files: Iterable[LockedFile]) -> Iterator[str]:
    """Constraints that keep uv at locked versions, a line for each project.

    Preferences, which uv takes from an output that is there already, would be simpler; but of an index that
    has only some files of the preferred version uv then takes an older one, also where a second index has
    the rest (0.13). Where Pythons differ in the version, the highest of them that fits is the locked one.
    """
    versions: dict[str, list[str]] = {}
    for file in locked_files:
        versions.setdefault(file.name, []).append(file.version)
    for name, of_project in versions.items():
        yield f"{name}>={min(of_project, key=Version)},<={max(of_project, key=Version)}\n"


def _files_of(package: Mapping[str, Any], platform: Platform) -> Iterator[tuple[LockedFile, str]]:
    """The wheels of a package of a pylock.toml, each with its address."""
    for wheel in package.get("wheels", ()):
        # `name` may be left out where the end of the address says it.
        place = urllib.parse.urlsplit(wheel["url"]).path if "url" in wheel else wheel.get("path", "")
        file_name = wheel.get("name") or urllib.parse.unquote(posixpath.basename(place))
        sha256 = wheel.get("hashes", {}).get("sha256")
        if sha256 is None:
            raise NetworkError(f"the index gives no sha256 of {file_name}", tip="ask an index that does")
        if platform.takes(file_name, None):
            file = LockedFile(
                name=package["name"],
                version=package["version"],
                file_name=file_name,
                sha256=sha256,
                size=wheel.get("size"),
            )
            yield file, wheel.get("url", "")
