"""GPU targets, the families they are grouped in, and how users and compilers write them.

The table is `targets.toml`; `parse_targets` reads what a user wrote, `family_of` names a set.
"""

from __future__ import annotations

import functools
import importlib.resources
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cairn.errors import UsageError
from cairn.output import wording

CPU = "cpu"
"""The target of a build without ROCm."""

_SEPARATORS = re.compile(r"[,;\s]+")  # `;` as in CMake's lists, `,` as on command lines
# `processor(:feature(+|-))*`; a generic one is gfx11-generic, or gfx9-4-generic with a minor version.
_TARGET_ID = re.compile(
    r"(?P<processor>gfx[0-9a-f]+(?:-generic|-[0-9]+-generic)?)(?P<features>(?::[a-z]+[+-])*)"
)
_GENERIC = re.compile(r"gfx(?P<major>[0-9]+)(?:-(?P<minor>[0-9]+))?-generic")


@dataclass(frozen=True, kw_only=True)
class TargetId:
    """A target with the features it was compiled for, as LLVM writes it: `gfx90a:sramecc+:xnack-`.

    Source: LLVM's AMDGPU usage guide, "Target ID".
    """

    processor: str
    features: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ":".join((self.processor, *self.features))


@functools.cache
def known_targets() -> tuple[str, ...]:
    """Every processor that wheels may be built for, in natural order."""
    return tuple(sorted(_data()["targets"], key=sort_key))


@functools.cache
def families() -> dict[str, tuple[str, ...]]:
    """Family name to its members: those that indexes are named after first, then upstream's others."""
    members: dict[str, list[str]] = {name: [] for name in index_families()}
    for name, listed in _data()["families"].items():
        members[name] = list(listed)
    for target in known_targets():
        for name in (*([target] if target in members else ()), *_data()["targets"][target]["families"]):
            members.setdefault(name, []).append(target)
    return {name: tuple(sorted(found, key=sort_key)) for name, found in members.items()}


@functools.cache
def index_families() -> tuple[str, ...]:
    """The families that indexes and SDK packages are named after, in order of preference."""
    return tuple(_data()["indexes"])


@functools.cache
def generic_targets() -> dict[str, tuple[str, ...]]:
    """Generic target to the processors that run its code (LLVM, AMDGPU usage guide: "Generic Processors")."""
    return {name: tuple(members) for name, members in _data()["generic"].items()}


def that_run(processor: str) -> tuple[str, ...]:
    """The processors that run the code of this one: itself, and the members of a generic one."""
    return (processor, *generic_targets().get(processor, ()))


@functools.cache
def unbuilt_targets() -> tuple[str, ...]:
    """Processors that nothing is built for, although wheels have code for them; generic ones included."""
    return tuple(sorted((*_data()["unbuilt"], *generic_targets()), key=sort_key))


def product_of(target: str) -> str:
    """What a target's GPUs are sold as, such as `MI300A, MI300X, MI325X`; empty when that is not known."""
    processor = target.partition(":")[0]
    if processor in generic_targets():
        return f"runs on {', '.join(generic_targets()[processor])}"
    known: dict[str, str] = {**_data()["unbuilt"], **{n: t["product"] for n, t in _data()["targets"].items()}}
    return known.get(processor, "")


def products(target: str) -> tuple[str, ...]:
    """The products with a GPU of a target, one by one: those of `product_of`, then more; of `cpu`, none."""
    processor = target.partition(":")[0]
    listed = _data()["targets"].get(processor, {"product": ""})["product"]
    return tuple(name for name in (*listed.split(", "), *_data()["also"].get(processor, ())) if name)


def sort_key(target: str) -> tuple[int, int, int, int, str]:
    """What targets are sorted by: by number, so that gfx90a is before gfx942, and gfx1010 after both.

    The last digit is the stepping and the one before it the minor version, both in hex; what is before them
    is the major version. A generic target comes before those that run its code, `cpu` before all, and a text
    that is not a target after all.
    """
    processor = target.partition(":")[0]
    generic = _GENERIC.fullmatch(processor)
    if target == CPU:
        return (0, 0, 0, 0, "")
    if generic:
        return (1, int(generic["major"]), int(generic["minor"] or -1), -1, target)
    digits = processor.removeprefix("gfx")
    try:
        return (1, int(digits[:-2]), int(digits[-2], 16), int(digits[-1], 16), target)
    except (ValueError, IndexError):
        return (2, 0, 0, 0, target)


def in_order(targets: Iterable[str]) -> tuple[str, ...]:
    """Targets in natural order, each once."""
    return tuple(sorted(set(targets), key=sort_key))


def parse_target_id(text: str) -> TargetId:
    """Read one target ID; its features come in the alphabetical order of LLVM's canonical form.

    Raises:
        UsageError: it is not one.
    """
    match = _TARGET_ID.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            f"{text!r} is not a GPU target", tip="a target is written like gfx942 or gfx90a:xnack+"
        )
    features = sorted({f for f in match["features"].split(":") if f})
    return TargetId(processor=match["processor"], features=tuple(features))


