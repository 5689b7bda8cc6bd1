"""`cairn release promote`: promote a set through the gate to a channel, and show each demand's result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn import converters
from cairn.cli import common_options as common
from cairn.cli import signing
from cairn.cli.answer import Answer, Piece
from cairn.cli.binder import command
from cairn.errors import UsageError
from cairn.options import option, repeated
from cairn.output import console
from cairn.output.wording import short_id

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
        completer=common.complete_indexes,
    )


@dataclass(frozen=True, kw_only=True)
class Promote(signing.AttestOptions, common.StoreOptions, common.StackOptions):
    """Options of `cairn release promote`.

    cairn release promote SET --stack pytorch --store ./store
    """

    set_id: str = common.set_argument()
    source: str = _index("the index that has it", "--from", "staging")
    target: str = _index("the index that is to have it", "--to", "release")
    record: tuple[Path, ...] = repeated(
        "a test record to add first (`cairn release record add`)", convert=converters.file
    )
    trust: tuple[str, ...] = signing.trust("whose signature each test record must have to count")
    bypass: str | None = option("promote without a test on hardware; WHO vouches for it", metavar="WHO")
    again: str | None = option(
        "promote what a rollback took off, or have the gate judge again what is there and nobody signed for; "
        "WHO says that it is right after all",
        metavar="WHO",
    )
    reason: str | None = option("with --bypass or --again: why; the pages and the log show it")
    python: Path | None = common.python(
        "to try the installation with", default="one of the set's Python, if it is here"
    )
    notify: str | None = option(
        "run this with the outcome as JSON on its standard input (default: `notify` of the stack)",
        metavar="COMMAND",
        convert=converters.nonempty,
    )


def _promote(request: Promote) -> Answer:
    from cairn.release import records
    from cairn.release.promote import Readmission, RefusedError, promote
    from cairn.release.publish import mirror_lock
    from cairn.release.weighing import Bypass

    if request.reason is not None and request.bypass is None and request.again is None:
        raise UsageError("--reason belongs to --bypass or --again", tip="say who vouches: --bypass WHO")
    reason = request.reason or ""
    readmission = Readmission(who=request.again, reason=reason) if request.again is not None else None
    bypass = Bypass(who=request.bypass, reason=reason) if request.bypass is not None else None
    stack = request.load_stack()
    store = request.open_existing_store()
    try:
        with console.current().stage(f"promote to {request.target}") as stage, request.attester() as attester:
            promotion = promote(
                store,
                common.set_id_of(request.set_id),
                stack=stack,
                source=request.source,
                target=request.target,
                records=[records.read_given(path) for path in request.record],
                bypass=bypass,
                readmission=readmission,
                mirror_lock=mirror_lock.of(stack),
                trust=signing.read_trust(request.trust, store=store),
                python=request.python,
                attester=attester,
                dry_run=request.dry_run,
                on_step=stage.update,
            )
    except RefusedError as error:
        _notify(error.report, request, stack)
        return Answer({"set": error.report.set_id, **plain_demands(error.report)}, error=error)
    if promotion.report is not None and not promotion.already_present:
        _notify(promotion.report, request, stack)
    return Answer(
        {
            "set": promotion.set_id,
            "added": promotion.added,
            "already": promotion.already,
            "dry_run": promotion.dry_run,
            **plain_demands(promotion.report),
            "untested_note": promotion.caveat,
            "standing": promotion.late_objections,
        },
        _text(promotion, request.target),
    )


def _notify(report: GateReport, request: Promote, stack: Stack) -> None:
    """Tell whom the request or the stack names; a dry run tells nobody."""
    import shlex

    from cairn.release.gate import judgement

    command = shlex.split(request.notify) if request.notify else stack.gate.notify
    if not command or request.dry_run:
        return
    folder = Path.cwd() if request.notify else Path(stack.folder)
    if problem := judgement.notify(command, report, folder=folder):
        console.current().warn(problem)


def _text(promotion: Promotion, target: str) -> Iterator[Piece]:
    if promotion.already_present:
        yield f"{target} has the set already"
    if promotion.report is not None:
        yield from demands(promotion.report, unchanged=promotion.already_present)
    elif promotion.caveat is not None:
        yield "bypassed", promotion.caveat
    for line in promotion.late_objections:
        yield "failed", f"since then: {line}"
    if promotion.already_present:
        return
    for name in promotion.added:
        yield f"{'would add' if promotion.dry_run else '+'} {name}"
    for name in promotion.already:
        yield f"= {name}"


def demands(report: GateReport, *, unchanged: bool = False) -> Iterator[Piece]:
    """Show every demand with its result and reason, then what the set was not tested on.

    Args:
        report: what the gate found.
        unchanged: it was asked when the set was promoted, and not again.
    """
    when = f"{report.judged[:10]} {report.judged[11:16]} UTC"
    when += " and not again" if unchanged else ""
    yield f"the gate on the set {short_id(report.set_id)}, asked {when}:"
    for demand in report.demands:
        yield _MARKS[demand.outcome], f"{demand.outcome:8} {demand.number}. {demand.name}: {demand.why}"
    weakened = (f"weak policy: {text}" for text in report.weakened)
    for note in (report.untested_note, *report.answered, *weakened):
        if note is not None:
            yield "bypassed", note


def plain_demands(report: GateReport | None) -> dict[str, object]:
    """Return the report of the gate as plain data, for programs."""
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
        "untested": report.untested,
        "answered": report.answered,
        "weakened": report.weakened,
        "size": report.size,
        "installed_with": report.installed_with,
    }


COMMANDS = {"promote": command(Promote, _promote, needs="release")}
