"""`cairn ci night`: the jobs of the nightly workflow, one command each."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.cli import arguments, checkout, signing
from cairn.cli.parser import Subparsers, add_command, add_commands
from cairn.errors import CairnError, GateError, StoreError, UsageError
from cairn.output import console

if TYPE_CHECKING:
    from cairn.matrix.legs import Leg
    from cairn.pipeline.night.plan import NightPlan, NightRun, Stage, StepNote
    from cairn.pipeline.night.promote import LegPromotion
    from cairn.release.pages.view import Night

_BEGIN = (
    "cairn ci night freeze --night 2026-01-31 --stack external-builds/sample --store ./store "
    "--matrix matrix.json"
)


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the commands of the group."""
    commands = add_commands(
        parser,
        description="The nightly, job by job: freeze, build, stage, test, promote, report. What the jobs "
        "agree on lies in the store, and nothing is promoted but by what lies there.",
        example=_BEGIN,
    )
    _add_freeze(commands)
    _add_build(commands)
    _add_stage(commands)
    _add_test(commands)
    _add_promote(commands)
    _add_report(commands)
    _add_list(commands)
    _add_watch(commands)


def _add_freeze(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "freeze",
        _freeze,
        about="begin a night: freeze its sources in one manifest, and write down what is expected of it",
        more="A night of that id that is there already goes on, with the manifest that it has. Outputs of "
        "the step, under GitHub Actions: `night`, `build` (the legs that are yet to be built, for a matrix) "
        "and `build_count`.",
        example=_BEGIN,
    )
    arguments.add_stack(parser)
    _add_night(parser)
    parser.add_argument(
        "--matrix",
        type=arguments.file,
        required=True,
        metavar="FILE",
        help="what `cairn matrix --json` printed: the legs that are expected; those of other lines are not",
    )
    parser.add_argument(
        "--staging", default="staging", metavar="CHANNEL", help="where sets wait (default: %(default)s)"
    )
    parser.add_argument(
        "--to", default="nightly", metavar="CHANNEL", help="where they go (default: %(default)s)"
    )
    parser.add_argument(
        "--like", default="", metavar="NIGHT", help="take the manifest of that night; empty for a new one"
    )
    parser.add_argument(
        "--rocm-sdk-version",
        type=arguments.exact_version,
        default="",
        metavar="VERSION",
        help="exact version of the ROCm SDK (default: the stack's, else the newest of --rocm-index-url)",
    )
    _add_rocm_index(parser)
    parser.add_argument(
        "--image", default="", metavar="REF", help="the container that builds run in, by digest, or empty"
    )
    _add_work_dir(parser)
    arguments.add_build_env(parser)
    checkout.add_as_of(parser)
    arguments.add_dry_run(parser)
    arguments.add_json(parser)


def _add_build(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "build",
        _build,
        about="build the wheels of one leg from what the night froze",
        more="Reads the store and writes nothing into it: the wheels, their set.json and how it went "
        "(step.json) are left in the output folder.",
        example="cairn ci night build --night latest --leg nightly-gfx94X-dcgpu-py3.12-linux_x86_64 "
        "--stack external-builds/sample --store ./store --output-dir wheels",
    )
    _add_leg(parser)
    _add_rocm_index(parser)
    _add_work_dir(parser)
    arguments.add_output_dir(parser)
    arguments.add_jobs(parser, what="compile jobs")


def _add_stage(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "stage",
        _stage,
        about="publish what the legs of a night have built into staging",
        more="A set that is not what the night expects is refused; one leg does not hold up the others. "
        "Outputs of the step: `test` (the legs that a runner is to test, for a matrix), `test_count`, "
        "`staged_count`.",
        example="cairn ci night stage --night latest --stack external-builds/sample --store ./store "
        "--artifacts artifacts",
    )
    arguments.add_stack(parser)
    _add_night(parser)
    parser.add_argument(
        "--artifacts",
        type=arguments.any_path,
        required=True,
        metavar="DIR",
        help="a folder `wheels-<leg>-<attempt>` for each; the last attempt of a leg counts",
    )
    signing.add_attesting(parser)
    arguments.add_dry_run(parser)
    arguments.add_json(parser)


def _add_test(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "test",
        _test,
        about="smoke-test the staged set of one leg on this machine, and keep the record in the store",
        more="A machine whose GPUs are not those of the leg is refused before anything is installed.",
        example="cairn ci night test --night latest --leg nightly-gfx94X-dcgpu-py3.12-linux_x86_64 "
        "--stack external-builds/sample --store ./store",
    )
    _add_leg(parser)
    _add_work_dir(parser)
    parser.add_argument(
        "--timeout", type=arguments.seconds, default=1800.0, metavar="SECONDS", help="for each run of pytest"
    )
    signing.add_sign_key(parser)


