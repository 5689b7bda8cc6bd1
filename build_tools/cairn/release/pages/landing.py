"""The landing page: find a GPU by product or target, and copy the install command for it.

It consists of boxes, each of GPU targets, their products, whether they were tested, and what to type.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from cairn import targets as gpu
from cairn import templates
from cairn.release.index import keys
from cairn.release.index.generation import PACKAGES, IndexSet, comparable
from cairn.release.pages import targets_file
from cairn.release.pages.targets_file import Offer, TargetEntry, relative
from cairn.release.pages.view import IndexView, by_channel
from cairn.wheels.metadata.tag_words import platform_words

_CHANGES = 20

CHANNELS = {
    "release": "released sets, each with what was tested on which GPU",
    "prerelease": "what is to be released next",
    "nightly": "the sets of each night",
    "untested": "sets that nobody tested on the hardware they are for",
    "staging": "sets that wait for their tests; not for use",
    "dev": "what developers try; not for use",
}
"""What each channel is for, in the order in which the front page of a store prefers them."""


def page(views: Sequence[IndexView], *, folder: str) -> bytes:
    """Render the landing page of a channel, of one index of it, or of a whole store.

    Args:
        views: the indexes to show: a channel and its families, one index, or all of a store.
        folder: where the page lies in the store; empty for its root, where the best channel is shown.
    """
    channels = by_channel(views)
    with_sets = [name for name in CHANNELS if any(view.sets for view in channels.get(name, ()))]
    name = folder or next((channel for channel in (*with_sets, *CHANNELS) if channel in channels), "")
    shown = views if folder else channels.get(name, ())
    offered = targets_file.make(folder, shown).targets
    sets = {wheel_set.set_id: wheel_set for view in shown for wheel_set in view.sets}
    changes = [(change, view.name) for view in shown for change in view.changes]
    changes.sort(key=lambda pair: (pair[0].when, pair[1], pair[0].number), reverse=True)
    yanked = [
        (wheel_set, view.name) for view in shown for wheel_set in view.sets if wheel_set.yanked is not None
    ]
    return templates.page(
        "landing",
        folder=folder,
        name=name,
        about=CHANNELS.get(name.partition("/")[0]),
        newest=max((view.when for view in shown), default=""),
        links=_links(name, views, folder),
        boxes=boxes_of(offered, sets),
        unserved=list(unserved(offered)),
        indexes={} if folder else _indexes(views),
        channels=CHANNELS,
        damaged=[view.name for view in shown if view.damaged],
        changes=changes[:_CHANGES],
        yanked=sorted(yanked, key=lambda pair: pair[0].order, reverse=True),
        platform_words=platform_words,
        set_key=keys.set_key,
        set_locks=keys.SET_LOCKS,
        relative=functools.partial(relative, folder=folder),
    ).encode()


def _links(name: str, views: Sequence[IndexView], folder: str) -> dict[str, str]:
    """The links to related pages, by label."""
    targets: dict[str, str] = {}
    if name:
        targets = {"Status of the builds": f"{name}/status.html", "targets.json": f"{name}/targets.json"}
        targets |= {f"Packages of {name}": f"{view.simple}index.html" for view in views if view.name == name}
        if "/" in name:
            channel = name.partition("/")[0]
            targets[f"All of {channel}"] = f"{channel}/index.html"
        if not folder:
            targets |= {
                f"Channel {channel}": f"{channel}/index.html"
                for channel in by_channel(views)
                if channel != name
            }
    links = {text: relative(key, folder) for text, key in targets.items()}
    if folder:
        return links
    return {"Choose your GPU": keys.CHOOSER} | links | ({"All indexes": "#indexes"} if views else {})


def _indexes(views: Sequence[IndexView]) -> dict[str, IndexView | None]:
    """Every channel and every index, including those with nothing but a failed run."""
    by_name = {view.name: view for view in views}
    names = (
        name
        for channel, channel_views in by_channel(views).items()
        for name in (channel, *(v.name for v in channel_views))
    )
    return {name: by_name.get(name) for name in names}


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A target as a box lists it.

    Attributes:
        name: such as `gfx1100`, or `cpu`.
        products: what it is sold as.
        words: by what it is found: its names, apart by bars.
        tone, tested: whether it was tested, as the mark of `macros.html.j2` takes it.
    """

    name: str
    products: str
    words: str
    tone: str
    tested: str


class InstallLines(msgspec.Struct, frozen=True, kw_only=True):
    """The install commands for one version of a line, for all Pythons and platforms that share them.

    Attributes:
        line: the release line.
        versions: of the first package, with its name.
        pythons, platforms: those that it is for.
        added: when the newest of its sets came, RFC 3339 in UTC.
        notes: why it counts as untested on a target, for each reason.
        index, url: where it is installed from, by name and relative to the page.
        commands: for each installer, what stands before and after the URL.
    """

    line: str
    versions: str
    pythons: str
    platforms: str
    added: str
    notes: tuple[str, ...]
    index: str
    url: str
    commands: tuple[tuple[str, str, str], ...]


