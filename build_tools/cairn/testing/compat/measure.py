"""Run each probe in its own process, and read its answers."""

from __future__ import annotations

import contextlib
import itertools
import operator
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import structs

from cairn import datafile, isolation, owned, process
from cairn.errors import ProcessError, UsageError
from cairn.output import Progress, silent
from cairn.testing import pytest_runs, record
from cairn.testing.compat.report import (
    Check,
    CompatReport,
    Measured,
    Outcome,
    ReportRow,
    ReportTable,
    Row,
    RowTable,
    Support,
    Tested,
)

_PACKAGE = "cairn_compat_probes"  # what the copy of the probes is called where they run
# The folder comes last on the path: nothing of the environment can be hidden by it.
_PATH = "import sys; sys.path.append(sys.argv[1])"
_START = f"{_PATH}; from {_PACKAGE}.harness import main; main(*sys.argv[2:])"
_TRANSLATED = f"{_PATH}; import torchdevice; torchdevice.enable('cpu'); {_START}"
_DESCRIBE = "harness.describe"
# Where torch keeps kernels that it compiles at run time, by itself, by inductor, by triton, and MIOpen.
_CACHES = (
    "PYTORCH_KERNEL_CACHE_PATH",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "MIOPEN_USER_DB_PATH",
    "MIOPEN_CUSTOM_CACHE_DIR",
)

_Probe = tuple[str, tuple[tuple[str, str], ...]]  # what to run, and the variables that it has


class CompatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Rows to measure, and the environment to measure them in.

    Attributes:
        python: the interpreter of the environment that has torch.
        tables: what to measure.
        work_dir: holds the answers and the log of the probes; what an earlier run left there goes.
        selects: whether to measure a row; its table's id, and its name. The others are not in the report.
        timeout: seconds for each probe.
        set_id: the sealed set that is installed there.
        translate: the wheel of TorchDevice: code of the probes that says "cuda" computes on the CPU.
    """

    python: Path
    tables: Sequence[RowTable]
    work_dir: Path
    selects: Callable[[str, str], bool] = lambda _table, _row: True
    timeout: float = 600.0
    set_id: str | None = None
    translate: Path | None = None

    @property
    def chosen(self) -> list[tuple[RowTable, Row]]:
        """Return the rows to measure, each with its table."""
        pairs = ((table, row) for table in self.tables for row in table.rows)
        return [(table, row) for table, row in pairs if self.selects(table.id, row.name)]

    @property
    def log(self) -> Path:
        """The output of the probes."""
        return self.work_dir / "compat.log"


def measure(request: CompatRequest, *, on_line: Progress = silent) -> CompatReport:
    """Measure every row; a feature that does not work is a result, not an error.

    Raises:
        PrerequisiteError: the interpreter is not there, or may not be run.
    """
    with owned.alone_in(request.work_dir):
        return _measure(request, on_line)


def _measure(request: CompatRequest, on_line: Progress) -> CompatReport:
    began, started = time.monotonic(), datetime.now(UTC)
    folders = ("probes", "answers", "scratch")
    owned.empty_places(request.work_dir, of_files=(request.log.name,), of_folders=folders)
    (request.work_dir / "answers").mkdir(parents=True, exist_ok=True)
    # A copy, in a folder that has nothing else: Cairn itself must not be importable there.
    copies, ignored = request.work_dir / "probes", shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(__file__).with_name("probes"), copies / _PACKAGE, ignore=ignored)
    if request.translate is not None:
        pytest_runs.unpack_translation(request.translate, copies)
    probes = list(dict.fromkeys(_probe_of(row) for _, row in request.chosen if row.probe))
    tested, settled = _describe(request, probes)
    left = [probe for probe in probes if probe not in settled]
    results = dict(settled)
    for number, probe in enumerate(left, 1):  # one at a time: some look at the free memory of the GPU
        results[probe] = _run(request, probe)
        on_line(f"{number} of {len(left)}: {probe[0]}: {results[probe].support}")
    return CompatReport(
        tested=tested,
        set_id=request.set_id,
        translated=pytest_runs.translation_name(request.translate),
        started=record.time_of(started),
        duration_seconds=round(time.monotonic() - began, 3),
        tables=tuple(
            _measured_table(table, [row for _, row in rows], results)
            for table, rows in itertools.groupby(request.chosen, key=operator.itemgetter(0))
        ),
    )


def _measured_table(table: RowTable, rows: Sequence[Row], results: Mapping[_Probe, Measured]) -> ReportTable:
    return ReportTable(
        id=table.id,
        page=table.page,
        section=table.section,
        columns=table.columns,
        rows=tuple(
            ReportRow(
                cells=row.cells,
                claim=row.claim or table.claim,
                measured=results[_probe_of(row)]
                if row.probe
                else Measured(support="not measurable", reason=row.why_not or table.why_not),
            )
            for row in rows
        ),
    )


def _probe_of(row: Row) -> _Probe:
    return row.probe, tuple(sorted(row.environment.items()))


def _describe(request: CompatRequest, probes: Sequence[_Probe]) -> tuple[Tested, dict[_Probe, Measured]]:
    """Describe the tested environment; if it has no GPU, also give a result for each probe that needs one."""
    functions = {probe: probe[0].partition(" ")[0] for probe in probes}
    described = _run(request, (" ".join((_DESCRIBE, *dict.fromkeys(functions.values()))), ()))
    try:
        facts = datafile.parse_json(described.found, name="the interpreter's answer")
        no_gpu, gpu_only = facts.pop("no_gpu"), set(facts.pop("gpu_only"))
        tested = datafile.convert(facts, Tested)
    except (UsageError, ValueError, KeyError):
        problem = described.reason or "the interpreter gives no answer"
        broken = Measured(support="unsupported", reason=problem, checks=described.checks)
        return Tested(problem=problem), dict.fromkeys(probes, broken)
    unmeasured = Measured(support="not measurable", reason=no_gpu)
    return tested, {probe: unmeasured for probe, function in functions.items() if function in gpu_only}


def _run(request: CompatRequest, probe: _Probe) -> Measured:
    """Run a probe in a process of the tested interpreter."""
    words, environment = probe[0].split(), dict(probe[1])
    module, _, function = words[0].partition(".")
    name = words[0] if words[0] == _DESCRIBE else "-".join([*words, *environment])
    answer = request.work_dir / "answers" / f"{name}.jsonl"
    start = _TRANSLATED if request.translate else _START
    copies = str(request.work_dir / "probes")
    # Empty, and for what torch, triton and MIOpen keep as well: a kernel that an earlier night compiled would
    # hide that it cannot be compiled any more.
    scratch = request.work_dir / "scratch" / name
    scratch.mkdir(parents=True)
    variables = {
        **isolation.variables(isolation.Isolation.TEST, scratch),
        **({"CAIRN_COMPAT_TRANSLATED": "1"} if request.translate else {}),
        **dict.fromkeys(_CACHES, str(scratch)),
        **environment,
    }
    began, clean = time.monotonic(), False
    try:
        completed = process.run(
            [request.python, "-I", "-c", start, copies, str(answer), module, function, *words[1:]],
            cwd=scratch,
            env=variables,
            log=request.log,
            timeout=request.timeout,
            check=False,
            writes=[answer.parent],
        )
    except ProcessError:
        ended = f"it did not end within {request.timeout:g} seconds"
    else:
        ended, clean = _how_it_ended(completed.returncode, completed.output), not completed.returncode
    shutil.rmtree(scratch, ignore_errors=True)
    return read_answer(answer, ended=ended, clean=clean, seconds=time.monotonic() - began)


def _how_it_ended(code: int, output: str) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):  # a real-time signal has no name
            return f"the process was ended by {signal.Signals(-code).name}"
        return f"the process was ended by signal {-code}"
    last = next(iter(process.tail(output, 1)), "")
    return f"the process ended with exit code {code}" + (f": {last}" if code and last else "")


class _Line(datafile.Value):
    """A line of a probe's answer; `probes/harness.py` documents each kind."""

    begin: str | None = None
    essential: bool = True
    end: Outcome | None = None
    reason: str = ""
    no_gpu: str = ""
    not_measurable: str = ""
    device: str = ""
    found: str = ""
    complete: bool = False


