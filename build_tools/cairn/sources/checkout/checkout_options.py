"""What a user may ask of a checkout: the options of the commands, and a part of every `CheckoutRequest`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.options import flag, option, switch

if TYPE_CHECKING:
    from datetime import datetime


def as_of() -> datetime | None:
    """`--as-of`."""
    moment: datetime | None = option(
        "take branches as they were at the end of this date (UTC), or at this time (ISO 8601)",
        metavar="DATE",
        convert=converters.moment,
    )
    return moment


def force() -> bool:
    """`--force`."""
    chosen: bool = flag("drop local work that stands in the way; refs/cairn/dropped keeps it")
    return chosen


@dataclass(frozen=True, kw_only=True)
class HipifyOptions:
    """How a tree is hipified.

    Attributes:
        commit_hipify: commit what hipify did, and tag it.
        python: the interpreter hipify runs in; ours when None.
    """

    commit_hipify: bool = switch("commit what hipify did, and tag it", default=True)
    python: Path | None = option(
        "interpreter that hipify runs in (default: Cairn's own)", convert=converters.program
    )


@dataclass(frozen=True, kw_only=True)
class CheckoutOptions(HipifyOptions):
    """Which commit is checked out, and how.

    Attributes:
        origin: a git URL or a path; empty for what torch's pin or the stack says (`checkout_stack`).
        hashtag: a branch, tag, commit or any other ref of the origin; empty likewise.
        require_related_commit: refuse where torch's `related_commits` does not name the project.
        release: take the release branch of torch's triton version, instead of the commit that torch pins.
        as_of: take a branch as it was at this moment (`cairn.sources.mirror` has the rule).
        depth: commits of history to fetch; None for all.
        jobs: how many submodules are fetched and placed at once; 0 for one per processor.
        submodules: check them out too.
        hipify: hipify, where the project does so at checkout.
        force: drop local edits and commits that are in the way, after keeping them under a ref.
    """

    origin: str = option(
        "git URL or path of the repository",
        "--gitrepo-origin",
        metavar="URL",
        default="",
        convert=converters.url,
    )
    hashtag: str = option(
        "branch, tag, commit, or #N for a pull request",
        "--repo-hashtag",
        metavar="REF",
        default="",
        convert=converters.nonempty,
    )
    require_related_commit: bool = switch("refuse where torch's related_commits does not name the project")
    release: bool = switch("the release branch of torch's triton version, instead of its pinned commit")
    depth: int | None = option(
        "fetch only this many commits of history (default: all)", convert=converters.positive
    )
    jobs: int = option(
        "submodules that are fetched at once (default: what suits)", default=0, convert=converters.positive
    )
    as_of: datetime | None = as_of()
    submodules: bool = switch("check submodules out too", default=True)
    hipify: bool = switch("hipify, where it is done at checkout", default=True)
    force: bool = force()
