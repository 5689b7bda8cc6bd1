"""How a user may have the trail run, a night frozen, and a leg of it built: parts of these requests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.build.build_options import CompileOptions, CompilerCacheOptions, build_env, compile_jobs
from cairn.options import option
from cairn.sources.checkout.checkout_options import as_of, force

if TYPE_CHECKING:
    from datetime import datetime


def _work_dir(contents: str) -> Path:
    """`--work-dir`."""
    folder: Path = option(
        f"folder of {contents} (default: %(default)s)", convert=converters.new_folder, default=Path(".cairn")
    )
    return folder


def rocm_index_url() -> str:
    """`--rocm-index-url`."""
    url: str = option(
        "index of ROCm packages, for stacks that do not make their SDK; {family} stands for the family",
        metavar="URL",
        convert=converters.place,
        default="",
    )
    return url


@dataclass(frozen=True, kw_only=True)
class TrailOptions(CompileOptions):
    """How the trail is run.

    Attributes:
        work_dir: holds checkouts, environments, wheels, the index and the report.
        force: drop local edits in the checkouts.
    """

    work_dir: Path = _work_dir("checkouts, environments, wheels, index and report")
    force: bool = force()


@dataclass(frozen=True, kw_only=True)
class FreezeOptions:
    """How a night begins; a text that is empty says nothing.

    Attributes:
        release: the channel that its sets go to.
        like: the id of a night whose manifest is taken again, with the image that it names.
        rocm_version: the exact version of the ROCm SDK, also in place of that of `like`.
        rocm_index_url: the index of the ROCm SDK, for a stack that does not make it; `{family}` in it stands
            for the family. Builds install it from there, and staging copies it.
        image: the container that builds run in, by digest.
        work_dir: where the checkouts are made.
        build_env: variables for the builds, as the user wrote them.
        as_of: the moment whose sources are taken; None takes the newest.
        refs: what is built in place of the line's commits, as the user wrote it; such a night goes to `dev`.
    """

    release: str = option(
        "where they go (default: %(default)s)", "--to", metavar="CHANNEL", default="nightly"
    )
    like: str = option("take the manifest of that night; empty for a new one", metavar="NIGHT", default="")
    rocm_version: str = option(
        "exact version of the ROCm SDK (default: the stack's, else the newest of --rocm-index-url)",
        metavar="VERSION",
        convert=converters.exact_version,
        default="",
    )
    rocm_index_url: str = rocm_index_url()
    image: str = option("the container that builds run in, by digest, or empty", metavar="REF", default="")
    work_dir: Path = _work_dir("checkouts, environments and logs")
    build_env: tuple[str, ...] = build_env()
    as_of: datetime | None = as_of()
    refs: str = option(
        "build these in place of the line's commits, such as torch=my-branch, or torch=URL@REF of a fork; a "
        "branch, a tag, a commit or #N for a pull request. Needs --to dev, where the sets stay",
        metavar="PROJECT=REF,…",
        default="",
    )


@dataclass(frozen=True, kw_only=True)
class LegBuildOptions(CompilerCacheOptions):
    """How a leg of a night is built.

    Attributes:
        work_dir: checkouts, environments and logs, in a folder for each leg; and an SDK that a stack makes,
            which the Pythons of a family share.
        jobs: compile jobs at once; 0 is one per processor.
    """

    work_dir: Path = _work_dir("checkouts, environments and logs")
    jobs: int = compile_jobs()
