"""What of a consumer breaks when one set of wheels takes the place of another.

Only what the old set had and the new one does not counts. What neither has comes from elsewhere (glibc, other
distributions) or was broken before; what cannot be known without running code is no break.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cairn import datafile, targets
from cairn.errors import WheelError
from cairn.formats.image import Symbol
from cairn.output import wording
from cairn.wheels.consumers import offers
from cairn.wheels.consumers.linkage import Linkage
from cairn.wheels.consumers.offers import Needs, Offer, always_required
from cairn.wheels.consumers.python_names import Name, Presence
from cairn.wheels.consumers.python_uses import Use
from cairn.wheels.contents.binaries import Binary
from cairn.wheels.interface.model import Interface
from cairn.wheels.metadata import wheel_info

BreakKind = Literal[
    "requirement", "dependency", "library", "symbol", "import", "name", "keyword", "operator", "target"
]
"""What is no longer met: a version range or an extra; a distribution that is imported, and came by way of the
set; a library that is needed; a symbol; a name without which a module cannot be imported; one that is used
when a function runs, or the keyword of an argument; an operator; a target of device code."""

_OF_CPYTHON = re.compile(r"cp3([0-9]{1,2})")


class Break(datafile.Value):
    """One thing that a consumer had of the old set and does not have of the new one.

    Attributes:
        consumer: the distribution that breaks.
        consumer_version: its version.
        kind: what it is about.
        name: the symbol, requirement, Python name, `name(keyword=)` or operator.
        provider: the distribution of the set that had it.
        old: its version in the old set.
        new: that in the new one.
        places: where the consumer uses it: members, with lines where there are any.
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
    "dependency": "imports {name}, which it does not require, and has by way of the set",
    "library": "needs the library {name}",
    "symbol": "wants the symbol {name}",
    "import": "cannot be imported without {name}",
    "name": "uses {name}",
    "keyword": "calls {name}",
    "operator": "calls the operator {name}",
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
    old: Sequence[Path], new: Sequence[Path], consumers: Iterable[Path], *, markers: Mapping[str, str]
) -> Judgement:
    """Say what of consumers breaks when the wheels `new` take the place of `old`.

    Args:
        old: the wheels of the set that users have; those that have no counterpart in `new` are not looked at.
        new: the wheels of the set that is to take its place.
        consumers: wheels that depend on them.
        markers: where they are installed, as environment markers have it (PEP 508).

    Raises:
        WheelError: a wheel of one of the sets cannot be read.
    """
    broken: list[Break] = []
    unread: list[str] = []
    unknown: dict[str, str] = {}
    names: list[str] = []
    with (
        offers.opened(new, only=offers.distributions(old)) as after,
        offers.opened(old, only=after.wheels.keys()) as before,
    ):
        for wheel in consumers:
            try:
                needs = offers.needs_of(wheel, before.names.tops)
            except WheelError as error:
                unknown[wheel.name] = str(error)
                continue
            broken += between(before, after, needs, markers=markers)
            unread += [f"{wheel.name}: {one}" for one in (*needs.python.unread, *needs.interface.unread)]
            names.append(wheel.name)
    return Judgement(breaks=tuple(broken), consumers=tuple(names), unread=tuple(unread), unknown=unknown)


def between(old: Offer, new: Offer, needs: Needs, *, markers: Mapping[str, str]) -> tuple[Break, ...]:
    """What of a consumer breaks with `new` that worked with `old`.

    Args:
        old: the set that its users have; its distributions are all in `new`.
        new: the set that is to take its place.
        needs: what the consumer needs.
        markers: where it is installed, as environment markers have it (PEP 508).
    """
    if (
        needs.interface.distribution in new.wheels
    ):  # one of the set itself: the gate's own demands are about that
        return ()
    comparison = _Comparison(old, new, needs, markers)
    return tuple(
        dict.fromkeys(
            (
                *comparison.requirements(),
                *comparison.dependencies(),
                *comparison.linkage(),
                *comparison.python_names(),
                *comparison.operators(),
                *comparison.targets(),
            )
        )
    )


