"""The plan of a night in the store: its manifest, its legs, and the notes on each.

nights/<id>/night.json     what was frozen and what is expected of it; never changes
nights/<id>/manifest.json  the manifest that every set of the night is of
nights/<id>/steps/<leg>.<stage>.<part>.<run>.<attempt>.json  how a job ended; for people, no reason to promote
nights/<id>/lists/    lists of tests that suites read, by sha256
nights/<id>/shards/   what the shards of suites found (`shards`)
nights/_versions/     which manifest has which version (`versions`)
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from cairn import datafile, targets
from cairn import stack as stacks
from cairn.errors import StoreError, UsageError
from cairn.matrix import legs as matrix_legs
from cairn.matrix.legs import Build, Leg
from cairn.output import console, github, wording
from cairn.release import night_names, recipes
from cairn.release.index import keys, write
from cairn.release.index.generation import IndexSet, now
from cairn.release.index.reading import read_current
from cairn.release.index.snapshot import Index
from cairn.release.provenance.attest import Attester
from cairn.release.trust import anchor
from cairn.release.trust.signers import Trust
from cairn.release.weighing import SKEW
from cairn.sources.manifest.manifest import Manifest
from cairn.stack import Stack
from cairn.store.protocol import MissingKeyError, Store
from cairn.wheels.metadata import rocm_version

Stage = Literal["build", "stage", "test", "promote"]
STAGES: tuple[Stage, ...] = ("build", "stage", "test", "promote")
"""The stages of a leg, in their order."""
_Notes = dict[tuple[str, Stage, str], "StepNote"]


class NightPlan(datafile.Value, tag_field="schema", tag="cairn.night-plan/1"):
    """The frozen inputs of a night, and the legs that are expected of it.

    Attributes:
        night: its id.
        stack: the name of the stack.
        line: its release line.
        frozen: when, RFC 3339 in UTC.
        manifest_sha256: of the manifest that each of its sets must be built from.
        staging: the channel that its sets are staged in.
        release: the channel that they are promoted to.
        legs: what is expected: a set for each of them (`cairn.matrix`).
        log: a URL where the run can be read, or None.
        refs: what was chosen in place of the line's commits: `torch=my-branch`, `torch=URL@my-branch` of a
            fork.
        lists: the lists of tests that its suites read (`lists` in suite.toml): sha256 by address.

    Raises:
        UsageError: `frozen` is no moment.
    """

    night: str
    stack: str
    line: str
    frozen: str
    manifest_sha256: str
    staging: str
    release: str
    legs: tuple[Leg, ...]
    log: str | None = None
    refs: tuple[str, ...] = ()
    lists: Mapping[str, str] = {}

    def __post_init__(self) -> None:
        _refuse_no_moment(f"the night {self.night} began", self.frozen)

    def leg(self, name: str) -> Leg:
        """Return the leg with that id.

        Raises:
            UsageError: the night has none.
        """
        for leg in self.legs:
            if leg.id == name:
                return leg
        raise UsageError(
            f"the night {self.night} has no leg {name!r}",
            tip=f"its legs are: {', '.join(leg.id for leg in self.legs)}",
        )

    @property
    def sealed_id(self) -> str:
        """Its id with a digest of all it says, for jobs: others may be able to change it in the store."""
        return f"{self.night}@{hashlib.sha256(datafile.dumps(self).encode()).hexdigest()}"

    @property
    def sources(self) -> str:
        """Its line, and what was chosen in place of commits of that."""
        return ", ".join((self.line, *self.refs))

    @property
    def is_open(self) -> bool:
        """Whether its sets are staged where they go: they are tested there, and no gate lets them further."""
        return self.staging == self.release

    @property
    def builds(self) -> tuple[Build, ...]:
        """The builds that make the wheels of its legs."""
        return matrix_legs.builds_of(self.legs)

    def build(self, name: str) -> Build:
        """Return the build with that id.

        Raises:
            UsageError: the night has none.
        """
        for build in self.builds:
            if build.id == name:
                return build
        raise UsageError(
            f"the night {self.night} has no build {name!r}",
            tip=f"its builds are: {', '.join(build.id for build in self.builds)}",
        )


@dataclass(frozen=True, kw_only=True)
class NightRun:
    """A night that a job works on.

    Attributes:
        store: where it lives.
        plan: the plan of the night.
        stack: its stack, on its line.
        trust: the keys one of which must have signed each test record; None accepts unsigned ones.
        attester: attests wheels; None for no attestation.
        dry_run: refuse what would be refused, and write nothing.
        only: ids of the legs that are worked on; empty for all.
    """

    store: Store
    plan: NightPlan
    stack: Stack
    trust: Trust | None = None
    attester: Attester | None = None
    dry_run: bool = False
    only: tuple[str, ...] = ()
    _indexes: dict[str, Index] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def legs(self) -> tuple[Leg, ...]:
        """The legs that are worked on.

        Raises:
            UsageError: the night has no such leg.
        """
        return tuple(self.plan.leg(name) for name in self.only) if self.only else self.plan.legs

    @property
    def has_root(self) -> bool:
        """Whether a root says who has which role."""
        return self.trust is not None and self.trust.builders is not None

    def index(self, leg: Leg, channel: str) -> Index:
        """Return the index of a channel for a leg's sets; what was read of it is not read again."""
        name = index_of(leg, channel)
        return self._indexes.setdefault(name, Index(self.store, name))