def read_answer(path: Path, *, ended: str, seconds: float, clean: bool = False) -> Measured:
    """Derive the result of a probe from the lines that it wrote.

    Args:
        path: the lines.
        ended: how its process ended.
        seconds: how long it ran.
        clean: whether it ended normally.
    """
    lines = list(_lines(path))
    checks = _checks(lines, ended=ended, clean=clean)
    support, reason = _judge(checks)
    on_cpu: Support | None = None
    if why := _first(line.not_measurable for line in lines):
        support, reason = "not measurable", why
    elif why := _first(line.no_gpu for line in lines):
        support, reason, on_cpu = "not measurable", why, support
    return Measured(
        support=support,
        reason=reason,
        on_cpu=on_cpu,
        device=_first(line.device for line in lines),
        found=_first(line.found for line in lines),
        checks=tuple(checks),
        seconds=round(seconds, 3),
    )


def _checks(lines: Sequence[_Line], *, ended: str, clean: bool) -> list[Check]:
    """Return the checks with their outcomes, and a failed one for a process that did not end normally."""
    checks: list[Check] = []
    begun: Check | None = None
    for line in lines:
        if begun is not None and (line.begin is not None or line.complete):
            # Its end was cut off, by a full disk perhaps: nobody knows that it has passed.
            checks.append(structs.replace(begun, reason="it left no outcome"))
            begun = None
        if line.begin is not None:
            begun = Check(what=line.begin, outcome="failed", essential=line.essential)
        elif line.end is not None and begun is not None:
            checks.append(structs.replace(begun, outcome=line.end, reason=line.reason))
            begun = None
    if not any(line.complete for line in lines):
        # It crashed, or was ended: in the check that it had begun, or before or between checks.
        check_name = begun.what if begun is not None else "the probe"
        checks.append(Check(what=check_name, outcome="failed", reason=ended))
    elif not clean:
        checks.append(Check(what="the end of the process", outcome="failed", reason=ended, essential=False))
    return checks


def _first(texts: Iterable[str]) -> str:
    return next(filter(None, texts), "")


def _judge(checks: Sequence[Check]) -> tuple[Support, str]:
    failed = [check for check in checks if check.outcome == "failed"]
    reasons = "; ".join(f"{check.what}: {check.reason}" for check in failed)
    if any(check.essential for check in failed):
        return "unsupported", reasons
    if failed:
        return "partial", reasons
    left = "; ".join(f"{c.what} not measured: {c.reason}" for c in checks if c.outcome == "not measured")
    if not any(check.outcome == "passed" for check in checks):
        return "not measurable", left or "the probe tried nothing"
    return "supported", left


def _lines(path: Path) -> Iterator[_Line]:
    try:
        data = path.read_bytes()
    except OSError:
        return
    for line in data.splitlines():
        # Half a line is what a crash leaves; what is no line of ours counts as little.
        with contextlib.suppress(msgspec.DecodeError):
            yield datafile.decode(line, _Line)
