"""What the pages for people show of an index: its sets, its recent changes, its last nights."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
from packaging.version import InvalidVersion, Version

from cairn import datafile, targets

PACKAGES = ("torch", "torchvision", "torchaudio")
"""What an install line names where a set has them: they need the rest of it, by exact pins."""

Outcome = Literal["good", "failed", "cancelled"]


class SetView(datafile.Value):
    """A set as an index has it.

    Attributes:
        set_id: which.
        line, python, platform, family, targets: as its `set.json` has them.
        projects: distribution to version, of its own wheels.
        added: when the index took it, RFC 3339 in UTC.
        untested: why it is there without a passed test, or on what it was not tested; None for a tested set.
        untested_targets: those of the targets that no passed test is of.
        installed_with: the installers that the gate installed it with.
        yanked: why it was yanked, or None.
        failed: the test records that stand against it by now, in words, or None.
        weakened: where the policy asked less than it should that let it in, a sentence each.
        simple: the key of the folder with the index of exactly this set; empty where there is none.
        locks: the keys of its locks, by file name.
    """

    set_id: str
    line: str
    python: str
    platform: str
    family: str
    targets: tuple[str, ...]
    projects: Mapping[str, str]
    added: str
    untested: str | None = None
    untested_targets: tuple[str, ...] = ()
    installed_with: tuple[str, ...] = ()
    yanked: str | None = None
    failed: str | None = None
    weakened: tuple[str, ...] = ()
    simple: str = ""
    locks: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def lead(self) -> str:
        """The project that a set is told from others by: torch, where it has one."""
        return self.packages[0] if self.packages else ""

    @property
    def packages(self) -> tuple[str, ...]:
        """What an install line names, by name alone."""
        return tuple(name for name in PACKAGES if name in self.projects) or tuple(sorted(self.projects))

    @property
    def order(self) -> tuple[Version, str, str]:
        """Sorts sets by what installers compare, then by when they came."""
        return parsed(self.projects.get(self.lead, "0")), self.added, self.set_id

    @property
    def processors(self) -> tuple[str, ...]:
        """The targets, without features, whose GPUs run its code; `cpu` for a build without ROCm."""
        generic = targets.generic_targets()
        bare = (name.partition(":")[0] for name in self.targets)
        return tuple(dict.fromkeys(target for name in bare for target in generic.get(name, (name,))))

    def untested_on(self, target: str) -> str | None:
        """Why it counts as untested on a target it serves, or None; as failed, where a test has failed."""
        if self.failed is not None:
            return f"a test has failed since it came: {self.failed}"
        if not self.untested_targets:
            return self.untested
        if any(name.partition(":")[0] == target for name in self.untested_targets):
            return self.untested or f"untested on hardware: {target}"
        return None


class Change(datafile.Value):
    """One generation of an index: its number, which command made it, who ran that, when and why."""

    number: int
    action: str
    who: str
    when: str
    why: str | None = None
    sets: tuple[str, ...] = ()


class Night(datafile.Value, tag_field="schema", tag="cairn.night/1"):
    """How the last nightly run of one line, family, Python and platform ended; whoever runs it writes it.

    Attributes:
        line: the release line that was run.
        family: of the targets.
        python: such as `3.12`.
        platform: such as `linux_x86_64`.
        started: RFC 3339 in UTC.
        finished: RFC 3339 in UTC.
        outcome: `good` only if a set came out of it and was published.
        stage: where it ended, such as `build`; None for a good one.
        reason: what went wrong, in one sentence.
        set_id: the set that came out of it; None for one that is not good.
        log: a URL where the run can be read, or None.
        last_good: when the last one of it that was good had finished, RFC 3339 in UTC; None where that is not
            known.
    """

    line: str
    family: str
    python: str
    platform: str
    started: str
    finished: str
    outcome: Outcome
    stage: str | None = None
    reason: str | None = None
    set_id: str | None = None
    log: str | None = None
    last_good: str | None = None


class IndexView(datafile.Value):
    """An index at one moment.

    Attributes:
        name: such as `release` or `release/gfx110X-all`.
        simple: the key of the folder with its simple pages.
        generation: the number of the state that is shown.
        when: when that came to be, RFC 3339 in UTC.
        sets: every set of it, in any order.
        changes: the recent generations, in any order.
        nights: the last run of each line, family, Python and platform, in any order.
        damaged: whether it cannot be read; the rest is empty then.
    """

    name: str
    simple: str
    generation: int = 0
    when: str = ""
    sets: tuple[SetView, ...] = ()
    changes: tuple[Change, ...] = ()
    nights: tuple[Night, ...] = ()
    damaged: bool = False

    @property
    def live(self) -> tuple[SetView, ...]:
        """The sets that are not yanked, newest first."""
        return tuple(sorted((s for s in self.sets if s.yanked is None), key=lambda s: s.order, reverse=True))


def by_channel(views: Sequence[IndexView]) -> dict[str, tuple[IndexView, ...]]:
    """The indexes of each channel, the channel itself before its families; in the order of the names."""
    ordered = sorted(views, key=lambda view: view.name)
    channels = dict.fromkeys(view.name.partition("/")[0] for view in ordered)
    return {name: tuple(v for v in ordered if v.name.partition("/")[0] == name) for name in channels}


@functools.cache
def parsed(version: str) -> Version:
    """A version to compare; what is none sorts below all others, so that no page fails over it."""
    try:
        return Version(version)
    except InvalidVersion:
        return Version("0.dev0")
