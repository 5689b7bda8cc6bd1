"""`cairn test shards`: a suite cut into shards, and their matrix for GitHub Actions."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import fields
from cairn.cli.answer import Answer, Table
from cairn.cli.binder import command
from cairn.cli.test import suite_options
from cairn.cli.test.suite_options import TimesOptions
from cairn.errors import UsageError
from cairn.options import flag, option
from cairn.output import console

if TYPE_CHECKING:
    from cairn.testing.suite.shards.plan import ShardPlan


@dataclass(frozen=True, kw_only=True)
class Shards(TimesOptions):
    """What `cairn test shards` is asked for.

    Longest modules first; a module is cut where it fits into no shard whole. Each shard makes the same
    plan by itself, from the same sources and times.

        cairn test shards --suite external-builds/pytorch --sources-dir pytorch --times outcomes.jsonl
        --num-shards 6
    """

    sources_dir: Path = suite_options.sources_dir()
    stack: Path | None = fields.stack(required=False)
    line: str | None = fields.line()
    num_shards: int | None = option(
        "number of shards (default: the configuration's)", metavar="N", convert=converters.positive
    )
    runner: str | None = option(
        "runs-on of machines with one GPU", metavar="LABEL", convert=converters.nonempty
    )
    multi_gpu_runner: str | None = option(
        "runs-on of machines with several GPUs", metavar="LABEL", convert=converters.nonempty
    )
    github_output: bool = flag("write matrix and count to the outputs of the step of GitHub Actions")
    json: bool = fields.json()


def run(request: Shards) -> Answer:
    """Run the command."""
    from cairn.output import github
    from cairn.testing.options import Choice
    from cairn.testing.suite import suite_toml
    from cairn.testing.suite.shards import plan

    suite = suite_toml.load(request.suite_file())
    config = suite.config(request.test_config)
    modules = suite_toml.choose(config, request.sources_dir / suite.tests, Choice())
    shard_plan = plan.make(modules, request.read_times(), request.num_shards or config.shards)
    label = request.multi_gpu_runner if config.gpus == "all" else request.runner
    include = _include(shard_plan, request.test_config, label)
    if request.github_output:
        if not os.environ.get("GITHUB_OUTPUT"):
            raise UsageError(
                "GITHUB_OUTPUT is not set: this is not a step of GitHub Actions", tip="use --json elsewhere"
            )
        github.write_outputs({"matrix": github.matrix(include), "count": str(len(include))})
    if unknown := shard_plan.unknown:
        console.current().warn(f"no time is known of {len(unknown)} modules, such as {unknown[0]}")
    rows = [
        (number, f"{seconds / 60:.1f}", len(shard), shard[0].module if shard else "")
        for number, (shard, seconds) in enumerate(zip(shard_plan.shards, shard_plan.seconds, strict=True), 1)
    ]
    return Answer({"include": include}, [Table(("shard", "minutes", "modules", "longest"), rows)])


def _include(shard_plan: ShardPlan, config: str, label: str | None) -> list[dict[str, object]]:
    """The legs, with upstream's names for what its workflows read."""
    more = {"runs_on": label} if label else {}
    return [
        {
            "test_config": config,
            "shard": number,
            "num_shards": len(shard_plan.shards),
            "minutes": round(seconds / 60, 1),
            **more,
        }
        for number, seconds in enumerate(shard_plan.seconds, 1)
    ]


COMMANDS = {"shards": command(Shards, run)}
