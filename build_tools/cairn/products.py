"""GPUs by the names under which they are sold, or by those of the processors that they are a part of.

`parse` gives the target of a product, and asks where a name is not clear: a wheel for the wrong GPU installs
without a word and then finds no kernel.
"""

from __future__ import annotations

import difflib
import functools
import importlib.resources
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cairn import targets
from cairn.errors import UsageError

# What tells no GPU from another: trade marks, the size of its memory, and words that many leave out.
_MARKS = re.compile(r"\((?:tm|r)\)|[™®]|\b[0-9]+ ?gb\b")
_NOISE = frozenset(
    {"amd", "radeon", "instinct", "accelerator", "gpu", "igpu", "graphics", "series", "rx", "pro", "ai"}
)
_TOGETHER = re.compile(r"\bw/|\bwith\b")  # "Ryzen 7 7840HS w/ Radeon 780M", as Linux calls the processor
_MODEL = re.compile("[0-9]{3,}")
_ALIKE = 0.8  # of difflib's ratio: a name with a typing error in it
_SHOWN = 5  # products in one sentence


def names(target: str) -> tuple[str, ...]:
    """What a GPU of a target may be looked for by: its products, and what else they are called."""
    processor = target.partition(":")[0]
    return tuple(dict.fromkeys((*targets.products(processor), *_data()["names"].get(processor, ()))))


def parse(text: str) -> str:
    """The target of a product, as who owns one writes it: `Radeon RX 7900 XTX`, `7900xtx`, `MI300`.

    There is an answer where the name is a known one, or where all names that begin with it are of one target
    and it has the number of a model: `MI300`. That of a processor must be whole: the Ryzen 5 5600
    has no graphics, the 5600G has. Nothing is guessed.

    Raises:
        UsageError: it is not known, may be one of several targets, or is a GPU of another maker.
    """
    parts = [_read(part) for part in _TOGETHER.split(text)]
    exact = [name for part in parts for name in _beginning_with(part) if name.words == part.words]
    begun = [] if exact else [name for part in parts for name in _beginning_with(part)]
    has_model = any(_MODEL.fullmatch(word) for part in parts for word in part.words)
    is_clear = exact or (has_model and not any(name.kinds & {"ryzen"} for name in begun))
    if len({name.target for name in exact or begun}) == 1 and is_clear:
        return (exact or begun)[0].target
    if maker := _other_maker(text):
        raise UsageError(
            f"{text!r} is a GPU of {maker}, and ROCm runs on those of AMD",
            tip="without one, take the build for the CPU, where there is one: --target cpu",
        )
    offers = dict.fromkeys(f"{name.name} ({name.target})" for name in exact or begun or _mistyped(parts))
    more = f" and {len(offers) - _SHOWN} more" if len(offers) > _SHOWN else ""
    raise UsageError(
        f"{text!r} {'may be several products' if exact or begun else 'is not a product that is known'}",
        tip=f"did you mean {', '.join(list(offers)[:_SHOWN])}{more}?"
        if offers
        else "name its target with --target: `rocminfo` and `cairn doctor` say it where the GPU is",
    )


@dataclass(frozen=True, kw_only=True)
class _Written:
    """What of a name tells it from others.

    Attributes:
        words: such as `7900`, `xtx` of `AMD Radeon(TM) RX 7900 XTX`.
        kinds: `rx`, `ryzen` or none: who says one of these means nothing else.
    """

    words: tuple[str, ...]
    kinds: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class _Name(_Written):
    """A way to write the name of a product, which may have several."""

    name: str
    target: str


@functools.cache
def _known() -> tuple[_Name, ...]:
    matches = []
    for target in (*targets.known_targets(), *targets.unbuilt_targets()):
        for name in names(target):
            written = _read(name)
            words = written.words
            ways = [words]
            if words[0] == "ryzen":  # also without it, and without the class: the 7840HS of Ryzen 7 7840HS
                ways += [words[1:], *([words[2:]] if len(words[1]) == 1 and words[2:] else [])]
            matches += [_Name(name=name, target=target, words=way, kinds=written.kinds) for way in ways]
    return tuple(matches)


def _read(text: str) -> _Written:
    words = re.findall("[a-z]+|[0-9]+", _MARKS.sub(" ", text.casefold()))
    return _Written(
        words=tuple(word for word in words if word not in _NOISE), kinds=frozenset(words) & {"rx", "ryzen"}
    )


def _beginning_with(part: _Written) -> list[_Name]:
    return [
        name
        for name in _known()
        if part.words and name.words[: len(part.words)] == part.words and part.kinds <= name.kinds
    ]


def _mistyped(parts: Sequence[_Written]) -> list[_Name]:
    """The names that are much like one of these, with the very same numbers; likeliest first."""
    likeness: dict[_Name, float] = {}
    for part in parts:
        words = [word for word in part.words if not difflib.get_close_matches(word, _NOISE, cutoff=_ALIKE)]
        for name in _known():
            if _numbers(words) and _numbers(words) == _numbers(name.words):
                ratio = difflib.SequenceMatcher(None, "".join(words), "".join(name.words)).ratio()
                if ratio >= _ALIKE:
                    likeness[name] = ratio
    return sorted(likeness, key=lambda name: -likeness[name])


def _numbers(words: Sequence[str]) -> list[str]:
    return [word for word in words if word.isdecimal()]


def _other_maker(text: str) -> str | None:
    """Whose GPU it is, where a word of the name says that it is not one of AMD's."""
    folded = text.casefold()
    words = {*re.findall("[a-z0-9]+", folded), *re.findall("[a-z]+", folded)}
    return next((maker for maker, known in _data()["others"].items() if words & set(known)), None)


@functools.cache
def _data() -> dict[str, Any]:
    text = importlib.resources.files("cairn").joinpath("products.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
