"""The page that somebody with a GPU lands on: product or target, its family, and the line to copy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from cairn import targets as gpu
from cairn.output.markup import Markup, join, tag
from cairn.release.pages import lines, parts, targets_file
from cairn.release.pages.lines import Installer
from cairn.release.pages.targets_file import Offer, TargetEntry, relative
from cairn.release.pages.view import PACKAGES, IndexView, SetView, by_channel, parsed
from cairn.wheels.metadata.tag_words import platform_words

_INSTALLERS: tuple[Installer, ...] = ("pip", "uv")
_CHANGES = 20
CHANNELS = {
    "release": "tested sets, for everyone",
    "prerelease": "tested sets of what is to be released next",
    "nightly": "tested sets of each night",
    "staging": "sets that wait for their tests; not for use",
    "dev": "what developers try; not for use",
}
"""What each channel is for, in the order in which the front page of a store prefers them."""


@dataclass(frozen=True, kw_only=True)
class _Card:
    """Targets that are offered the same sets by the same index, in the same words.

    Attributes:
        entries: the targets.
        offers: of the first of them; those of the others differ in what was tested.
    """

    entries: tuple[TargetEntry, ...]
    offers: tuple[Offer, ...]


def page(views: Sequence[IndexView], *, folder: str) -> bytes:
    """The landing page of a channel, of one index of it, or of a whole store.

    Args:
        views: the indexes to show: a channel and its families, one index, or all of a store.
        folder: where the page lies in the store; empty for its root, where the best channel is shown.
    """
    channels = by_channel(views)
    name = folder or next((channel for channel in CHANNELS if channel in channels), "")
    shown = views if folder else channels.get(name, ())
    offered = targets_file.make(folder, shown)
    cards = _cards(offered.targets)
    sets = {one.set_id: one for view in shown for one in view.sets}
    return parts.page(
        "PyTorch for AMD GPUs",
        _header(name, shown),
        _navigation(name, views, folder),
        parts.search("Your GPU", "RX 7900 XTX, gfx1100, MI300 …"),
        parts.section(
            "install", "Install", *(_card(card, sets, folder) for card in cards), _help(cards, folder)
        ),
        _unserved([entry for entry in offered.targets if not entry.offers]),
        _changes(shown),
        _yanked(shown),
        tag("footer", "Made by Cairn from the index alone. This page loads nothing from anywhere else."),
    )


def _header(name: str, shown: Sequence[IndexView]) -> Markup:
    said: list[str] = [tag("b", name or "nothing is published here yet")]
    if about := CHANNELS.get(name.partition("/")[0]):
        said.append(f": {about}")
    if newest := max((view.when for view in shown), default=""):
        said += [". Last change ", parts.when(newest)]
    return tag("header", parts.MARK, tag("div", tag("h1", "PyTorch for AMD GPUs"), tag("p", *said)))


def _navigation(name: str, views: Sequence[IndexView], folder: str) -> Markup:
    channel = name.partition("/")[0]
    found = {"Status of the builds": f"{name}/status.html", "targets.json": f"{name}/targets.json"}
    found |= {f"Packages of {view.name}": f"{view.simple}index.html" for view in views if view.name == name}
    if "/" in name:
        found[f"All of {channel}"] = f"{channel}/index.html"
    if not folder:
        found |= {f"Channel {other}": f"{other}/index.html" for other in by_channel(views) if other != name}
    links = (tag("li", tag("a", text, href=relative(key, folder))) for text, key in found.items() if name)
    return tag("nav", tag("ul", *links), aria_label="Pages")


def _cards(entries: Iterable[TargetEntry]) -> list[_Card]:
    """Targets by what they are offered: those of GPUs first, `cpu` last."""
    found: dict[tuple[object, ...], list[TargetEntry]] = {}
    for entry in entries:
        offers = _best(entry)
        if offers:
            same = (offers[0].index, *((o.set_id, o.packages) for o in offers))
            found.setdefault(same, []).append(entry)
    cards = [_Card(entries=tuple(group), offers=_best(group[0])) for group in found.values()]
    return sorted(cards, key=lambda card: card.entries[0].target == gpu.CPU)


def _best(entry: TargetEntry) -> tuple[Offer, ...]:
    """What the best index has for a target: one address is enough for whoever has it."""
    return tuple(offer for offer in entry.offers if offer.index == entry.offers[0].index)


def _card(card: _Card, sets: dict[str, SetView], folder: str) -> Markup:
    newest = card.offers[0].line
    others = [offer for offer in card.offers if offer.line != newest]
    older: list[Markup] = []
    if others:
        names = ", ".join(dict.fromkeys(offer.line for offer in others))
        older = [tag("details", tag("summary", f"Other lines: {names}"), *_line_blocks(others))]
    notes = dict.fromkeys(
        note for entry in card.entries for offer in _best(entry) if offer.line == newest
        if (note := offer.untested)
    )  # fmt: skip
    family = gpu.family_of([entry.target for entry in card.entries])
    name = "No GPU" if family == gpu.CPU else family if family in gpu.families() else card.offers[0].index
    return tag(
        "article",
        tag("h3", name, " ", tag("span", card.offers[0].index, class_="count")),
        tag("ul", *(_target(entry, newest) for entry in card.entries), class_="gpus"),
        *(tag("p", f"! {note}", class_="note") for note in notes),
        *_line_blocks([offer for offer in card.offers if offer.line == newest]),
        *older,
        _sets([sets[offer.set_id] for offer in card.offers], folder),
        class_="card",
        data_group=True,
    )


def _target(entry: TargetEntry, line: str) -> Markup:
    offers = [offer for offer in _best(entry) if offer.line == line]
    untested = [offer.python for offer in offers if offer.untested]
    if not untested:
        mark = parts.badge("tested", "good")
    elif len(untested) == len(offers):
        mark = parts.badge("untested", "plain")
    else:
        mark = parts.badge(f"untested on Python {', '.join(_versions(untested))}", "plain")
    products = _products(entry)
    return tag(
        "li",
        tag("code", entry.target),
        tag("span", products, class_="products"),
        mark,
        id=entry.target,
        data_words=" ".join((entry.target, products, *entry.families)),
    )


def _products(entry: TargetEntry) -> str:
    if entry.target == gpu.CPU:
        return "any machine"
    return ", ".join(entry.products) or gpu.product_of(entry.target)


def _line_blocks(offers: Iterable[Offer]) -> Iterator[Markup]:
    """What to type, once for all Pythons and platforms that it installs the same versions for."""
    groups: dict[tuple[str, tuple[tuple[str, str], ...]], list[Offer]] = {}
    for offer in offers:
        groups.setdefault((offer.line, tuple(offer.versions.items())), []).append(offer)
    for (line, _), group in groups.items():
        yield _facts(line, group)
        # Where one Python needs the versions, they are right for the others too.
        packages = max((offer.packages for offer in group), key=lambda words: any("==" in w for w in words))
        for installer in _INSTALLERS:
            before, after = lines.around(installer, packages)
            url = tag("span", f"URL/{group[0].index}/simple/", data_url=group[0].index_url)
            yield parts.copied_line(installer, f"the {installer} line of {line}", before, url, after)


def _facts(line: str, group: Sequence[Offer]) -> Markup:
    lead = next((name for name in PACKAGES if name in group[0].versions), next(iter(group[0].versions), ""))
    versions = sorted({offer.versions.get(lead, "") for offer in group}, key=parsed, reverse=True)
    platforms = dict.fromkeys(platform_words(offer.platform) for offer in group)
    return tag(
        "p",
        tag("b", f"{lead} {', '.join(versions)}"),
        f" of {line} · Python {', '.join(_versions(offer.python for offer in group))} · ",
        f"{'; '.join(platforms)} · ",
        parts.when(max(offer.added for offer in group)),
        class_="facts",
    )


def _sets(sets: Sequence[SetView], folder: str) -> Markup:
    rows = [
        (
            parts.short(one.set_id, "the id of the set"),
            ", ".join(f"{name} {one.projects[name]}" for name in sorted(one.projects)),
            f"{one.python}, {platform_words(one.platform)}",
            parts.when(one.added),
            " and ".join(one.installed_with) or "not tried",
            join(_set_links(one, folder), ", "),
        )
        for one in sets
    ]
    heads = ("set", "wheels", "Python", "added", "installed with", "exactly this set")
    return tag(
        "details", tag("summary", "Sets, for installs that must be repeatable"), parts.table(heads, rows)
    )


def _set_links(one: SetView, folder: str) -> Iterator[Markup]:
    if one.simple:
        yield tag("a", "its index", href=relative(f"{one.simple}index.html", folder))
    for name, key in sorted(one.locks.items()):
        yield tag("a", name, href=relative(key, folder))


def _help(cards: Sequence[_Card], folder: str) -> Markup:
    if not cards:
        return tag("p", "No set is published here yet.")
    return tag(
        "div",
        tag("h3", "Which one?"),
        tag(
            "p",
            tag("code", "cairn install --index-url …"),
            " finds a machine's GPUs and prints its line.",
        ),
        tag(
            "p",
            "Two different GPUs: take a box that lists both; where none does, make an environment for each, "
            "and hide the other GPU with ",
            tag("code", "ROCR_VISIBLE_DEVICES"),
            ".",
        ),
        tag(
            "p",
            "One index is enough, everything is in it: an --extra-index-url could replace a tested wheel by "
            "an untested one.",
        ),
        tag(
            "noscript",
            tag(
                "p",
                f"URL stands for what is before /{folder or 'index.html'} in the address of this page.",
            ),
        ),
        class_="card",
    )


def _unserved(entries: Sequence[TargetEntry]) -> Markup:
    items = (
        tag(
            "li",
            tag("code", entry.target),
            tag("span", _products(entry), class_="products"),
            parts.badge("nothing yet" if entry.target in gpu.known_targets() else "not built", "bad"),
            id=entry.target,
            data_words=" ".join((entry.target, _products(entry), *entry.families)),
        )
        for entry in entries
        if entry.target != gpu.CPU
    )
    listed = list(items)
    if not listed:
        return Markup()
    summary = tag("summary", f"{len(listed)} GPU targets that this index has nothing for")
    content = tag("details", summary, tag("ul", *listed, class_="gpus"))
    return parts.section("others", "Not served", tag("div", content, class_="card"), searched=True)


def _changes(shown: Sequence[IndexView]) -> Markup:
    found = sorted(
        ((change, view.name) for view in shown for change in view.changes),
        key=lambda pair: (pair[0].when, pair[1], pair[0].number),
        reverse=True,
    )
    rows = [
        (parts.when(change.when), name, str(change.number), change.action, change.who, change.why or "")
        for change, name in found[:_CHANGES]
    ]
    if not rows:
        return Markup()
    heads = ("when", "index", "generation", "action", "by", "why")
    return parts.section("changes", "Recent changes", tag("div", parts.table(heads, rows), class_="card"))


def _yanked(shown: Sequence[IndexView]) -> Markup:
    found = [(one, view.name) for view in shown for one in view.sets if one.yanked is not None]
    if not found:
        return Markup()
    rows = [
        (
            parts.short(one.set_id, "the id of the set"),
            f"{one.lead} {one.projects.get(one.lead, '')}",
            f"{one.python}, {platform_words(one.platform)}",
            one.family,
            name,
            one.yanked or "no reason given",
        )
        for one, name in sorted(found, key=lambda pair: pair[0].order, reverse=True)
    ]
    heads = ("set", "version", "Python", "family", "index", "reason")
    return parts.section(
        "yanked",
        "Yanked",
        tag("p", "Installers take these only where their exact version is asked for.", class_="soft"),
        tag("div", parts.table(heads, rows), class_="card"),
    )


def _versions(pythons: Iterable[str]) -> list[str]:
    return sorted(set(pythons), key=parsed)
