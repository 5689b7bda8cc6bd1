"""The checkouts that a manifest froze, made again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cairn.concurrency import side_by_side
from cairn.output import Progress
from cairn.sources.checkout.checkout import CheckoutRequest, checkout
from cairn.sources.checkout.describe import Checkout
from cairn.sources.manifest.manifest import Manifest, project_of
from cairn.sources.manifest.therock import UpstreamSource


def reproduce(
    manifest: Manifest, requests: Mapping[str, CheckoutRequest], *, say: Progress
) -> tuple[Checkout, ...]:
    """Check out what a manifest froze, or bring existing checkouts there.

    Whether they came out equal is what `cairn.sources.manifest.manifest.verify` says.

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
        replace(
            requests[source.name],
            project=project_of(source),
            origin=requests[source.name].origin or source.origin,
            hashtag=source.hashtag,
            commit=source.commit,
            submodules=bool(source.submodules),
            hipify=source.hipify != "none",
        )
        for source in manifest.projects
    ]
    return _side_by_side(frozen, say=say)


def reproduce_upstreams(
    sources: Sequence[tuple[CheckoutRequest, UpstreamSource]], *, say: Progress
) -> tuple[Checkout, ...]:
    """Check out what a manifest of TheRock's names, where and how the request beside each source says.

    Raises:
        SourceError: an origin or a commit is gone, local work would be lost, or hipify failed.
        NetworkError: an origin could not be reached.
    """
    frozen = [
        replace(request, origin=source.repo, hashtag=source.branch or source.commit, commit=source.commit)
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
