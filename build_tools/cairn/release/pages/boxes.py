"""The boxes of the landing page: a GPU target, what it is sold as, whether it was tested, what to type."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from cairn import products as gpu_products
from cairn import targets as gpu
from cairn.output.markup import Markup, join, tag
from cairn.release.pages import lines, parts
from cairn.release.pages.lines import Installer
from cairn.release.pages.targets_file import Offer, TargetEntry, relative
from cairn.release.pages.view import PACKAGES, SetView, parsed
from cairn.wheels.metadata.tag_words import platform_words

_INSTALLERS: tuple[Installer, ...] = ("pip", "uv")


@dataclass(frozen=True, kw_only=True)
class Box:
    """Targets that are offered the same sets by the same index, in the same words.

    Attributes:
        entries: the targets.
        offers: of the first of them; those of the others differ in what was tested.
    """

    entries: tuple[TargetEntry, ...]
    offers: tuple[Offer, ...]


def group(entries: Iterable[TargetEntry]) -> list[Box]:
    """Targets by what they are offered: those of GPUs first, `cpu` last."""
    found: dict[tuple[object, ...], list[TargetEntry]] = {}
    for entry in entries:
        offers = _best(entry)
        if offers:
            same = (offers[0].index, *((o.set_id, o.packages) for o in offers))
            found.setdefault(same, []).append(entry)
    boxes = [Box(entries=tuple(group), offers=_best(group[0])) for group in found.values()]
    return sorted(boxes, key=lambda box: box.entries[0].target == gpu.CPU)


def _best(entry: TargetEntry) -> tuple[Offer, ...]:
    """What the best index has for a target: one address is enough for whoever has it."""
    return tuple(offer for offer in entry.offers if offer.index == entry.offers[0].index)


def show(box: Box, sets: dict[str, SetView], folder: str) -> Markup:
    """A box; `folder` is where the page lies, `sets` has every set of it by its id."""
    newest = box.offers[0].line
    others = ", ".join(dict.fromkeys(offer.line for offer in box.offers if offer.line != newest))
    older = tag("details", tag("summary", f"Other lines: {others}"), *_lines(box, newest=False))
    family = gpu.family_of([entry.target for entry in box.entries])
    offered = [sets[offer.set_id] for offer in box.offers]
    weak = dict.fromkeys(text for one in offered for text in one.weakened)
    name = "No GPU" if family == gpu.CPU else family if family in gpu.families() else box.offers[0].index
    return tag(
        "article",
        tag("h3", name, " ", tag("span", box.offers[0].index, class_="count")),
        tag("ul", *(_target(entry, newest) for entry in box.entries), class_="gpus"),
        *_lines(box, newest=True),
        older if others else "",
        *(tag("p", f"! weak policy: {text}", class_="note") for text in weak),
        _sets(offered, folder),
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
        data_words=_words(entry),
    )


def _products(entry: TargetEntry) -> str:
    if entry.target == gpu.CPU:
        return "any machine"
    return ", ".join(entry.products) or gpu.product_of(entry.target)


def _words(entry: TargetEntry) -> str:
    """By what a target is found: its names, apart by bars."""
    known = entry.products or (_products(entry),)
    return "|".join(
        (entry.target, *dict.fromkeys((*known, *gpu_products.names(entry.target))), *entry.families)
    )


def _lines(box: Box, *, newest: bool) -> Iterator[Markup]:
    """What to type for the newest line, or for the others: once for all that it installs the same for."""
    groups: dict[tuple[str, tuple[tuple[str, str], ...]], list[Offer]] = {}
    for offer in box.offers:
        if (offer.line == box.offers[0].line) == newest:
            groups.setdefault((offer.line, tuple(offer.versions.items())), []).append(offer)
    for (line, _), group in groups.items():
        yield _facts(line, group)
        sets = {offer.set_id for offer in group}
        everywhere = (offer for entry in box.entries for offer in _best(entry) if offer.set_id in sets)
        for note in dict.fromkeys(offer.untested for offer in everywhere if offer.untested):
            yield tag("p", f"! {note}", class_="note")
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


def unserved(entries: Sequence[TargetEntry]) -> Markup:
    """The targets that there is nothing for."""
    listed = [_nothing_for(entry) for entry in entries if entry.target != gpu.CPU]
    if not listed:
        return Markup()
    summary = tag("summary", f"{len(listed)} GPU targets that this index has nothing for")
    content = tag("details", summary, tag("ul", *listed, class_="gpus"))
    return parts.section("others", "Not served", tag("div", content, class_="card"), searched=True)


@functools.lru_cache(maxsize=256)  # most of a page, and the same on each
def _nothing_for(entry: TargetEntry) -> Markup:
    return tag(
        "li",
        tag("code", entry.target),
        tag("span", _products(entry), class_="products"),
        parts.badge("nothing yet" if entry.target in gpu.known_targets() else "not built", "bad"),
        id=entry.target,
        data_words=_words(entry),
    )


def _versions(pythons: Iterable[str]) -> list[str]:
    return sorted(set(pythons), key=parsed)
