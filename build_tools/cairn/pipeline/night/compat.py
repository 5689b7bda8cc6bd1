"""The claims of the compatibility pages, measured in the environment of a leg's smoke tests.

What was broken already in the last night of the leg that was promoted is known, and fails nothing; anything
else that a page claims and is not there does.
"""

from __future__ import annotations

from pathlib import Path

from cairn import datafile, isolation, venv
from cairn.errors import TestsFailedError
from cairn.matrix.legs import Leg
from cairn.output import console
from cairn.pipeline.night import plan, results
from cairn.pipeline.night.plan import NightRun
from cairn.release import records
from cairn.release.provenance.signing_key import Signer
from cairn.testing.compat import evidence, measure, rows
from cairn.testing.compat.report import CompatReport
from cairn.testing.gpus.attest import Attestation, attest
from cairn.testing.record import TestRecord
from cairn.testing.smoke import SmokeResult


def measure_leg(run: NightRun, leg: Leg, installed: SmokeResult, work_dir: Path) -> TestRecord:
    """Measure every row, and write the report and its record.

    Args:
        run: the night.
        leg: one of its legs.
        installed: what its smoke tests have left.
        work_dir: receives both.
    """
    with console.current().stage(f"measure what the pages claim of {leg.name}") as stage:
        request = measure.CompatRequest(
            # Not resolved: what makes an environment's interpreter one is where it is called from.
            python=venv.describe(installed.environment).python.absolute(),
            tables=rows.load(),
            work_dir=work_dir,
            set_id=installed.record.set_id,
        )
        report = measure.measure(request, on_line=stage.update)
    attested = Attestation()
    if run.stack.reaches_gpus:
        with isolation.own_home() as home:
            variables = isolation.variables(isolation.Isolation.TEST, home)
            attested = attest(variables, python=request.python, log=request.log)
    evidence.write(work_dir, report, baseline=baseline(run, leg))
    return evidence.write_record(work_dir, report, installed.record, attested)


def keep(run: NightRun, leg: Leg, work_dir: Path, signer: Signer | None) -> None:
    """Store the record, and show the results."""
    title, name = f"What the pages claim of {leg.name}", f"the compatibility record of {leg.name}"
    results.keep(run, leg, work_dir, title=title, name=name, signer=signer)


def require_passed(record: TestRecord, leg: Leg, work_dir: Path) -> None:
    """Raise `TestsFailedError` where a claim of a page does not hold."""
    if record.verdict == "passed" or (record.verdict == "untested" and leg.bypass_tests):
        return
    raise TestsFailedError(
        f"what the pages claim of {leg.name} is {record.verdict}: {record.reason}", tip=f"read {work_dir}"
    )


def baseline(run: NightRun, leg: Leg) -> CompatReport | None:
    """The report of the last night before this one whose set of the leg users can install, if it has one.

    Not simply that of the night before: what broke there would be known after one night, and let through.
    """
    index = run.index(leg, run.plan.release)
    nights = (night for night in plan.before(run) if any(other.id == leg.id for other in night.legs))
    for night in nights:
        promoted = plan.set_of(index, night, leg)
        if promoted is None or promoted.yanked is not None:
            continue
        set_records = records.read(run.store, promoted.set_id).records
        for item in sorted(set_records, key=lambda item: item.record.began, reverse=True):
            if (data := records.compat_of(run.store, item)) is not None:
                return datafile.loads(data, CompatReport, name=f"the report of the night {night.night}")
    return None
