"""What the commands of a night have in common: which night, which leg, and what a job says of itself."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import arguments, signing
from cairn.errors import UsageError

if TYPE_CHECKING:
    from cairn.matrix.legs import Leg
    from cairn.pipeline.night.plan import NightPlan, NightRun, Stage, StepNote
    from cairn.pipeline.night.shards import Shard


def add_night(parser: argparse.ArgumentParser) -> None:
    """`--night` and `--store`."""
    parser.add_argument(
        "--night",
        type=converters.nonempty,
        required=True,
        metavar="ID",
        help="which night; `latest` is the one that was frozen last",
    )
    arguments.add_store(parser)


def add_to_channel(parser: argparse.ArgumentParser) -> None:
    """`--to` of commands that only look at nights."""
    parser.add_argument(
        "--to",
        type=converters.nonempty,
        metavar="CHANNEL",
        help="only nights whose sets go there; a release is none of the nights (default: any)",
    )


def add_leg(parser: argparse.ArgumentParser) -> None:
    """`--stack`, `--night`, `--store` and `--leg`."""
    arguments.add_stack(parser)
    add_night(parser)
    parser.add_argument(
        "--leg", type=converters.nonempty, required=True, metavar="ID", help="which leg of it"
    )


def add_work_dir(parser: argparse.ArgumentParser) -> None:
    """`--work-dir`."""
    parser.add_argument(
        "--work-dir",
        type=converters.new_folder,
        default=Path(".cairn"),
        metavar="DIR",
        help="folder of checkouts, environments and logs (default: %(default)s)",
    )


def add_later(parser: argparse.ArgumentParser) -> None:
    """`--later`."""
    parser.add_argument(
        "--later",
        action="store_true",
        help="write nothing into the store: leave what it came to in the work folder, for `keep`",
    )


def add_shard(parser: argparse.ArgumentParser, *, default: int | None, more: str = "") -> None:
    """`--test-config` and `--shard`."""
    parser.add_argument(
        "--test-config",
        type=converters.nonempty,
        default="default",
        metavar="NAME",
        help="configuration in suite.toml: default, distributed, inductor, full (default: %(default)s)",
    )
    parser.add_argument(
        "--shard", type=converters.positive, default=default, help=f"which shard, from 1{more}"
    )


def run_of(options: argparse.Namespace) -> NightRun:
    """The night that the options name, with its stack on the line that it was frozen for."""
    from cairn import stack as stacks
    from cairn.pipeline.night import plan

    store = arguments.open_existing_store(options)
    stack = stacks.load(options.stack)
    to = getattr(options, "to", None)
    found = plan.read(store, options.night, stack=stack.name, line=options.line, release=to)
    if to not in (None, found.release):
        raise UsageError(f"the night {found.night} goes to {found.release}, and not to {to}")
    if options.line is not None and options.line != found.line:
        raise UsageError(f"the night {found.night} is of the line {found.line}", tip="leave --line out")
    if stack.name != found.stack:
        raise UsageError(
            f"the night {found.night} is of the stack {found.stack}, and not of {stack.name}",
            tip="name that one with --stack",
        )
    return plan.NightRun(
        store=store,
        plan=found,
        stack=stack.for_line(found.line),
        trust=signing.trust(options) if getattr(options, "trust", None) else None,
        dry_run=getattr(options, "dry_run", False),
    )


def shard_of(options: argparse.Namespace, run: NightRun) -> Shard:
    """The shard of the leg that the options name.

    Raises:
        UsageError: the leg has none like that.
    """
    from cairn.pipeline.night import shards

    leg = run.plan.leg(options.leg)
    there = shards.expected(run.stack, leg)
    for shard in there:
        if (shard.config, shard.number) == (options.test_config, options.shard):
            return shard
    raise UsageError(
        f"{leg.name} has no shard {options.shard} of {options.test_config}",
        tip=f"its shards are: {', '.join(one.part for one in there)}"
        if there
        else "its matrix names no suites",
    )


@contextmanager
def attested_run(options: argparse.Namespace) -> Iterator[NightRun]:
    """The night that the options name, with whoever vouches for its wheels."""
    from dataclasses import replace

    with signing.attester(options) as attester:
        yield replace(run_of(options), attester=attester)


def note(
    night: NightPlan,
    leg: Leg,
    stage: Stage,
    started: str,
    error: Exception | None = None,
    *,
    part: str = "",
) -> StepNote:
    """How a job of a leg ended."""
    from cairn.output import github
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
        part=part,
    )


def keep_note(run: NightRun, said: StepNote, folder: Path | None) -> None:
    """Keep how a job ended: in the store, or in a folder for `cairn ci night keep`."""
    from cairn import datafile
    from cairn.pipeline.night import plan
    from cairn.pipeline.night.stage import NOTE_FILE

    if folder is None:
        plan.note(run.store, said)
        return
    folder.mkdir(parents=True, exist_ok=True)
    datafile.write(folder / NOTE_FILE, said)


def outputs(name: str, legs: Sequence[Leg]) -> dict[str, str]:
    """The outputs of a step that hand legs to a matrix: NAME and NAME_count."""
    from cairn import datafile
    from cairn.output import github

    include = [datafile.to_plain(leg) for leg in legs]
    return {name: github.matrix(include), f"{name}_count": str(len(legs))}


def shard_outputs(wanted: Sequence[Shard]) -> dict[str, str]:
    """The outputs of a step that hand shards to a matrix: `suite` and `suite_count`."""
    from cairn.output import github

    include = [
        {
            "id": shard.leg.id,
            "name": shard.name,
            "python": shard.leg.python,
            "config": shard.config,
            "shard": shard.number,
            "num_shards": shard.count,
            "runs_on": shard.runs_on,
        }
        for shard in wanted
    ]
    return {"suite": github.matrix(include), "suite_count": str(len(include))}