class _Comparison:
    """Two sets, from the view of one consumer."""

    def __init__(self, old: Offer, new: Offer, needs: Needs, markers: Mapping[str, str]) -> None:
        self._old, self._new, self._needs = old, new, needs
        self._markers = {**markers, "extra": ""}
        self._every = always_required(needs.interface.requires_dist)
        self._required = {canonicalize_name(one.name): one for one in self._every if self._applies(one)}

    def requirements(self) -> Iterator[Break]:
        """Version ranges that have the old versions in them and not the new ones; what the set pins, too."""
        for requirement in filter(self._applies, self._every):
            name = canonicalize_name(requirement.name)
            for offer_old, offer_new in self._pairs(name):
                if _meets(offer_old.version, requirement) and not _meets(offer_new.version, requirement):
                    yield self._break("requirement", str(requirement), name)
                # pip only warns of an extra that there is not, and installs nothing for it.
                extras = set(map(canonicalize_name, requirement.extras))
                had, has = (set(map(canonicalize_name, one.extras)) for one in (offer_old, offer_new))
                for extra in sorted(extras & had - has):
                    yield self._break("requirement", f"{requirement.name}[{extra}]", name)
            # What the set pins, its consumers get too.
            for wheel in self._new.wheels.values():
                before = self._old.wheels.get(wheel.distribution)
                if before is None or wheel.distribution not in self._required or name in self._new.wheels:
                    continue
                pins, pinned = self._pins(wheel, name), self._pins(before, name)
                broken = [pin for pin in pins if not _meets(pin, requirement)]
                if broken and all(_meets(pin, requirement) for pin in pinned):
                    yield self._break(
                        "requirement", f"{requirement} beside {name}=={broken[0]}", wheel.distribution
                    )

    def dependencies(self) -> Iterator[Break]:
        """Distributions that a consumer imports, does not require, and had because the set required them."""
        for top, use in self._needs.python.imported.items():
            name = canonicalize_name(top)
            if any(name == canonicalize_name(one.name) for one in self._every):
                continue
            before, after = (
                {
                    wheel.distribution
                    for wheel in offer.wheels.values()
                    if wheel.distribution in self._required and self._requires(wheel, name)
                }
                for offer in (self._old, self._new)
            )
            if before and not after and name not in self._new.wheels:
                yield self._break("dependency", top, min(before), [str(use)])

    def linkage(self) -> Iterator[Break]:
        """Libraries and symbols."""
        own = self._needs.interface.libraries
        old, new = (Linkage([*own, *_libraries(offer)]) for offer in (self._old, self._new))
        lost: dict[tuple[BreakKind, str, str], list[str]] = {}
        for library in own:
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

    def python_names(self) -> Iterator[Break]:
        """Modules, names and keyword arguments."""
        uses: dict[tuple[BreakKind, str], list[Use]] = {}
        for use in self._needs.python.names:
            before = self._old.names.look_up(use.name, module=use.module)
            if before.presence is not Presence.PRESENT:
                continue
            after = self._new.names.look_up(use.name, module=use.module, deep=True)
            if after.presence is Presence.MISSING:
                uses.setdefault(("import" if use.at_import else "name", use.name), []).append(use)
            for keyword in _lost_keywords(use, before, after):
                uses.setdefault(("keyword", f"{use.name}({keyword}=)"), []).append(use)
        at_import = {name for kind, name in uses if kind == "import"}
        for (kind, name), places in uses.items():
            if kind != "name" or name not in at_import:
                provider = self._old.tops[name.partition(".")[0]]
                yield self._break(kind, name, provider, map(str, places))

    def operators(self) -> Iterator[Break]:
        """Operators that are called through `torch.ops`."""
        before, after = self._old.operators, self._new.operators
        uses: dict[str, list[str]] = {}
        for use in self._needs.python.operators:
            bare = use.name.rpartition("::")[2]
            if use.name in before and not {use.name, bare} & after.keys():
                uses.setdefault(use.name, []).append(str(use))
        # A schema need not be written out where an operator is registered.
        mentioned = self._new.mentioned(uses.keys())
        for name, places in uses.items():
            if name not in mentioned:
                yield self._break("operator", name, before[name], places)

    def targets(self) -> Iterator[Break]:
        """GPUs that the consumer has code for, and the set no longer."""
        new = {
            one for wheel in self._new.wheels.values() for name in wheel.targets for one in _that_run(name)
        }
        for target in self._needs.interface.targets:
            providers = (
                name
                for name, wheel in self._old.wheels.items()
                if any(target in _that_run(of_set) for of_set in wheel.targets)
            )
            provider = next(providers, None)
            if provider is not None and target not in new:
                yield self._break("target", target, provider)

    def _provider(self, library: Binary | None) -> str:
        return next(name for name, wheel in self._old.wheels.items() if library in wheel.libraries)

    def _applies(self, requirement: Requirement) -> bool:
        try:
            return requirement.marker is None or requirement.marker.evaluate(self._markers)
        except ValueError:  # it compares what cannot be compared; installers then differ
            return False

    def _pairs(self, name: str) -> Iterator[tuple[Interface, Interface]]:
        if name in self._old.wheels and name in self._new.wheels:
            yield self._old.wheels[name], self._new.wheels[name]

    def _requires(self, wheel: Interface, name: str) -> bool:
        return any(map(self._applies, _about(wheel, name)))

    def _pins(self, wheel: Interface, name: str) -> list[str]:
        """The exact versions that a wheel requires of a distribution."""
        return [
            specifier.version
            for requirement in filter(self._applies, _about(wheel, name))
            for specifier in requirement.specifier
            if specifier.operator in ("==", "===") and not specifier.version.endswith(".*")
        ]

    def _break(self, kind: BreakKind, name: str, provider: str, places: Iterable[str] = ()) -> Break:
        old, new = (offer.commits.get(provider) for offer in (self._old, self._new))
        return Break(
            consumer=self._needs.interface.distribution,
            consumer_version=self._needs.interface.version,
            kind=kind,
            name=name,
            provider=provider,
            old=self._old.wheels[provider].version,
            new=self._new.wheels[provider].version,
            places=tuple(dict.fromkeys(places)),
            commits=(old, new) if old and new and old != new else None,
        )


