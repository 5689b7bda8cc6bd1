"""`cairn release promote`: a set through the gate into a channel, and how every demand on it stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn import converters
from cairn.cli import completion, fields, signing
from cairn.cli.binder import command
from cairn.errors import UsageError
from cairn.options import option, repeated
from cairn.output import console

if TYPE_CHECKING:
    from cairn.release.gate.judgement import GateReport, Outcome
    from cairn.release.promote import Promotion
    from cairn.stack import Stack

_MARKS: Mapping[Outcome, console.Mark] = {"met": "done", "bypassed": "bypassed", "not met": "failed"}


def _index(text: str, flag: str, default: str) -> Any:
    return option(
        f"{text} (default: {default})",
        flag,
        default=default,
        metavar="INDEX",
        completer=completion.complete_indexes,
    )


@dataclass(frozen=True, kw_only=True)
class Promote(signing.AttestOptions, fields.StoreOptions, fields.StackOptions):
    """What `cairn release promote` is asked for.

    cairn release promote SET --stack external-builds/pytorch --store ./store
    """

    set_id: str = fields.set_argument()
    source: str = _index("the index that has it", "--from", "staging")
    target: str = _index("the index that is to have it", "--to", "release")
    record: tuple[Path, ...] = repeated(
        "a test record to add first (`cairn release record add`)", metavar="FILE", convert=converters.file
    )
    trust: tuple[str, ...] = signing.trust("whose signature each test record must have to count")
    bypass: str | None = option("promote without a passed record; WHO vouches for it", metavar="WHO")
    again: str | None = option(
        "promote what a rollback took off; WHO says that it is right after all", metavar="WHO"
    )
    reason: str | None = option("with --bypass or --again: why; the pages and the log show it")
    mirror_lock: Path | None = option(
        "what a mirror may hold, by hash (default: the stack's own mirror.lock.toml, where it has one)",
        metavar="FILE",
        convert=converters.file,
    )
    python: Path | None = fields.python(
        "to try the installation with", default="one of the set's Python, if it is here"
    )
    notify: str | None = option(
        "run this with the outcome as JSON on its standard input (default: `notify` of the stack)",
        metavar="COMMAND",
        convert=converters.nonempty,
    )
    json: bool = fields.json()


def _promote(request: Promote) -> int:
    from cairn.release import records
    from cairn.release.gate.evidence import Bypass
    from cairn.release.promote import Readmission, RefusedError, promote
    from cairn.release.publish import mirror_lock

    if request.reason is not None and request.bypass is None and request.again is None:
        raise UsageError("--reason belongs to --bypass or --again", tip="say who vouches: --bypass WHO")
    reason = request.reason or ""
    again = Readmission(who=request.again, reason=reason) if request.again is not None else None
    bypass = Bypass(who=request.bypass, reason=reason) if request.bypass is not None else None
    stack = request.load_stack()
    screen = console.current()
    try:
        with screen.stage(f"promote to {request.target}") as stage, request.attester() as attester:
            promotion = promote(
                request.open_existing_store(),
                fields.set_id_of(request.set_id),
                stack=stack,
                source=request.source,
                target=request.target,
                records=[records.read_given(path) for path in request.record],
                bypass=bypass,
                again=again,
                lock=mirror_lock.read(request.mirror_lock) if request.mirror_lock else mirror_lock.of(stack),
                trust=signing.read_trust(request.trust),
                python=request.python,
                attester=attester,
                dry_run=request.dry_run,
                on_step=stage.update,
            )
    except RefusedError as error:
        if request.json:
            screen.json({"set": error.report.set_id, **plain_demands(error.report)})
        _notify(error.report, request, stack)
        raise
    if request.json:
        screen.json(
            {
                "set": promotion.set_id,
                "added": list(promotion.added),
                "already": list(promotion.already),
                "dry_run": promotion.dry_run,
                **plain_demands(promotion.report),
                "untested_note": promotion.untested,
                "standing": list(promotion.standing),
            }
        )
    else:
        _show(promotion, request.target)
    if promotion.report is not None and not promotion.kept:
        _notify(promotion.report, request, stack)
    return 0


def _notify(report: GateReport, request: Promote, stack: Stack) -> None:
    """Tell whom the request or the stack names; a dry run tells nobody."""
    import shlex

    from cairn.release import notify

    command = shlex.split(request.notify) if request.notify else stack.gate.notify
    if not command or request.dry_run:
        return
    folder = Path.cwd() if request.notify else Path(stack.folder)
    if problem := notify.send(command, notify.notice(report), folder=folder):
        console.current().warn(problem)


def _show(promotion: Promotion, target: str) -> None:
    screen = console.current()
    if promotion.kept:
        screen.out(f"{target} has the set already")
    if promotion.report is not None:
        show_demands(promotion.report, unchanged=promotion.kept)
    elif promotion.untested is not None:
        screen.item("bypassed", promotion.untested)
    for line in promotion.standing:
        screen.item("failed", f"since then: {line}")
    if promotion.kept:
        return
    for name in promotion.added:
        screen.out(f"{'would add' if promotion.dry_run else '+'} {name}")
    for name in promotion.already:
        screen.out(f"= {name}")


def show_demands(report: GateReport, *, unchanged: bool = False) -> None:
    """Every demand with how it stands and why, then what the set was not tested on.

    Args:
        report: what the gate found.
        unchanged: it was asked when the set was promoted, and not again.
    """
    screen = console.current()
    when = f"{report.judged[:10]} {report.judged[11:16]} UTC"
    screen.out(
        f"the gate on the set {report.set_id[:12]}, asked {when}{' and not again' if unchanged else ''}:"
    )
    for demand in report.demands:
        text = f"{demand.outcome:8} {demand.number}. {demand.name}: {demand.why}"
        screen.item(_MARKS[demand.outcome], text)
    weakened = (f"weak policy: {text}" for text in report.weakened)
    for note in (report.untested_note, *report.answered, *weakened):
        if note is not None:
            screen.item("bypassed", note)


def plain_demands(report: GateReport | None) -> dict[str, object]:
    """What the gate found, for programs to read."""
    if report is None:
        return {"demands": [], "untested": []}
    return {
        "demands": [
            {
                "number": d.number,
                "name": d.name,
                "outcome": d.outcome,
                "holds": d.holds,
                "bypassed": d.bypassed,
                "reason": d.why,
            }
            for d in report.demands
        ],
        "untested": list(report.untested),
        "answered": list(report.answered),
        "weakened": list(report.weakened),
        "size": report.size,
        "installed_with": list(report.installed_with),
    }


COMMANDS = {"promote": command(Promote, _promote)}
