"""Whether the origins have what checkouts are made of: no one else can build what is on one machine only."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cairn.concurrency import side_by_side
from cairn.output import Progress
from cairn.retry import RetryPolicy
from cairn.sources.checkout import local_commits
from cairn.sources.checkout.describe import Checkout
from cairn.sources.git import command, repository
from cairn.sources.git.repository import HIPIFY_TAG, UPSTREAM_TAG
from cairn.sources.mirror import mirror
from cairn.sources.mirror.mirror import Mirror
from cairn.sources.worktree.parts import walk

_JOBS = 8  # each sends and receives little, and waits for its server


@dataclass(frozen=True, kw_only=True)
class _Claim:
    name: str
    origin: str
    commit: str


def missing(
    checkouts: Sequence[Checkout], *, retry: RetryPolicy | None = None, say: Progress
) -> tuple[str, ...]:
    """Commits, of projects and of submodules, that their origins do not have; each as a sentence.

    Every origin is asked, not our mirrors: they also keep what an origin has dropped since.

    Raises:
        NetworkError: an origin could not be reached.
        SourceError: there is no origin, or we may not read it.
    """
    claims = [claim for checkout in checkouts for claim in _claims(checkout)]
    say(f"asking {len({claim.origin for claim in claims})} origins for {len(claims)} commits")

    def has(claim: _Claim) -> bool:
        return claim.origin != "" and _has(claim, retry=retry or RetryPolicy(), say=say)

    results = side_by_side(has, claims, jobs=_JOBS)
    return tuple(
        f"{claim.name}: {claim.origin or 'no origin'} does not have {claim.commit}"
        for claim, exists in zip(claims, results, strict=True)
        if not exists
    )


def local_work(checkouts: Sequence[Checkout]) -> tuple[str, ...]:
    """Projects and submodules whose files are not those of their last tag; each as a sentence."""
    problems = []
    for checkout in checkouts:
        name = checkout.project.name
        trees = {"": checkout.tree} | {module.path: module.tree for module in checkout.submodules}
        for part in walk(repository.root_at(checkout.path)):
            own = part.repository
            tag = HIPIFY_TAG if own.tag(HIPIFY_TAG) else UPSTREAM_TAG
            if trees[part.path] != own.commit_tree(own.tag(tag) or "HEAD") or local_commits.beneath(own):
                where = f"{name}, submodule {part.path}" if part.path else name
                problems.append(f"{where} has edits or commits above {tag}")
    return tuple(problems)


def _claims(checkout: Checkout) -> Iterator[_Claim]:
    # A repository without a remote goes by its own path: it would vouch for itself.
    origin = "" if Path(checkout.origin) == checkout.path else checkout.origin
    yield _Claim(name=checkout.project.name, origin=origin, commit=checkout.commit)
    for module in checkout.submodules:
        name = f"{checkout.project.name}, submodule {module.path}"
        yield _Claim(name=name, origin=module.origin, commit=module.commit)


def _has(claim: _Claim, *, retry: RetryPolicy, say: Progress) -> bool:
    with tempfile.TemporaryDirectory(prefix="cairn-ask-") as temporary:
        path = Path(temporary)
        command.run(path, "init", "--quiet", "--bare", ".")
        # The commit alone, without its files (git-rev-list(1), `--filter=tree:0`) and its history.
        ask = Mirror(origin=claim.origin, path=path, depth=1, only="tree:0", retry=retry)
        try:
            mirror.fetch(ask, claim.commit, say=say)
        except command.UnknownRefError as error:
            # A server that does not have a commit says "not our ref"; "unadvertised object" means that it
            # will not say (git's upload-pack.c and fetch-pack.c).
            if "unadvertised" not in str(error):
                return False
            # This server gives out branches and tags only, no commit by its id (git's
            # uploadpack.allowReachableSHA1InWant): look through the history of all of them.
            everything = dataclasses.replace(ask, depth=None)
            mirror.fetch(everything, "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*", say=say)
        return command.succeeds(path, "cat-file", "-e", claim.commit)
