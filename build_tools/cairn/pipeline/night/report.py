"""Report how nights ended: on the status pages, in the summary of a run, and to monitoring."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from msgspec import structs

from cairn import datafile, process, templates
from cairn.errors import CairnError, GateError, StoreError, UsageError
from cairn.matrix.legs import Leg
from cairn.output import console, github, safe_text, wording
from cairn.pipeline.night import hanging, plan, standing
from cairn.pipeline.night.plan import STAGES, NightPlan, NightRun, Stage, StepNote
from cairn.pipeline.night.standing import Standing
from cairn.release import records
from cairn.release.index import keys, people
from cairn.release.index.generation import encode, now
from cairn.release.pages import night_history, nights
from cairn.release.pages.night_history import History, LegName, PastNight
from cairn.release.pages.trends import Point, Trends, leg_of
from cairn.release.pages.view import Night, Outcome, troubles
from cairn.stack import Stack
from cairn.store.protocol import Store, StoredObject, attempts_at, read_or_none, replace

V = TypeVar("V", bound=datafile.Value)

_ORDER: tuple[Outcome, ...] = ("failed", "cancelled", "expected", "held", "untested", "good")
_ENDED_AS = {"failure": "failed", "cancelled": "was cancelled"}  # in the words of GitHub's
_NO_RESULTS: Mapping[str, str] = {}
# Where a leg that stands so has ended, if no job has said anything of itself.
_ENDED: Mapping[standing.State, Stage] = {
    "missing": "build",
    "untested": "test",
    "failed": "test",
    "ready": "promote",
    "held": "promote",
    "yanked": "promote",
    "unclear": "stage",
}


def of_night(run: NightRun, results: Mapping[str, str] = _NO_RESULTS) -> tuple[Night, ...]:
    """Return how each leg ended, in the order of the plan.

    Args:
        run: the night.
        results: how each job of the run ended, as GitHub has it: one that failed before it came to a leg left
            no note of that.
    """
    parts, moment = plan.notes_of_parts(run.store, run.plan), now()
    notes = plan.by_stage(parts.values())
    ended = []
    for leg in run.plan.legs:
        key = keys.status_key(plan.index_of(leg, run.plan.release), leg.id)
        previous = _readable(run.store, key, Night)
        shown = _of_leg(run.plan, standing.look(run, leg), notes, moment, results)
        minutes, machine = _minutes(run.plan, leg, [note for note in parts.values() if note.leg == leg.id])
        staged = notes.get((leg.id, "stage"))
        measures = dict(staged.measures) if staged is not None else {}
        if shown.set_id:
            measures |= _measures(run, notes, leg, shown.set_id)
        shown = structs.replace(shown, minutes=minutes, machine_minutes=machine, measures=measures)
        ended.append(shown.after(previous))
    return tuple(ended)


def _minutes(night: NightPlan, leg: Leg, notes: Sequence[StepNote]) -> tuple[int | None, int | None]:
    """Return how long after the beginning of a night a leg ended, and how long machines worked on it.

    A machine that leaves no note, such as one that was killed, is not counted. A build for several legs
    counts for each of them with its share.
    """
    if not notes:
        return None, None
    sharing = sum(sibling.build_id == leg.build_id for sibling in night.legs)
    seconds = 0.0
    for note in notes:
        took = datetime.fromisoformat(note.finished) - datetime.fromisoformat(note.started)
        seconds += took.total_seconds() / (sharing if note.stage == "build" else 1)
    last = max(datetime.fromisoformat(note.finished) for note in notes)
    elapsed = last - datetime.fromisoformat(night.frozen)
    return max(0, round(elapsed.total_seconds() / 60)), max(0, round(seconds / 60))


def _measures(
    run: NightRun, notes: Mapping[tuple[str, Stage], StepNote], leg: Leg, set_id: str
) -> dict[str, float]:
    """Collect what the build of a leg that came through measured, and its test records."""
    built, measures = notes.get((leg.id, "build")), dict[str, float]()
    if built is not None and built.good:
        took = datetime.fromisoformat(built.finished) - datetime.fromisoformat(built.started)
        measures["build_minutes"] = round(took.total_seconds() / 60, 1)
    # Of several records of one kind the last counts, as for the gate.
    every = (entry.record for entry in records.read(run.store, set_id, trust=run.trust).records)
    in_order = sorted(every, key=lambda test_record: test_record.began)
    last = {(test_record.kind, test_record.config): test_record for test_record in in_order}
    if last:
        measures["passed_tests"] = sum(test_record.counts.passed for test_record in last.values())
    if seconds := [test_record.import_seconds for test_record in last.values() if test_record.import_seconds]:
        measures["import_seconds"] = min(seconds)
    return measures


def _of_leg(
    night: NightPlan,
    stands: Standing,
    notes: Mapping[tuple[str, Stage], StepNote],
    moment: str,
    results: Mapping[str, str],
) -> Night:
    leg = stands.leg
    last = [notes[leg.id, stage] for stage in STAGES if (leg.id, stage) in notes]
    log = next((note.log for note in reversed(last) if note.log), night.log)
    shown = Night(
        line=leg.line,
        family=leg.family,
        python=leg.python,
        platform=leg.platform,
        started=night.frozen,
        finished=moment,
        outcome="good",
        set_id=stands.set_id,
        log=log,
        night=night.night,
    )
    if stands.state == "promoted":
        outcome: Outcome = "good" if stands.is_tested else "untested"
        return structs.replace(shown, outcome=outcome, reason=stands.caveat)
    stage, reason, reported = _why(stands, notes, results)
    if stands.state == "held":
        outcome = "held"
    elif leg.expect_failure:
        outcome, reason = "expected", f"{reason} (expected {leg.known_failure or 'by the matrix'})"
    else:
        outcome = "cancelled" if "cancelled" in results.values() and not reported else "failed"
        if leg.known_failure:
            reason = f"{reason} (was expected {leg.known_failure})"
    return structs.replace(shown, outcome=outcome, stage=stage, reason=reason, set_id=None)


def _why(
    stands: Standing, notes: Mapping[tuple[str, Stage], StepNote], results: Mapping[str, str]
) -> tuple[Stage, str, bool]:
    """Return the stage at which a leg ended, why, and whether a note of a job says so."""
    leg, stage = stands.leg, _ENDED[stands.state]
    failed = [n for s in STAGES if (n := notes.get((leg.id, s))) is not None and not n.good]
    # Records and sets of earlier nights may have brought the leg beyond what failed then.
    relevant = [n for n in failed if STAGES.index(n.stage) >= STAGES.index(stage)]
    if relevant:
        return relevant[0].stage, relevant[0].reason, True
    job: Stage = "stage" if stands.state == "missing" and results.get("build") == "success" else stage
    if job in ("stage", "promote") and (how := _ENDED_AS.get(results.get(job, ""))):
        reason = f"the job {job} {how} before it came to this: run the failed jobs again"
        return job, reason, results[job] == "failure"
    if stands.state == "missing":
        return stage, "its build left nothing: it failed before it began, or was ended", False
    if stands.state == "untested" and leg.smoke_runs_on and (leg.id, "test") not in notes:
        labels = ", ".join(leg.smoke_runs_on)
        return (
            stage,
            f"its tests left no record: no runner ({labels}) took the job yet, or it was ended",
            False,
        )
    return stage, stands.reason, stands.state in ("failed", "untested", "unclear")


def record(store: Store, night: NightPlan, ended: Sequence[Night]) -> tuple[str, ...]:
    """Write the outcome of a night to the status pages; a leg's status from a later night is kept.

    What earlier nights have left and this Cairn cannot read, such as a newer one's history, stays as it is.

    Returns:
        Why pages of an index could not be written, a sentence each; the other pages were written.
    """
    indexes: dict[str, None] = {}
    problems: list[str] = []
    for leg, shown in zip(night.legs, ended, strict=True):
        index = plan.index_of(leg, night.release)
        indexes[index] = None
        with _unreadable_is_a_problem(f"the status of {leg.name} was", problems):
            _write(store, keys.status_key(index, leg.id), shown)
    for index in indexes:
        try:
            with _unreadable_is_a_problem(f"what the night measured of {index} was", problems):
                _write_trends(store, night, index, ended)
            for _ in attempts_at(f"the pages of {index}"):
                if people.write(store, index):
                    break
        except StoreError as error:
            problems.append(f"the pages of {index} were not written: {error}")
    subject = f"the page of the last nights of {night.release} was"
    try:
        with _unreadable_is_a_problem(subject, problems):
            _write_history(store, night, ended)
    except StoreError as error:
        problems.append(f"{subject} not written: {error}")
    return tuple(problems)


@contextlib.contextmanager
def _unreadable_is_a_problem(subject: str, problems: list[str]) -> Iterator[None]:
    try:
        yield
    except UsageError as error:
        problems.append(
            f"{subject} not written: {error}; it stays as it is: "
            "report the night again with the Cairn that wrote it, or move it away"
        )


def _write_trends(store: Store, night: NightPlan, index: str, ended: Sequence[Night]) -> None:
    key = keys.trends_key(index)
    for _ in attempts_at(key):
        old = read_or_none(store, key)
        trends = read_page(old, Trends, key) or Trends(index=index)
        for leg, result in zip(night.legs, ended, strict=True):
            if result.measures and result.set_id and plan.index_of(leg, night.release) == index:
                point = Point(
                    night=night.night, started=result.started, set_id=result.set_id, values=result.measures
                )
                trends = trends.plus(
                    leg_of(result.line, result.family, result.python, result.platform), point
                )
        if not trends.legs or replace(store, key, old, encode(trends)):
            return


def _write_history(store: Store, night: NightPlan, ended: Sequence[Night]) -> None:
    past = PastNight(
        night=night.night,
        stack=night.stack,
        line=night.line,
        started=night.frozen,
        finished=max((result.finished for result in ended), default=night.frozen),
        manifest_sha256=night.manifest_sha256,
        log=night.log,
        legs={
            leg.id: night_history.leg_end(result, log=night.log)
            for leg, result in zip(night.legs, ended, strict=True)
        },
        refs=night.refs,
    )
    names = {
        leg.id: LegName(line=leg.line, family=leg.family, python=leg.python, platform=leg.platform)
        for leg in night.legs
    }
    add_to_history(store, night.release, past, names)


def record_not_frozen(store: Store, night: str, *, stack: Stack, channel: str) -> None:
    """Add a night that could not be frozen to the history of the channel that it was for."""
    moment = now()
    past = PastNight(
        night=night,
        stack=stack.name,
        line=stack.line,
        started=moment,
        finished=moment,
        manifest_sha256="",
        log=github.run_url(),
        legs={},
    )
    add_to_history(store, channel, past, {})


def add_to_history(store: Store, channel: str, past: PastNight, names: Mapping[str, LegName]) -> None:
    """Add a night to the history of its channel, and write the page and the feed of that.

    These are two reads and three writes for a night of any number of legs, and what the page reads of the
    indexes.

    Raises:
        UsageError: the history cannot be read, and was not changed.
    """
    key = keys.nights_key(channel, "json")
    for _ in attempts_at(key):
        old = read_or_none(store, key)
        history = (read_page(old, History, key) or History(channel=channel)).plus(past, names)
        if replace(store, key, old, encode(history)):
            break
    while True:
        people.write_nights(store, history)
        # A writer that came between has added its night, and perhaps written the page before this one did.
        newest = read_page(read_or_none(store, key), History, key)
        if newest is None or newest == history:
            return
        history = newest


def history_of(store: Store, channel: str) -> History:
    """Return the last nights of a channel; empty where none was reported, or none can be read."""
    return _readable(store, keys.nights_key(channel, "json"), History) or History(channel=channel)


def _write(store: Store, key: str, shown: Night) -> None:
    """Write how a night ended, unless a later night's status is there."""
    for _ in attempts_at(key):
        old = read_or_none(store, key)
        previous = read_page(old, Night, key)
        if previous is not None and previous.started > shown.started:
            return
        if replace(store, key, old, datafile.dumps(shown.after(previous)).encode()):
            return


