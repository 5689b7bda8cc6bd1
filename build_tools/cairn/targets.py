"""GPU targets and the families they are grouped in."""

from __future__ import annotations

import functools
import importlib.resources
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass

from cairn import wording
from cairn.errors import UsageError

CPU = "cpu"
"""The target of a build without ROCm."""

_SEPARATORS = re.compile(r"[,;\s]+")
_TARGET_ID = re.compile(
    r"(?P<processor>gfx[0-9a-f]+(?:-generic|-[0-9]+-generic)?)(?P<features>(?::[a-z]+[+-])*)"
)


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
    """Every processor that wheels may be built for, in the order of the data file."""
    return tuple(name for group in _data()["targets"].values() for name in group)


@functools.cache
def families() -> dict[str, tuple[str, ...]]:
    """Family name to its members."""
    return {name: tuple(members) for name, members in _data()["families"].items()}


def parse_target_id(text: str) -> TargetId:
    """Read one target ID.

    Raises:
        UsageError: it is not one.
    """
    match = _TARGET_ID.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            f"{text!r} is not a GPU target", tip="a target is written like gfx942 or gfx90a:xnack+"
        )
    return TargetId(
        processor=match["processor"], features=tuple(f for f in match["features"].split(":") if f)
    )


def parse_targets(text: str | Iterable[str]) -> tuple[str, ...]:
    """Read what a person wrote for targets into target IDs, each once, in the order given.

    Args:
        text: names separated by `,`, `;` or white space: targets (`gfx942`, `gfx90a:xnack+`), families
            (`gfx110X-all`), wildcards (`gfx94X`, every target that begins with gfx94), or `cpu` alone.

    Raises:
        UsageError: an unknown name, nothing at all, or `cpu` among others.
    """
    words = [w for part in ([text] if isinstance(text, str) else text) for w in _SEPARATORS.split(part) if w]
    found = tuple(dict.fromkeys(name for word in words for name in _expand(word)))
    if not found:
        raise UsageError("no GPU target was named", tip="name at least one, such as gfx942 or gfx110X-all")
    if CPU in found and len(found) > 1:
        raise UsageError("the target cpu cannot be combined with GPU targets")
    return found


def family_of(targets: Iterable[str]) -> str:
    """The family that holds all `targets`, or the targets joined by `-` where no single family does."""
    processors = tuple(name if name == CPU else parse_target_id(name).processor for name in targets)
    for family, members in families().items():
        if set(processors) <= set(members):
            return family
    return "-".join(processors)


def _expand(word: str) -> tuple[str, ...]:
    if word == CPU:
        return (CPU,)
    if word in families():
        return families()[word]
    if word.endswith("X"):
        members = tuple(t for t in known_targets() if t.startswith(word[:-1]))
        if members and len(word) > len("gfxX"):
            return members
    elif _TARGET_ID.fullmatch(word):
        target = parse_target_id(word)
        if target.processor in known_targets():
            return (str(target),)
    raise UsageError(f"unknown GPU target {word!r}", tip=_suggestion(word))


def _suggestion(word: str) -> str:
    if close := wording.nearest(word, (*known_targets(), *families(), CPU)):
        return f"did you mean {' or '.join(close)}?"
    return f"the families are: {', '.join(families())}"


def _data() -> dict[str, dict[str, list[str]]]:
    text = importlib.resources.files("cairn").joinpath("targets.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