class Box(msgspec.Struct, frozen=True, kw_only=True):
    """Targets that the same index offers the same sets, with the same labels.

    Attributes:
        name: of their family, where they have one.
        index: whose sets they are.
        targets: those of GPUs, or `cpu`.
        newest, older: what to type for the newest line, and for the others.
        sets: what is offered to the first of them; what the others are differs in what was tested.
    """

    name: str
    index: str
    targets: tuple[Target, ...]
    newest: tuple[InstallLines, ...]
    older: tuple[InstallLines, ...]
    sets: tuple[IndexSet, ...]

    @property
    def weak(self) -> tuple[str, ...]:
        """The points in which the policy asked less than it should of one of the sets."""
        return tuple(dict.fromkeys(text for wheel_set in self.sets for text in wheel_set.weakened))


def boxes_of(entries: Iterable[TargetEntry], sets: Mapping[str, IndexSet]) -> list[Box]:
    """Group targets into boxes by what they are offered: those of GPUs first, `cpu` last.

    Args:
        entries: the targets, also those that nothing is offered.
        sets: every set that is offered, by its id.
    """
    alike: dict[tuple[object, ...], list[TargetEntry]] = {}
    for entry in entries:
        if offers := _best(entry):
            same = (offers[0].index, *((offer.set_id, offer.packages) for offer in offers))
            alike.setdefault(same, []).append(entry)
    ordered = sorted(alike.values(), key=lambda group: group[0].target == gpu.CPU)
    return [_box(group, sets) for group in ordered]


def _best(entry: TargetEntry) -> tuple[Offer, ...]:
    """The offers of the best index for a target: a user needs only one address."""
    return tuple(offer for offer in entry.offers if offer.index == entry.offers[0].index)


def _box(entries: Sequence[TargetEntry], sets: Mapping[str, IndexSet]) -> Box:
    offers = _best(entries[0])
    index, newest = offers[0].index, offers[0].line
    family = gpu.family_of([entry.target for entry in entries])
    groups: dict[tuple[str, tuple[tuple[str, str], ...]], list[Offer]] = {}
    for offer in offers:
        groups.setdefault((offer.line, tuple(offer.versions.items())), []).append(offer)
    install = [_install_lines(group, entries) for group in groups.values()]
    return Box(
        name="No GPU" if family == gpu.CPU else family if family in gpu.families() else index,
        index=index,
        targets=tuple(_served(entry, newest) for entry in entries),
        newest=tuple(wheel_set for wheel_set in install if wheel_set.line == newest),
        older=tuple(wheel_set for wheel_set in install if wheel_set.line != newest),
        sets=tuple(sets[offer.set_id] for offer in offers),
    )


def _install_lines(group: Sequence[Offer], entries: Iterable[TargetEntry]) -> InstallLines:
    """The install commands for offers of the same versions."""
    first, sets = group[0], {offer.set_id for offer in group}
    lead = next((name for name in PACKAGES if name in first.versions), next(iter(first.versions), ""))
    versions = sorted({offer.versions.get(lead, "") for offer in group}, key=comparable, reverse=True)
    everywhere = (offer for entry in entries for offer in _best(entry) if offer.set_id in sets)
    # Where one Python needs the versions, they are right for the others too.
    packages = max((offer.packages for offer in group), key=lambda words: any("==" in word for word in words))
    return InstallLines(
        line=first.line,
        versions=f"{lead} {', '.join(versions)}",
        pythons=_in_order(offer.python for offer in group),
        platforms="; ".join(dict.fromkeys(platform_words(offer.platform) for offer in group)),
        added=max(offer.added for offer in group),
        notes=tuple(dict.fromkeys(offer.untested for offer in everywhere if offer.untested)),
        index=first.index,
        url=first.index_url,
        commands=tuple(
            (installer, *targets_file.around(installer, packages)) for installer in targets_file.COMMANDS
        ),
    )


def _served(entry: TargetEntry, line: str) -> Target:
    offers = [offer for offer in _best(entry) if offer.line == line]
    untested = [offer.python for offer in offers if offer.untested]
    if not untested:
        return _target(entry, "good", "tested")
    if len(untested) == len(offers):
        return _target(entry, "plain", "untested")
    return _target(entry, "plain", f"untested on Python {_in_order(untested)}")


def unserved(entries: Iterable[TargetEntry]) -> Iterator[Target]:
    """The GPU targets that have no offer."""
    for entry in entries:
        if not entry.offers and entry.target != gpu.CPU:
            yield _target(entry, "bad", "nothing yet" if entry.target in gpu.known_targets() else "not built")


@functools.lru_cache(maxsize=256)  # most of a page, and the same on each
def _known_as(target: str, products: tuple[str, ...], families: tuple[str, ...]) -> tuple[str, str]:
    """The product names of a target, and the words that a search finds it by."""
    shown = "any machine" if target == gpu.CPU else ", ".join(products) or gpu.product_of(target)
    names = dict.fromkeys((*(products or (shown,)), *gpu.product_names(target)))
    return shown, "|".join((target, *names, *families))


def _target(entry: TargetEntry, tone: str, tested: str) -> Target:
    products, words = _known_as(entry.target, entry.products, entry.families)
    return Target(name=entry.target, products=products, words=words, tone=tone, tested=tested)


def _in_order(pythons: Iterable[str]) -> str:
    return ", ".join(sorted(set(pythons), key=comparable))
