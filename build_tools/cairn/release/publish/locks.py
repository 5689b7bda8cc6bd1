"""Locks that pin an installation to a set: constraints.txt, requirements.txt and pylock.toml (PEP 751).

They say in three ways what uv resolved when the set was sealed, so nothing is resolved here, and the same set
gives the same bytes. Where uv itself writes a pylock.toml (`uv pip compile --format pylock.toml`, 0.13), its
addresses are those of the server that it asked, extras are resolved away, and an sdist that decides late is
built for it. Ours differs in three ways:

- it names files by paths relative to itself, since an index is the same files wherever it lies. pip follows
  them from a URL as well as from a folder, uv from a folder; PEP 751 has no relative URLs, and neither takes
  one. `absolute` makes a lock for one address, which both take from anywhere.
- what only an extra needs has a marker, so that one lock serves with and without it.
- it is for the Python and the platform of its set, and says so.
"""

from __future__ import annotations

import json
import posixpath
import re
import tomllib
import urllib.parse
from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cairn import requirements
from cairn.datafile import toml_text
from cairn.errors import StoreError
from cairn.release.index import keys
from cairn.release.index.generation import project_of, version_of
from cairn.release.publish import distribution
from cairn.release.publish.compatibility import Platform
from cairn.release.publish.distribution import Needs
from cairn.store.protocol import Store, read_named
from cairn.targets import CPU, parse_target_id
from cairn.wheels.metadata import device_names
from cairn.wheels.wheelset import ClosureFile, SetWheel, WheelSet

_PATH = re.compile(r'\bpath = ("[^"\\]*")')
_LockedFile = SetWheel | ClosureFile


class _Package(msgspec.Struct, frozen=True, kw_only=True):
    """A project of a set.

    Attributes:
        name: normalised.
        version: normalised.
        files: those that fit the set's platform, by name.
        extras: the extras of the set that need it; empty where it is always needed.
    """

    name: str
    version: str
    files: tuple[_LockedFile, ...]
    extras: tuple[str, ...]


def of_set(wheel_set: WheelSet, metadata: Mapping[str, bytes]) -> dict[str, bytes]:
    """The locks of a sealed set, by key.

    Args:
        wheel_set: the set.
        metadata: file name to METADATA, of every file that has any (`metadata_of`).
    """
    folder = keys.set_key(wheel_set.id, "locks")
    packages = _packages(wheel_set, metadata)
    always = [package for package in packages if not package.extras]
    about = (
        f"{wheel_set.stack} {wheel_set.line} for {wheel_set.family}, Python {wheel_set.python}, "
        f"{wheel_set.platform}"
    )
    # On one line, whatever a set says of itself: what follows a line end would be a requirement.
    head = f"# Set {wheel_set.id}\n# {' '.join(about.split())}\n"
    pinned = "".join(f"{package.name}=={package.version}\n" for package in packages)
    hashed = ""
    for package in always:
        hashes = "".join(f" \\\n    --hash=sha256:{file.sha256}" for file in package.files)
        hashed += f"{package.name}=={package.version}{hashes}\n"
    made = {
        "constraints.txt": f"{head}{pinned}",
        "requirements.txt": f"{head}{hashed}",
        "pylock.toml": _pylock(wheel_set, packages, folder=folder),
    }
    return {f"{folder}/{name}": text.encode() for name, text in made.items()}


def metadata_of(store: Store, wheel_set: WheelSet) -> dict[str, bytes]:
    """Read the METADATA files that a set names, by file name.

    Raises:
        MissingKeyError: the store has lost one.
        StoreError: one was changed.
    """
    by_name = {}
    for file in _files(wheel_set):
        if file.metadata_sha256 is not None:
            key = keys.sidecar_key(file.sha256, file.file_name)
            by_name[file.file_name] = read_named(store, key, file.metadata_sha256)
    return by_name


