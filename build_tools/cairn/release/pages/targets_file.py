"""targets.json: which index has wheels for a GPU, and what to install from it, for installers to read."""

from __future__ import annotations

import functools
import posixpath
import urllib.parse
from collections.abc import Mapping, Sequence

from packaging.version import Version

from cairn import datafile
from cairn import targets as gpu
from cairn.release.pages.view import IndexView, SetView, parsed
from cairn.wheels.metadata import device_names


class Offer(datafile.Value):
    """The newest set that an index has for a target, of one line, Python and platform.

    Attributes:
        index: its index, such as `release/gfx110X-all`.
        index_url: of its simple pages, relative to the address of this file.
        family: of the set.
        line: its release line.
        python: the Python it is for, such as `3.12`.
        platform: the platform it is for, such as `linux_x86_64`.
        packages: the requirements to install. A version is pinned only where an installer would otherwise
            take a set that is not for this target.
        versions: distribution to version, of its own wheels.
        set_id: the set.
        added: when the index took it, RFC 3339 in UTC.
        untested: why it counts as untested on this target, or None.
    """

    index: str
    index_url: str
    family: str
    line: str
    python: str
    platform: str
    packages: tuple[str, ...]
    versions: Mapping[str, str]
    set_id: str
    added: str
    untested: str | None = None


class TargetEntry(datafile.Value):
    """A target, the products that have it, the families it belongs to, and what there is for it.

    Attributes:
        target: such as `gfx1100`, or `cpu`.
        products: such as `RX 7900 XTX`.
        families: those that indexes are named after.
        offers: the best one first: from the index of the smallest family, then the newest.
    """

    target: str
    products: tuple[str, ...]
    families: tuple[str, ...]
    offers: tuple[Offer, ...] = ()


class TargetsFile(datafile.Value, tag_field="schema", tag="cairn.targets/1"):
    """What a channel, or one index of it, has for each target.

    Attributes:
        index: where the file lies, such as `release`.
        targets: every target that is known, `cpu` first; also those without offers.
        serial: grows with every change of a set of these indexes.
    """

    index: str
    targets: tuple[TargetEntry, ...]
    serial: int = 0

    def entry(self, target: str) -> TargetEntry:
        """The entry of a target; one without offers where the file does not know it."""
        match = next((entry for entry in self.targets if entry.target == target), None)
        return match or TargetEntry(target=target, products=gpu.products(target), families=())


def make(index: str, views: Sequence[IndexView]) -> TargetsFile:
    """What the indexes of a channel have for each target.

    Args:
        index: the folder that the file is for: a channel, or one index of it; empty for the root of a store.
        views: the channel and its families, or that one index.
    """
    offers = _offers(views, index)
    return TargetsFile(
        index=index,
        targets=tuple(
            TargetEntry(target=name, products=products, families=families, offers=tuple(offers.get(name, ())))
            for name, products, families in _known()
        ),
    )


@functools.cache
def _known() -> tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]:
    """Every target that a GPU can be, with its products and its families, in order."""
    known = (gpu.CPU, *gpu.in_order((*gpu.known_targets(), *gpu.unbuilt_targets())))
    members = gpu.families()
    return tuple(
        (name, gpu.products(name), tuple(f for f in gpu.index_families() if name in members[f]))
        for name in known
        if name not in gpu.generic_targets()
    )


def relative(key: str, folder: str) -> str:
    """The link to a key from a page in a folder of the store, each character encoded that a URL needs so."""
    ends = "/" if key.endswith("/") else ""
    return urllib.parse.quote(posixpath.relpath(f"/{key}", f"/{folder}")) + ends


def _offers(views: Sequence[IndexView], folder: str) -> dict[str, list[Offer]]:
    """What there is for each target."""
    offers: dict[str, list[Offer]] = {}
    for view in sorted(views, key=lambda view: (_breadth(view.name), view.name)):
        url = relative(view.simple, folder)
        live = view.live
        taken = _taken(live)
        seen: set[tuple[str, str, str, str]] = set()
        for one in live:
            pinned = taken[one.python, one.platform, one.lead] != one.projects.get(one.lead)
            versions = dict(sorted(one.projects.items()))
            for target in one.processors:
                key = (target, one.line, one.python, one.platform)
                if key in seen or not _has_code(one, target):
                    continue
                seen.add(key)
                offer = Offer(
                    index=view.name,
                    index_url=url,
                    family=one.family,
                    line=one.line,
                    python=one.python,
                    platform=one.platform,
                    packages=_packages(one, target, pinned=pinned),
                    versions=versions,
                    set_id=one.set_id,
                    added=one.added,
                    untested=one.untested_on(target),
                )
                offers.setdefault(target, []).append(offer)
    return offers


def _breadth(index: str) -> int:
    """How many targets an index may be for: that of a family is the better choice for its own."""
    family = index.partition("/")[2]
    return len(gpu.families().get(family, (family,))) if family else len(gpu.known_targets()) + 1


def _taken(live: Sequence[SetView]) -> dict[tuple[str, str, str], str]:
    """The version of a project that installers take where none is asked for, by Python and platform."""
    versions: dict[tuple[str, str, str], str] = {}
    for one in live:
        key = (one.python, one.platform, one.lead)
        version = one.projects.get(one.lead, "")
        if key not in versions or _preference(version) > _preference(versions[key]):
            versions[key] = version
    return versions


def _packages(one: SetView, target: str, *, pinned: bool) -> tuple[str, ...]:
    """What to name on an install line so that this set is what gets installed."""
    words = []
    for name in one.packages:
        # The code of a split wheel comes by an extra of its host wheel (docs/reference/device-wheels.md).
        code = next((word for word in _serving(target) if word in _device_wheels(one, name)), None)
        extra = f"[{device_names.extra_of(code)}]" if code else ""
        words.append(f"{name}{extra}=={one.projects[name]}" if pinned else f"{name}{extra}")
    return tuple(words)


def _has_code(one: SetView, target: str) -> bool:
    """Whether none of the packages was split without a wheel that has the code for a target.

    Installers only warn of an extra that does not exist, and what they install fails at its first kernel.
    """
    split = filter(None, (_device_wheels(one, name) for name in one.packages))
    return target == gpu.CPU or all(not processors.isdisjoint(_serving(target)) for processors in split)


def _device_wheels(one: SetView, name: str) -> frozenset[str]:
    """The processors whose code a project has in wheels of their own; none for one that was not split."""
    processors = (device_names.processor_of(project, name) for project in one.projects)
    return frozenset(filter(None, processors))


def _serving(target: str) -> tuple[str, ...]:
    """The processors whose code a GPU of a target runs, its own first."""
    return (target, *(name for name, members in gpu.generic_targets().items() if target in members))


def _preference(version: str) -> tuple[bool, Version]:
    # Installers take a pre-release only where there is nothing else (PEP 440, "Handling of pre-releases").
    order = parsed(version)
    return not order.is_prerelease, order