def _add_promote(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "promote",
        _promote,
        about="bring each leg of a night that is ready through the gate",
        more="Ready is what the store has a staged set and passed records of; it can be run at any time, and "
        "again. Exit code 10 where the gate refused one.",
        example="cairn ci night promote --night latest --stack external-builds/sample --store ./store",
    )
    arguments.add_stack(parser)
    _add_night(parser)
    signing.add_trust(parser, what="whose signature each test record must have to count")
    signing.add_attesting(parser)
    arguments.add_dry_run(parser)
    arguments.add_json(parser)


def _add_report(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "report",
        _report,
        about="say how a night ended: on the status pages, in the run's summary, to whoever is to know",
        more="Exit code 10 where a leg that is not expected to fail is not in the index.",
        example="cairn ci night report --night latest --stack external-builds/sample --store ./store",
    )
    arguments.add_stack(parser)
    _add_night(parser)
    parser.add_argument(
        "--results",
        default="",
        metavar="WORDS",
        help="how the jobs ended, as GitHub has it: with `cancelled` among them, legs without a word of "
        "their own count as cancelled",
    )
    parser.add_argument(
        "--notify",
        default="",
        metavar="COMMAND",
        help="run this with the report as JSON on its standard input, where the night was not good",
    )
    arguments.add_dry_run(parser)
    arguments.add_json(parser)


def _add_list(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "list",
        _list,
        about="list the nights that a store knows, the last one first",
        example="cairn ci night list --store ./store",
    )
    arguments.add_store(parser)
    arguments.add_json(parser)


def _add_watch(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "watch",
        _watch,
        about="find nights that did not happen, and families whose last good night is long ago",
        more="For a schedule of its own: a schedule that has stopped fails nothing. Exit code 9 with a "
        "finding.",
        example="cairn ci night watch --store ./store --lines nightly --begun-within 26 --good-within 72",
    )
    arguments.add_store(parser)
    parser.add_argument(
        "--lines", default="", help="release lines that must have nights, joined by commas (default: all)"
    )
    for name, usual, what in (
        ("--begun-within", 26, "hours within which a night must have begun"),
        ("--good-within", 72, "hours within which each leg must have had a good one"),
    ):
        parser.add_argument(
            name, type=arguments.positive, default=usual, metavar="HOURS", help=f"{what} (default: {usual})"
        )
    arguments.add_json(parser)


def _add_night(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--night",
        type=arguments.nonempty,
        required=True,
        metavar="ID",
        help="which night; `latest` is the one that was frozen last",
    )
    arguments.add_store(parser)


def _add_leg(parser: argparse.ArgumentParser) -> None:
    arguments.add_stack(parser)
    _add_night(parser)
    parser.add_argument("--leg", type=arguments.nonempty, required=True, metavar="ID", help="which leg of it")


def _add_work_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--work-dir",
        type=arguments.new_folder,
        default=Path(".cairn"),
        metavar="DIR",
        help="folder of checkouts, environments and logs (default: %(default)s)",
    )


def _add_rocm_index(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rocm-index-url",
        default="",
        metavar="URL",
        help="index of ROCm packages, for stacks that do not make their SDK; {family} stands for the family",
    )


def _freeze(options: argparse.Namespace) -> int:
    from cairn import datafile
    from cairn.pipeline.night import github, plan, standing
    from cairn.pipeline.night.freeze import FreezeRequest, freeze

    stack, store = arguments.read_stack(options), arguments.open_store(options)
    request = FreezeRequest(
        night=options.night,
        stack=stack,
        legs=_legs(options.matrix, stack.line),
        work_dir=options.work_dir.absolute(),
        staging=options.staging,
        release=options.to,
        rocm_index_url=options.rocm_index_url or None,
        rocm_sdk_version=options.rocm_sdk_version or None,
        image=options.image,
        as_of=options.as_of,
        like=options.like or None,
        build_env=tuple(options.build_env),
    )
    with console.current().stage(f"freeze {stack.name}, {stack.line}") as stage:
        made = freeze(store, request, dry_run=options.dry_run, say=stage.update)
    run = plan.NightRun(store=store, plan=made, stack=stack)
    stood = [standing.look(run, leg) for leg in made.legs]
    missing = [one.leg for one in stood if one.state == "missing"]
    github.write_outputs({"night": made.night, **_matrix("build", missing)})
    screen = console.current()
    if options.json:
        screen.json({**datafile.to_plain(made), "missing": [leg.id for leg in missing]})
        return 0
    screen.out(f"night {made.night}: {made.stack}, {made.line}, manifest {made.manifest_sha256[:12]}")
    screen.table(("leg", "stands at"), [(one.leg.id, one.state) for one in stood])
    return 0


def _legs(path: Path, line: str) -> tuple[Leg, ...]:
    from cairn import datafile
    from cairn.matrix.legs import Matrix

    return tuple(leg for leg in datafile.read(path, Matrix).legs if leg.line == line)


