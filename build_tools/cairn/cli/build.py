"""`cairn build`: wheels from the checkouts of a stack."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.cli import arguments, build_cache, build_log, build_options, build_plan, build_variants
from cairn.cli.parser import add_command, add_commands
from cairn.output import console

if TYPE_CHECKING:
    from cairn.build.model import BuiltWheel, Job

_EXAMPLE = (
    "cairn build --stack external-builds/pytorch --install-rocm "
    "--index-url https://rocm.nightlies.amd.com/v2/gfx110X-all/ --targets gfx1100 --output-dir out"
)


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the commands of the group; without the name of one, a build is meant."""
    commands = add_commands(
        parser,
        description="Build the wheels of a stack from its checkouts; what has not changed is not built.",
        example=_EXAMPLE,
        default="run",
    )
    run = add_command(
        commands,
        "run",
        _run,
        about="build the wheels; without the name of a command, this one is meant",
        example=_EXAMPLE.replace("cairn build", "cairn build run"),
    )
    _add_options(run)
    build_options.add_develop(run)
    plan = add_command(
        commands,
        "plan",
        _plan,
        about="show what would be built, and what comes from the cache",
        example="cairn build plan --stack external-builds/pytorch --targets gfx1100 --output-dir out",
    )
    _add_options(plan)
    build_plan.add_plan(plan)
    build_cache.add_to(commands)
    build_log.add_to(commands)


def _add_options(parser: argparse.ArgumentParser) -> None:
    arguments.add_stack(parser, default_line=arguments.LINE_OF_CHECKOUTS)
    arguments.add_pip(parser)
    parser.add_argument("--install-rocm", action="store_true", help="install the ROCm SDK first")
    arguments.add_root_checkout_dir(parser)
    arguments.add_output_dir(parser)
    arguments.add_targets(parser, default="what the SDK serves")
    parser.add_argument(
        "--version-suffix", help="local version of the wheels, such as +rocm7.10.0 (default: the SDK's)"
    )
    arguments.add_jobs(parser, what="compile jobs")
    parser.add_argument("--clean", action="store_true", help="build everything again")
    build_options.add_compiler_cache(parser)
    arguments.add_build_env(parser)
    parser.add_argument(
        "--env-dir", type=arguments.new_folder, metavar="DIR", help="where environments are kept"
    )
    build_cache.add_cache_store(parser)
    build_options.add_running(parser)
    arguments.add_json(parser)
    build_variants.add_variants(parser)


def _run(options: argparse.Namespace) -> int:
    from cairn.build import job, variants

    jobs = _jobs(options)
    if options.develop:
        return build_options.develop(options, jobs)
    built = job.run_all(jobs)
    labels = variants.labels(jobs)
    return show_wheels(
        [wheel for wheels in built for wheel in wheels],
        variants=[label for label, wheels in zip(labels, built, strict=True) for _ in wheels],
        as_json=options.json,
    )


def _plan(options: argparse.Namespace) -> int:
    return build_plan.show(_jobs(options), options)


def _jobs(options: argparse.Namespace) -> tuple[Job, ...]:
    job = _job(options)
    return build_variants.jobs_of(job, options, root=options.root_checkout_dir or Path(job.stack.folder))


def _job(options: argparse.Namespace) -> Job:
    from cairn import stack as stacks
    from cairn.build.model import Job

    stack = stacks.load(options.stack)
    folder = options.root_checkout_dir or Path(stack.folder)
    return Job(
        stack=stack,
        line=options.line,
        checkouts={p.name: folder / p.checkout_dir for p in stack.projects},
        output_dir=options.output_dir,
        sdk=arguments.wanted_sdk(options),
        install_rocm=options.install_rocm,
        targets=options.targets,
        version_suffix=options.version_suffix,
        jobs=options.jobs,
        clean=options.clean,
        compiler_cache=build_options.compiler_cache(options),
        build_env=tuple(options.build_env),
        env_dir=options.env_dir,
        shared_cache=build_cache.shared_cache(options),
        run=build_options.run_options(options),
    )


def show_wheels(wheels: Sequence[BuiltWheel], *, variants: Sequence[str] = (), as_json: bool = False) -> int:
    """Print what was built.

    Args:
        wheels: of all variants.
        variants: what tells them from each other, one for each wheel; none where there is one variant.
        as_json: print it as JSON.
    """
    several = any(variants)
    if as_json:
        console.current().json(
            [
                {
                    "project": w.project,
                    "file": str(w.wheel),
                    "version": w.version,
                    "sha256": w.sha256,
                    "targets": list(w.targets),
                    "seconds": round(w.seconds, 2),
                    "cached": w.cached,
                }
                | ({"variant": variants[number]} if several else {})
                for number, w in enumerate(wheels)
            ]
        )
        return 0
    rows: list[tuple[str, ...]] = [
        (
            w.wheel.name,
            console.size(w.wheel.stat().st_size),
            " ".join(w.targets) or "-",
            w.sha256[:16],
            "cached" if w.cached else console.clock(w.seconds),
        )
        for w in wheels
    ]
    head: tuple[str, ...] = ("wheel", "size", "targets", "sha256", "time")
    if several:
        rows = [(label, *row) for label, row in zip(variants, rows, strict=True)]
        head = ("variant", *head)
    console.current().table(head, rows)
    return 0
