"""A set and everything it needs, directly or not, out of what a channel holds."""

from __future__ import annotations

import collections
import platform as this_platform
import re
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from cairn import requirements
from cairn import requirements as texts
from cairn.errors import StoreError, UsageError
from cairn.release.index import keys
from cairn.release.index.generation import FileEntry, FileRef
from cairn.release.index.snapshot import Snapshot
from cairn.release.publish import distribution
from cairn.release.publish.distribution import Dist, Needs
from cairn.store.folder import MissingKeyError

_ROUNDS = 50


@dataclass(frozen=True, kw_only=True)
class Missing:
    """A requirement that the channel cannot satisfy.

    Attributes:
        requirement: it, without its marker.
        wanted_by: the file or the person who names it.
        found: the versions that are there and do not do.
    """

    requirement: str
    wanted_by: str
    found: tuple[str, ...] = ()

    def __str__(self) -> str:
        there = f" (there: {', '.join(self.found)})" if self.found else ""
        return f"{self.requirement}, wanted by {self.wanted_by}{there}"


@dataclass(frozen=True, kw_only=True)
class Closure:
    """What a set needs.

    Attributes:
        files: the files of the channel that satisfy it, the roots not among them, sorted by name.
        missing: what is not there.
    """

    files: tuple[FileRef, ...]
    missing: tuple[Missing, ...]


@dataclass(frozen=True, kw_only=True)
class _Wish:
    requirement: Requirement
    wanted_by: str

    @property
    def name(self) -> str:
        return str(canonicalize_name(self.requirement.name))


@dataclass(kw_only=True)
class _Round:
    """One walk over everything reachable, choosing versions by what the walk before it learned."""

    bounds: dict[str, SpecifierSet]
    learned: dict[str, SpecifierSet] = field(default_factory=dict)
    chosen: dict[str, tuple[FileEntry, ...]] = field(default_factory=dict)
    seen: dict[str, frozenset[str]] = field(default_factory=dict)
    missing: dict[str, Missing] = field(default_factory=dict)


