"""Run the smoke tests of a leg's set on this machine, and store their record.

In their environment, the claims of the compatibility pages are measured too. A feature that was already
broken in the leg's last promoted night is known and causes no failure; any other claimed feature that does
not work does.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from msgspec import structs

from cairn import datafile, interpreters, isolation, venv
from cairn.errors import PrerequisiteError, StoreError, TestsFailedError, UsageError
from cairn.matrix.legs import Leg
from cairn.output import console
from cairn.pipeline.night import hanging, plan, results, shards
from cairn.pipeline.night.plan import NightRun
from cairn.release import records
from cairn.release.index import keys
from cairn.release.index.snapshot import read_set
from cairn.release.serve import serving
from cairn.release.trust.signers import Signer
from cairn.targets import CPU
from cairn.testing import record, smoke
from cairn.testing.compat import evidence, measure
from cairn.testing.compat.report import CompatReport, load_rows
from cairn.testing.gpus import kernel
from cairn.testing.gpus.attest import Attestation, attest
from cairn.testing.gpus.gpu import matches
from cairn.testing.gpus.hangs import name_of
from cairn.testing.gpus.visible import visible_gpus
from cairn.testing.record import TestRecord
from cairn.testing.smoke import SmokeResult

COMPAT = "compat"
"""The folder of compatibility probes below that of the smoke tests of a leg."""


class LegTest(msgspec.Struct, frozen=True, kw_only=True):
    """A leg to test on this machine.

    Attributes:
        run: the night.
        leg: one of its legs.
        work_dir: receives the environment, the log, the results and the record.
        timeout: seconds for each run of pytest.
        gpus: where the kernel describes the GPUs of the machine.
    """

    run: NightRun
    leg: Leg
    work_dir: Path
    timeout: float = 1800.0
    gpus: Path = kernel.KFD_NODES


def smoke_leg(request: LegTest) -> TestRecord:
    """Install a leg's staged set from an index that has nothing else, and test it.

    The records stay in the work folder, for a phase that may write to the store (`handover`).

    If the matrix says so, the claims of the compatibility pages are measured there too.

    The set is the store's own: no file of an earlier job is read.

    Raises:
        StoreError: no set of the leg is staged.
        PrerequisiteError: the machine has no GPU, and the set is for one that its ROCm reaches.
        TestsFailedError: the machine has other GPUs, or the tests did not pass; their results are recorded.
    """
    run, leg = request.run, request.leg
    store, stack = run.store, run.stack
    set_id = staged_set(run, leg)
    plan.frozen(run)
    refuse_other_hardware(run, leg, request.gpus)
    # A leg that no GPU runner tests is tested without one, also where this machine has some.
    reaches_gpus = stack.reaches_gpus and bool(leg.test_runs_on)
    with serving(store) as server, console.current().stage(f"smoke tests of {leg.name}") as stage:
        result = smoke.run_smoke(
            structs.replace(
                smoke.SmokeRequest(
                    wheel_set=read_set(store, set_id),
                    work_dir=request.work_dir,
                    index_url=keys.set_url(server.url, set_id),
                    python=interpreters.find(leg.python).path,
                    environment={} if leg.test_runs_on else {"ROCR_VISIBLE_DEVICES": "-1"},
                    timeout=request.timeout,
                    gpus=request.gpus,
                    hanging=hanging.nodes_here(store, run.plan.night),
                ).of_stack(shards.demanding(stack, leg)),
                devices=reaches_gpus,
            ),
            on_line=stage.update,
        )
    smoke.require_passed(result, or_untested=not reaches_gpus)
    if leg.compat and leg.test_runs_on:
        folder = request.work_dir / COMPAT
        measured = measure_leg(run, leg, result, folder)
        require_compat(measured, leg, folder)
    return result.record


def keep(run: NightRun, leg: Leg, folder: Path, signer: Signer | None) -> None:
    """Store the record of smoke tests, and show the results."""
    title, name = f"Smoke tests of {leg.name}", f"the record of {leg.name}"
    hanging.keep(run.store, run.plan.night, record.read(folder / record.FILE).hanging)
    results.keep(run, leg, folder, title=title, name=name, signer=signer)


def staged_set(run: NightRun, leg: Leg) -> str:
    """Return the id of a leg's staged set.

    Raises:
        StoreError: there is none.
    """
    staged = plan.set_of(run.index(leg, run.plan.staging), run.plan, leg)
    if staged is None:
        raise StoreError(f"no set of {leg.name} is staged", tip="see its build: cairn ci night report")
    return staged.set_id


def refuse_other_hardware(run: NightRun, leg: Leg, nodes: Path) -> None:
    """Refuse a machine without the GPUs of a leg, if the leg's ROCm SDK can reach any.

    Otherwise, gigabytes would be installed only to get an invalid record.

    Raises:
        PrerequisiteError: the machine has no GPU that programs may use, or all have hung in this night.
        TestsFailedError: it has others.
    """
    if plan.targets_of(leg) == (CPU,) or not (run.stack.reaches_gpus and leg.test_runs_on):
        return
    gpu_names, hanging_nodes = kernel.gpu_names(nodes), hanging.nodes_here(run.store, run.plan.night)
    visible = visible_gpus(kernel.read(nodes), os.environ.get("ROCR_VISIBLE_DEVICES"))
    hardware = [gpu.target for gpu in visible if gpu.node not in hanging_nodes]
    if visible and not hardware:
        raise PrerequisiteError(
            f"every GPU of this machine hangs: {', '.join(map(name_of, visible))}",
            tip="reset it, or restart the machine; dmesg may say why",
        )
    if not hardware:
        raise PrerequisiteError(
            f"this machine has no GPU that programs may use, and {leg.name} is for {leg.targets}",
            tip=f"give the runner labels {', '.join(leg.test_runs_on)} to machines that have one",
        )
    if not matches(hardware, plan.targets_of(leg)):
        right = [str(at) for at, name in enumerate(gpu_names) if matches([name], plan.targets_of(leg))]
        tip = f"the labels {', '.join(leg.test_runs_on)} are on the wrong machine"
        if right:  # beside others, such as the one of the processor
            tip = f"hide the others from the runner: ROCR_VISIBLE_DEVICES={','.join(right)}"
        raise TestsFailedError(
            f"invalid: this machine has {', '.join(dict.fromkeys(hardware))}, and not what {leg.name} is for",
            tip=f"{tip}; nothing was tested",
        )


def measure_leg(run: NightRun, leg: Leg, installed: SmokeResult, work_dir: Path) -> TestRecord:
    """Measure every row, and write the report and its record.

    Args:
        run: the night.
        leg: one of its legs.
        installed: the result of its smoke tests.
        work_dir: receives both.
    """
    with console.current().stage(f"measure what the pages claim of {leg.name}") as stage:
        request = measure.CompatRequest(
            # Not resolved: what makes an environment's interpreter one is where it is called from.
            python=venv.describe(installed.environment).python.absolute(),
            tables=load_rows(),
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


def keep_compat(run: NightRun, leg: Leg, work_dir: Path, signer: Signer | None) -> None:
    """Store the record, and show the results."""
    title, name = f"What the pages claim of {leg.name}", f"the compatibility record of {leg.name}"
    results.keep(run, leg, work_dir, title=title, name=name, signer=signer)


def require_compat(record: TestRecord, leg: Leg, work_dir: Path) -> None:
    """Raise `TestsFailedError` if a claim of a page does not hold."""
    if record.verdict == "passed" or (record.verdict == "untested" and leg.bypass_tests):
        return
    raise TestsFailedError(
        f"what the pages claim of {leg.name} is {record.verdict}: {record.reason}", tip=f"read {work_dir}"
    )


def baseline(run: NightRun, leg: Leg) -> CompatReport | None:
    """Return the report of the last earlier night whose set of the leg was promoted, if it has one.

    Not simply that of the night before: a feature that broke there would count as known after one night.
    """
    index = run.index(leg, run.plan.release)
    nights = (night for night in plan.before(run) if any(night_leg.id == leg.id for night_leg in night.legs))
    for night in nights:
        promoted = plan.set_of(index, night, leg)
        if promoted is None or promoted.yanked is not None:
            continue
        set_records = records.read(run.store, promoted.set_id).records
        for item in sorted(set_records, key=lambda item: item.record.began, reverse=True):
            name = f"the report of the night {night.night}"
            try:
                if (data := records.compat_of(run.store, item)) is not None:
                    return datafile.loads(data, CompatReport, name=name)
            except (StoreError, UsageError) as error:  # without it, more fails, and nothing passes
                console.current().warn(f"{leg.name} is not compared with {name}: {error}")
    return None
