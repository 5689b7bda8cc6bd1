"""targets.json: the index for each GPU, the choice of a set from it, and the install commands.

An index writes the file (`make`); `cairn install` reads it, or makes it of what was signed, and picks what a
machine should get (`choose`).
"""

from __future__ import annotations

import functools
import posixpath
import re
import shlex
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import structs
from packaging.requirements import Requirement
from packaging.version import Version

from cairn import datafile, targets
from cairn import targets as gpu
from cairn.errors import PrerequisiteError
from cairn.output import wording
from cairn.release.index.generation import IndexSet, comparable
from cairn.release.pages.view import IndexView
from cairn.wheels.metadata import device_names
from cairn.wheels.metadata.tag_words import platform_words

Installer = Literal["pip", "uv"]
COMMANDS: dict[Installer, tuple[str, ...]] = {"pip": ("pip", "install"), "uv": ("uv", "pip", "install")}
_PLAIN = re.compile(r"[A-Za-z0-9@%+=:,./_-]+")
# Extras in brackets: in double quotes they are right in every shell, that of Windows included.
_BRACKETS = re.compile(r"[A-Za-z0-9@%+=:,./_\[\]-]+")
_PRODUCTS = 3  # of a target, in one sentence


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
    """A target, its products and families, and the offers for it.

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
    """The offers of a channel, or of one index of it, for each target.

    Attributes:
        index: where the file lies, such as `release`.
        targets: every target that is known, `cpu` first; also those without offers.
        serial: grows with every change of a set of these indexes.
    """

    index: str
    targets: tuple[TargetEntry, ...]
    serial: int = 0

    def entry(self, target: str) -> TargetEntry:
        """The entry of a target; an entry without offers if the file does not know it."""
        match = next((entry for entry in self.targets if entry.target == target), None)
        return match or TargetEntry(target=target, products=gpu.products(target), families=())


def make(index: str, views: Sequence[IndexView]) -> TargetsFile:
    """Collect what the indexes of a channel offer for each target.

    Args:
        index: the folder that the file is for: a channel, or one index of it; empty for the root of a store.
        views: the channel and its families, or that one index.
    """
    offers = _offers(views, index)
    return TargetsFile(
        index=index,
        targets=tuple(
            TargetEntry(target=name, products=products, families=families, offers=tuple(offers.get(name, ())))
            for name, products, families in _targets()
        ),
    )


@functools.cache
def _targets() -> tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]:
    """Every target that a GPU can be, with its products and its families, in order."""
    names = (gpu.CPU, *gpu.in_order((*gpu.known_targets(), *gpu.unbuilt_targets())))
    members = gpu.families()
    return tuple(
        (name, gpu.products(name), tuple(f for f in gpu.index_families() if name in members[f]))
        for name in names
        if name not in gpu.generic_targets()
    )


def _offers(views: Sequence[IndexView], folder: str) -> dict[str, list[Offer]]:
    """The offers for each target."""
    offers: dict[str, list[Offer]] = {}
    for view in sorted(views, key=lambda view: (_breadth(view.name), view.name)):
        url = relative(view.simple, folder)
        live = view.live
        taken = _taken(live)
        seen: set[tuple[str, str, str, str]] = set()
        for wheel_set in live:
            for target in wheel_set.processors:
                key = (target, wheel_set.line, wheel_set.python, wheel_set.platform)
                if key in seen or not _has_code(wheel_set, target):
                    continue
                seen.add(key)
                pinned = taken[
                    wheel_set.python, wheel_set.platform, wheel_set.lead
                ] != wheel_set.projects.get(wheel_set.lead)
                offer = Offer(
                    index=view.name,
                    index_url=url,
                    family=wheel_set.family,
                    line=wheel_set.line,
                    python=wheel_set.python,
                    platform=wheel_set.platform,
                    packages=_packages(wheel_set, target, pinned=pinned),
                    versions=dict(sorted(wheel_set.projects.items())),
                    set_id=wheel_set.set_id,
                    added=wheel_set.added,
                    untested=wheel_set.untested_on(target),
                )
                offers.setdefault(target, []).append(offer)
    return offers


def _breadth(index: str) -> int:
    """The number of targets an index may be for: a family's index is the better choice for its targets."""
    family = index.partition("/")[2]
    return len(gpu.families().get(family, (family,))) if family else len(gpu.known_targets()) + 1


def _taken(live: Sequence[IndexSet]) -> dict[tuple[str, str, str], str]:
    """The version of a project that installers take if none is pinned, by Python and platform."""
    versions: dict[tuple[str, str, str], str] = {}
    for wheel_set in live:
        lead = wheel_set.lead
        key, version = (wheel_set.python, wheel_set.platform, lead), wheel_set.projects.get(lead, "")
        if key not in versions or _preference(version) > _preference(versions[key]):
            versions[key] = version
    return versions


