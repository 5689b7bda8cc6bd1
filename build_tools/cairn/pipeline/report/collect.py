"""The report of a run, from the values that the stages returned."""

from __future__ import annotations

import datetime as dt
import urllib.parse
from collections.abc import Iterator

from cairn.pipeline import report
from cairn.pipeline.request import TrailRequest, TrailResult


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
        python=result.wheel_set.python,
        platform=result.wheel_set.platform,
        rocm_version=result.rocm_version,
        targets=result.wheel_set.targets,
        untested=result.untested_note or "",
        install_lines=(result.pip_line, result.uv_line),
        installed=f"Installed from the release index by {' and '.join(result.installers)}.",
        links=tuple(_links(request, result)),
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
            report.Stage(name=s.name, start=s.start - zero, end=s.end - zero, mark=s.mark, detail=s.detail)
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
        gate=_gate(result),
    )


def _gate(result: TrailResult) -> report.Gate | None:
    judged = result.promotion.report
    if judged is None:
        return None
    demands = tuple(
        report.Demand(
            number=d.number,
            name=d.name,
            outcome=d.outcome,
            reason=d.reason,
            bypass=str(d.bypass) if d.bypass else "",
        )
        for d in judged.demands
    )
    return report.Gate(judged=judged.judged, kept=result.promotion.kept, demands=demands)


def _links(request: TrailRequest, result: TrailResult) -> Iterator[report.Link]:
    """What lies beside the report, as far as it is there: a browser shows folders of `file:` too."""
    index = request.store_dir / "release"
    found = {
        "release index": index / "simple" / "index.html",
        "set": request.wheels_dir / "set.json",
        "manifest": request.wheels_dir / "manifest.json",
        "test record": request.work_dir / "smoke" / "record.json",
        "gate": index / "sets" / result.wheel_set.set_id / "gate.json",
        "wheels": request.wheels_dir,
        "logs": request.logs_dir,
        "logs of the builds": request.wheels_dir / "logs",
        "log of the smoke tests": request.work_dir / "smoke" / "smoke.log",
    }
    for name, path in found.items():
        if path.exists():
            relative = urllib.parse.quote(path.relative_to(result.report.parent).as_posix())
            yield report.Link(name=name, target=relative + ("/" if path.is_dir() else ""))


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
        started=record.started,
        skips=tuple(report.Skip(test=s.test, reason=s.reason) for s in record.skips),
    )