def parse_targets(text: str | Iterable[str], *, unbuilt: bool = False) -> tuple[str, ...]:
    """Read what a user wrote for targets into target IDs, each once, in the order given.

    Args:
        text: names separated by `,`, `;` or white space: targets (`gfx942`, `gfx90a:xnack+`), families
            (`gfx110X-all`), wildcards (`gfx94X`, every target that begins with gfx94), or `cpu` alone.
        unbuilt: take also targets that nothing is built for, such as `gfx940` and `gfx11-generic`.

    Raises:
        UsageError: an unknown name, nothing at all, or `cpu` among others.
    """
    words = [w for part in ([text] if isinstance(text, str) else text) for w in _SEPARATORS.split(part) if w]
    names = tuple(dict.fromkeys(name for word in words for name in _expand(word, unbuilt=unbuilt)))
    if not names:
        raise UsageError("no GPU target was named", tip="name at least one, such as gfx942 or gfx110X-all")
    if CPU in names and len(names) > 1:
        raise UsageError("the target cpu cannot be combined with GPU targets")
    return names


def family_of(targets: Iterable[str]) -> str:
    """The family that a set for these targets is named after.

    It is the first family of indexes that holds them all, else the smallest of upstream's other families
    that does (not `dgpu-all` and the like, of which a set has always been a part), else the targets joined
    by `-`.
    """
    processors = tuple(name if name == CPU else parse_target_id(name).processor for name in targets)
    holding = [name for name, members in families().items() if set(processors) <= set(members)]
    # An index is named after a family, so that its name comes first where several hold the targets.
    indexes = [name for name in index_families() if name in holding]
    others = sorted((n for n in holding if n.startswith("gfx")), key=lambda name: len(families()[name]))
    return next(iter((*indexes, *others)), "-".join(processors))


def _expand(word: str, *, unbuilt: bool) -> tuple[str, ...]:
    if word == CPU:
        return (CPU,)
    if word in families():
        return families()[word]
    # What upstream writes for a group of targets: the X stands for the digits that are left open.
    beginning = word.removesuffix("X")
    if beginning != word and len(beginning) > len("gfx"):
        members = tuple(t for t in known_targets() if t.startswith(beginning))
        if members:
            return members
    if _TARGET_ID.fullmatch(word):
        return (_read_target(parse_target_id(word), unbuilt=unbuilt),)
    raise UsageError(f"unknown GPU target {word!r}", tip=_suggestion(word))


def _read_target(target: TargetId, *, unbuilt: bool) -> str:
    if target.processor in known_targets():
        _check_features(target, _data()["targets"][target.processor]["features"])
        return str(target)
    if target.processor not in unbuilt_targets():
        raise UsageError(f"unknown GPU target {str(target)!r}", tip=_suggestion(str(target)))
    if not unbuilt:
        instead = generic_targets().get(target.processor) or _beginning_alike(target.processor)
        raise UsageError(
            f"{target} is a GPU target that nothing is built for",
            tip=f"build for {', '.join(t for t in instead if t in known_targets()) or 'a different target'}",
        )
    return str(target)


def _check_features(target: TargetId, supported: Iterable[str]) -> None:
    names = [feature[:-1] for feature in target.features]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"{target} has {twice} both on and off")
    unknown = next((name for name in names if name not in supported), None)
    if unknown is not None:
        can = " and ".join(supported)
        raise UsageError(
            f"{target.processor} has no feature {unknown!r} to be compiled for",
            tip=f"its features are {can}" if can else f"write {target.processor}",
        )


def _suggestion(word: str) -> str:
    # Also as a file name spells a family: gfx94x_dcgpu.
    head, colon, features = word.replace("_", "-").partition(":")
    names = {name.casefold(): name for name in (*families(), *known_targets(), *unbuilt_targets(), CPU)}
    exact = names.get(head.casefold())
    if exact in families() and exact not in known_targets() and colon:
        return "features belong to single targets, such as gfx90a:xnack+"
    # `rx7900` is much like `gfx900`, and is gfx1100: a number must be the same.
    same = [name for name in names.values() if not _digits(head) or _digits(head) in _digits(name)]
    close = (exact,) if exact else _beginning_alike(head) or wording.nearest(head, same)
    if not close:
        return f"the families are: {', '.join(index_families())}"
    meant = (name + (colon + features if name in known_targets() else "") for name in close)
    return f"did you mean {' or '.join(meant)}?"


def _digits(name: str) -> str:
    return "".join(filter(str.isdecimal, name))


def _beginning_alike(name: str) -> tuple[str, ...]:
    """At most three targets that have all but the last digit of one that is not known."""
    alike = name[:-1] if _TARGET_ID.fullmatch(name) else ""
    return tuple(t for t in known_targets() if len(alike) > len("gfx9") and t.startswith(alike))[:3]


@functools.cache
def _data() -> dict[str, Any]:
    text = importlib.resources.files("cairn").joinpath("targets.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
