"""The checkouts that a manifest froze, made again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from cairn.concurrency import side_by_side
from cairn.output import Progress
from cairn.sources.checkout.checkout import Checkout, CheckoutRequest, checkout
from cairn.sources.checkout_stack import Options
from cairn.sources.manifest.manifest import Manifest, project_of
from cairn.sources.manifest.therock import UpstreamSource
from cairn.stack import Project


def reproduce(
    manifest: Manifest,
    folders: Mapping[str, Path],
    *,
    origins: Mapping[str, str] | None = None,
    options: Options | None = None,
    say: Progress,
) -> tuple[Checkout, ...]:
    """Check out what a manifest froze, or bring existing checkouts there.

    Whether they came out equal is what `cairn.sources.manifest.manifest.verify` says.

    Args:
        manifest: what to make.
        folders: where, by project name.
        origins: instead of the manifest's, by project name, where it names a path of another machine.
        options: how; what the manifest says wins.
        say: progress callback.

    Raises:
        SourceError: an origin or a commit is gone, local work would be lost, or hipify failed.
        NetworkError: an origin could not be reached.
    """
    options = options or Options()
    requests = [
        CheckoutRequest(
            project=project_of(source),
            checkout_dir=folders[source.name],
            origin=(origins or {}).get(source.name, source.origin),
            hashtag=source.hashtag,
            commit=source.commit,
            depth=options.depth,
            jobs=options.jobs,
            submodules=bool(source.submodules),
            hipify=source.hipify != "none",
            force=options.force,
            python=options.python,
        )
        for source in manifest.projects
    ]
    return _side_by_side(requests, say=say)


def reproduce_upstreams(
    sources: Sequence[tuple[Project, UpstreamSource]], root: Path, *, options: Options, say: Progress
) -> tuple[Checkout, ...]:
    """Check out what a manifest of TheRock's names, each project in the folder that the manifest calls it by.

    Raises:
        SourceError: an origin or a commit is gone, local work would be lost, or hipify failed.
        NetworkError: an origin could not be reached.
    """
    requests = [
        CheckoutRequest(
            project=project,
            checkout_dir=root / source.name,
            origin=source.repo,
            hashtag=source.branch or source.commit,
            commit=source.commit,
            depth=options.depth,
            jobs=options.jobs,
            submodules=options.submodules,
            hipify=options.hipify,
            force=options.force,
            python=options.python,
        )
        for project, source in sources
    ]
    return _side_by_side(requests, say=say)


def _side_by_side(requests: Sequence[CheckoutRequest], *, say: Progress) -> tuple[Checkout, ...]:
    # All at once: which commits they are at is known, so torch need not come before what it pins.
    return side_by_side(
        lambda request: checkout(request, say=lambda line: say(f"{request.project.name}: {line}")),
        requests,
        jobs=len(requests),
    )
