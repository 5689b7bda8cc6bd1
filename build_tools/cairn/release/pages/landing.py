"""The page that somebody with a GPU lands on: product or target, its family, and the line to copy."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from cairn.release.pages import boxes, targets_file
from cairn.release.pages.targets_file import relative
from cairn.release.pages.view import Change, IndexView, SetView, by_channel
from cairn.templates import html
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
    offered = targets_file.make(folder, shown).targets
    sets = {one.set_id: one for view in shown for one in view.sets}
    return html.page(
        "landing",
        folder=folder,
        name=name,
        about=CHANNELS.get(name.partition("/")[0]),
        newest=max((view.when for view in shown), default=""),
        links=_links(name, views, folder),
        boxes=boxes.boxes(offered, sets),
        unserved=list(boxes.unserved(offered)),
        indexes={} if folder else _indexes(views),
        channels=CHANNELS,
        damaged=[view.name for view in shown if view.damaged],
        changes=_changes(shown),
        yanked=_yanked(shown),
        platform_words=platform_words,
        relative=functools.partial(relative, folder=folder),
    ).encode()


def _links(name: str, views: Sequence[IndexView], folder: str) -> dict[str, str]:
    """Where else to go from the page that shows an index or a channel, by what the link is called."""
    keys: dict[str, str] = {}
    if name:
        keys = {"Status of the builds": f"{name}/status.html", "targets.json": f"{name}/targets.json"}
        keys |= {f"Packages of {name}": f"{view.simple}index.html" for view in views if view.name == name}
        if "/" in name:
            channel = name.partition("/")[0]
            keys[f"All of {channel}"] = f"{channel}/index.html"
        if not folder:
            keys |= {f"Channel {one}": f"{one}/index.html" for one in by_channel(views) if one != name}
    links = {text: relative(key, folder) for text, key in keys.items()}
    return links | {"All indexes": "#indexes"} if views and not folder else links


def _indexes(views: Sequence[IndexView]) -> dict[str, IndexView | None]:
    """Every channel and every index, also where only a failed run is to be seen."""
    by_name = {view.name: view for view in views}
    names = (name for channel, own in by_channel(views).items() for name in (channel, *(v.name for v in own)))
    return {name: by_name.get(name) for name in names}


def _changes(shown: Sequence[IndexView]) -> list[tuple[Change, str]]:
    """The last changes, each with its index, the newest first."""
    changes = [(change, view.name) for view in shown for change in view.changes]
    changes.sort(key=lambda pair: (pair[0].when, pair[1], pair[0].number), reverse=True)
    return changes[:_CHANGES]


def _yanked(shown: Sequence[IndexView]) -> list[tuple[SetView, str]]:
    """The sets that were yanked, each with its index, the newest first."""
    sets = [(one, view.name) for view in shown for one in view.sets if one.yanked is not None]
    return sorted(sets, key=lambda pair: pair[0].order, reverse=True)