def _packages(wheel_set: IndexSet, target: str, *, pinned: bool) -> tuple[str, ...]:
    """The requirements on an install command that lead to exactly this set."""
    words = []
    for name in wheel_set.packages:
        # The code of a split wheel comes by an extra of its host wheel (docs/reference/device-wheels.md).
        code = next((word for word in _serving(target) if word in _device_wheels(wheel_set, name)), None)
        extra = f"[{device_names.extra_of(code)}]" if code else ""
        words.append(f"{name}{extra}=={wheel_set.projects[name]}" if pinned else f"{name}{extra}")
    return tuple(words)


def _has_code(wheel_set: IndexSet, target: str) -> bool:
    """Whether each package that was split has a wheel with the code for a target.

    Installers only warn of an extra that does not exist, and what they install fails at its first kernel.
    """
    split = filter(None, (_device_wheels(wheel_set, name) for name in wheel_set.packages))
    return target == gpu.CPU or all(not processors.isdisjoint(_serving(target)) for processors in split)


def _device_wheels(wheel_set: IndexSet, name: str) -> frozenset[str]:
    """The processors that a project has device wheels for; none if it was not split."""
    processors = (device_names.processor_of(project, name) for project in wheel_set.projects)
    return frozenset(filter(None, processors))


def _serving(target: str) -> tuple[str, ...]:
    """The processors whose code a GPU of a target runs, its own first."""
    return (target, *(name for name, members in gpu.generic_targets().items() if target in members))


def _preference(version: str) -> tuple[bool, Version]:
    # Installers take a pre-release only where there is nothing else (PEP 440, "Handling of pre-releases").
    order = comparable(version)
    return not order.is_prerelease, order


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The machine to install on.

    Attributes:
        gpus: the target of each GPU, without features, in the kernel's order; empty where none was found;
            `cpu` where the user asked for a build without ROCm.
        python: the version of its Python, such as `3.12`.
        platform: such as `linux_x86_64`.
    """

    gpus: tuple[str, ...]
    python: str
    platform: str

    def fits(self, offer: Offer) -> bool:
        """Whether an offer is for this Python and platform."""
        return (offer.python, offer.platform) == (self.python, self.platform)

    def __str__(self) -> str:
        return f"Python {self.python}, {platform_words(self.platform)}"


class Pick(msgspec.Struct, frozen=True, kw_only=True):
    """One set to install, and the GPUs it is for.

    Attributes:
        targets: those of the machine that it serves; `cpu` alone for a build without ROCm.
        offer: the set.
        untested: on what it counts as untested, or None.
    """

    targets: tuple[str, ...]
    offer: Offer
    untested: str | None


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The sets to install on a machine.

    Attributes:
        picks: usually one; several where no set serves all GPUs, each for an environment of its own.
        warnings: what the user should know, one sentence each.
    """

    picks: tuple[Pick, ...]
    warnings: tuple[str, ...] = ()


def choose(offered: TargetsFile, machine: Machine, *, line: str | None = None) -> Choice:
    """Choose the sets that a machine should install.

    Args:
        offered: what the index has.
        machine: what to install on.
        line: take this release line; else the first that is offered.

    Raises:
        PrerequisiteError: there is nothing for this machine; the tip says what there is.
    """
    machine_targets = tuple(dict.fromkeys(machine.gpus)) or (targets.CPU,)
    fitting = {
        target: tuple(o for o in offered.entry(target).offers if machine.fits(o) and line in (None, o.line))
        for target in machine_targets
    }
    served = tuple(target for target in machine_targets if fitting[target])
    if not served:
        raise _nothing(offered, machine, machine_targets, line)
    return Choice(
        picks=_picks({target: fitting[target] for target in served}),
        warnings=tuple(_warnings(offered, machine, fitting)),
    )


def shown(entry: TargetEntry) -> str:
    """A target with some of its products: `gfx1100 (RX 7900 XTX, RX 7900 XT and 3 more)`."""
    if entry.target == targets.CPU:
        return "the CPU"
    products = wording.some(entry.products, shown=_PRODUCTS)
    return f"{entry.target} ({products})" if products else entry.target


