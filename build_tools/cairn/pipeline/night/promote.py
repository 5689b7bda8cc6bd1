"""Promote a night: each leg by itself goes through the gate, judged by objects in the store alone."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import TypeAlias

import msgspec
from msgspec import structs

from cairn.errors import CairnError, GateError, StoreError, UsageError
from cairn.output import Progress, silent
from cairn.pipeline.night import plan, shards, standing
from cairn.pipeline.night.plan import NightRun
from cairn.pipeline.night.standing import Listing, Standing
from cairn.release import promote
from cairn.release.gate.judgement import GateReport
from cairn.release.index import keys
from cairn.release.index.generation import now
from cairn.release.index.reading import read_current
from cairn.release.index.snapshot import Index
from cairn.release.publish import mirror_lock


class LegPromotion(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of promoting a leg.

    Attributes:
        before: its state before.
        promoted: its set is in an index that users install from, or would be after a dry run: in that of the
            night's channel, or in `untested`, where it may not replace what was tested.
        reason: why it is not, or what the pages say of it.
        report: what the gate found; None where it was not asked.
        listing: where the promoted set is; None after a dry run.
    """

    before: Standing
    promoted: bool
    reason: str
    report: GateReport | None = None
    listing: Listing | None = None

    @property
    def refused(self) -> bool:
        """Whether the gate refused the leg, or could not judge it."""
        return self.before.state in ("ready", "unclear") and not self.promoted


Promotions: TypeAlias = tuple[tuple[LegPromotion, ...], tuple[str, ...]]
"""Each leg that was expected; then, where all legs were asked for, the ids of staged sets of the night's
manifest that no leg expects: they are not promoted."""


def promote_night(run: NightRun, *, whole: bool = False, say: Progress = silent) -> Promotions:
    """Promote every leg that is ready to the night's channel.

    It can be called repeatedly, at any time: a leg whose tests still run, or wait for a runner, is promoted
    the next time. Nothing is promoted in place of an expected set that is missing.

    Args:
        run: the night.
        whole: promote nothing unless each leg is there or ready and the gate lets it through. What could not
            become ready is left aside: a leg that is held back, or is expected to fail.
        say: progress callback.

    Raises:
        GateError: nothing is expected of the night, or it is not `whole`.
        StoreError: the manifest of the night was changed.
        SourceError: the stack has moved on since the night was frozen.
    """
    night = run.plan
    if not night.legs:
        raise GateError(f"the night {night.night} expects nothing, so nothing of it may be promoted")
    plan.frozen(run)
    # What is there is compared with what was expected before the first leg moves.
    stood = [standing.look(run, leg) for leg in run.legs]
    if whole:
        _refuse_a_part(run, stood, say)
    strangers = () if run.only else _strangers(run, stood)
    legs = []
    for before in stood:
        say(before.leg.name)
        started = now()
        result = _promote_leg(run, before)
        if before.state == "ready" and not run.dry_run:
            plan.note(
                run.store,
                plan.step_note(
                    run, before.leg, "promote", started, good=result.promoted, reason=result.reason
                ),
            )
        if result.promoted and not run.dry_run:
            with contextlib.suppress(StoreError):  # several sets of it in `untested`: the others go on
                result = structs.replace(result, listing=standing.promoted_in(run, before.leg))
        legs.append(result)
    return tuple(legs), strangers


def release_night(run: NightRun, channel: str, *, say: Progress = silent) -> Promotions:
    """Promote what a night brought to its channel into another one: the tested bytes, every leg or none.

    Args:
        run: the night.
        channel: where its sets go.
        say: progress callback.

    Raises:
        UsageError: the night goes there by itself.
        GateError: a leg is not in the night's channel, or the gate refuses one: nothing was promoted.
    """
    night = run.plan
    if channel == night.release:
        raise UsageError(
            f"the night {night.night} goes to {channel} by itself", tip="name a different channel with --to"
        )
    moved = structs.replace(night, staging=night.release, release=channel)
    return promote_night(dataclasses.replace(run, plan=moved), whole=True, say=say)