def unmet(wheel_set: WheelSet, metadata: Mapping[str, bytes]) -> Iterator[str]:
    """The requirements that no file of a set meets, and the extras that none of its files declares.

    What the set's own extras ask for counts, but for those of other targets. Of which extras a mirrored
    package asks is its authors' to know: pip warns of those that there are not.

    Args:
        wheel_set: the set.
        metadata: as for `of_set`.
    """
    versions: dict[str, set[str]] = {}
    for file in wheel_set.files:
        versions.setdefault(project_of(file.file_name), set()).add(version_of(file.file_name))
    needs = {project_of(name): distribution.needs_of(data, filename=name) for name, data in metadata.items()}
    mirrored = {project_of(file.file_name) for file in wheel_set.closure if file.origin == "mirrored"}
    distributions = [wheel.distribution for wheel in wheel_set.wheels]
    yield from absent_devices(wheel_set, needs)
    graph = _Graph(
        needs=needs, environment=Platform(python=wheel_set.python, tag=wheel_set.platform).markers()
    )
    extras = {name: distribution.extras_beside(needs[name], name, distributions) for name in distributions}
    roots = [(name, extra) for name in distributions for extra in ("", *extras[name])]
    for name, requirement in graph.edges(roots):
        project = canonicalize_name(requirement.name)
        shown = ", ".join(sorted(present := versions.get(project, set())))
        if not any(requirement.specifier.contains(version, prereleases=True) for version in present):
            yield f"{name} needs {requirement}, and the set has {shown or 'none'}"
        elif name not in mirrored and (lacking := _undeclared(requirement, needs.get(project))):
            yield f"{name} needs {requirement}, and {project} {shown} has no extra {', '.join(lacking)}"


def absent_devices(wheel_set: WheelSet, needs: Mapping[str, Needs]) -> Iterator[str]:
    """The wheels that the extras for a set's targets name by METADATA, and that the set has not.

    Args:
        wheel_set: the set.
        needs: of its wheels, by distribution.
    """
    markers = Platform(python=wheel_set.python, tag=wheel_set.platform).markers()
    extras = {
        device_names.extra_of(parse_target_id(target).processor)
        for target in wheel_set.targets
        if target != CPU
    }
    projects = {project_of(file.file_name) for file in wheel_set.files}
    for name in (wheel.distribution for wheel in wheel_set.wheels):
        lacking = device_names.lacking(
            needs[name].requires, markers, lambda wheel: canonicalize_name(wheel.name) in projects
        )
        for extra, absent, _ in lacking:
            for wheel in absent if extra in extras else ():
                yield f"{wheel.name} is missing, which {name}[{extra}] asks for"


def _undeclared(requirement: Requirement, needs: Needs | None) -> list[str]:
    """The extras that a project does not declare; none where it decides that when it is built."""
    return requirements.extras_lacking(requirement, needs.extras) if needs and needs.reliable else []


def absolute(lock: bytes, url: str) -> bytes:
    """Rewrite a pylock.toml of ours that was fetched from `url`, with absolute URLs in place of paths.

    Raises:
        StoreError: it is not such a lock.
    """

    def address(match: re.Match[str]) -> str:
        path = urllib.parse.quote(json.loads(match[1]))  # a `+` of a local version above all
        return f"url = {toml_text(urllib.parse.urljoin(url, path))}"

    made = _PATH.sub(address, lock.decode())
    try:
        tomllib.loads(made)
    except tomllib.TOMLDecodeError as error:
        raise StoreError(f"{url} is not a pylock.toml: {error}") from error
    return made.encode()


def _files(wheel_set: WheelSet) -> list[_LockedFile]:
    return [*wheel_set.wheels, *wheel_set.closure]


def _packages(wheel_set: WheelSet, metadata: Mapping[str, bytes]) -> tuple[_Package, ...]:
    """The packages that an installation of the whole set consists of, by name.

    Build requirements of sdists are in the closure too, but in no lock: they are not installed with the set.
    """
    files: dict[str, list[_LockedFile]] = {}
    for file in sorted(_files(wheel_set), key=lambda file: file.file_name):
        files.setdefault(project_of(file.file_name), []).append(file)
    # An sdist that decides late has no METADATA that holds; what it chose is in the set's requirements.
    needs = {
        name: distribution.needs_of(metadata[file.file_name], filename=file.file_name)
        for name, (file, *_) in files.items()
        if file.metadata_sha256 is not None
    }
    platform = Platform(python=wheel_set.python, tag=wheel_set.platform)
    graph = _Graph(needs=needs, environment=platform.markers())
    distributions = {wheel.distribution for wheel in wheel_set.wheels}
    roots = [Requirement(name) for name in sorted(distributions - graph.optional(distributions))]
    always = graph.reached([*roots, *map(requirements.requirement, wheel_set.requirements)])
    by_extra: dict[str, set[str]] = {}
    # With no extra that asks for device wheels of other sets: an installation would lack them in silence.
    for extra in sorted(
        {e for name in distributions for e in distribution.extras_beside(needs[name], name, distributions)}
    ):
        requested = [Requirement(f"{root.name}[{extra}]") for root in roots]
        for name in graph.reached(requested) - always:
            by_extra.setdefault(name, set()).add(extra)
    return tuple(
        _Package(
            name=name,
            version=version_of(files[name][0].file_name),
            files=tuple(files[name]),
            extras=tuple(sorted(by_extra.get(name, ()))),
        )
        for name in sorted(files.keys() & (always | by_extra.keys()))
    )


