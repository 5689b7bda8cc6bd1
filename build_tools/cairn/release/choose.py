"""Which of an index's sets a machine should install, from its GPUs and a targets.json, or why none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
from packaging.requirements import Requirement

from cairn import targets
from cairn.errors import PrerequisiteError
from cairn.output import wording
from cairn.release.pages.targets_file import Offer, TargetEntry, TargetsFile
from cairn.wheels.metadata.tag_words import platform_words

_PRODUCTS = 3  # of a target, in one sentence


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What something is to be installed on.

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


@dataclass(frozen=True, kw_only=True)
class Pick:
    """One set to install, and which GPUs it is for.

    Attributes:
        targets: those of the machine that it serves; `cpu` alone for a build without ROCm.
        offer: the set.
        untested: on what it counts as untested, or None.
    """

    targets: tuple[str, ...]
    offer: Offer
    untested: str | None


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What to install.

    Attributes:
        picks: usually one; several where no set serves all GPUs, each for an environment of its own.
        warnings: what the user should know, one sentence each.
    """

    picks: tuple[Pick, ...]
    warnings: tuple[str, ...] = ()


def choose(offered: TargetsFile, machine: Machine, *, line: str | None = None) -> Choice:
    """The sets that a machine should install.

    Args:
        offered: what the index has.
        machine: what to install on.
        line: take this release line; else the first that is offered.

    Raises:
        PrerequisiteError: there is nothing for this machine; the tip says what there is.
    """
    own = tuple(dict.fromkeys(machine.gpus)) or (targets.CPU,)
    fitting = {
        target: tuple(o for o in offered.entry(target).offers if machine.fits(o) and line in (None, o.line))
        for target in own
    }
    served = tuple(target for target in own if fitting[target])
    if not served:
        raise _nothing(offered, machine, own, line)
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
    """One set for all where there is one, else one for each target."""
    first, *others = fitting
    for offer in fitting[first]:
        same = [one for target in others for one in fitting[target] if one.set_id == offer.set_id]
        if len({one.index for one in (offer, *same)}) == 1 and len(same) == len(others):
            words = _merged(word for one in (offer, *same) for word in one.packages)
            notes = dict.fromkeys(one.untested for one in (offer, *same) if one.untested)
            merged = msgspec.structs.replace(offer, packages=words)
            return (Pick(targets=tuple(fitting), offer=merged, untested="; ".join(notes) or None),)
    return tuple(
        Pick(targets=(target,), offer=offers[0], untested=offers[0].untested)
        for target, offers in fitting.items()
    )


def _merged(words: Iterable[str]) -> tuple[str, ...]:
    """Requirements, each project once, with all extras: each target may name one of its own."""
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
    offered: TargetsFile, machine: Machine, own: Sequence[str], line: str | None
) -> PrerequisiteError:
    """Why there is nothing for a machine, and what there is instead."""
    names = " and ".join(shown(offered.entry(target)) for target in own)
    offers = [offer for target in own for offer in offered.entry(target).offers]
    if not machine.gpus and not offers:
        return PrerequisiteError(
            f"no GPU was found, and {offered.index} has no build for the CPU",
            tip="name the GPU to install for: --product 'RX 7900 XTX' or --target gfx1100",
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
        tip += "; and a build for the CPU: --target cpu"
    return PrerequisiteError(f"{offered.index} has nothing for {names}", tip=tip)