class StepNote(datafile.Value, tag_field="schema", tag="cairn.night-step/1"):
    """How one job of a leg ended, in one attempt.

    Attributes:
        night, leg, stage, attempt: which; in what a build leaves, `leg` is the id of the build.
        good: whether it succeeded.
        reason: what went wrong, or what was done, in one sentence.
        started, finished: RFC 3339 in UTC.
        log: a URL where the run can be read, or None.
        measures: what was measured of the set of the leg, by the names in `trends.MEASURES`.
        part: which of several jobs of the stage, such as the shard `default-1` of a suite.

    Raises:
        UsageError: `started` or `finished` is no moment: foreign code may have written the note.
    """

    night: str
    leg: str
    stage: Stage
    attempt: int
    good: bool
    reason: str
    started: str
    finished: str
    log: str | None = None
    part: str = ""
    measures: Mapping[str, float] = {}

    def __post_init__(self) -> None:
        for moment in (self.started, self.finished):
            _refuse_no_moment(f"the {self.stage} job of {self.leg} began or ended", moment)


def _refuse_no_moment(subject: str, moment: str) -> None:
    try:
        has_zone = datetime.fromisoformat(moment).tzinfo is not None
    except ValueError:
        has_zone = False
    if not has_zone:
        raise UsageError(f"{subject} at {moment!r}, which is no moment")


def targets_of(leg: Leg | Build) -> tuple[str, ...]:
    """Return the targets of a leg or a build as a tuple."""
    return targets.parse_targets(leg.targets)


def version_suffix(stack: Stack, frozen: Manifest, of: tuple[str, ...]) -> str:
    """Return what the versions of wheels for these targets have behind the versions of their sources.

    Commits that are not the line's are named first (`+git1a2b3c4d.rocm7.10.0`, as upstream's are): the wheels
    share no version with those of the line, and sort below them.
    """
    for_cpu = stack.sdk is None or of == (targets.CPU,)
    usual = stack.version_suffix or "" if for_cpu else rocm_version.suffix(str(frozen.sdk_version))
    chosen = [f"git{project.commit[:8]}" for project in frozen.projects if project.name in frozen.off_line]
    return f"+{'.'.join((*chosen, *usual[1:].split()))}" if chosen else usual


def index_of(leg: Leg, channel: str) -> str:
    """Return the index of a channel for a leg's sets: its family's, if it names a known family or target."""
    names = (*targets.families(), *targets.known_targets())
    return f"{channel}/{leg.family}" if leg.family in names else channel


def open_run(  # noqa: PLR0913 - each narrows which night is meant
    store: Store,
    night: str,
    stack_folder: Path,
    *,
    line: str | None = None,
    release: str | None = None,
    trust: Trust | None = None,
    by_id: bool = False,
) -> NightRun:
    """Open a night, with its stack on the line that it was frozen for.

    Without `trust`, the keys of the store's root count; `by_id` is for what neither signs nor leads to it.

    Raises:
        UsageError: it is of a different stack, line or channel; or it is named by its id alone, and the store
            has a root.
    """
    if not by_id:
        night_names.refuse_unnamed(store, night)
    stack = stacks.load(stack_folder)
    plan = read(store, night, stack=stack.name, line=line, release=release)
    if release not in (None, plan.release):
        raise UsageError(f"the night {plan.night} goes to {plan.release}, and not to {release}")
    if line not in (None, plan.line):
        raise UsageError(f"the night {plan.night} is of the line {plan.line}", tip="leave --line out")
    if stack.name != plan.stack:
        raise UsageError(
            f"the night {plan.night} is of the stack {plan.stack}, and not of {stack.name}",
            tip="name that one with --stack",
        )
    root = None if trust else anchor.anchor(store)
    trust = root.root.trust() if root is not None else trust
    return NightRun(store=store, plan=plan, stack=stack.for_line(plan.line), trust=trust)