def _that_run(target: str) -> tuple[str, ...]:
    return (target, *targets.that_run(target.partition(":")[0]))


def python_of(wheels: Sequence[Path]) -> str | None:
    """The Python that wheels are for, by their file names; None where that is not one."""
    names = (wheel_info.parse_file_name(path.name, variants_too=True) for path in wheels)
    tags = (tag for name in names for tag in name.tags)
    minors = {match[1] for tag in tags if (match := _OF_CPYTHON.match(tag)) and "-abi3-" not in tag}
    return f"3.{minors.pop()}" if len(minors) == 1 else None


def _lost_keywords(use: Use, before: Name, after: Name) -> Iterator[str]:
    if before.keywords is None or after.keywords is None or after.presence is not Presence.PRESENT:
        return
    for keyword in use.keywords:
        # A decorator that names it takes it: `@deprecate_kwarg("old", "new")`.
        if keyword in before.keywords and keyword not in after.keywords and keyword not in after.decorators:
            yield keyword


def _about(wheel: Interface, name: str) -> Iterator[Requirement]:
    return (one for one in always_required(wheel.requires_dist) if canonicalize_name(one.name) == name)


def _meets(version: str, requirement: Requirement) -> bool:
    return requirement.specifier.contains(version, prereleases=True)


def _libraries(offer: Offer) -> Iterator[Binary]:
    yield from (library for wheel in offer.wheels.values() for library in wheel.libraries)


def _shown(symbol: Symbol) -> str:
    return f"{symbol.name}@{symbol.version}" if symbol.version else symbol.name