def read_page(page: StoredObject | None, kind: type[V], key: str) -> V | None:
    """Return what a page holds, which may be written over; None if there is no page.

    Raises:
        UsageError: it cannot be read, such as that of a newer Cairn.
    """
    return datafile.loads(page.data, kind, name=key) if page is not None else None


def _readable(store: Store, key: str, kind: type[V]) -> V | None:
    """Return what a page holds, to show it only; None if there is none that can be read."""
    try:
        return read_page(read_or_none(store, key), kind, key)
    except UsageError as error:
        console.current().warn(f"not counted in: {error}")
        return None


def reported(
    run: NightRun, results: Mapping[str, str] = _NO_RESULTS, *, notify: str = ""
) -> tuple[dict[str, Any], tuple[Night, ...], CairnError | None]:
    """Report a night: on the status pages, in the summary of the run, and to a command where it was not good.

    Args:
        run: the night.
        results: see `of_night`.
        notify: a command that gets the report as JSON on its standard input; empty for none.

    Returns:
        The report for programs; how each leg ended; and an error where a leg did not come through, or a page
        was not written.
    """
    ended = of_night(run, results)
    unwritten = () if run.dry_run else record(run.store, run.plan, ended)
    gpus = hanging.sentences(run.store, run.plan.night)
    github.add_summary(markdown(run.plan, ended, gpus, history_of(run.store, run.plan.release)))
    plain: dict[str, Any] = {
        "schema": "cairn.night-report/1",
        "night": run.plan.night,
        "line": run.plan.line,
        "log": run.plan.log,
        "counts": counts(ended),
        "problems": sentences(ended),
        "hanging": gpus,
        "legs": [
            {**datafile.to_plain(shown), "made": standing.made(run, leg)}
            for leg, shown in zip(run.plan.legs, ended, strict=True)
        ],
    }
    for problem in unwritten:
        console.current().warn(problem)
    error: CairnError | None = None
    if bad := bad_legs(run.plan, ended):
        error = GateError(
            f"{len(bad)} of {len(ended)} legs of the night {run.plan.night} did not come through",
            reasons=sentences(ended, only_bad=True),
            tip="run the failed jobs again: what is done stays done",
        )
    elif unwritten:
        error = StoreError("; ".join(unwritten), tip="see what is wrong with it: cairn index check")
    if error is not None and not run.dry_run:
        tell(notify, plain)
    return plain, ended, error


