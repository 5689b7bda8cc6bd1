"""`cairn build`: wheels from the checkouts of a stack."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.cli import arguments, build_cache, build_options
from cairn.cli.parser import add_command, add_commands
from cairn.output import console

if TYPE_CHECKING:
    from cairn.build.model import BuiltWheel, Job
    from cairn.build.plan import Plan

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
    plan = add_command(
        commands,
        "plan",
        _plan,
        about="show what would be built, and what comes from the cache",
        example="cairn build plan --stack external-builds/pytorch --targets gfx1100 --output-dir out",
    )
    _add_options(plan)
    build_cache.add_to(commands)


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
    arguments.add_json(parser)


def _run(options: argparse.Namespace) -> int:
    from cairn.build import job

    return show_wheels(job.run(_job(options)), as_json=options.json)


def _plan(options: argparse.Namespace) -> int:
    from cairn.build import job

    return show_plan(job.plan_of(_job(options)), as_json=options.json)


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
    )


def show_plan(plan: Plan, *, as_json: bool) -> int:
    """Print what would be built."""
    rows = [(s.project.name, "build" if s.hit is None else "cached", str(s.checkout)) for s in plan.steps]
    if as_json:
        console.current().json(
            [dict(zip(("project", "action", "checkout"), row, strict=True)) for row in rows]
        )
    else:
        console.current().table(("project", "action", "checkout"), rows)
    return 0


def show_wheels(wheels: Sequence[BuiltWheel], *, as_json: bool = False) -> int:
    """Print what was built."""
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
                    "origin": w.origin,
                    "builder": w.builder,
                }
                for w in wheels
            ]
        )
        return 0
    console.current().table(
        ("wheel", "size", "targets", "sha256", "time"),
        [
            (
                w.wheel.name,
                console.size(w.wheel.stat().st_size),
                " ".join(w.targets) or "-",
                w.sha256[:16],
                _taken(w),
            )
            for w in wheels
        ],
    )
    return 0


def _taken(wheel: BuiltWheel) -> str:
    """How long a wheel took, or where it was."""
    if not wheel.cached:
        return console.clock(wheel.seconds)
    return "shared cache" if wheel.origin == "shared" else "cached"
