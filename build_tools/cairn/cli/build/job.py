"""The job that the options of `cairn build run` and `cairn build plan` describe."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import arguments
from cairn.cli.build import cache, variants
from cairn.cli.build import options as common

if TYPE_CHECKING:
    from cairn.build.model import Job


def add_options(parser: argparse.ArgumentParser, *, writes: bool) -> None:
    """What to build, from what, and how: what `run` and `plan` both take.

    Args:
        parser: of one of them.
        writes: it puts wheels into `--output-dir`, which must then be given.
    """
    arguments.add_stack(parser, default_line=arguments.LINE_OF_CHECKOUTS)
    arguments.add_pip(parser)
    parser.add_argument("--install-rocm", action="store_true", help="install the ROCm SDK first")
    arguments.add_root_checkout_dir(parser)
    arguments.add_output_dir(parser, required=writes)
    arguments.add_targets(parser, default="what the SDK serves")
    parser.add_argument(
        "--version-suffix", help="local version of the wheels, such as +rocm7.10.0 (default: the SDK's)"
    )
    arguments.add_jobs(parser, what="compile jobs")
    parser.add_argument("--clean", action="store_true", help="build everything again")
    common.add_split(parser)
    common.add_compiler_cache(parser)
    arguments.add_build_env(parser)
    parser.add_argument(
        "--env-dir", type=converters.new_folder, metavar="DIR", help="where environments are kept"
    )
    cache.add_cache_store(parser)
    common.add_running(parser)
    arguments.add_json(parser)
    variants.add_variants(parser)


def jobs_of(options: argparse.Namespace) -> tuple[Job, ...]:
    """The job of each variant that the options describe."""
    job = job_of(options)
    return variants.jobs_of(job, options, root=options.root_checkout_dir or Path(job.stack.folder))


def job_of(options: argparse.Namespace) -> Job:
    """The job that the options describe, before it is made one for each variant."""
    from cairn import stack as stacks
    from cairn.build.model import Job

    stack = stacks.load(options.stack)
    folder = options.root_checkout_dir or Path(stack.folder)
    job = Job(
        stack=stack,
        line=options.line,
        checkouts={p.name: folder / p.checkout_dir for p in stack.projects},
        output_dir=options.output_dir or Path(),
        sdk=arguments.wanted_sdk(options),
        install_rocm=options.install_rocm,
        targets=options.targets,
        version_suffix=options.version_suffix,
        jobs=options.jobs,
        split=options.split,
        clean=options.clean,
        compiler_cache=common.compiler_cache(options),
        build_env=tuple(options.build_env),
        env_dir=options.env_dir,
        shared_cache=cache.shared_cache(options),
        run=common.run_options(options),
    )
    if options.output_dir is None:
        # What a build reads below its output folder is no input of it: below the environments nothing is.
        return dataclasses.replace(job, output_dir=job.environments() / "wheels")
    return job
