"""What of a consumer breaks when one set of wheels takes the place of another, read from the wheels.

Requirements, libraries, symbols and targets of device code are compared. For Python names, the gate imports
the consumers (`installation.lost_imports`). Only what the old set had and the new one has not counts: the
rest comes from elsewhere (glibc, other distributions) or was broken before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cairn import datafile, targets
from cairn.errors import WheelError
from cairn.formats import cyclonedx
from cairn.formats.image import Symbol
from cairn.formats.zip.reader import Archive
from cairn.output import wording
from cairn.wheels.contents.binaries import Binary
from cairn.wheels.interface.model import Interface
from cairn.wheels.interface.read import read_interface
from cairn.wheels.metadata import wheel_info

BreakKind = Literal["requirement", "library", "symbol", "target"]
"""What is no longer met: a version range or an extra; a library or a symbol that a binary needs; a target of
device code."""
Symbols = Mapping[str, frozenset[str]]
"""The symbols of a library, each with its versions, of which the empty one is of a symbol without any."""

_OF_CPYTHON = re.compile(r"cp3([0-9]{1,2})")


class Break(datafile.Value):
    """One thing that a consumer had of the old set and does not have of the new one.

    Attributes:
        consumer: the distribution that breaks.
        consumer_version: its version.
        kind: what it is about.
        name: the symbol, library, requirement or target.
        provider: the distribution of the set that had it.
        old: its version in the old set.
        new: that in the new one.
        places: the members of the consumer that need it.
        commits: the commits of the provider that come between: the old one's, which is not among them, and
            the new one's; None where its wheels do not say.
    """

    consumer: str
    consumer_version: str
    kind: BreakKind
    name: str
    provider: str
    old: str
    new: str
    places: tuple[str, ...] = ()
    commits: tuple[str, str] | None = None

    def __str__(self) -> str:
        text = f"{self.consumer} {self.consumer_version} {_SENTENCES[self.kind].format(name=self.name)}: "
        has = ("is", "is not") if self.kind == "requirement" else ("has it", "has not")
        text += f"{self.provider} {self.old} {has[0]}, {self.new} {has[1]}"
        if self.places:
            text += f" ({wording.some(self.places)})"
        return text + (f"; commits {self.commits[0][:12]}..{self.commits[1][:12]}" if self.commits else "")


_SENTENCES: Mapping[BreakKind, str] = {
    "requirement": "requires {name}",
    "library": "needs the library {name}",
    "symbol": "wants the symbol {name}",
    "target": "has device code for {name}",
}


class Judgement(datafile.Value):
    """What becomes of some consumers.

    Attributes:
        breaks: what breaks, consumer by consumer.
        consumers: file names of the wheels that were looked at.
        unread: what of them could not be, as `file: member`.
        unknown: of which nobody knows whether it breaks, and why.
    """

    breaks: tuple[Break, ...]
    consumers: tuple[str, ...]
    unread: tuple[str, ...] = ()
    unknown: Mapping[str, str] = {}


def judge(
    old: Sequence[Path],
    new: Sequence[Path],
    consumers: Iterable[Path],
    *,
    markers: Mapping[str, str],
    unknown: Mapping[str, str] = MappingProxyType({}),
) -> Judgement:
    """Say what of consumers breaks when the wheels `new` take the place of `old`.

    Args:
        old: the wheels of the set that users have; those that have no counterpart in `new` are not looked at.
        new: the wheels of the set that is to take its place.
        consumers: wheels that depend on them.
        markers: where they are installed, as environment markers have it (PEP 508).
        unknown: why there is no wheel of a consumer, by its name.

    Raises:
        WheelError: a wheel of one of the sets cannot be read.
    """
    broken: list[Break] = []
    unread: list[str] = []
    unreadable: dict[str, str] = {}
    names: list[str] = []
    before, after = _by_distribution(old), _by_distribution(new)
    both = before.keys() & after.keys()
    sets = [{name: read_interface(paths[name], python=False) for name in both} for paths in (before, after)]
    commits = [
        {name: _commit_of(paths[name], wheels[name].dist_info) for name in both}
        for paths, wheels in zip((before, after), sets, strict=True)
    ]
    for wheel in consumers:
        try:
            needs = read_interface(wheel, python=False)
            if needs.distribution not in both:  # the gate's own demands are about wheels of the set
                comparison = _Comparison((sets[0], sets[1]), (commits[0], commits[1]), needs, markers)
                broken += dict.fromkeys(comparison.breaks())
        except WheelError as error:
            unreadable[wheel.name] = str(error)
            continue
        unread += [f"{wheel.name}: {member}" for member in needs.unread]
        names.append(wheel.name)
    return Judgement(
        breaks=tuple(broken), consumers=tuple(names), unread=tuple(unread), unknown={**unknown, **unreadable}
    )


def _by_distribution(wheels: Sequence[Path]) -> dict[str, Path]:
    paths: dict[str, Path] = {}
    for path in wheels:
        name = wheel_info.parse_file_name(path.name, variants_too=True).distribution
        if name in paths:
            raise WheelError(
                f"two wheels of {name}: {paths[name].name} and {path.name}",
                tip="name the wheels of one Python and platform",
            )
        paths[name] = path
    return paths


def _commit_of(wheel: Path, dist_info: str) -> str | None:
    """The commit that a wheel was built from, where its bill of materials names it."""
    with Archive.open(wheel) as archive:
        bill = archive.read_any(f"{dist_info}/{cyclonedx.NAME}")
    return next(iter(cyclonedx.commits(bill).values()), None) if bill is not None else None


class _Comparison:
    """Two sets, from the view of one consumer."""

    def __init__(
        self,
        sets: tuple[Mapping[str, Interface], Mapping[str, Interface]],
        commits: tuple[Mapping[str, str | None], Mapping[str, str | None]],
        needs: Interface,
        markers: Mapping[str, str],
    ) -> None:
        self._old, self._new = sets
        self._commits, self._needs = commits, needs
        self._markers = {**markers, "extra": ""}
        self._every = _always_required(needs)
        self._required = {
            canonicalize_name(requirement.name): requirement
            for requirement in self._every
            if self._applies(requirement)
        }

    def breaks(self) -> Iterator[Break]:
        """Yield what breaks, some of it more than once."""
        yield from self.requirements()
        yield from self.linkage()
        yield from self.targets()

    def requirements(self) -> Iterator[Break]:
        """Version ranges that have the old versions in them and not the new ones; what the set pins, too."""
        for requirement in filter(self._applies, self._every):
            name = canonicalize_name(requirement.name)
            for offer_old, offer_new in self._pairs(name):
                if _meets(offer_old.version, requirement) and not _meets(offer_new.version, requirement):
                    yield self._break("requirement", str(requirement), name)
                # pip only warns of an extra that there is not, and installs nothing for it.
                extras = set(map(canonicalize_name, requirement.extras))
                had, has = (set(map(canonicalize_name, offer.extras)) for offer in (offer_old, offer_new))
                for extra in sorted(extras & had - has):
                    yield self._break("requirement", f"{requirement.name}[{extra}]", name)
            # What the set pins, its consumers get too.
            for wheel in self._new.values():
                before = self._old.get(wheel.distribution)
                if before is None or wheel.distribution not in self._required or name in self._new:
                    continue
                pins, pinned = self._pins(wheel, name), self._pins(before, name)
                broken = [pin for pin in pins if not _meets(pin, requirement)]
                if broken and all(_meets(pin, requirement) for pin in pinned):
                    yield self._break(
                        "requirement", f"{requirement} beside {name}=={broken[0]}", wheel.distribution
                    )

    def linkage(self) -> Iterator[Break]:
        """Libraries and symbols."""
        libraries = self._needs.libraries
        old, new = (Linkage([*libraries, *_libraries(wheels)]) for wheels in (self._old, self._new))
        lost: dict[tuple[BreakKind, str, str], list[str]] = {}
        for library in libraries:
            gone = [name for name in library.needed if name in old and name not in new]
            for name in gone:
                lost.setdefault(("library", name, self._provider(old.get(name))), []).append(library.path)
            for symbol in library.imports if not gone else ():  # without a library it is not loaded at all
                before = None if symbol.weak else old.binding(library, symbol)
                if before is not None and new.binding(library, symbol) is None:
                    provider = self._provider(before)
                    lost.setdefault(("symbol", _shown(symbol), provider), []).append(library.path)
        for (kind, name, provider), places in sorted(lost.items()):
            yield self._break(kind, name, provider, places)

    def targets(self) -> Iterator[Break]:
        """GPUs that the consumer has code for, and the set no longer."""
        new = {target for wheel in self._new.values() for name in wheel.targets for target in _that_run(name)}
        for target in self._needs.targets:
            providers = (
                name
                for name, wheel in self._old.items()
                if any(target in _that_run(of_set) for of_set in wheel.targets)
            )
            provider = next(providers, None)
            if provider is not None and target not in new:
                yield self._break("target", target, provider)

    def _provider(self, library: Binary | None) -> str:
        return next(name for name, wheel in self._old.items() if library in wheel.libraries)

    def _applies(self, requirement: Requirement) -> bool:
        try:
            return requirement.marker is None or requirement.marker.evaluate(self._markers)
        except ValueError:  # it compares what cannot be compared; installers then differ
            return False

    def _pairs(self, name: str) -> Iterator[tuple[Interface, Interface]]:
        if name in self._old and name in self._new:
            yield self._old[name], self._new[name]

    def _pins(self, wheel: Interface, name: str) -> list[str]:
        """The exact versions that a wheel requires of a distribution."""
        return [
            specifier.version
            for requirement in filter(self._applies, _about(wheel, name))
            for specifier in requirement.specifier
            if specifier.operator in ("==", "===") and not specifier.version.endswith(".*")
        ]

    def _break(self, kind: BreakKind, name: str, provider: str, places: Iterable[str] = ()) -> Break:
        old, new = (commits.get(provider) for commits in self._commits)
        return Break(
            consumer=self._needs.distribution,
            consumer_version=self._needs.version,
            kind=kind,
            name=name,
            provider=provider,
            old=self._old[provider].version,
            new=self._new[provider].version,
            places=tuple(dict.fromkeys(places)),
            commits=(old, new) if old and new and old != new else None,
        )


class Linkage:
    """Libraries that are installed together, by the names that binaries find them by."""

    def __init__(self, binaries: Iterable[Binary]) -> None:
        self._by_name: dict[str, Binary] = {}
        self._symbols: dict[str, Symbols] = {}
        for binary in binaries:
            for name in () if binary.is_device_code or binary.is_program else binary.names:
                self._by_name.setdefault(name, binary)

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def get(self, name: str) -> Binary | None:
        """The library of that name."""
        return self._by_name.get(name)

    def binding(self, binary: Binary, symbol: Symbol) -> Binary | None:
        """The library that gives a symbol to a binary; None where none of those that it needs has it.

        As ld.so does it: breadth first in what is needed. A version that is asked for must be there, unless
        the library has no versions at all, of which the loader only warns.
        """
        for library in self._needed(binary, symbol):
            versions = self._symbols_of(library).get(symbol.name)
            if versions is not None and (symbol.version in {"", *versions} or versions == {""}):
                return library
        return None

    def _needed(self, binary: Binary, symbol: Symbol) -> Iterator[Binary]:
        # In Windows a symbol is of one DLL; on Linux a version is of one library, but where that has moved to
        # another one, the name of the first is not looked at.
        queue = [symbol.library] if binary.format == "pe" else list(binary.needed)
        seen: set[str] = set()
        while queue:
            name = queue.pop(0)
            library = None if name in seen else self._by_name.get(name)
            seen.add(name)
            if library is not None:
                yield library
                queue += library.needed if binary.format != "pe" else ()

    def _symbols_of(self, library: Binary) -> Symbols:
        if library.path not in self._symbols:
            versions: dict[str, set[str]] = {}
            for symbol in library.exports:
                versions.setdefault(symbol.name, set()).add(symbol.version)
            self._symbols[library.path] = {name: frozenset(those) for name, those in versions.items()}
        return self._symbols[library.path]


def _that_run(target: str) -> tuple[str, ...]:
    return (target, *targets.that_run(target.partition(":")[0]))


def python_of(wheels: Sequence[Path]) -> str | None:
    """The Python that wheels are for, by their file names; None where that is not one."""
    names = (wheel_info.parse_file_name(path.name, variants_too=True) for path in wheels)
    tags = (tag for name in names for tag in name.tags)
    minors = {match[1] for tag in tags if (match := _OF_CPYTHON.match(tag)) and "-abi3-" not in tag}
    return f"3.{minors.pop()}" if len(minors) == 1 else None


def _about(wheel: Interface, name: str) -> Iterator[Requirement]:
    return (
        requirement for requirement in _always_required(wheel) if canonicalize_name(requirement.name) == name
    )


def _always_required(wheel: Interface) -> tuple[Requirement, ...]:
    """The requirements that no extra brings."""
    every = [wheel_info.requirement(text) for text in wheel.requires_dist]
    return tuple(requirement for requirement in every if "extra" not in str(requirement.marker or ""))


def _meets(version: str, requirement: Requirement) -> bool:
    return requirement.specifier.contains(version, prereleases=True)


def _libraries(wheels: Mapping[str, Interface]) -> Iterator[Binary]:
    yield from (library for wheel in wheels.values() for library in wheel.libraries)


def _shown(symbol: Symbol) -> str:
    return f"{symbol.name}@{symbol.version}" if symbol.version else symbol.name
