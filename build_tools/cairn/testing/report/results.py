"""Read the results of a test run from a folder whose files may have been mixed up or edited."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
from msgspec import structs

from cairn import files
from cairn.errors import TestsFailedError, UsageError
from cairn.targets import CPU
from cairn.testing import junit
from cairn.testing import record as records
from cairn.testing.compat import report as compat_reports
from cairn.testing.compat.report import CompatReport
from cairn.testing.gpus import kernel
from cairn.testing.gpus.hangs import name_of
from cairn.testing.junit import JUnit, TestOutcome
from cairn.testing.record import Counts, TestRecord, Verdict
from cairn.testing.suite import suite_results
from cairn.testing.suite.merge import judge_shards
from cairn.testing.suite.suite_results import ExcludedTest, ShardResult, SuiteResult
from cairn.testing.testing_options import Floors
from cairn.testing.verdict import judge


class TestRun(msgspec.Struct, frozen=True, kw_only=True):
    """A test run with all its tests.

    Attributes:
        path: what was read.
        kind: of its record, with the configuration of a suite; empty where it has none.
        verdict: that of the record, unless the results are not those that it was made of; without one, what
            the results are judged to be.
        reason: of the verdict.
        counts: of the tests.
        hardware: the GPUs of the machine, or those that tests say they used.
        record: None where there is none.
        record_sha256: of the record's bytes.
        tests: every test; none where there are no results.
        excluded: what skip-tests kept from running.
        remarks: what else there is to say, such as entries of skip-tests that match nothing.
        compat: the compatibility report whose rows the tests are.
    """

    __test__ = False  # pytest would collect the name

    path: Path
    kind: str = ""
    verdict: Verdict
    reason: str
    counts: Counts
    hardware: tuple[str, ...] = ()
    record: TestRecord | None = None
    record_sha256: str = ""
    tests: tuple[TestOutcome, ...] = ()
    excluded: tuple[ExcludedTest, ...] = ()
    remarks: tuple[str, ...] = ()
    compat: CompatReport | None = None

    @property
    def title(self) -> str:
        """The name of the run."""
        return self.kind or self.path.name


def read(path: Path, floors: Floors | None = None) -> TestRun:
    """Read the folder of a test run, a record with the files beside it, or JUnit XML alone.

    Raises:
        UsageError: there are no files of a test run, or a file is not what its name says.
    """
    run = _read(path, floors or Floors())
    overruled = [f"{test.test}: {test.reason}" for test in run.tests if test.overruled]
    return structs.replace(run, remarks=(*run.remarks, *overruled))


def _read(path: Path, floors: Floors) -> TestRun:
    if path.is_dir():
        if (path / records.FILE).is_file():
            return _with_record(path / records.FILE)
        if (path / suite_results.SHARD).is_file():
            return _shard(path)
        if (path / records.JUNIT).is_file():
            return _alone(path / records.JUNIT, floors)
        raise UsageError(
            f"{path} has no {records.FILE} and no {records.JUNIT}", tip="name the folder that a test run left"
        )
    return _with_record(path) if path.suffix == ".json" else _alone(path, floors)


def _with_record(path: Path) -> TestRun:
    """Read a record, and the results beside it if their digest is the record's."""
    record, folder = records.read(path), path.parent
    lists = record.policy.lists if record.policy else {}
    run = TestRun(
        path=path.parent if path.name == records.FILE else path,
        kind=f"{record.kind} {record.config}".strip(),
        verdict=record.verdict,
        reason=record.reason,
        counts=record.counts,
        hardware=record.hardware,
        record=record,
        remarks=(
            *(f"{name_of(gpu)} hung, and was left out" for gpu in record.hanging),
            *(f"the tests read the list {name}, sha256 {digest}" for name, digest in lists.items()),
        ),
        record_sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
    )
    if record.junit_sha256 is None:
        return run
    if not (folder / records.JUNIT).is_file():
        return structs.replace(
            run,
            remarks=(
                *run.remarks,
                f"{records.JUNIT} is not there: no test is known by name",
            ),
        )
    beside = {records.JUNIT: record.junit_sha256, compat_reports.FILE: record.compat_sha256}
    for name, sha256 in beside.items():
        if sha256 and (folder / name).is_file() and files.sha256_of(folder / name) != sha256:
            return structs.replace(
                run, verdict="invalid", reason=f"{name} is not what the record was made of"
            )
    outcome = junit.read(folder / records.JUNIT)
    if outcome.counts != record.counts:
        return structs.replace(
            run, verdict="invalid", reason=f"{records.JUNIT} has other tests than the record counts"
        )
    run = structs.replace(run, tests=outcome.cases)
    if record.compat_sha256 and (folder / compat_reports.FILE).is_file():
        run = structs.replace(run, compat=compat_reports.read(folder))
    return _with_suite(run, folder) if record.kind == "suite" else run


def _with_suite(run: TestRun, folder: Path) -> TestRun:
    """Add the tests that a suite's shards excluded, and why: the JUnit XML has only those that ran."""
    result: SuiteResult | ShardResult
    if (folder / suite_results.SUITE).is_file():
        result, tests = suite_results.read_suite(folder)
    elif (folder / suite_results.SHARD).is_file():
        result, tests = suite_results.read_shard(folder)
    else:
        return run
    if JUnit.of(tests).counts != run.counts:
        reason = f"{suite_results.OUTCOMES} has other tests than the record counts"
        return structs.replace(run, verdict="invalid", reason=reason)
    remarks = (*run.remarks, *result.problems, *result.outdated)
    return structs.replace(run, tests=tests, excluded=result.excluded, remarks=remarks)


def _shard(folder: Path) -> TestRun:
    """Read a single shard, or a suite on unidentified wheels, judged by what went wrong in it."""
    result, tests = suite_results.read_shard(folder)
    judged = judge_shards([result], tests, problems=result.problems, part=result.shards > 1)
    return TestRun(
        path=folder,
        kind=f"suite {result.config}, {result.name}" if result.shards > 1 else f"suite {result.config}",
        verdict=judged.verdict,
        reason=judged.reason,
        counts=JUnit.of(tests).counts,
        hardware=result.hardware,
        tests=tests,
        excluded=result.excluded,
        remarks=(*result.problems, *result.outdated),
    )


def _alone(path: Path, floors: Floors) -> TestRun:
    """Read JUnit XML without a record, and judge it as a run; results that cannot be trusted have failed."""
    try:
        report = junit.read(path)
    except TestsFailedError as error:
        return TestRun(path=path, verdict="failed", reason=str(error), counts=Counts())
    used = (name for case in report.cases for name in case.devices)
    hardware = tuple(dict.fromkeys(name for name in used if name.startswith("gfx")))
    judged = judge(
        report,
        exit_code=0,
        targets=hardware or kernel.gpu_names() or (CPU,),
        hardware=hardware,
        floor=floors.tests,
        device_floor=floors.device_tests,
    )
    return TestRun(
        path=path,
        verdict=judged.verdict,
        reason=judged.reason,
        counts=report.counts,
        hardware=hardware,
        tests=report.cases,
    )
