"""Recreate the checkouts that a manifest froze, and check whether others can.

No one else can build what is on one machine only: `missing_at_origins` asks the origins for what a manifest
names, `local_work` lists edits and commits that are in no manifest.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from msgspec import structs

from cairn.concurrency import side_by_side
from cairn.output import Progress
from cairn.retry import RetryPolicy
from cairn.sources import mirror
from cairn.sources.checkout import local_commits
from cairn.sources.checkout.checkout import CheckoutRequest, checkout
from cairn.sources.checkout.describe import Checkout
from cairn.sources.git import command, repository
from cairn.sources.git.repository import HIPIFY_TAG, UPSTREAM_TAG
from cairn.sources.manifest.manifest import Manifest, UpstreamSource, project_of
from cairn.sources.mirror import Mirror
from cairn.sources.worktree import contents, journal
from cairn.sources.worktree.parts import walk


def reproduce(
    manifest: Manifest, requests: Mapping[str, CheckoutRequest], *, say: Progress
) -> tuple[Checkout, ...]:
    """Check out the sources that a manifest froze, or move existing checkouts there.

    Hipify's changes are not committed: HEAD, which builds write into wheels, is upstream's commit.
    `cairn.sources.manifest.manifest.verify` then tells whether the checkouts equal the frozen ones.

    Args:
        manifest: what to make.
        requests: where and how, by project name. The manifest wins, except over an origin that is named here:
            its own may be a path of a different machine.
        say: progress callback.

    Raises:
        SourceError: an origin or a commit is gone, local work would be lost, or hipify failed.
        NetworkError: an origin could not be reached.
    """
    frozen = [
        dataclasses.replace(
            requests[source.name],
            project=project_of(source),
            origin=requests[source.name].origin or source.origin,
            hashtag=source.hashtag,
            commit=source.commit,
            submodules=bool(source.submodules),
            hipify=source.hipify != "none",
            commit_hipify=False,
        )
        for source in manifest.projects
    ]
    return _side_by_side(frozen, say=say)


def reproduce_upstreams(
    sources: Sequence[tuple[CheckoutRequest, UpstreamSource]], *, say: Progress
) -> tuple[Checkout, ...]:
    """Check out the sources of a TheRock manifest, each as its request says.

    Raises:
        SourceError: an origin or a commit is gone, local work would be lost, or hipify failed.
        NetworkError: an origin could not be reached.
    """
    frozen = [
        dataclasses.replace(
            request, origin=source.repo, hashtag=source.branch or source.commit, commit=source.commit
        )
        for request, source in sources
    ]
    return _side_by_side(frozen, say=say)


def _side_by_side(requests: Sequence[CheckoutRequest], *, say: Progress) -> tuple[Checkout, ...]:
    # All at once: which commits they are at is known, so torch need not come before what it pins.
    return side_by_side(
        lambda request: checkout(request, say=lambda line: say(f"{request.project.name}: {line}")),
        requests,
        jobs=len(requests),
    )


_JOBS = 8  # each sends and receives little, and waits for its server


_Claim: TypeAlias = tuple[str, str, str]  # what it is of, origin, commit


def missing_at_origins(
    checkouts: Sequence[Checkout], *, retry: RetryPolicy | None = None, say: Progress
) -> tuple[str, ...]:
    """Return the commits of projects and submodules that their origins lack, each as a sentence.

    Every origin is asked, not our mirrors: they also keep what an origin has dropped since.

    Raises:
        NetworkError: an origin could not be reached.
        SourceError: there is no origin, or we may not read it.
    """
    claims = [claim for checkout in checkouts for claim in _claims(checkout)]
    say(f"asking {len({origin for _, origin, _ in claims})} origins for {len(claims)} commits")

    def has(claim: _Claim) -> bool:
        return claim[1] != "" and _has(*claim[1:], retry=retry or RetryPolicy(), say=say)

    results = side_by_side(has, claims, jobs=_JOBS)
    return tuple(
        f"{name}: {origin or 'no origin'} does not have {commit}"
        for (name, origin, commit), exists in zip(claims, results, strict=True)
        if not exists
    )


def local_work(checkouts: Sequence[Checkout]) -> tuple[str, ...]:
    """Return the projects and submodules whose files differ from their last tag, each as a sentence."""
    problems = []
    for restored in checkouts:
        name, root = restored.project.name, repository.root_at(restored.path)
        trees = {"": restored.tree} | {module.path: module.tree for module in restored.submodules}
        note = journal.read(root.git_dir)
        hipified = note.files_digest if note is not None else None  # where hipify's changes are not committed
        is_hipifys = hipified is not None and contents.tree_state(restored.path) == hipified
        for part in walk(root):
            tree = part.repository
            tag = HIPIFY_TAG if tree.tag(HIPIFY_TAG) else UPSTREAM_TAG
            if is_hipifys:
                is_upstreams = tree.tag(tag) == tree.head()
            else:
                is_upstreams = trees[part.path] == tree.commit_tree(tree.tag(tag) or "HEAD")
            if not is_upstreams or local_commits.beneath(tree):
                where = f"{name}, submodule {part.path}" if part.path else name
                problems.append(f"{where} has edits or commits above {tag}")
    return tuple(problems)


def _claims(checkout: Checkout) -> Iterator[_Claim]:
    # A repository without a remote goes by its own path: it would vouch for itself.
    origin = "" if Path(checkout.origin) == checkout.path else checkout.origin
    yield checkout.project.name, origin, checkout.commit
    for module in checkout.submodules:
        yield f"{checkout.project.name}, submodule {module.path}", module.origin, module.commit


def _has(origin: str, commit: str, *, retry: RetryPolicy, say: Progress) -> bool:
    with tempfile.TemporaryDirectory(prefix="cairn-ask-") as temporary:
        path = Path(temporary)
        command.run(path, "init", "--quiet", "--bare", ".")
        # The commit alone, without its files (git-rev-list(1), `--filter=tree:0`) and its history.
        ask = Mirror(origin=origin, path=path, depth=1, only="tree:0", retry=retry)
        try:
            mirror.fetch(ask, commit, say=say)
        except command.UnknownRefError as error:
            # A server that does not have a commit says "not our ref"; "unadvertised object" means that it
            # will not say (git's upload-pack.c and fetch-pack.c).
            if "unadvertised" not in str(error):
                return False
            # This server gives out branches and tags only, no commit by its id (git's
            # uploadpack.allowReachableSHA1InWant): look through the history of all of them.
            everything = structs.replace(ask, depth=None)
            mirror.fetch(everything, "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*", say=say)
        return command.succeeds(path, "cat-file", "-e", commit)
