"""The command line of upstream's `fetch_artifacts.py`: its name and flags, over `cairn rocm fetch`.

Source of the flags: ROCm/TheRock, build_tools/fetch_artifacts.py, and `--target` of its older pages.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from cairn import converters
from cairn.cli import arguments
from cairn.cli.guard import guarded
from cairn.cli.parser import Parser
from cairn.cli.rocm import fetch as command
from cairn.errors import UsageError


def main(argv: Sequence[str] | None = None, *, script: str) -> int:
    """Run the script; returns its exit code."""
    return guarded(_parser(Path(script)).parse_args(argv))


def _parser(script: Path) -> argparse.ArgumentParser:
    parser = Parser(
        prog=script.name,
        description="Fetch the artifacts of a CI run of TheRock, and unpack them.",
        epilog=f"example: python {script.name} --run-id 17123441166 --target gfx110X-all --output-dir out",
    )
    command.add_source(parser)
    # As upstream has it: in a workflow, the run is one of the workflow's own repository.
    parser.set_defaults(run_github_repo=os.environ.get("GITHUB_REPOSITORY") or "ROCm/TheRock")
    if os.environ.get("RELEASE_TYPE") in command.RELEASE_TYPES:
        parser.set_defaults(release_type=os.environ["RELEASE_TYPE"])
    command.add_patterns(parser)
    parser.add_argument(
        "--artifact-group",
        "--target",
        dest="artifact_group",
        metavar="GROUP",
        help="only what is for this group, such as gfx110X-all, and for all (default: everything)",
    )
    parser.add_argument(
        "--amdgpu-targets",
        default="",
        metavar="TARGETS",
        help="single targets whose artifacts are wanted too, joined by commas: gfx942,gfx1100",
    )
    parser.add_argument(
        "--download-concurrency", type=converters.positive, default=10, help="downloads at once"
    )
    parser.add_argument(
        "--extract-concurrency", type=converters.positive, default=4, help="archives unpacked at once"
    )
    arguments.add_output_dir(parser, default=Path("build/artifacts"))
    flag = argparse.BooleanOptionalAction
    parser.add_argument("--dry-run", action=flag, default=False, help="say what would be fetched")
    layout = parser.add_mutually_exclusive_group()
    layout.add_argument("--extract", action="store_true", help="a folder per artifact (this is the default)")
    layout.add_argument("--no-extract", action="store_true", help="the archives alone")
    layout.add_argument("--flatten", action="store_true", help="all artifacts in one tree")
    parser.add_argument(
        "--delete-after-extract", action=flag, default=True, help="remove the archives once they are unpacked"
    )
    command.add_unverified(parser)
    arguments.add_json(parser)
    parser.set_defaults(run=_run)
    return parser


def _run(options: argparse.Namespace) -> int:
    from cairn.rocm.fetch.choose import Wanted
    from cairn.rocm.fetch.fetch import FetchRequest

    if options.run_id is None and options.store is None:
        raise UsageError("--run-id is missing", tip="it is the number in the address of the run")
    request = FetchRequest(
        wanted=Wanted(
            groups=(options.artifact_group,) if options.artifact_group else (),
            targets=tuple(word.strip() for word in options.amdgpu_targets.split(",") if word.strip()),
            include=tuple(options.include),
            exclude=tuple(options.exclude),
        ),
        output_dir=options.output_dir,
        layout="flatten" if options.flatten else "archives" if options.no_extract else "extract",
        keep_archives=not options.delete_after_extract,
        verified_only=not options.allow_unverified,
        jobs=options.download_concurrency,
        unpack_jobs=options.extract_concurrency,
    )
    return command.fetch(options, request)
