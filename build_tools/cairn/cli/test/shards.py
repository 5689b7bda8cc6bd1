"""`cairn test shards`: a suite cut into shards, and their matrix for GitHub Actions."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import arguments
from cairn.cli.parser import Subparsers, add_command
from cairn.cli.test import suite_options
from cairn.errors import UsageError
from cairn.output import console

if TYPE_CHECKING:
    from cairn.testing.suite.shards.plan import ShardPlan


def add_to(commands: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "shards",
        run,
        about="cut a suite into shards that take equally long, and print the matrix for GitHub Actions",
        more="Longest modules first; a module is cut where it fits into no shard whole. Each shard makes "
        "the same plan by itself, from the same sources and times.",
        example="cairn test shards --suite external-builds/pytorch --sources-dir pytorch "
        "--times outcomes.jsonl --num-shards 6",
    )
    parser.add_argument(
        "--sources-dir",
        type=converters.folder,
        required=True,
        metavar="DIR",
        help="the sources of the project",
    )
    arguments.add_stack(parser, required=False)
    suite_options.add_config(parser)
    suite_options.add_times(parser)
    parser.add_argument(
        "--num-shards",
        type=converters.positive,
        metavar="N",
        help="number of shards (default: the configuration's)",
    )
    for name, what in (("--runner", "one GPU"), ("--multi-gpu-runner", "several GPUs")):
        parser.add_argument(
            name, type=converters.nonempty, metavar="LABEL", help=f"runs-on of machines with {what}"
        )
    parser.add_argument(
        "--github-output",
        action="store_true",
        help="write matrix and count to the outputs of the step of GitHub Actions",
    )
    arguments.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    from cairn.testing.suite import suite_toml
    from cairn.testing.suite.shards import plan
    from cairn.testing.suite.suite_toml import Choice

    suite = suite_toml.load(suite_options.suite_file(options))
    config = suite.config(options.test_config)
    modules = suite_toml.choose(config, options.sources_dir / suite.tests, Choice())
    made = plan.make(modules, suite_options.read_times(options), options.num_shards or config.shards)
    label = options.multi_gpu_runner if config.gpus == "all" else options.runner
    include = _include(made, options.test_config, label)
    show = console.current()
    if options.github_output:
        _write_outputs(include)
    if options.json:
        show.json({"include": include})
    else:
        show.table(
            ("shard", "minutes", "modules", "longest"),
            [
                (str(number), f"{seconds / 60:.1f}", str(len(shard)), shard[0].module if shard else "")
                for number, (shard, seconds) in enumerate(zip(made.shards, made.seconds, strict=True), 1)
            ],
        )
    if made.unknown:
        show.warn(f"no time is known of {len(made.unknown)} modules, such as {made.unknown[0]}")
    return 0


def _include(made: ShardPlan, config: str, label: str | None) -> list[dict[str, object]]:
    """The legs, with upstream's names for what its workflows read."""
    more = {"runs_on": label} if label else {}
    return [
        {
            "test_config": config,
            "shard": number,
            "num_shards": len(made.shards),
            "minutes": round(seconds / 60, 1),
            **more,
        }
        for number, seconds in enumerate(made.seconds, 1)
    ]


def _write_outputs(include: list[dict[str, object]]) -> None:
    path = os.environ.get("GITHUB_OUTPUT")
    if not path:
        raise UsageError(
            "GITHUB_OUTPUT is not set: this is not a step of GitHub Actions", tip="use --json elsewhere"
        )
    matrix = json.dumps({"include": include}, separators=(",", ":"))
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(f"matrix={matrix}\ncount={len(include)}\n")
