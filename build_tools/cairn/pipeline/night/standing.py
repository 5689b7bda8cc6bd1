"""The state of a leg according to the store, which decides what is left to do and what is promoted.

Neither the output of a job nor its exit code counts here, so editing artifacts, cancelling a job or
continuing a workflow after a failure does not change it.
"""

from __future__ import annotations

import contextlib
from typing import Literal

import msgspec
from msgspec import structs

from cairn.errors import StoreError
from cairn.matrix.legs import Leg
from cairn.output import wording
from cairn.pipeline.night import plan, shards
from cairn.pipeline.night.plan import NightRun
from cairn.release import records
from cairn.release.gate import gate
from cairn.release.gate.case import Case
from cairn.release.index import keys
from cairn.release.index.generation import IndexSet
from cairn.release.index.reading import read_current
from cairn.release.index.snapshot import read_set
from cairn.release.weighing import Bypass, Evidence

State = Literal["missing", "untested", "failed", "ready", "held", "promoted", "yanked", "unclear"]


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a leg.

    Attributes:
        leg: which.
        state: `missing` has no staged set, `untested` lacks records of tests, `failed` has some against it,
            `ready` may go to the gate, `held` stays in staging by the matrix or in `untested`, `promoted` is
            in the index, `yanked` was taken back, `unclear` is what the store does not answer.
        reason: why it is not further, in one sentence; empty for one that is promoted.
        set_id: its set; None while it is missing.
        bypass: the matrix's word in place of a test on hardware, where it is needed and counts.
        caveat: what the pages say of a promoted set that was not tested on everything, or was judged by a
            weak policy, or None.
        is_tested: whether a promoted set was tested on all its targets.
    """

    leg: Leg
    state: State
    reason: str = ""
    set_id: str | None = None
    bypass: Bypass | None = None
    caveat: str | None = None
    is_tested: bool = True

    @property
    def channel(self) -> str | None:
        """The channel that a ready set goes to, if it is not the night's.

        Without a runner, users of the night's channel would get what nobody will ever test: the matrix must
        say so (`bypass_tests`) for each family to which that may happen.
        """
        return keys.UNTESTED if self.bypass is not None and not self.leg.bypass_tests else None


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """The set of a leg in an index.

    Attributes:
        set_id: its id.
        index: the name of the index.
        generation: the number of the index's current generation.
    """

    set_id: str
    index: str
    generation: int

    def __str__(self) -> str:
        return f"set {wording.short_id(self.set_id)} in {self.index}, generation {self.generation}"


def staged_in(run: NightRun, leg: Leg) -> Listing | None:
    """Return where the set of a leg is staged; None where it is not.

    Raises:
        StoreError: the index has several sets of the leg.
    """
    return _listing(run, leg, run.plan.staging)


def promoted_in(run: NightRun, leg: Leg) -> Listing | None:
    """Return where the set of a leg went: the channel of an open night is its staging.

    Raises:
        StoreError: the index has several sets of the leg.
    """
    if run.plan.is_open:
        return staged_in(run, leg)
    return _listing(run, leg, run.plan.release) or _listing(run, leg, keys.UNTESTED)


def _listing(run: NightRun, leg: Leg, channel: str) -> Listing | None:
    index = run.index(leg, channel)
    entry = plan.set_of(index, run.plan, leg)
    if entry is None or entry.yanked is not None:
        return None
    return Listing(set_id=entry.set_id, index=index.name, generation=read_current(index).generation.number)


def made(run: NightRun, leg: Leg) -> dict[str, object]:
    """Return what the steps of a leg made, plain: where its set is, and its test records by digest.

    Nothing of an index that cannot be read: `look` names the reason.
    """
    with contextlib.suppress(StoreError):
        staged, promoted = staged_in(run, leg), promoted_in(run, leg)
        if place := staged or promoted:
            digests = [
                record.digest for record in records.read(run.store, place.set_id, trust=run.trust).records
            ]
            return {
                "staged": staged and structs.asdict(staged),
                "promoted": promoted and structs.asdict(promoted),
                "records": digests,
            }
    return {"staged": None, "promoted": None, "records": []}


def look(run: NightRun, leg: Leg) -> Standing:
    """Return the current state of a leg; one that cannot be determined is `unclear`, and raises no error."""
    try:
        return _look(run, leg)
    except StoreError as error:  # an index or a set is damaged, or there are several sets for the leg
        return Standing(leg=leg, state="unclear", reason=str(error))


def _when_unstaged(run: NightRun, leg: Leg) -> Standing:
    # A night is released from its channel, which a set that no GPU tested may have missed.
    untested = plan.set_of(run.index(leg, keys.UNTESTED), run.plan, leg)
    if untested is not None and untested.yanked is None:
        where = plan.index_of(leg, keys.UNTESTED)
        reason = f"stays in {where}: {untested.caveat}"
        return Standing(leg=leg, state="held", reason=reason, set_id=untested.set_id, is_tested=False)
    return Standing(leg=leg, state="missing", reason="no set of it was staged")


def _look(run: NightRun, leg: Leg) -> Standing:
    night = run.plan
    promoted = None if night.is_open else plan.set_of(run.index(leg, night.release), night, leg)
    if promoted is not None:
        return _promoted(leg, promoted)
    staged = plan.set_of(run.index(leg, night.staging), night, leg)
    if staged is None:
        return _when_unstaged(run, leg)
    if staged.yanked is not None:
        return _when_yanked(leg, staged)
    wheel_set = read_set(run.store, staged.set_id)
    if wheel_set.manifest_sha256 != night.manifest_sha256:  # nobody signs what staging lists
        text = f"{night.staging} lists the set {wording.short_id(staged.set_id)} as of this night"
        raise StoreError(f"{text}, and it is of another manifest", tip="find out who listed it")
    case = Case(
        source=read_current(run.index(leg, night.staging)),
        target=read_current(run.index(leg, night.release)),
        wheel_set=wheel_set,
        stack=shards.demanding(run.stack, leg),
        set_records=records.read(run.store, staged.set_id, trust=run.trust),
    )
    evidence = gate.weigh(case)
    state, reason, bypass = _weigh(leg, evidence)
    if night.is_open and state in ("ready", "held"):  # it is where it goes
        is_tested = not (evidence.missing or evidence.host_missing)
        caveat = None if is_tested else bypass.reason if bypass else reason
        return Standing(leg=leg, state="promoted", set_id=staged.set_id, caveat=caveat, is_tested=is_tested)
    if state == "ready" and bypass is not None:
        # Such a set may not replace one of the night's channel that was tested.
        elsewhere = plan.set_of(run.index(leg, keys.UNTESTED), night, leg)
        if elsewhere is not None and elsewhere.yanked is None and elsewhere.set_id == staged.set_id:
            return _promoted(leg, elsewhere, f"in {plan.index_of(leg, keys.UNTESTED)}: ")
    return Standing(leg=leg, state=state, reason=reason, set_id=staged.set_id, bypass=bypass)


def _promoted(leg: Leg, entry: IndexSet, where: str = "") -> Standing:
    if entry.yanked is not None:
        return _when_yanked(leg, entry)
    return Standing(
        leg=leg,
        state="promoted",
        set_id=entry.set_id,
        caveat=f"{where}{entry.caveat}" if entry.caveat else None,
        is_tested=not entry.untested_targets,  # `untested` tells of failures that were answered, too
    )


def _when_yanked(leg: Leg, entry: IndexSet) -> Standing:
    return Standing(leg=leg, state="yanked", reason=f"yanked: {entry.yanked}", set_id=entry.set_id)


def _weigh(leg: Leg, evidence: Evidence) -> tuple[State, str, Bypass | None]:
    if evidence.open_failures:
        return "failed", "; ".join(evidence.open_failures), None
    bypass = None
    if evidence.host_missing and not leg.smoke_runs_on:
        name = f"platforms.{leg.platform}.host_test"
        return "held", f"no machine tests {leg.platform}: name one in the matrix.toml, {name}", None
    if missing := dict.fromkeys((*evidence.missing, *evidence.host_missing)):
        # The matrix vouches for hardware that nobody has, and for nothing else. Where there is a runner, its
        # tests must have passed all the same: a job that was killed is not a runner without a GPU.
        if evidence.host_missing or (leg.test_runs_on and not (leg.bypass_tests and evidence.ran)):
            return "untested", "; ".join(missing), None
        reason = "no GPU was used for its tests" if leg.test_runs_on else "no runner has its hardware"
        bypass = Bypass(who="matrix.toml", reason=reason)
    if not leg.push_on_success:
        return "held", "the matrix does not promote it: push_on_success is false", bypass
    return "ready", "tested, and waiting for the gate", bypass