def tell(command: str, plain: Mapping[str, object]) -> None:
    """Give a report to a command, if there is one; that it fails does not affect the night."""
    if not command:
        return
    try:
        stdin = json.dumps(plain).encode()
        process.run(shlex.split(command), stdin=stdin, timeout=60, confined=False)
    except (CairnError, OSError, ValueError) as error:  # also of a quote that does not end
        console.current().warn(f"{command} was to be told of it, and failed: {error}")


def bad_legs(night: NightPlan, ended: Sequence[Night]) -> tuple[tuple[Leg, Night], ...]:
    """Return the legs that make a night a bad one."""
    pairs = zip(night.legs, ended, strict=True)
    return tuple((leg, result) for leg, result in pairs if result.is_bad)


def markdown(
    night: NightPlan, ended: Sequence[Night], hanging: Sequence[str] = (), history: History | None = None
) -> str:
    """Render the night for the summary of its run: what is new and bad first, each reason once.

    Args:
        night: the night.
        ended: how each leg ended.
        hanging: the GPUs that were left out, a sentence each.
        history: of its channel, for what was late.
    """
    rows = []
    for trouble in troubles(ended, every=True):
        failure = trouble.first
        outcome = (
            f"**{failure.outcome}** in {failure.stage}, {trouble.age}" if failure.is_bad else failure.outcome
        )
        log = templates.web_address(failure.log or "") if failure.stage else ""
        link = f"[log](<{log}>)" if log and not set(log) & set("<>|`\\") and log.isascii() else ""
        # What a build says of itself may hold any text: here it is a text, and no link, picture or tag.
        why, last_good = safe_text.markdown(failure.why), _moment(trouble.last_good) if failure.stage else ""
        rows.append((safe_text.markdown(trouble.who), outcome, why, link, last_good))
    took = {leg.id: result.minutes for leg, result in zip(night.legs, ended, strict=False)}
    late = nights.late(history, took, before=night.frozen) if history is not None else {}
    told = [(safe_text.markdown(night.leg(name).name), "late", text, "", "") for name, text in late.items()]
    more = len(told) - nights.MOST_LATE
    rows += [*told[: nights.MOST_LATE], *([(f"{more} more", "late", "", "", "")] if more > 0 else [])]
    heads = ("legs", "outcome", "why", "log", "last good")
    about = (counts(ended), nights.cost(ended), f"manifest `{wording.short_id(night.manifest_sha256)}`.")
    lines = (
        f"## Night {night.night}: {night.stack}, {night.sources}",
        "",
        "; ".join(filter(None, about)),
        *(("", *safe_text.markdown_table(heads, rows)) if rows else ()),
        *(f"\n{safe_text.markdown(line)}" for line in hanging),
    )
    return "\n".join(lines)


