"""GPU targets, the families they are grouped in, and how users and compilers write them.

The table is `targets.toml`; `parse_targets` reads what a user wrote, `family_of` names a set. In
`products.toml` are the names under which GPUs are sold: `parse_product` gives the target of one, and asks
where a name is not clear: a wheel for the wrong GPU installs without a word and then finds no kernel.
"""

from __future__ import annotations

import functools
import importlib.resources
import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from cairn.errors import UsageError
from cairn.output import wording

CPU = "cpu"
"""The target of a build without ROCm."""

_SEPARATORS = re.compile(r"[,;\s]+")  # `;` as in CMake's lists, `,` as on command lines
# `processor(:feature(+|-))*`; a generic one is gfx11-generic, or gfx9-4-generic with a minor version; the
# first stepping of gfx1250 is gfx1250-strict.
_TARGET_ID = re.compile(
    r"(?P<processor>gfx[0-9a-f]+(?:-generic|-[0-9]+-generic|-strict)?)(?P<features>(?::[a-z]+[+-])*)"
)
_GENERIC = re.compile(r"gfx(?P<major>[0-9]+)(?:-(?P<minor>[0-9]+))?-generic")

# What tells no GPU from another: trade marks, the size of its memory, and words that many leave out.
_MARKS = re.compile(r"\((?:tm|r)\)|[™®]|\b[0-9]+ ?gb\b")
_NOISE = frozenset(
    {"amd", "radeon", "instinct", "accelerator", "gpu", "igpu", "graphics", "series", "rx", "pro", "ai"}
)
# Product lines number their models independently: the RX 5600M and the Pro 5600M are different GPUs. By the
# word for a line, the lines meant: many leave it out. A Ryzen PRO has the GPU of the one without PRO.
_LINES = {
    "ryzen": ("ryzen",),
    "instinct": ("instinct",),
    "rx": ("rx",),
    "pro": ("pro",),
    "radeon": ("rx", "pro", "radeon", ""),
}
_TOGETHER = re.compile(r"\bw/|\bwith\b")  # "Ryzen 7 7840HS w/ Radeon 780M", as Linux calls the processor
_MODEL = re.compile("[0-9]{3,}")
_ALIKE = 0.8  # of difflib's ratio: a name with a typing error in it
_SHOWN = 5  # products in one sentence


class TargetId(msgspec.Struct, frozen=True, kw_only=True):
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
    for name, processors in _data()["families"].items():
        members[name] = list(processors)
    for target in known_targets():
        for name in (*([target] if target in members else ()), *_data()["targets"][target]["families"]):
            members.setdefault(name, []).append(target)
    return {name: tuple(sorted(names, key=sort_key)) for name, names in members.items()}


@functools.cache
def index_families() -> tuple[str, ...]:
    """The families that indexes and SDK packages are named after, in order of preference."""
    return tuple(_data()["indexes"])


def discrete(names: Iterable[str]) -> tuple[str, ...]:
    """These targets, each once, without graphics of processors where there is a card beside them."""
    unique = tuple(dict.fromkeys(names))
    integrated = families()["igpu-all"]
    return tuple(name for name in unique if name not in integrated) or unique


def upstream_streams() -> dict[str, str]:
    """AMD's indexes of torch and the ROCm SDK for every GPU: stream to address, the default first."""
    return dict(_data()["upstream"]["streams"])


def upstream_cpu_index() -> str:
    """The address of PyTorch's index of builds for the CPU."""
    return str(_data()["upstream"]["cpu"])


@functools.cache
def generic_targets() -> dict[str, tuple[str, ...]]:
    """Generic target to the processors that run its code (LLVM, AMDGPU usage guide: "Generic Processors")."""
    return {name: tuple(members) for name, members in _data()["generic"].items()}


def that_run(processor: str) -> tuple[str, ...]:
    """Return the processors that run this one's code: itself, and the members of a generic one."""
    return (processor, *generic_targets().get(processor, ()))


@functools.cache
def unbuilt_targets() -> tuple[str, ...]:
    """Processors that nothing is built for, although wheels have code for them; generic ones included."""
    return tuple(sorted((*_data()["unbuilt"], *generic_targets()), key=sort_key))


def features(target: str) -> tuple[str, ...]:
    """The features that a target can be compiled for, such as `xnack`."""
    return tuple(_data()["targets"][target]["features"])


def package_owner(target: str) -> str:
    """The target whose device wheels and SDK packages have a target's code: itself, or their owner."""
    processor = target.partition(":")[0]
    return str(_data()["owners"].get(processor, processor))


def product_of(target: str) -> str:
    """The products of a target, such as `MI300A, MI300X, MI325X`; empty where they are not known."""
    processor = target.partition(":")[0]
    if processor in generic_targets():
        return f"runs on {', '.join(generic_targets()[processor])}"
    products: dict[str, str] = {
        **_data()["unbuilt"],
        **{n: t["product"] for n, t in _data()["targets"].items()},
    }
    return products.get(processor, "")


def products(target: str) -> tuple[str, ...]:
    """The products with a GPU of a target, one by one: those of `product_of`, then more; of `cpu`, none."""
    processor = target.partition(":")[0]
    members = _data()["targets"].get(processor, {"product": ""})["product"]
    return tuple(name for name in (*members.split(", "), *_data()["also"].get(processor, ())) if name)