def _matrix(name: str, legs: Sequence[Leg]) -> dict[str, str]:
    import json

    from cairn import datafile

    include = [datafile.to_plain(leg) for leg in legs]
    return {name: json.dumps({"include": include}, separators=(",", ":")), f"{name}_count": str(len(legs))}


def _run_of(options: argparse.Namespace) -> NightRun:
    """The night that the options name, with its stack on the line that it was frozen for."""
    from cairn import stack as stacks
    from cairn.pipeline.night import plan

    store = arguments.open_existing_store(options)
    found = plan.read(store, options.night)
    if options.line is not None and options.line != found.line:
        raise UsageError(f"the night {found.night} is of the line {found.line}", tip="leave --line out")
    stack = stacks.load(options.stack).for_line(found.line)
    if stack.name != found.stack:
        raise UsageError(
            f"the night {found.night} is of the stack {found.stack}, and not of {stack.name}",
            tip="name that one with --stack",
        )
    return plan.NightRun(
        store=store,
        plan=found,
        stack=stack,
        trust=signing.trust(options) if getattr(options, "trust", None) else None,
        dry_run=getattr(options, "dry_run", False),
    )


@contextmanager
def _attested(options: argparse.Namespace) -> Iterator[NightRun]:
    from dataclasses import replace

    with signing.attester(options) as attester:
        yield replace(_run_of(options), attester=attester)


def _build(options: argparse.Namespace) -> int:
    from cairn import datafile
    from cairn.cli.build import show_wheels
    from cairn.pipeline.night.build import LegBuild, build_leg
    from cairn.pipeline.night.stage import NOTE_FILE
    from cairn.release.index.generation import now

    run, started = _run_of(options), now()
    leg = run.plan.leg(options.leg)
    request = LegBuild(
        plan=run.plan,
        leg=leg,
        stack=run.stack,
        work_dir=options.work_dir.absolute(),
        output_dir=options.output_dir.absolute(),
        rocm_index_url=options.rocm_index_url or None,
        jobs=options.jobs,
    )
    request.output_dir.mkdir(parents=True, exist_ok=True)
    said = request.output_dir / NOTE_FILE
    said.unlink(missing_ok=True)
    try:
        wheels = build_leg(run.store, request)
    except CairnError as error:
        datafile.write(said, _note(run.plan, leg, "build", started, error))
        raise
    datafile.write(said, _note(run.plan, leg, "build", started))
    return show_wheels(wheels)


def _note(
    night: NightPlan, leg: Leg, stage: Stage, started: str, error: CairnError | None = None
) -> StepNote:
    from cairn.pipeline.night import github
    from cairn.pipeline.night.plan import StepNote
    from cairn.release.index.generation import now

    return StepNote(
        night=night.night,
        leg=leg.id,
        stage=stage,
        attempt=github.attempt(),
        good=error is None,
        reason="done" if error is None else str(error),
        started=started,
        finished=now(),
        log=github.run_url(),
    )


def _stage(options: argparse.Namespace) -> int:
    from cairn.pipeline.night import github, standing
    from cairn.pipeline.night.stage import stage_night

    with _attested(options) as run, console.current().stage(f"stage the night {run.plan.night}") as stage:
        done = stage_night(run, options.artifacts, say=stage.update)
    stood = [standing.look(run, leg) for leg in run.plan.legs]
    wanted = [one.leg for one in stood if one.state in ("untested", "failed") and one.leg.test_runs_on]
    staged = sum(one.set_id is not None for one in stood)
    github.write_outputs({**_matrix("test", wanted), "staged_count": str(staged)})
    screen = console.current()
    if options.json:
        screen.json(
            [{"leg": one.leg.id, "set": one.set_id, "kept": one.kept, "reason": one.reason} for one in done]
        )
        return 0
    for one in done:
        if one.set_id is None:
            screen.item("failed", f"{one.leg.name}: {one.reason}")
        else:
            screen.item("kept" if one.kept else "done", f"{one.leg.name}: set {one.set_id[:12]}")
    return 0


def _test(options: argparse.Namespace) -> int:
    from cairn.pipeline.night import plan
    from cairn.pipeline.night.smoke import LegTest, smoke_leg
    from cairn.release.index.generation import now

    run, started = _run_of(options), now()
    leg = run.plan.leg(options.leg)
    request = LegTest(
        run=run,
        leg=leg,
        work_dir=options.work_dir.absolute() / "smoke",
        timeout=options.timeout,
        signer=signing.signer(options),
    )
    try:
        record = smoke_leg(request)
    except CairnError as error:
        plan.note(run.store, _note(run.plan, leg, "test", started, error))
        raise
    plan.note(run.store, _note(run.plan, leg, "test", started))
    console.current().out(f"{leg.name}: {record.verdict}: {record.reason}")
    return 0