def _picks(fitting: dict[str, tuple[Offer, ...]]) -> tuple[Pick, ...]:
    """One set for all targets if there is one, otherwise one for each target."""
    first, *others = fitting
    for offer in fitting[first]:
        same = [twin for target in others for twin in fitting[target] if twin.set_id == offer.set_id]
        if len({twin.index for twin in (offer, *same)}) == 1 and len(same) == len(others):
            words = _merged(word for twin in (offer, *same) for word in twin.packages)
            notes = dict.fromkeys(twin.untested for twin in (offer, *same) if twin.untested)
            merged = structs.replace(offer, packages=words)
            return (Pick(targets=tuple(fitting), offer=merged, untested="; ".join(notes) or None),)
    return tuple(
        Pick(targets=(target,), offer=offers[0], untested=offers[0].untested)
        for target, offers in fitting.items()
    )


def _merged(words: Iterable[str]) -> tuple[str, ...]:
    """Merge requirements: each project once, with all extras, since each target may name one of its own."""
    by_name: dict[str, Requirement] = {}
    for word in words:
        requirement = Requirement(word)
        by_name.setdefault(requirement.name, requirement).extras |= requirement.extras
    return tuple(map(str, by_name.values()))


def _warnings(offered: TargetsFile, machine: Machine, fitting: dict[str, tuple[Offer, ...]]) -> Iterator[str]:
    served = [target for target in fitting if fitting[target]]
    if not machine.gpus and targets.CPU in served:
        yield "no GPU was found: this is the build for the CPU"
    if len(_picks({target: fitting[target] for target in served})) > 1:
        yield f"no set is for {' and '.join(served)} at once: install each into an environment of its own"
    left = [target for target in fitting if not fitting[target]]
    if left:
        usable = [str(i) for i, gpu in enumerate(machine.gpus) if gpu in served]
        names = " and ".join(shown(offered.entry(target)) for target in left)
        yield (
            f"{offered.index} has nothing for {names} on {machine}: "
            f"hide it from programs with ROCR_VISIBLE_DEVICES={','.join(usable)}"
        )


def _nothing(
    offered: TargetsFile, machine: Machine, machine_targets: Sequence[str], line: str | None
) -> PrerequisiteError:
    """The error for a machine that there is nothing for, with what there is instead."""
    names = " and ".join(shown(offered.entry(target)) for target in machine_targets)
    offers = [offer for target in machine_targets for offer in offered.entry(target).offers]
    if not machine.gpus and not offers:
        return PrerequisiteError(
            f"no GPU was found, and {offered.index} has no build for the CPU",
            tip="name the GPU to install for: --gpu 'RX 7900 XTX', or its target: --gpu gfx1100",
        )
    if offers:
        where = dict.fromkeys(f"Python {o.python} on {platform_words(o.platform)}" for o in offers)
        lines = dict.fromkeys(o.line for o in offers)
        of_line = f" of {line}" if line else ""
        tip = f"it has {', '.join(where)}" + (f", of {', '.join(lines)}" if line else "")
        return PrerequisiteError(f"{offered.index} has nothing{of_line} for {names} on {machine}", tip=tip)
    others = [entry for entry in offered.targets if any(map(machine.fits, entry.offers))]
    have = ", ".join(entry.target for entry in others if entry.target != targets.CPU) or "nothing"
    tip = f"for this Python and platform it has {have}"
    if any(entry.target == targets.CPU for entry in others):
        tip += "; and a build for the CPU: --gpu cpu"
    return PrerequisiteError(f"{offered.index} has nothing for {names}", tip=tip)


def relative(key: str, folder: str) -> str:
    """The relative link to a key from a page in a folder of the store, with URL encoding."""
    ends = "/" if key.endswith("/") else ""
    return urllib.parse.quote(posixpath.relpath(f"/{key}", f"/{folder}")) + ends


def install_arguments(index_url: str, packages: Sequence[str]) -> tuple[str, ...]:
    """The arguments after the command, for pip and uv alike: one index, and the requirements."""
    return ("--index-url", index_url, *packages)


def install_line(
    installer: Installer, index_url: str, packages: Sequence[str], *, python: Path | None = None
) -> str:
    """The whole install command, quoted for a shell; for the active environment if `python` is None."""
    before, after = around(installer, packages, python=python)
    return f"{before}{_quoted(index_url)}{after}"


def around(installer: Installer, packages: Sequence[str], *, python: Path | None = None) -> tuple[str, str]:
    """The parts of the install command before and after the index URL, for pages that fill it in."""
    command = COMMANDS[installer]
    if python is not None:
        name = str(python)
        command = (name, "-m", *command) if installer == "pip" else (*command, "--python", name)
    return f"{' '.join(map(_quoted, command))} --index-url ", f" {' '.join(map(_quoted, packages))}"


def _quoted(word: str) -> str:
    if _PLAIN.fullmatch(word):
        return word
    return f'"{word}"' if _BRACKETS.fullmatch(word) else shlex.quote(word)