def create(
    store: Store, plan: NightPlan, manifest: Manifest, lists: Mapping[str, bytes] | None = None
) -> None:
    """Store a night with its lists of tests, by address; the plan last, so that a night with one is complete.

    Raises:
        StoreError: there is another night with that id, or another run begins one.
    """
    key, name = (keys.night_key(plan.night, part) for part in ("manifest.json", "night.json"))
    data, replaced = manifest.canonical(), None
    if not store.write_if(key, data, etag=None) and (left := store.read(key)).data != data:
        # Of a run that was killed: what no plan names is part of no night.
        if store.exists(name) or not store.write_if(key, data, etag=left.etag):
            raise StoreError(f"the night {plan.night} is begun by another run", tip="run it again")
        replaced = left.data
    for url, content in (lists or {}).items():
        write.create(store, keys.list_key(plan.night, plan.lists[url]), content)
    try:
        write.create(store, name, datafile.dumps(plan).encode())
    except StoreError:  # it was not killed, and was first
        first = find(store, plan.night)
        if replaced and first and first.manifest_sha256 == hashlib.sha256(replaced).hexdigest():
            store.write(key, replaced)
        raise


def find(store: Store, night: str) -> NightPlan | None:
    """Return the night with that id, or None.

    Raises:
        StoreError: it is not what an id with a digest (`NightPlan.sealed_id`) names, or there is none by now.
    """
    night, digest = night_names.taken_apart(night)
    key = keys.night_key(night_names.check_id(night), "night.json")
    try:
        data = store.read(key).data
    except MissingKeyError:
        if digest:
            raise _missing(store, night) from None
        return None
    plan = datafile.loads(data, NightPlan, name=f"{store.url}/{key}")
    if plan.night != night:
        raise StoreError(f"{store.url}/{key} is of the night {plan.night}", tip="restore it from a copy")
    if digest and plan.sealed_id != f"{night}@{digest}":
        raise StoreError(
            f"{store.url}/{key} was changed since it was frozen",
            tip="find out who did, and begin another night",
        )
    return plan


def read(
    store: Store,
    night: str,
    *,
    stack: str | None = None,
    line: str | None = None,
    release: str | None = None,
) -> NightPlan:
    """Return the night with that id; `latest` is the one that was frozen last.

    `stack`, `line` and `release` narrow `latest` down.

    Raises:
        StoreError: there is none; or `latest` is yet to come, by our clock.
    """
    if night == "latest":
        candidates = (
            plan
            for plan in every(store)
            if stack in (None, plan.stack) and line in (None, plan.line) and release in (None, plan.release)
        )
        newest = max(candidates, key=lambda plan: plan.frozen, default=None)
        if newest is None:
            which = "".join((f" of {line}" if line else "", f" to {release}" if release else ""))
            raise StoreError(f"{store.url} has no night{which}", tip="cairn ci night freeze begins one")
        if datetime.fromisoformat(newest.frozen) > datetime.now(UTC) + SKEW:
            raise StoreError(
                f"the latest night, {newest.night}, began at {newest.frozen}, which is yet to come",
                tip="name a night by its id; if the clock of this machine is wrong, set it",
            )
        return newest
    existing = find(store, night)
    if existing is None:
        raise _missing(store, night)
    return existing


def _missing(store: Store, night: str) -> StoreError:
    tip = "`cairn ci night list` shows which nights there are"
    return StoreError(f"{store.url} has no night {night}", tip=tip)


def every(store: Store) -> Iterator[NightPlan]:
    """Yield all nights of a store, by id; one that cannot be read is reported and skipped."""
    for night in store.folders(keys.NIGHTS):
        if night == keys.CLAIMS:
            continue
        try:
            plan = find(store, night)
        except (StoreError, UsageError) as error:
            console.current().warn(f"skipping the night {night}: {error}")
            continue
        if plan is not None:
            yield plan


