"""Write a compatibility report in all its formats, and a test record of it for the installed wheels.

Each row is a test. It fails if a page claims a feature that is not there; a row that could not be measured is
skipped, with the reason. Tests that computed on a GPU name it, so that wrong hardware, and a run that used no
GPU, are detected as in other test runs.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution
from pathlib import Path

from msgspec import structs
from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename
from packaging.version import Version

from cairn import datafile, files
from cairn.errors import UsageError
from cairn.output import safe_text
from cairn.stack import Floor
from cairn.testing import junit, junit_writer, record
from cairn.testing.compat.report import FILE as REPORT
from cairn.testing.compat.report import CompatReport, ReportRow, as_html, as_markdown, as_rst
from cairn.testing.gpus.attest import Attestation
from cairn.testing.junit import Outcome, TestOutcome
from cairn.testing.record import TestRecord
from cairn.testing.verdict import judge, passed_by_target
from cairn.venv import VirtualEnvironment
from cairn.wheels.metadata.record import encode_digest

_MODULES = (".py", ".so", ".pyd")


def write(folder: Path, report: CompatReport, *, baseline: CompatReport | None = None) -> None:
    """Write a report as JSON, reStructuredText, Markdown, HTML and JUnit XML, each file atomically.

    Args:
        folder: gets the files.
        report: the report.
        baseline: see `write_junit`.
    """
    datafile.write(folder / REPORT, report)
    files.write_text(folder / "compat.rst", as_rst(report))
    files.write_text(folder / "compat.md", as_markdown(report))
    files.write_text(folder / "compat.html", as_html(report))
    write_junit(folder / record.JUNIT, report, baseline=baseline)


def write_junit(path: Path, report: CompatReport, *, baseline: CompatReport | None = None) -> None:
    """Write the rows as JUnit XML (pytest's `xunit1` family, which `cairn.testing.junit` reads).

    Args:
        path: the file.
        report: the rows.
        baseline: an earlier report; what a page claims and was broken there is known, and fails nothing.
    """
    broken_before = (
        {(table.id, row.name) for table, row in baseline.rows if row.broken} if baseline else set()
    )
    tests = (
        _as_test(table.id, row, was_broken=(table.id, row.name) in broken_before)
        for table, row in report.rows
    )
    if report.translated:
        tests = (structs.replace(test, device="") for test in tests)
    junit_writer.write(path, tests, name="compat")


def _as_test(table: str, row: ReportRow, *, was_broken: bool) -> TestOutcome:
    """Convert a row to a test; terminal control sequences, such as colours in an error, are escaped."""
    measured = row.measured
    outcome: Outcome = "passed"
    reason, detail = safe_text.visible(measured.reason), ""
    if row.broken and was_broken:
        outcome, reason = "skipped", f"unsupported, as in the baseline: {reason}"
    elif row.broken:
        outcome, reason = "failed", f"unsupported, though the page claims it: {reason}"
        lines = (f"{check.what}: {check.outcome} {check.reason}" for check in measured.checks)
        detail = "\n".join(map(safe_text.visible, lines))
    elif measured.support == "not measurable":
        outcome = "skipped"
    return TestOutcome(
        test=f"{table}::{row.name}",
        outcome=outcome,
        reason=reason,
        detail=detail,
        device=safe_text.visible(measured.device),
        seconds=measured.seconds,
    )


def write_record(
    folder: Path,
    report: CompatReport,
    installed: TestRecord,
    attested: Attestation,
    *,
    chosen: tuple[str, ...] = (),
) -> TestRecord:
    """Write the record of a report on the environment that a smoke test has installed and left.

    Args:
        folder: gets the record; `write` has put the report there.
        chosen: the options that selected rows; the gate does not count a partial measurement.
        report: what was measured there.
        installed: the smoke test's record, which names what is installed.
        attested: the GPUs that the probes could use.
    """
    junit_path = folder / record.JUNIT
    outcome = junit.read(junit_path)
    verdict = judge(
        outcome,
        exit_code=0,
        targets=installed.targets,
        hardware=attested.hardware,
        disagreements=attested.disagreements,
        translated=report.translated,
    )
    result = TestRecord(
        set_id=installed.set_id,
        wheels=installed.wheels,
        kind="compat",
        family=installed.family,
        targets=installed.targets,
        hardware=attested.hardware,
        gpus=attested.gpus,
        covered=passed_by_target(outcome, installed.targets),
        counts=outcome.counts,
        junit_sha256=files.sha256_of(junit_path),
        started=report.started,
        duration_seconds=report.duration_seconds,
        verdict=verdict.verdict,
        reason=verdict.reason,
        skips=outcome.skips,
        pytest_args=chosen,
        translated=report.translated,
        confinement=installed.confinement,
        compat_sha256=files.sha256_of(folder / REPORT),
        # Probes of the report, not files of tests.
        policy=installed.policy
        and structs.replace(
            installed.policy,
            floor=Floor(tests=1, device_tests=0),
            tests_sha256=None,
            builtin_sha256=None,
        ),
    )
    record.write(folder / record.FILE, result)
    return result


def check_environment(environment: VirtualEnvironment, installed: TestRecord) -> None:
    """Make sure that an environment has what a record says was installed there, and nothing else.

    The record is about exact bytes, and somebody debugging may have edited a module or added one: the files
    are compared with the digests that were installed with them.

    Raises:
        UsageError: something was installed, changed or removed since.
    """
    distributions = list(importlib.metadata.distributions(path=[str(site) for site in environment.sites]))
    present = {(canonicalize_name(dist.name), str(Version(dist.version))) for dist in distributions}
    recorded: set[tuple[str, str]] = set()
    for wheel in installed.wheels:
        # An sdist, such as that of `rocm`, is named by the same two.
        if wheel.file_name.endswith(".whl"):
            name, version, *_ = parse_wheel_filename(wheel.file_name)
        else:
            name, version = parse_sdist_filename(wheel.file_name)
        recorded.add((name, str(version)))
    different = sorted(f"{name} {version}" for name, version in present ^ recorded)
    different = different or [*_changed(distributions), *_strangers(environment, distributions)]
    if different:
        raise UsageError(
            f"the environment is not what was tested there: {', '.join(different[:3])}",
            tip="run `cairn test smoke` again, which makes it anew",
        )


def _changed(distributions: Iterable[Distribution]) -> Iterator[str]:
    """Yield the files of distributions that were changed or removed since they were installed."""
    for file in (file for dist in distributions for file in dist.files or ()):
        if file.hash is None or file.hash.mode != "sha256":  # RECORD itself, and what Python compiled
            continue
        path = Path(str(file.locate()))
        digest = bytes.fromhex(files.sha256_of(path)) if path.is_file() else b""
        if encode_digest(digest) != file.hash.value:
            yield file.as_posix()


def _strangers(environment: VirtualEnvironment, distributions: Iterable[Distribution]) -> Iterator[str]:
    """Yield top-level modules, packages and .pth files that no distribution owns.

    In a package of a distribution, only those that stand before one of its own: of `a` and `a.py` Python
    takes the folder. Others may have been written by the package itself, when it was first used.
    """
    recorded = {Path(str(file.locate())).resolve() for dist in distributions for file in dist.files or ()}
    owned = recorded.union(*(path.parents for path in recorded))
    hidden = {path.with_name(path.name.partition(".")[0]) for path in recorded if path.suffix in _MODULES}
    for site in (site.resolve() for site in environment.sites):
        inside = {path for path in hidden - owned if path.is_relative_to(site)}
        for path in sorted({*site.iterdir(), *inside}):
            is_package = path.name.isidentifier() and path.name != "__pycache__" and path.is_dir()
            if (is_package or path.suffix in (*_MODULES, ".pth")) and path.resolve() not in owned:
                yield path.relative_to(site).as_posix()
