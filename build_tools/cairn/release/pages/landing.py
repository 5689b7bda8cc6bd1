"""The page that somebody with a GPU lands on: product or target, its family, and the line to copy."""

from __future__ import annotations

from collections.abc import Sequence

from cairn.output.markup import Markup, tag
from cairn.release.pages import boxes, parts, targets_file
from cairn.release.pages.targets_file import relative
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
    """The landing page of a channel, of one index of it, or of a whole store.

    Args:
        views: the indexes to show: a channel and its families, one index, or all of a store.
        folder: where the page lies in the store; empty for its root, where the best channel is shown.
    """
    channels = by_channel(views)
    with_sets = [name for name in CHANNELS if any(view.sets for view in channels.get(name, ()))]
    name = folder or next((channel for channel in (*with_sets, *CHANNELS) if channel in channels), "")
    shown = views if folder else channels.get(name, ())
    offered = targets_file.make(folder, shown)
    found = boxes.group(offered.targets)
    sets = {one.set_id: one for view in shown for one in view.sets}
    return parts.page(
        "PyTorch for AMD GPUs",
        _header(name, shown),
        _navigation(name, views, folder),
        parts.search("Your GPU", "RX 7900 XTX, gfx1100, MI300 …"),
        parts.section(
            "install",
            "Install",
            *(boxes.show(box, sets, folder) for box in found),
            _help(folder) if found else tag("p", "No set is published here yet."),
        ),
        boxes.unserved([entry for entry in offered.targets if not entry.offers]),
        _indexes(views) if not folder else Markup(),
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
        found |= {"All indexes": "#indexes"} if views else {}
    links = (
        tag("li", tag("a", text, href=key if key.startswith("#") else relative(key, folder)))
        for text, key in found.items()
        if name or key.startswith("#")
    )
    return tag("nav", tag("ul", *links), aria_label="Pages")


def _indexes(views: Sequence[IndexView]) -> Markup:
    """Every channel and every index with its pages; also where only a failed run is to be seen."""
    rows = []
    by_name = {view.name: view for view in views}
    for channel, found in by_channel(views).items():
        for name in dict.fromkeys((channel, *(view.name for view in found))):
            view = by_name.get(name)
            rows.append(
                (
                    tag("a", tag("code", name), href=relative(f"{name}/index.html", "")),
                    CHANNELS.get(name, ""),
                    tag("a", "status", href=relative(f"{name}/status.html", "")),
                    tag("a", "packages", href=relative(f"{view.simple}index.html", ""))
                    if view and view.sets
                    else "",
                    parts.when(view.when) if view and view.when else "",
                )
            )
    if not rows:
        return Markup()
    heads = ("index", "what it has", "builds", "for installers", "last change")
    return parts.section("indexes", "All indexes", tag("div", parts.table(heads, rows), class_="card"))


def _help(folder: str) -> Markup:
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