def sort_key(target: str) -> tuple[int, int, int, int, str]:
    """The sort key of a target: by number, so that gfx90a is before gfx942, and gfx1010 after both.

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
    digits = processor.removeprefix("gfx").removesuffix("-strict")
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
    try:
        names = tuple(dict.fromkeys(name for word in words for name in _expand(word, unbuilt=unbuilt)))
    except UsageError:
        try:
            target = parse_product(str(text))
        except UsageError:
            target = ""
        if not target or str(text).startswith("gfx"):
            raise
        raise UsageError(f"{text!r} is a product", tip=f"write its target: {target}") from None
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
        _check_features(target, features(target.processor))
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
    return _table("targets.toml")


def _table(name: str) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415 - most commands look up no target

    return tomllib.loads(importlib.resources.files("cairn").joinpath(name).read_text(encoding="utf-8"))


def product_names(target: str) -> tuple[str, ...]:
    """The names of a target's GPUs: its products, and what else they are called."""
    processor = target.partition(":")[0]
    return tuple(dict.fromkeys((*products(processor), *_product_data()["names"].get(processor, ()))))


def parse_product(text: str) -> str:
    """The target of a product, as who owns one writes it: `Radeon RX 7900 XTX`, `7900xtx`, `MI300`.

    There is an answer where the name is a known one, or where all names that begin with it are of one target
    and it has the number of a model: `MI300`. That of a processor must be whole: the Ryzen 5 5600
    has no graphics, the 5600G has. Nothing is guessed.

    Raises:
        UsageError: it is not known, may be one of several targets, or is a GPU of another maker.
    """
    parts = [_read(part) for part in _TOGETHER.split(text)]
    exact = [name for part in parts for name in _exact(part)]
    begun = [] if exact else [name for part in parts for name in _beginning_with(part)]
    has_model = any(_MODEL.fullmatch(word) for part in parts for word in part.words)
    is_clear = exact or (has_model and not any(name.line == "ryzen" for name in begun))
    if len({name.target for name in exact or begun}) == 1 and is_clear:
        return (exact or begun)[0].target
    if maker := _other_maker(text):
        raise UsageError(
            f"{text!r} is a GPU of {maker}, and ROCm runs on those of AMD",
            tip="without one, take the build for the CPU, where there is one: --gpu cpu",
        )
    offers = dict.fromkeys(f"{name.name} ({name.target})" for name in exact or begun or _mistyped(parts))
    more = f" and {len(offers) - _SHOWN} more" if len(offers) > _SHOWN else ""
    raise UsageError(
        f"{text!r} {'may be several products' if exact or begun else 'is not a product that is known'}",
        tip=f"did you mean {', '.join(list(offers)[:_SHOWN])}{more}?"
        if offers
        else "name its target with --gpu: `rocminfo` and `cairn doctor` say it where the GPU is",
    )


class _Written(msgspec.Struct, frozen=True, kw_only=True):
    """The distinguishing parts of a name.

    Attributes:
        words: such as `7900`, `xtx` of `AMD Radeon(TM) RX 7900 XTX`.
        line: the product line: `ryzen`, `instinct`, `rx` or `pro`; else `radeon`, or nothing.
    """

    words: tuple[str, ...]
    line: str


class _Name(_Written, frozen=True, kw_only=True):
    """A way to write the name of a product, which may have several."""

    name: str
    target: str


@functools.cache
def _known_names() -> tuple[_Name, ...]:
    matches = []
    for target in (*known_targets(), *unbuilt_targets()):
        for name in product_names(target):
            written = _read(name)
            words = written.words
            ways = [words]
            if words[0] == "ryzen":  # also without it, and without the class: the 7840HS of Ryzen 7 7840HS
                # A Radeon R7 250 is another GPU than that of the Ryzen 7 250: three digits are no name.
                has_name = len(words[1]) == 1 and len("".join(words[2:])) > len("250")
                ways += [words[1:], *([words[2:]] if has_name else [])]
            matches += [_Name(name=name, target=target, words=way, line=written.line) for way in ways]
    return tuple(matches)


def _read(text: str) -> _Written:
    words = re.findall("[a-z]+|[0-9]+", _MARKS.sub(" ", text.casefold()))
    line = next((line for line in _LINES if line in words), "instinct" if "mi" in words else "")
    return _Written(words=tuple(word for word in words if word not in _NOISE), line=line)


def _beginning_with(part: _Written) -> list[_Name]:
    return [
        name
        for name in _known_names()
        if part.words
        and name.words[: len(part.words)] == part.words
        and name.line in _LINES.get(part.line, (name.line,))
    ]


def _exact(part: _Written) -> list[_Name]:
    """The names that this is, and no more; of its own product line where there are such."""
    exact = [name for name in _beginning_with(part) if name.words == part.words]
    # Vega 20 is a chip, and the Radeon Pro Vega 20 has a different one.
    return [name for name in exact if name.line == part.line] or exact


def _mistyped(parts: Sequence[_Written]) -> list[_Name]:
    """The names that are much like one of these, with the very same numbers; likeliest first."""
    import difflib  # noqa: PLC0415 - only needed after a typing error

    likeness: dict[_Name, float] = {}
    for part in parts:
        words = [word for word in part.words if not difflib.get_close_matches(word, _NOISE, cutoff=_ALIKE)]
        for name in _known_names():
            if _numbers(words) and _numbers(words) == _numbers(name.words):
                ratio = difflib.SequenceMatcher(None, "".join(words), "".join(name.words)).ratio()
                if ratio >= _ALIKE:
                    likeness[name] = ratio
    return sorted(likeness, key=lambda name: -likeness[name])


def _numbers(words: Sequence[str]) -> list[str]:
    return [word for word in words if word.isdecimal()]


def _other_maker(text: str) -> str | None:
    """Return the other maker of a GPU if a word of its name tells; else None."""
    folded = text.casefold()
    words = {*re.findall("[a-z0-9]+", folded), *re.findall("[a-z]+", folded)}
    return next(
        (maker for maker, words_of_maker in _product_data()["others"].items() if words & set(words_of_maker)),
        None,
    )


@functools.cache
def _product_data() -> dict[str, Any]:
    return _table("products.toml")