def before(run: NightRun) -> list[NightPlan]:
    """Return the earlier nights of the same stack and line to the same channel, the latest first."""
    night = run.plan
    earlier = (
        plan
        for plan in every(run.store)
        if (plan.stack, plan.line, plan.release) == (night.stack, night.line, night.release)
        and plan.frozen < night.frozen
    )
    return sorted(earlier, key=lambda plan: plan.frozen, reverse=True)


def manifest_of(store: Store, plan: NightPlan) -> Manifest:
    """Return the manifest of a night.

    Raises:
        StoreError: it is not the one that the plan names.
    """
    key = keys.night_key(plan.night, "manifest.json")
    manifest = datafile.loads(store.read(key).data, Manifest, name=f"{store.url}/{key}")
    if manifest.digest() != plan.manifest_sha256:
        raise StoreError(f"{store.url}/{key} was changed", tip="freeze the night again, under another id")
    return manifest


def frozen(run: NightRun) -> Manifest:
    """Return the manifest of a night that a job works on.

    Raises:
        StoreError: it is not the one that the plan names.
        SourceError: the stack has moved on since the night was frozen.
    """
    manifest = manifest_of(run.store, run.plan)
    recipes.require(run.store, manifest.recipe, run.stack)
    return manifest


def step_note(  # noqa: PLR0913 - what a note says
    run: NightRun, leg: Leg | Build, stage: Stage, started: str, *, good: bool, reason: str, part: str = ""
) -> StepNote:
    """Make a note of how a job of a leg has just ended.

    Args:
        run: the night.
        leg: one of its legs, or one of its builds.
        stage: what the job is for.
        started: when it began, RFC 3339 in UTC.
        good: whether it succeeded.
        reason: see `StepNote`, as `part`.
        part: of the stage.
    """
    return StepNote(
        night=run.plan.night,
        leg=leg.id,
        stage=stage,
        attempt=github.attempt(),
        good=good,
        reason=reason,
        started=started,
        finished=now(),
        log=github.run_url(),
        part=part,
    )


def note(store: Store, step: StepNote) -> None:
    """Store how a job ended; the first note of one attempt of a run counts."""
    # A night that goes on does so in a different run, whose attempts begin at 1 again.
    part = f".{step.part}" if step.part else ""
    name = f"{step.leg}.{step.stage}{part}.{github.run_id()}.{step.attempt}"
    store.write_if(keys.night_key(step.night, f"steps/{name}.json"), datafile.dumps(step).encode(), etag=None)


def notes_of_parts(store: Store, plan: NightPlan, unread: list[str] | None = None) -> _Notes:
    """Return the latest note on each part of each stage of each leg; add to `unread` keys of nonsense."""
    last: _Notes = {}
    for item in store.list(keys.night_key(plan.night, "steps/")):
        try:
            step = datafile.loads(store.read(item.key).data, StepNote, name=item.key)
        except (UsageError, MissingKeyError):
            if unread is not None:
                unread.append(item.key)
        else:
            part = (step.leg, step.stage, step.part)
            last[part] = max(step, last.get(part, step), key=lambda note: (note.finished, note.attempt))
    return last


def by_stage(notes: Iterable[StepNote]) -> dict[tuple[str, Stage], StepNote]:
    """Return the latest of the notes on each stage of each leg; that of a failed part, if there is one."""
    # The good ones first, by time, so that the last bad one stays.
    ordered = sorted(notes, key=lambda each: (not each.good, each.finished, each.attempt))
    return {(step.leg, step.stage): step for step in ordered}


def set_of(index: Index, plan: NightPlan, leg: Leg) -> IndexSet | None:
    """Return a leg's set in an index: of the night's manifest, for its Python, platform and targets.

    A yanked set counts only if there is no other.

    Raises:
        StoreError: the index has several such sets.
    """
    of_night = (plan.manifest_sha256, plan.stack, plan.line)
    sets = [
        staged
        for staged in read_current(index).sets()
        if (staged.manifest_sha256, staged.stack, staged.line) == of_night
        and (staged.python, staged.platform, {*staged.targets})
        == (leg.python, leg.platform, {*targets_of(leg)})
    ]
    if len(valid := [staged for staged in sets if staged.yanked is None]) > 1:
        ids = ", ".join(wording.short_id(staged.set_id) for staged in valid)
        raise StoreError(
            f"{index.name} has {len(valid)} sets for {leg.name}: {ids}",
            tip="take off the one that is not meant: cairn release rollback "
            f"--index {index.name}; a yank would ban the wheels that they share",
        )
    return next(iter(valid or sets), None)
