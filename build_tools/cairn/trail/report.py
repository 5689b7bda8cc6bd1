"""The report of a run, from the values that the stages returned."""

from __future__ import annotations

import datetime as dt

from cairn import report
from cairn.trail.request import TrailRequest, TrailResult


def write(request: TrailRequest, result: TrailResult) -> None:
    """Write `report.html` for a run."""
    report.write_report(result.report, _report(request, result))


def _report(request: TrailRequest, result: TrailResult) -> report.Report:
    zero = min((span.start for span in result.spans), default=0.0)
    return report.Report(
        title=f"{request.stack.name} {request.stack.line}",
        stack=request.stack.name,
        line=request.stack.line,
        set_id=result.wheel_set.set_id,
        generated=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        verdict="released",
        pip_line=result.pip_line,
        notes=(f"installed from the release index by {' and '.join(result.installers)}",),
        commits=tuple(
            report.Commit(
                project=c.project.name,
                origin=c.origin,
                hashtag=c.hashtag,
                commit=c.commit,
                hipify_commit=c.hipify_commit,
            )
            for c in result.checkouts
        ),
        stages=tuple(
            report.Stage(name=s.name, start=s.start - zero, end=s.end - zero, detail=s.detail)
            for s in sorted(result.spans, key=lambda s: s.start)
        ),
        wheels=tuple(
            report.Wheel(
                file_name=w.wheel.name,
                size=w.wheel.stat().st_size,
                sha256=w.sha256,
                targets=w.targets,
                seconds=w.seconds,
            )
            for w in result.wheels
        ),
        tests=(_tests(result),),
        demands=tuple(
            report.Demand(number=d.number, name=d.name, status=d.status, reason=d.reason)
            for d in (result.promotion.report.demands if result.promotion.report else ())
        ),
    )


def _tests(result: TrailResult) -> report.TestRun:
    record = result.record
    return report.TestRun(
        kind=record.kind,
        verdict=record.verdict,
        reason=record.reason,
        family=record.family,
        hardware=record.hardware,
        passed=record.counts.passed,
        failed=record.counts.failed,
        errors=record.counts.errors,
        skipped=record.counts.skipped,
        device_passed=record.counts.device_passed,
        seconds=record.duration_seconds,
        skips=tuple(report.Skip(test=s.test, reason=s.reason) for s in record.skips),
    )
