"""The command line of upstream's `fetch_artifacts.py`: its name and flags, over `cairn rocm fetch`.

Source of the flags: ROCm/TheRock, build_tools/fetch_artifacts.py, and `--target` of its older pages.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cairn import converters
from cairn.cli import binder, fields
from cairn.cli.answer import Answer
from cairn.cli.guard import guarded
from cairn.cli.parser import Parser
from cairn.cli.rocm import fetch as command
from cairn.errors import UsageError
from cairn.options import Exclusive, flag, option, switch

_LAYOUT = Exclusive()


@dataclass(frozen=True, kw_only=True)
class FetchArtifacts(command.Artifacts):
    """What the script is asked for.

    Fetch the artifacts of a CI run of TheRock, and unpack them.

        python fetch_artifacts.py --run-id 17123441166 --target gfx110X-all --output-dir out
    """

    artifact_group: str | None = option(
        "only what is for this group, such as gfx110X-all, and for all (default: everything)",
        *("--artifact-group", "--target"),
        metavar="GROUP",
    )
    amdgpu_targets: str = option(
        "single targets whose artifacts are wanted too, joined by commas: gfx942,gfx1100",
        metavar="TARGETS",
        default="",
    )
    download_concurrency: int = option("downloads at once", convert=converters.positive, default=10)
    extract_concurrency: int = option("archives unpacked at once", convert=converters.positive, default=4)
    output_dir: Path = fields.output_dir(default=Path("build/artifacts"))
    dry_run: bool = switch("say what would be fetched")
    extract: bool = flag("a folder per artifact (this is the default)", group=_LAYOUT)
    no_extract: bool = flag("the archives alone", group=_LAYOUT)
    flatten: bool = flag("all artifacts in one tree", group=_LAYOUT)
    delete_after_extract: bool = switch("remove the archives once they are unpacked", default=True)


def main(argv: Sequence[str] | None = None, *, script: str) -> int:
    """Run the script; returns its exit code."""
    return guarded(_parser(Path(script)).parse_args(argv))


def _parser(script: Path) -> Parser:
    # As upstream has it: in a workflow, the run is one of the workflow's own repository.
    defaults = {"run_github_repo": os.environ.get("GITHUB_REPOSITORY") or "ROCm/TheRock"}
    if (kind := os.environ.get("RELEASE_TYPE")) in command.RELEASE_TYPES:
        defaults["release_type"] = kind
    return binder.script(script, FetchArtifacts, _run, defaults=defaults)


def _run(request: FetchArtifacts) -> Answer:
    from cairn.rocm.fetch.fetch import FetchRequest

    if request.run_id is None and request.store is None:
        raise UsageError("--run-id is missing", tip="it is the number in the address of the run")
    fetch_request = FetchRequest(
        wanted=request.wanted(
            groups=(request.artifact_group,) if request.artifact_group else (),
            targets=tuple(filter(None, map(str.strip, request.amdgpu_targets.split(",")))),
        ),
        output_dir=request.output_dir,
        layout="flatten" if request.flatten else "archives" if request.no_extract else "extract",
        keep_archives=not request.delete_after_extract,
        verified_only=not request.allow_unverified,
        jobs=request.download_concurrency,
        unpack_jobs=request.extract_concurrency,
    )
    return command.fetch(request, fetch_request, dry_run=request.dry_run)