def _promote(options: argparse.Namespace) -> int:
    from cairn.pipeline.night.promote import promote_night

    with _attested(options) as run, console.current().stage(f"promote the night {run.plan.night}") as stage:
        done = promote_night(run, say=stage.update)
    screen = console.current()
    if options.json:
        legs = [{"leg": p.before.leg.id, "promoted": p.promoted, "reason": p.reason} for p in done.legs]
        screen.json({"night": run.plan.night, "legs": legs, "strangers": list(done.strangers)})
    else:
        for one in done.legs:
            _show_promotion(one)
    for set_id in done.strangers:
        screen.warn(f"the staged set {set_id[:12]} is of the night's manifest, and nobody expects it")
    if refused := [one for one in done.legs if one.refused]:
        raise GateError(
            f"the gate refused {len(refused)} of {len(done.legs)} legs of the night {run.plan.night}",
            reasons=tuple(f"{one.before.leg.name}: {one.reason}" for one in refused),
            tip="the others are where they should be; fix what is named and run it again",
        )
    return 0


def _show_promotion(one: LegPromotion) -> None:
    before = one.before
    mark: console.Mark = "done" if one.promoted else "failed"
    if before.state == "promoted":
        mark = "kept"
    elif one.promoted and before.bypass is not None:
        mark = "bypassed"
    console.current().item(mark, f"{before.leg.name}: {one.reason or 'in the index'}")


def _report(options: argparse.Namespace) -> int:
    from cairn.pipeline.night import github, report

    run = _run_of(options)
    ended = report.of_night(run, cancelled="cancelled" in options.results.split())
    if not run.dry_run:
        report.record(run.store, run.plan, ended)
    github.add_summary(report.markdown(run.plan, ended))
    screen, plain = console.current(), _plain(run.plan, ended)
    if options.json:
        screen.json(plain)
    else:
        rows = [
            (leg.name, one.outcome, one.stage or "-", one.reason or "-") for leg, one in _pairs(run, ended)
        ]
        screen.table(("leg", "outcome", "ended in", "why"), rows)
    bad = report.bad_legs(run.plan, ended)
    if not bad:
        return 0
    if options.notify and not run.dry_run:
        _notify(options.notify, plain)
    raise GateError(
        f"{len(bad)} of {len(ended)} legs of the night {run.plan.night} are not in {run.plan.release}",
        reasons=tuple(f"{leg.name}: {one.outcome} in {one.stage}: {one.reason}" for leg, one in bad),
        tip="run the failed jobs again: what is done stays done",
    )


def _pairs(run: NightRun, ended: Sequence[Night]) -> list[tuple[Leg, Night]]:
    return list(zip(run.plan.legs, ended, strict=True))


def _plain(night: NightPlan, ended: Sequence[Night]) -> dict[str, object]:
    from cairn import datafile

    return {
        "schema": "cairn.night-report/1",
        "night": night.night,
        "line": night.line,
        "log": night.log,
        "legs": [datafile.to_plain(one) for one in ended],
    }


def _notify(command: str, plain: dict[str, object]) -> None:
    """Tell whoever is to know; that it did not work changes nothing of the night."""
    import json

    from cairn import process

    try:
        process.run(shlex.split(command), stdin=json.dumps(plain).encode(), timeout=60)
    except (CairnError, OSError) as error:
        console.current().warn(f"{command} was to be told of it, and failed: {error}")


def _list(options: argparse.Namespace) -> int:
    from cairn import datafile
    from cairn.pipeline.night import plan

    found = sorted(plan.every(arguments.open_existing_store(options)), key=lambda n: n.frozen, reverse=True)
    if options.json:
        console.current().json([datafile.to_plain(night) for night in found])
        return 0
    console.current().table(
        ("night", "frozen", "stack", "line", "to", "legs", "manifest"),
        [
            (n.night, n.frozen[:16], n.stack, n.line, n.release, str(len(n.legs)), n.manifest_sha256[:12])
            for n in found
        ],
    )
    return 0


def _watch(options: argparse.Namespace) -> int:
    from cairn.pipeline.night import github, watch

    found = watch.problems(
        arguments.open_existing_store(options),
        lines=tuple(word.strip() for word in options.lines.split(",") if word.strip()),
        begun_within=timedelta(hours=options.begun_within),
        good_within=timedelta(hours=options.good_within),
    )
    if options.json:
        console.current().json(list(found))
    if not found:
        console.current().info("every line has had its night, and every leg a good one")
        return 0
    github.add_summary("\n".join(("## Nights", "", *(f"- {problem}" for problem in found))))
    raise StoreError(
        f"the nights are not what they should be: {'; '.join(found)}", tip="see the runs of nightly.yml"
    )