class _Resolver:
    """Takes the highest version that everybody accepts; whether pip and uv agree is for the gate to try."""

    def __init__(self, snapshot: Snapshot, roots: Sequence[Dist], platform: Platform) -> None:
        self._snapshot = snapshot
        self._platform = platform
        self._roots: dict[str, list[Dist]] = collections.defaultdict(list)
        for root in roots:
            self._roots[root.name].append(root)
        self._needs: dict[str, Needs] = {}

    def resolve(self, wishes: Sequence[_Wish]) -> Closure:
        bounds: dict[str, SpecifierSet] = {}
        for _ in range(_ROUNDS):
            walk = _Round(bounds=bounds)
            self._walk(walk, wishes)
            if walk.learned == bounds:
                refs = {entry.ref for entries in walk.chosen.values() for entry in entries}
                return Closure(
                    files=tuple(sorted(refs, key=lambda ref: ref.filename)),
                    missing=tuple(walk.missing.values()),
                )
            bounds = walk.learned
        raise StoreError("the requirements of the set contradict each other", tip="pin them exactly")

    def _walk(self, walk: _Round, wishes: Sequence[_Wish]) -> None:
        queue = collections.deque(wishes)
        for roots in self._roots.values():
            for root in roots:
                queue.extend(self._wishes(root.needs, root.path.name, frozenset(root.needs.extras)))
        while queue:
            wish = queue.popleft()
            if wish.name in self._roots:
                self._check_root(walk, wish)
            else:
                queue.extend(self._follow(walk, wish))

    def _check_root(self, walk: _Round, wish: _Wish) -> None:
        have = tuple(sorted({root.version for root in self._roots[wish.name]}))
        if not any(wish.requirement.specifier.contains(v, prereleases=True) for v in have):
            self._note_missing(walk, wish, have)

    def _follow(self, walk: _Round, wish: _Wish) -> list[_Wish]:
        extras = frozenset(str(canonicalize_name(extra)) for extra in wish.requirement.extras)
        bound = walk.learned.get(wish.name, SpecifierSet()) & wish.requirement.specifier
        walk.learned[wish.name] = bound
        known = walk.seen.get(wish.name)
        if known is not None and extras <= known:
            return []
        files = walk.chosen.get(wish.name) or self._choose(walk, wish, bound)
        walk.seen[wish.name] = (known or frozenset()) | extras
        if not files:
            return []
        walk.chosen[wish.name] = files
        return self._wishes_of_file(files[0], walk.seen[wish.name])

    def _choose(self, walk: _Round, wish: _Wish, bound: SpecifierSet) -> tuple[FileEntry, ...]:
        specifier = bound & walk.bounds.get(wish.name, SpecifierSet())
        everything = self._snapshot.project(wish.name).files
        fitting = [file for file in everything if self._platform.fits(file)]
        version = _best(fitting, specifier)
        if version is None:
            self._note_missing(
                walk, wish, tuple(sorted({f.version for f in everything}, key=Version)), specifier
            )
            return ()
        files = tuple(file for file in fitting if file.version == version)
        wheels = tuple(file for file in files if file.filename.endswith(".whl"))
        return wheels or files

    def _wishes_of_file(self, file: FileEntry, extras: frozenset[str]) -> list[_Wish]:
        needs = self._needs_of(file)
        wishes = self._wishes(needs, file.filename, extras)
        if not needs.reliable:
            wishes = [wish for wish in wishes if self._could_be_here(wish)]
        if not file.filename.endswith(".whl"):
            with self._snapshot.channel.store.open(keys.file_key(file.sha256, file.filename)) as stream:
                build = distribution.build_requirements(stream, filename=file.filename)
            wishes += self._wishes(Needs(requires=build, extras=()), file.filename, frozenset())
        return wishes

    def _wishes(self, needs: Needs, wanted_by: str, extras: frozenset[str]) -> list[_Wish]:
        return [
            _Wish(requirement=requirement, wanted_by=wanted_by)
            for requirement in needs.requires
            if self._platform.wants(requirement, extras)
        ]

    def _needs_of(self, file: FileEntry) -> Needs:
        if file.filename not in self._needs:
            key = keys.sidecar_key(file.sha256, file.filename)
            try:
                data = self._snapshot.channel.store.read(key).data
            except MissingKeyError as error:
                raise StoreError(f"{file.filename} has lost its metadata: no {key}") from error
            self._needs[file.filename] = distribution.needs_of(data, filename=file.filename)
        return self._needs[file.filename]

    def _could_be_here(self, wish: _Wish) -> bool:
        # An unreliable sdist lists what its maker's machine wanted; that is a hint, never a demand.
        if wish.name in self._roots:
            return True
        files = [file for file in self._snapshot.project(wish.name).files if self._platform.fits(file)]
        return _best(files, wish.requirement.specifier) is not None

    @staticmethod
    def _note_missing(
        walk: _Round, wish: _Wish, found: tuple[str, ...], specifier: SpecifierSet | None = None
    ) -> None:
        shown = Requirement(str(wish.requirement))
        shown.marker = None
        if specifier is not None:
            shown.specifier = specifier
        walk.missing[wish.name] = Missing(requirement=str(shown), wanted_by=wish.wanted_by, found=found)


def closure(
    snapshot: Snapshot,
    *,
    roots: Sequence[Dist],
    requirements: Sequence[str] = (),
    platform: Platform,
) -> Closure:
    """What `roots`, with every extra of theirs, and `requirements` need, as far as the channel has it.

    Args:
        snapshot: the channel.
        roots: distributions that satisfy each other's requirements whether published or not.
        requirements: further ones, which no metadata names.
        platform: where it will be installed.
    """
    wishes = [_Wish(requirement=parsed(line), wanted_by="the caller") for line in requirements]
    return _Resolver(snapshot, roots, platform).resolve(wishes)


def parsed(line: str) -> Requirement:
    """A requirement that somebody named.

    Raises:
        UsageError: it is not one.
    """
    try:
        return texts.requirement(line)
    except ValueError as error:
        raise UsageError(str(error), tip="write it like NAME==VERSION") from error


