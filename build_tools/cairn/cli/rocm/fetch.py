"""`cairn rocm fetch`: the artifacts of a CI run of TheRock."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import arguments
from cairn.cli.parser import Subparsers, add_command
from cairn.errors import UsageError
from cairn.output import console

if TYPE_CHECKING:
    from cairn.rocm.fetch.fetch import FetchedArtifact, FetchRequest
    from cairn.rocm.fetch.runs import Run
    from cairn.store.protocol import Store

RELEASE_TYPES = ("ci", "dev", "dev-bkc", "nightly", "nightly-bkc", "prerelease")
"""Those of `cairn.rocm.fetch.runs`, which is not loaded for `--help`."""
_PLATFORMS = ("linux", "windows")


def add_to(commands: Subparsers) -> None:
    """Add the command to its group."""
    parser = add_command(
        commands,
        "fetch",
        run,
        about="fetch the artifacts of a CI run of TheRock, from a bucket or a folder",
        more="Each archive is checked by the sha256sum beside it, and unpacked where nothing gets out of its "
        "folder. Run again after it was interrupted, the command goes on where it ended.",
        example="cairn rocm fetch --run-id 17123441166 --family gfx110X-all --output-dir artifacts",
    )
    add_source(parser)
    parser.add_argument(
        "--family",
        action="append",
        default=[],
        type=converters.nonempty,
        help="only what is for this family of targets and for all; may be repeated (default: everything)",
    )
    arguments.add_targets(parser, default="everything")
    add_patterns(parser)
    arguments.add_output_dir(parser)
    parser.add_argument(
        "--layout",
        choices=("extract", "flatten", "archives"),
        default="extract",
        help="a folder per artifact, all in one tree, or the archives alone (default: %(default)s)",
    )
    parser.add_argument("--keep-archives", action="store_true", help="leave the archives beside it")
    add_unverified(parser)
    arguments.add_jobs(parser, what="downloads")
    arguments.add_dry_run(parser)
    arguments.add_json(parser)


def add_source(parser: argparse.ArgumentParser) -> None:
    """Where the artifacts are."""
    parser.add_argument("--run-id", type=converters.nonempty, metavar="ID", help="GitHub's number of the run")
    parser.add_argument(
        "--run-github-repo",
        default="ROCm/TheRock",
        metavar="OWNER/NAME",
        help="where it ran (default: %(default)s)",
    )
    parser.add_argument(
        "--platform",
        choices=_PLATFORMS,
        default=own_platform(),
        help="what it built for (default: this one)",
    )
    parser.add_argument(
        "--release-type",
        choices=RELEASE_TYPES,
        default="ci",
        help="what kind of build it was, which says in which bucket it is (default: %(default)s)",
    )
    arguments.add_store(parser, required=False)


def add_patterns(parser: argparse.ArgumentParser) -> None:
    """Which artifacts, by their names."""
    parser.add_argument(
        "include", nargs="*", metavar="PATTERN", help="regular expression that a name matches (default: all)"
    )
    parser.add_argument(
        "--exclude",
        nargs="*",
        default=[],
        metavar="PATTERN",
        help="regular expressions that it must not match",
    )


def add_unverified(parser: argparse.ArgumentParser) -> None:
    """`--allow-unverified`."""
    parser.add_argument(
        "--allow-unverified", action="store_true", help="take archives without a sha256sum beside them"
    )


def run(options: argparse.Namespace) -> int:
    """Fetch what the options of this command name."""
    from cairn.rocm.fetch.choose import Wanted
    from cairn.rocm.fetch.fetch import FetchRequest

    request = FetchRequest(
        wanted=Wanted(
            groups=tuple(options.family),
            targets=_targets(options.targets),
            include=tuple(options.include),
            exclude=tuple(options.exclude),
        ),
        output_dir=options.output_dir,
        layout=options.layout,
        keep_archives=options.keep_archives,
        verified_only=not options.allow_unverified,
        **({"jobs": options.jobs} if options.jobs else {}),
    )
    return fetch(options, request)


def fetch(options: argparse.Namespace, request: FetchRequest) -> int:
    """Fetch from the place that the options of `add_source` name, and print what came."""
    from cairn.rocm.fetch import fetch as fetching

    with console.current().stage("fetch artifacts") as stage:
        store = _place(options)
        stage.update(f"looking at {store.url}")
        done = fetching.fetch(
            store,
            request,
            dry_run=options.dry_run,
            on_progress=lambda progress: stage.update(str(progress)),
        )
    _show(done, options)
    return 0


def _place(options: argparse.Namespace) -> Store:
    """The store that has the artifacts: a run's own folder of it."""
    from cairn.store import opening

    found = _run_of(options)
    if options.store is None and found is None:
        raise UsageError("nothing says where the artifacts are", tip="name the run: --run-id, or --store URL")
    if options.store is None and found is not None:
        places = found.places()
    elif found is None:
        places = (options.store,)
    else:  # a store with several runs, as TheRock's buckets are
        places = (f"{options.store.rstrip('/')}/{found.folder()}",)
    say = console.current().info
    stores = [
        opening.open_store(url, endpoint_url=options.endpoint_url, public=True, say=say) for url in places
    ]
    for store in stores[:-1]:
        if any(True for _ in store.list("")):
            return store
        say(f"nothing at {store.url}; looking at {stores[-1].url}")
    return stores[-1]


def _run_of(options: argparse.Namespace) -> Run | None:
    from cairn.rocm.fetch import runs

    if options.run_id is None:
        return None
    return runs.Run(
        id=options.run_id,
        platform=options.platform,
        repository=options.run_github_repo,
        release_type=options.release_type,
    )


def _targets(text: str | None) -> tuple[str, ...]:
    from cairn import targets

    return () if text is None else targets.parse_targets(text, unbuilt=True)


def _show(done: tuple[FetchedArtifact, ...], options: argparse.Namespace) -> None:
    size = sum(each.artifact.size for each in done if not each.already)
    if options.json:
        console.current().json(
            [
                {
                    "artifact": each.artifact.name,
                    "target": each.artifact.target,
                    "archive": each.artifact.key,
                    "size": each.artifact.size,
                    "sha256": each.sha256,
                    "path": str(each.path),
                    "already": each.already,
                }
                for each in done
            ]
        )
        return
    what = "would be fetched" if options.dry_run else "fetched"
    console.current().table(
        ("artifact", "size", "sha256", ""),
        [
            (
                each.artifact.name,
                console.size(each.artifact.size),
                (each.sha256 or "-")[:12],
                "in place already" if each.already else what,
            )
            for each in done
        ],
    )
    console.current().info(f"{sum(not each.already for each in done)} {what}, {console.size(size)}")


def own_platform() -> str:
    """The platform of this machine, as TheRock calls it."""
    from cairn import platforms

    return "windows" if platforms.here.name() == "windows" else "linux"
