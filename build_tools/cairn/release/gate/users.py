"""What a set does to those who use the last one of the index: whom it breaks, and where it is over budget."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from cairn.output import wording
from cairn.release import consumers
from cairn.release.gate.case import Case, Files
from cairn.release.index import keys
from cairn.release.index.generation import IndexSet
from cairn.release.index.snapshot import read_set
from cairn.release.publish.compatibility import Platform
from cairn.store import transfer
from cairn.wheels import budgets
from cairn.wheels.interface.read import read_interface
from cairn.wheels.verify.findings import Finding, FindingCode

_MEND = "mend it, or allow it by name, reason and expiry in the file that the gate's `allow` names"


def last_set(case: Case) -> IndexSet | None:
    """The last set of the target that is for the same place as the case's, and not yanked."""
    made = case.wheel_set
    same = [
        entry
        for entry in case.target.sets()
        if entry.yanked is None
        and (entry.stack, entry.line, entry.family) == (made.stack, made.line, made.family)
        and (entry.python, entry.platform) == (made.python, made.platform)
    ]
    return max(same, key=lambda entry: (entry.added, entry.set_id), default=None)


def findings(case: Case, files: Files) -> Iterator[tuple[Path, Finding]]:
    """The wheels of the set that are over budget or break a consumer, each with the finding.

    Raises:
        StoreError: the last set cannot be read.
        WheelError: a wheel of the set, or of the last one, cannot be read.
    """
    if not (case.stack.budgets or case.stack.consumers) or files.missing:
        return
    last = last_set(case)
    if last is None or last.set_id == case.wheel_set.id:
        yield from _over_budget(case, files, {})
        return
    before = {
        wheel.distribution: keys.file_key(wheel.sha256, wheel.file_name)
        for wheel in read_set(case.store, last.set_id).wheels
    }
    with transfer.as_files(case.store, before.values()) as paths:
        old = {name: paths[key] for name, key in before.items()}
        yield from _over_budget(case, files, old)
        yield from _broken(case, files, list(old.values()))


def _over_budget(case: Case, files: Files, old: Mapping[str, Path]) -> Iterator[tuple[Path, Finding]]:
    users = [consumer.name for consumer in case.stack.consumers]
    seconds = min((s for one in case.set_records.records if (s := one.record.import_seconds)), default=0.0)
    for wheel in case.wheel_set.wheels:
        project = case.project_of(wheel)
        budget = case.stack.budgets.get(project.name) if project else None
        if budget is None:
            continue
        path, before = files.paths[wheel.file_name], old.get(wheel.distribution)
        last = read_interface(before, python=False) if before else None
        read = read_interface(path, python=False)
        for name, text in budgets.over(budget, last, read, import_seconds=seconds):
            reason = f"{text} (consumers: {wording.some(users)})" if users else text
            yield path, Finding(code=FindingCode.OVER_BUDGET, member=name, reason=reason, fix=_MEND)


def _broken(case: Case, files: Files, old: Sequence[Path]) -> Iterator[tuple[Path, Finding]]:
    made, code = case.wheel_set, FindingCode.CONSUMER_BREAKS
    own = {wheel.distribution: files.paths[wheel.file_name] for wheel in made.wheels}
    judged = consumers.judge(
        case.stack.consumers,
        old,
        list(own.values()),
        place=Platform(python=made.python, tag=made.platform),
        store=case.store,
        family=made.family,
    )
    for name, why in judged.unknown.items():
        reason = f"whether {name} breaks is not known: {why}"
        yield next(iter(own.values())), Finding(code=code, member=name, reason=reason, fix=_MEND)
    for one in judged.breaks:
        yield own[one.provider], Finding(code=code, member=one.consumer, reason=str(one), fix=_MEND)