def _refuse_a_part(run: NightRun, stood: Sequence[Standing], say: Progress) -> None:
    """Refuse a night that would be promoted only in part, before the first leg is promoted."""
    trial = dataclasses.replace(run, dry_run=True)
    behind = [
        (leg_standing, leg_standing.reason)
        for leg_standing in stood
        if not leg_standing.leg.expect_failure and leg_standing.state not in ("promoted", "ready", "held")
        # A leg that stays in staging is not in the channel that a night is released from.
        if not (leg_standing.state == "missing" and leg_standing.leg.ends == "staged")
    ]
    for before in () if behind else stood:
        say(f"{before.leg.name}: asking the gate")
        # What users of the channel do not get holds up nothing of it.
        if (judged := _promote_leg(trial, before)).refused and before.channel is None:
            behind.append((before, judged.reason))
    if behind:
        raise GateError(
            f"{len(behind)} of {len(stood)} legs are not ready: {run.plan.night} goes whole or not at all",
            reasons=tuple(f"{leg.leg.name}: {reason}" for leg, reason in behind),
            tip="fix what is named and run the failed jobs again; nothing was promoted",
        )


def _promote_leg(run: NightRun, before: Standing) -> LegPromotion:
    if before.state != "ready" or before.set_id is None:
        promoted = before.state == "promoted"
        return LegPromotion(before=before, promoted=promoted, reason=before.caveat or before.reason)
    channel = before.channel or run.plan.release
    try:
        try:
            promotion = _promote(run, before, before.set_id, channel)
        except promote.RefusedError as error:
            if not (error.report.replaced and before.bypass and channel != keys.UNTESTED):
                raise
            channel = keys.UNTESTED
            promotion = _promote(run, before, before.set_id, channel)
    except promote.RefusedError as error:
        reason = "; ".join(error.reasons)
        return LegPromotion(before=before, promoted=False, reason=reason, report=error.report)
    except (CairnError, OSError) as error:  # one leg does not hold up the others
        return LegPromotion(before=before, promoted=False, reason=str(error))
    weakened = promotion.report.weakened if promotion.report is not None else ()
    weak = [f"weak policy: {text}" for text in weakened]
    summary = "; ".join((promotion.caveat or "every demand holds", *weak))
    if channel != run.plan.release:
        usual, instead = (plan.index_of(before.leg, name) for name in (run.plan.release, channel))
        why = "" if before.channel else f", since {usual} has a set that was tested"
        summary = f"in {instead}{why}; {summary}"
    return LegPromotion(before=before, promoted=True, reason=summary, report=promotion.report)


def _promote(run: NightRun, before: Standing, set_id: str, channel: str) -> promote.Promotion:
    return promote.promote(
        run.store,
        set_id,
        stack=shards.demanding(run.stack, before.leg),
        source=plan.index_of(before.leg, run.plan.staging),
        target=plan.index_of(before.leg, channel),
        bypass=before.bypass,
        mirror_lock=mirror_lock.of(run.stack),
        trust=run.trust,
        attester=run.attester,
        dry_run=run.dry_run,
    )


def _strangers(run: NightRun, stood: Sequence[Standing]) -> tuple[str, ...]:
    """Return the staged sets of the night's manifest that are not expected."""
    # Of a leg that is not clear, it is ambiguous which of its sets is meant.
    clear = [leg_standing for leg_standing in stood if leg_standing.state != "unclear"]
    expected = {leg_standing.set_id for leg_standing in stood}
    staged = {
        entry.set_id
        for name in dict.fromkeys(plan.index_of(leg_standing.leg, run.plan.staging) for leg_standing in clear)
        for entry in read_current(Index(run.store, name)).sets()
        if entry.manifest_sha256 == run.plan.manifest_sha256 and entry.yanked is None
    }
    return tuple(sorted(staged - expected))
