"""The chooser: pick GPU, system, Python, line and channel, and see the line to type, or why there is none.

It works without JavaScript: every answer is on the page, and rules of the style sheet hide those of options
that are not chosen (`:has(option:checked)`, CSS Selectors 4). A browser without `:has` shows all of them. An
answer has a class for each choice that it depends on, so that exactly one is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from cairn import targets as gpu
from cairn import templates
from cairn.release.index import keys
from cairn.release.index.generation import PACKAGES, IndexSet, comparable
from cairn.release.pages import landing, targets_file
from cairn.release.pages.targets_file import Offer, TargetEntry
from cairn.release.pages.view import IndexView, by_channel
from cairn.wheels.metadata.tag_words import platform_words

_NOT_FOR_USE = ("staging", "dev")
_PRODUCTS = 4  # of a target, in an option
# The oldest driver of AMD's that a major version of ROCm runs on (ROCm's documentation, "User and AMD GPU
# Driver (amdgpu) support matrix").
_DRIVERS = {"6": "6.1", "7": "6.2"}
_ROCM = re.compile(r"rocm([0-9]+)\.")


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """An option of a choice.

    Attributes:
        id: in the page.
        label: what is read.
        chosen: whether the page begins with it.
    """

    id: str
    label: str
    chosen: bool = False


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown for some choices: a line to type, or why there is none.

    Attributes:
        classes: one for each choice; it is shown where all of them are made.
        reason: why there is no line; empty where there is one.
        versions, added, untested, url, index: of the set, as the landing page has them.
        download, installed: bytes of all that it installs, from nothing, packed and not; 0 where not known.
        tested_on: the GPUs of its targets that were tested.
        driver: the oldest version of AMD's driver for it; empty where none is needed, or that is not known.
        commands: for each installer, what stands before and after the URL.
    """

    classes: tuple[str, ...]
    reason: str = ""
    versions: str = ""
    added: str = ""
    untested: str = ""
    url: str = ""
    index: str = ""
    set_id: str = ""
    download: int = 0
    installed: int = 0
    tested_on: str = ""
    driver: str = ""
    commands: tuple[tuple[str, str, str], ...] = ()