def sentences(ended: Iterable[Night], *, only_bad: bool = False) -> tuple[str, ...]:
    """Say what did not come through, a sentence for each reason, what is new first."""
    return tuple(
        f"{failure.outcome} in {failure.stage}, {trouble.age}: {trouble.who}: {failure.reason}"
        + (f" (last good {_moment(trouble.last_good)})" if trouble.last_good else "")
        for trouble in troubles(ended)
        if (failure := trouble.first).is_bad or not only_bad
    )


def _moment(text: str | None) -> str:
    return text[:16].replace("T", " ") if text else "none known"


def counts(ended: Iterable[Night]) -> str:
    """Say how many legs ended in which way, such as `39 good, 1 failed (new)`, and how large a new SDK is."""
    ended = tuple(ended)
    number = Counter(result.outcome for result in ended)
    new = sum(result.is_bad and result.is_new for result in ended)
    bad = sum(result.is_bad for result in ended)
    words = ", ".join(f"{number[outcome]} {outcome}" for outcome in reversed(_ORDER) if number[outcome])
    if new:
        words += f" ({'new' if new == bad else f'{new} of them new'})"
    sdk = round(sum(result.measures.get("sdk_size", 0) for result in ended))
    return words + (f"; {console.size(sdk)} of the ROCm SDK added to the store" if sdk else "")
