"""Promotion: a set goes to another channel whole or not at all, as the very bytes that were tested."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cairn import jsonfile
from cairn.errors import GateError, StoreError, UsageError
from cairn.release import gate, layout, rules
from cairn.release.channel import Channel, whole_id
from cairn.release.evidence import Bypass
from cairn.release.judgement import GateReport
from cairn.release.recover import recover
from cairn.release.stage import read_set
from cairn.release.state import StagedSet
from cairn.release.store import LocalStore
from cairn.release.transfer import GATE_FILE, Proof, transfer
from cairn.testing.record import TestRecord


@dataclass(frozen=True, kw_only=True)
class Promotion:
    """What a promotion did, or would do.

    Attributes:
        set_id: the set.
        added: the files that are new in the target, in the order of their pages.
        already: those that it had.
        report: the gate's judgement, also where it is of an earlier day; None where nobody kept that.
        untested: what the pages say of a set that was let in without a passed test, or None.
        kept: the set was there already, and nothing was done.
        dry_run: whether nothing was written.
    """

    set_id: str
    added: tuple[str, ...]
    already: tuple[str, ...]
    report: GateReport | None
    untested: str | None
    dry_run: bool
    kept: bool = False


def promote(  # noqa: PLR0913 - each is one independent piece of evidence or of the request
    store: LocalStore,
    set_id: str,
    *,
    source: str = "staging",
    target: str = "release",
    records: Sequence[TestRecord] = (),
    bypass: Bypass | None = None,
    python: Path | None = None,
    dry_run: bool = False,
    on_step: Callable[[str], None] = lambda _step: None,
) -> Promotion:
    """Bring a set and what it needs from `source` to `target`; for a set that is there already, do nothing.

    Args:
        store: where both channels live; the files stay where they are, since channels share them.
        set_id: the set; the beginning of its id will do.
        source: the channel that has it.
        target: the channel that is to have it.
        records: what was tested.
        bypass: a named person's word in place of a record.
        python: the interpreter that the gate installs with; None is ours.
        dry_run: judge and say what would be added, and write nothing.
        on_step: told what is being done.

    Raises:
        GateError: at least one demand does not hold, or `target` is of another family.
        StoreError: `source` has no such set.
        UsageError: several sets have an id that begins so, or both channels are the same.
    """
    if source == target:
        raise UsageError(f"the set is to go from {source} to {target}", tip="name another channel with --to")
    channel = Channel(store, target)
    set_id = whole_id(set_id, Channel(store, source).load(), channel.load())
    if not dry_run:
        for said in recover(store, target):
            on_step(said)
    there = channel.load()
    if set_id in there.state.sets:
        return _kept(store, target, there.set(set_id), dry_run=dry_run)
    rules.refuse_other_family(target, read_set(store, source, set_id))
    on_step("asking the gate")
    report = gate.check(
        store, set_id, source=source, target=target, records=records, bypass=bypass, python=python
    )
    if not report.holds:
        raise GateError(
            f"the set {set_id[:12]} may not go to {target}",
            reasons=report.reasons,
            tip="put right what is named above and promote again; nothing was changed",
        )
    on_step(f"writing {target}")
    proof = _proof(records, report)
    done = transfer(store, set_id, source=source, target=target, proof=proof, dry_run=dry_run)
    return Promotion(
        set_id=set_id,
        added=done.added,
        already=done.already,
        report=report,
        untested=proof.untested,
        dry_run=dry_run,
    )


def _kept(store: LocalStore, target: str, staged: StagedSet, *, dry_run: bool) -> Promotion:
    """What there is to say of a set that `target` has already."""
    return Promotion(
        set_id=staged.set_id,
        added=(),
        already=tuple(ref.filename for ref in staged.closure),
        report=_read_judgement(store, target, staged),
        untested=staged.untested,
        dry_run=dry_run,
        kept=True,
    )


def _proof(records: Sequence[TestRecord], report: GateReport) -> Proof:
    words = [report.untested_note, *(str(demand.bypass) for demand in report.bypassed)]
    return Proof(
        records=tuple(jsonfile.dumps(record).encode() for record in records),
        judgement=jsonfile.dumps(report).encode(),
        untested="; ".join(word for word in words if word) or None,
    )


def _read_judgement(store: LocalStore, target: str, staged: StagedSet) -> GateReport | None:
    """What the gate said when a set was let in.

    Raises:
        StoreError: the store has lost it, or it was changed.
    """
    if staged.judgement is None:
        return None
    key = layout.set_key(target, staged.set_id, GATE_FILE)
    data = store.read(key).data
    if hashlib.sha256(data).hexdigest() != staged.judgement:
        raise StoreError(f"{store.url}/{key} was changed", tip="restore it from a copy of the store")
    return jsonfile.loads(data, GateReport, name=f"{store.url}/{key}")
