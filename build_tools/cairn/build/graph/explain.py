"""Why a step is built: its inputs now, compared with those of its last wheel."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cairn.build.cache import CacheEntry, WheelCache
from cairn.build.inputs.source_tree import SOURCES
from cairn.build.plan import BuildStep
from cairn.output import wording

_LOOKED_AT = 50  # entries of a project; what was built longer ago explains nothing
# What the wheel that is compared with should be alike in, before all else.
_SAME_VARIANT = ("python", "platform", "targets", "version_suffix", "sdk")
# What a user calls an input; `{0}` and `{1}` are what it was and is.
_REASONS = {
    "tree": "its sources changed",
    "unseen": "files that git does not see changed",
    "start": "the build folder to go on with changed",
    "sdk": "the ROCm SDK is a different one",
    "toolchain": "the compilers or their settings changed",
    "outside": "headers, libraries or packages of the machine changed",
    "targets": "targets {1}, not {0}",
    "python": "Python {1}, not {0}",
    "version_suffix": "version suffix {1}, not {0}",
    "build_number": "build number {1}, not {0}",
    "features": "features {1}, not {0}",
    "platform": "platform {1}, not {0}",
    "build_env": "variables of --build-env changed",
    "environment": "its variables in stack.toml changed",
    "upstream": "a different upstream commit",
    "finishing": "Cairn repairs, lists and verifies wheels in a new way",
}
_STACK = "what stack.toml says of it changed"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """An input that has changed.

    Attributes:
        name: with the names of what it is in, such as `toolchain.c++`.
        before: what it was, as JSON; None where there was no such input.
        now: what it is; None where there is none any more.
    """

    name: str
    before: str | None
    now: str | None


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Why a step is built, or is not.

    Attributes:
        reason: in a few words.
        last: the wheel that was compared with; None where there is none.
        differences: the inputs that changed since.
    """

    reason: str
    last: CacheEntry | None
    differences: tuple[Difference, ...] = ()


def explain(step: BuildStep, cache: WheelCache, *, clean: bool) -> Explanation:
    """Compare a step with the last wheel of its project, of the same variant where there is one.

    Args:
        step: of a plan.
        cache: where earlier wheels are.
        clean: all is to be built again.
    """
    if step.hit is not None:
        return Explanation(reason="nothing changed", last=step.hit.entry)
    last = last_of(step, cache)
    if last is None:
        return Explanation(reason="never built before" if not clean else "--clean", last=None)
    changes = tuple(differences(last.inputs, step.inputs))
    if clean:
        return Explanation(reason="--clean", last=last, differences=changes)
    return Explanation(reason=summary(changes), last=last, differences=changes)


def last_of(step: BuildStep, cache: WheelCache) -> CacheEntry | None:
    """The last wheel of a step's project; one of the same variant before any other."""
    best, most = None, -1
    now = _plain(step.inputs)
    for entry in itertools.islice(cache.recent(step.project.name), _LOOKED_AT):
        if not entry.inputs:
            continue
        alike = [entry.inputs.get(name) == now.get(name) for name in _SAME_VARIANT]
        if sum(alike) > most:
            best, most = entry, sum(alike)
        if all(alike):
            break
    return best


def differences(before: Mapping[str, object], now: Mapping[str, object]) -> Iterator[Difference]:
    """The inputs that are not the same, by name."""
    old, new = dict(_flat("", _plain(before))), dict(_flat("", _plain(now)))
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            yield Difference(name=name, before=old.get(name), now=new.get(name))


def summary(changes: tuple[Difference, ...]) -> str:
    """Differences in a few words, for a table."""
    if edited := edited_files(changes):
        return f"{wording.some(edited)} changed"
    changed = {one.name.partition(".")[0]: one for one in changes}
    changed.pop(SOURCES, None)
    if not changed:
        return "its last wheel is no longer in the cache"
    if changed.keys() - {"start"}:  # which follows from the rest: a different build folder goes with it
        changed.pop("start", None)
    reasons = [
        _REASONS.get(name, _STACK).format(one.before or "none", one.now or "none")
        for name, one in changed.items()
        if name != "needs"
    ]
    if built := [one.name.partition(".")[2] for one in changes if one.name.startswith("needs.")]:
        reasons.append(f"{' and '.join(built)} changed")
    return "; ".join(dict.fromkeys(reasons))


def edited_files(changes: tuple[Difference, ...]) -> list[str]:
    """The files of a tree that were edited since, where they are all that changed."""
    prefix = f"{SOURCES}.edited."
    others = {one.name for one in changes if not one.name.startswith(prefix)} - {"tree", "start"}
    return [] if others else [one.name.removeprefix(prefix) for one in changes if one.name.startswith(prefix)]


def _plain(inputs: Mapping[str, object]) -> dict[str, object]:
    """Inputs as a cache entry has them: a tuple is a list there."""
    plain: dict[str, object] = json.loads(json.dumps(inputs, ensure_ascii=True))
    return plain


def _flat(prefix: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _flat(f"{prefix}.{name}" if prefix else str(name), inner)
    elif value is not None:
        yield prefix, _shown(value)


def _shown(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return " ".join(value) or "none"
    return json.dumps(value, ensure_ascii=False)