class Chooser(msgspec.Struct, frozen=True, kw_only=True):
    """All choices, and the answers to them.

    Attributes:
        choices: the options of each, by its label.
        groups: the ids of the GPUs that share answers, by the class of these.
        answers: of which each combination of options shows exactly one.
    """

    choices: Mapping[str, tuple[Option, ...]]
    groups: Mapping[str, tuple[str, ...]]
    answers: tuple[Answer, ...]

    def rules(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield each class of answers, and the ids of the options of which one must be chosen."""
        for name, options in self.choices.items():
            if name != "GPU":
                yield from ((option.id, (option.id,)) for option in options)
        yield from self.groups.items()


class _Table(msgspec.Struct, frozen=True, kw_only=True):
    """What there is: the values of each choice, in order, and the offers of each channel for each target."""

    channels: tuple[str, ...]
    entries: Mapping[str, Mapping[str, TargetEntry]]
    lines: tuple[str, ...]
    platforms: tuple[str, ...]
    pythons: tuple[str, ...]
    targets: tuple[str, ...]

    def offers(self, channel: str, target: str) -> tuple[Offer, ...]:
        entry = self.entries[channel][target]
        return tuple(offer for offer in entry.offers if offer.index == entry.offers[0].index)


def page(views: Sequence[IndexView]) -> bytes:
    """Render the chooser of a store."""
    feeds = {view.name.partition("/")[0] for view in views if view.nights}
    return templates.page(
        "choose",
        chooser=make(views),
        newest=max((view.when for view in views), default=""),
        feeds={channel: keys.nights_key(channel, "atom") for channel in sorted(feeds)},
        set_key=keys.set_key,
    ).encode()


def make(views: Sequence[IndexView]) -> Chooser:
    """Work out the answer to every choice."""
    table = _table(views)
    sets = {wheel_set.set_id: wheel_set for view in views for wheel_set in view.sets}
    first = next(
        (t for c in table.channels for t in table.targets if t != gpu.CPU and table.offers(c, t)), gpu.CPU
    )
    best = next((o for c in table.channels for o in table.offers(c, first)), None)
    begin = {"Line": best.line, "System": best.platform, "Python": best.python} if best else {}
    columns = {
        "System": [(value, platform_words(value)) for value in table.platforms],
        "Python": [(value, value) for value in table.pythons],
        "Line": [(value, value) for value in table.lines],
    }
    choices = {"GPU": tuple(_gpu(table, target, chosen=target == first) for target in table.targets)}
    for name, values in columns.items():
        choices[name] = tuple(
            Option(id=f"{name[0].lower()}{i}", label=label, chosen=value == begin.get(name, values[0][0]))
            for i, (value, label) in enumerate(values)
        )
    choices["Channel"] = tuple(
        Option(id=f"c{i}", label=name, chosen=i == 0) for i, name in enumerate(table.channels)
    )
    groups: dict[str, tuple[str, ...]] = {}
    answers: list[Answer] = []
    for i, channel in enumerate(table.channels):
        for targets in _alike(table, channel):
            group = f"b{len(groups)}"
            groups[group] = tuple(f"g{table.targets.index(target)}" for target in targets)
            answers += _answers(table, channel, targets, (f"c{i}", group), sets)
    return Chooser(choices=choices if table.channels else {}, groups=groups, answers=tuple(answers))


def _table(views: Sequence[IndexView]) -> _Table:
    channels = {
        name: channel_views
        for name, channel_views in by_channel(views).items()
        if name not in _NOT_FOR_USE and any(view.live for view in channel_views)
    }
    names = tuple(name for name in landing.CHANNELS if name in channels)
    entries = {name: {e.target: e for e in targets_file.make("", channels[name]).targets} for name in names}
    offers = [offer for by_target in entries.values() for e in by_target.values() for offer in e.offers]
    newest = sorted(offers, key=lambda offer: offer.added, reverse=True)
    linux_first = sorted({o.platform for o in offers}, key=lambda name: (not name.startswith("linux"), name))
    return _Table(
        channels=names,
        entries=entries,
        lines=tuple(dict.fromkeys(offer.line for offer in newest)),
        platforms=tuple(linux_first),
        pythons=tuple(sorted({offer.python for offer in offers}, key=comparable, reverse=True)),
        targets=tuple(entries[names[0]]) if names else (),
    )


def _gpu(table: _Table, target: str, *, chosen: bool) -> Option:
    if target == gpu.CPU:
        return Option(id="g0", label="No GPU", chosen=chosen)
    entry = table.entries[table.channels[0]][target]
    names = ", ".join(entry.products[:_PRODUCTS]) or gpu.product_of(target)
    more = " and more" if len(entry.products) > _PRODUCTS else ""
    id_ = f"g{table.targets.index(target)}"
    return Option(id=id_, label=f"{names}{more} ({target})" if names else target, chosen=chosen)


def _alike(table: _Table, channel: str) -> Iterable[list[str]]:
    """Group the targets that have the same answers in a channel."""
    alike: dict[object, list[str]] = {}
    for target in table.targets:
        offers = table.offers(channel, target) if table.entries[channel][target].offers else ()
        elsewhere = _elsewhere(table, channel, target) if not offers else ()
        same = tuple((o.set_id, o.index, o.packages, o.untested) for o in offers)
        alike.setdefault((same, elsewhere, target == gpu.CPU), []).append(target)
    return alike.values()


def _elsewhere(table: _Table, channel: str, target: str) -> tuple[str, ...]:
    return tuple(c for c in table.channels if c != channel and table.entries[c][target].offers)


def _answers(
    table: _Table,
    channel: str,
    targets: Sequence[str],
    classes: tuple[str, ...],
    sets: Mapping[str, IndexSet],
) -> Iterator[Answer]:
    """Yield the answers for targets of a channel, each with the choices that it depends on."""
    if not table.entries[channel][targets[0]].offers:
        others = _elsewhere(table, channel, targets[0])
        tip = f"choose the channel {' or '.join(others)}" if others else "no channel here has any"
        machine = "machines without a GPU" if targets[0] == gpu.CPU else "this GPU"
        yield Answer(classes=classes, reason=f"{channel} has nothing for {machine}: {tip}")
        return
    offers = table.offers(channel, targets[0])
    for i, line in enumerate(table.lines):
        of_line = [offer for offer in offers if offer.line == line]
        if not of_line:
            have = " or ".join(dict.fromkeys(offer.line for offer in offers))
            reason = f"{channel} has no {line} for this GPU: choose the line {have}"
            yield Answer(classes=(*classes, f"l{i}"), reason=reason)
            continue
        for j, platform in enumerate(table.platforms):
            here = {offer.python: offer for offer in of_line if offer.platform == platform}
            if not here:
                have = " or ".join(dict.fromkeys(platform_words(offer.platform) for offer in of_line))
                reason = f"{line} is not built for {platform_words(platform)} here: choose {have}"
                yield Answer(classes=(*classes, f"l{i}", f"s{j}"), reason=reason)
            for k, python in enumerate(table.pythons if here else ()):
                place = (*classes, f"l{i}", f"s{j}", f"p{k}")
                if python in here:
                    yield _line(here[python], place, sets[here[python].set_id])
                else:
                    have = " or ".join(sorted(here, key=comparable))
                    yield Answer(
                        classes=place,
                        reason=f"{line} is not built for Python {python} here: choose Python {have}",
                    )


def _line(offer: Offer, classes: tuple[str, ...], wheel_set: IndexSet) -> Answer:
    lead = next((name for name in PACKAGES if name in offer.versions), next(iter(offer.versions), ""))
    rocm = _ROCM.search(offer.versions.get(lead, "")) if offer.platform.startswith("linux") else None
    tested = [target for target in wheel_set.processors if not wheel_set.untested_on(target)]
    return Answer(
        classes=classes,
        versions=f"{lead} {offer.versions.get(lead, '')}",
        added=offer.added,
        untested=offer.untested or "",
        url=offer.index_url,
        index=offer.index,
        set_id=offer.set_id,
        download=wheel_set.download,
        installed=wheel_set.installed,
        tested_on=", ".join(tested),
        driver=_DRIVERS.get(rocm[1], "") if rocm else "",
        commands=tuple(
            (installer, *targets_file.around(installer, offer.packages))
            for installer in targets_file.COMMANDS
        ),
    )