def _best(files: Sequence[FileEntry], specifier: SpecifierSet) -> str | None:
    # A yanked file does for an exact pin only (PEP 592).
    pinned = any(s.operator in ("==", "===") and not s.version.endswith(".*") for s in specifier)
    versions = {file.version for file in files if file.yanked is None or pinned}
    accepted = list(specifier.filter(sorted(versions, key=Version)))
    return max(accepted, key=Version) if accepted else None


# From the end of a platform tag to what platform.machine() says there.
_MACHINES = {"amd64": "AMD64", "arm64": "ARM64", "win32": "x86"}
_PYTHON = re.compile(r"[0-9]\.[0-9]{1,3}")
_SYSTEMS = {
    "win": {"sys_platform": "win32", "platform_system": "Windows", "os_name": "nt"},
    "macosx": {"sys_platform": "darwin", "platform_system": "Darwin", "os_name": "posix"},
    "linux": {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"},
}


@dataclass(frozen=True, kw_only=True)
class Platform:
    """Where wheels are to be installed.

    Attributes:
        python: such as `3.11`.
        tag: such as `linux_x86_64` or `manylinux_2_28_x86_64`; only its system and machine count.
    """

    python: str
    tag: str

    def __post_init__(self) -> None:
        if not _PYTHON.fullmatch(self.python):
            raise UsageError(
                f"{requirements.shown(self.python)} is not a version of Python", tip="write 3.11"
            )

    @classmethod
    def here(cls) -> Platform:
        """The Python that runs us, on this machine."""
        tag = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        return cls(python=f"{sys.version_info.major}.{sys.version_info.minor}", tag=tag)

    def environment(self) -> Mapping[str, str]:
        """The values of the marker variables of the dependency specifiers specification."""
        here = default_environment()
        machine = _machine(self.tag)
        same = here["python_version"] == self.python
        return {
            **{name: str(value) for name, value in here.items()},
            **_SYSTEMS[_system(self.tag)],
            "platform_machine": _MACHINES.get(machine, machine),
            "python_version": self.python,
            "python_full_version": this_platform.python_version() if same else f"{self.python}.0",
            "implementation_name": "cpython",
            "platform_python_implementation": "CPython",
        }

    def wants(self, requirement: Requirement, extras: frozenset[str] = frozenset()) -> bool:
        """Whether a requirement counts here, for a distribution asked for with these extras."""
        if requirement.marker is None:
            return True
        environment, marker = self.environment(), requirement.marker
        try:
            return any(requirements.holds(marker, {**environment, "extra": e}) for e in ("", *extras))
        except ValueError as error:
            raise StoreError(f"{requirements.shown(str(requirement))}: {error}") from error

    def fits(self, file: FileEntry) -> bool:
        """Whether a file can be installed here; an sdist can, as far as anybody knows before trying."""
        if file.requires_python and not self._python_is_in(file.requires_python):
            return False
        if not file.filename.endswith(".whl"):
            return True
        tags = parse_wheel_filename(file.filename)[3]
        return any(self._accepts(tag) for tag in tags)

    def _python_is_in(self, text: str) -> bool:
        try:
            wanted = requirements.specifiers(text)
        except ValueError:
            return False  # published before such a thing was refused; one file must not spoil every set
        return wanted.contains(self.environment()["python_full_version"], prereleases=True)

    def _accepts(self, tag: Tag) -> bool:
        if tag.platform != "any" and (_system(tag.platform), _machine(tag.platform)) != (
            _system(self.tag),
            _machine(self.tag),
        ):
            return False
        return (tag.interpreter, tag.abi) in self._interpreters()

    def _interpreters(self) -> frozenset[tuple[str, str]]:
        major, minor = (int(part) for part in self.python.split("."))
        version = (major, minor)
        exact = cpython_tags(version, platforms=["any"])
        general = compatible_tags(version, f"cp{major}{minor}", platforms=["any"])
        return frozenset((tag.interpreter, tag.abi) for tag in (*exact, *general))


def _system(tag: str) -> str:
    if tag.startswith("win"):
        return "win"
    return "macosx" if tag.startswith("macosx") else "linux"


def _machine(tag: str) -> str:
    machines = ("x86_64", "aarch64", "universal2", "amd64", "arm64", "win32", "i686", "ppc64le", "s390x")
    return next((name for name in machines if tag.endswith(name)), tag.rpartition("_")[2])