class _Graph(msgspec.Struct, frozen=True, kw_only=True):
    """The dependency graph of a set, with one version of each project.

    Attributes:
        needs: what the metadata of each says.
        environment: what markers are evaluated with.
    """

    needs: Mapping[str, Needs]
    environment: Mapping[str, str]

    def optional(self, distributions: Collection[str]) -> set[str]:
        """The projects of `own` that the others need only through an extra, as for device wheels."""
        needed: dict[bool, set[str]] = {True: set(), False: set()}
        for name in distributions:
            for extra in ("", *self.needs[name].extras):
                needed[extra == ""] |= {canonicalize_name(r.name) for r in self._of(name, extra)}
        return (needed[False] - needed[True]) & set(distributions)

    def reached(self, requested: Iterable[Requirement]) -> set[str]:
        """Every project that these requirements need, directly or indirectly."""
        nodes = [node for requirement in requested for node in _nodes(requirement)]
        needed = {str(canonicalize_name(requirement.name)) for _, requirement in self.edges(nodes)}
        return {name for name, _ in nodes} | needed

    def edges(self, nodes: Iterable[tuple[str, str]]) -> Iterator[tuple[str, Requirement]]:
        """Every requirement of these projects with extras, and of those that they need, by who has it."""
        todo = list(nodes)
        seen = set(todo)
        while todo:
            node = todo.pop()
            for requirement in self._of(*node):
                yield node[0], requirement
                more = {*_nodes(requirement)} - seen
                seen |= more
                todo += sorted(more)

    def _of(self, name: str, extra: str) -> Iterator[Requirement]:
        needs = self.needs.get(name)
        for requirement in needs.requires if needs else ():
            if requirement.marker is None:
                if extra == "":
                    yield requirement
            elif requirement.marker.evaluate({**self.environment, "extra": extra}):
                yield requirement


def _nodes(requirement: Requirement) -> Iterator[tuple[str, str]]:
    for extra in ("", *requirement.extras):
        yield canonicalize_name(requirement.name), canonicalize_name(extra)


def _pylock(wheel_set: WheelSet, packages: Collection[_Package], *, folder: str) -> str:
    """Write a pylock.toml, its keys in the order of PEP 751."""
    markers = Platform(python=wheel_set.python, tag=wheel_set.platform).markers()
    here = " and ".join(f"{key} == '{markers[key]}'" for key in ("sys_platform", "platform_machine"))
    extras = sorted({extra for package in packages for extra in package.extras})
    lines = [
        'lock-version = "1.0"',
        f"environments = [{toml_text(here)}]",
        f'requires-python = "=={wheel_set.python}.*"',
        f"extras = [{', '.join(map(toml_text, extras))}]",
        'created-by = "cairn"',
        "",
    ]
    for package in packages:
        lines += [
            "[[packages]]",
            f"name = {toml_text(package.name)}",
            f"version = {toml_text(package.version)}",
        ]
        if package.extras:
            marker = " or ".join(f"'{extra}' in extras" for extra in package.extras)
            lines.append(f"marker = {toml_text(marker)}")
        if package.files[0].requires_python:
            lines.append(f"requires-python = {toml_text(package.files[0].requires_python)}")
        wheels = [_located(file, folder) for file in package.files if file.file_name.endswith(".whl")]
        if wheels:
            lines += ["wheels = [", *(f"    {wheel}," for wheel in wheels), "]"]
        else:
            lines.append(f"sdist = {_located(package.files[0], folder)}")
        lines.append("")
    return "\n".join([*lines, "[tool.cairn]", f"set = {toml_text(wheel_set.id)}", ""])


def _located(file: _LockedFile, folder: str) -> str:
    path = posixpath.relpath(keys.file_key(file.sha256, file.file_name), folder)
    return (
        f"{{ name = {toml_text(file.file_name)}, path = {toml_text(path)}, size = {file.size}, "
        f"hashes = {{ sha256 = {toml_text(file.sha256)} }} }}"
    )
