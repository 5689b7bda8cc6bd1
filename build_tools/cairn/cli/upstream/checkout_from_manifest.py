"""The command line of upstream's `checkout_from_manifest.py`: its name and flags, over `cairn.sources`.

Source of the flags: ROCm/TheRock, external-builds/pytorch.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters, files
from cairn.cli import arguments
from cairn.cli import checkout as command
from cairn.cli.guard import guarded
from cairn.cli.parser import Parser
from cairn.errors import NetworkError, UsageError
from cairn.output import console

if TYPE_CHECKING:
    from cairn.sources.manifest.therock import UpstreamSource

_SECONDS = 60.0  # for a server's answer
_LIMIT = 1 << 20  # bytes; a manifest has one kilobyte
_DOWNLOADED = "pytorch_manifest.json"  # upstream's name for it


def main(argv: Sequence[str] | None = None, *, script: str) -> int:
    """Run the script; returns its exit code. The stack.toml is beside it."""
    return guarded(_parser(Path(script)).parse_args(argv))


def _parser(script: Path) -> argparse.ArgumentParser:
    parser = Parser(
        prog=script.name,
        description="Check out what a manifest of TheRock's names, each at its commit, and hipify it.",
        epilog=f"example: python {script.name} --manifest manifest.json --checkout-root src",
    )
    arguments.add_stack(parser, default=script.absolute().parent)
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--manifest", type=converters.file, help="a manifest file of TheRock's")
    given.add_argument(
        "--manifest-url",
        type=converters.nonempty,
        metavar="URL",
        help=f"where to download one from, into {_DOWNLOADED} of the root",
    )
    parser.add_argument(
        "--checkout-root",
        type=converters.new_folder,
        required=True,
        help="folder of the checkouts; made when missing",
    )
    parser.add_argument(
        "--projects",
        default="",
        help="names in the manifest, by spaces or semicolons: pytorch, pytorch_audio, … (default: all)",
    )
    parser.add_argument(
        "--expected-pytorch-git-ref",
        default="",
        metavar="REF",
        help="refuse a manifest whose pytorch is of a different branch",
    )
    parser.add_argument("--no-hipify", action="store_true", help="check out as upstream has it")
    arguments.add_force(parser)
    parser.set_defaults(run=_run)
    return parser


def _run(options: argparse.Namespace) -> int:
    from cairn.sources.checkout.checkout import CheckoutRequest
    from cairn.sources.manifest import restore, therock

    root = options.checkout_root.absolute()
    path = options.manifest or _download(options.manifest_url, root / _DOWNLOADED)
    found = therock.read(path)
    _refuse_other_branch(found, options.expected_pytorch_git_ref)
    names = options.projects.replace(";", " ").split()
    hipify, force = not options.no_hipify, options.force
    sources = [
        (CheckoutRequest(project=p, checkout_dir=root / s.name, hipify=hipify, force=force), s)
        for p, s in therock.projects(arguments.read_stack(options), found, names)
    ]
    with console.current().stage(f"check out what {path.name} names") as stage:
        done = restore.reproduce_upstreams(sources, say=stage.update)
    command.show(done)
    return 0


def _refuse_other_branch(found: Collection[UpstreamSource], expected: str) -> None:
    if not expected:
        return
    branch = next((source.branch for source in found if source.name == "pytorch"), None)
    if branch != expected:
        raise UsageError(
            f"the manifest's pytorch is of {branch or 'no branch'}, and {expected} was expected",
            tip="name the manifest of that branch, or leave --expected-pytorch-git-ref out",
        )


def _download(url: str, path: Path) -> Path:
    import requests

    from cairn.sources.git import url as git_url

    shown = git_url.without_credentials(url)
    try:
        with requests.get(url, timeout=_SECONDS, stream=True) as answer:
            answer.raise_for_status()
            data = answer.raw.read(_LIMIT + 1, decode_content=True)
    except requests.exceptions.InvalidSchema as error:
        raise UsageError(f"{shown} is not an http URL", tip="name a file with --manifest") from error
    except requests.RequestException as error:
        reason = str(error).replace(url, shown)
        raise NetworkError(
            f"cannot download {shown}: {reason}", tip="check the URL and the network"
        ) from error
    if len(data) > _LIMIT:
        raise UsageError(f"{shown} is larger than {_LIMIT} bytes: it is not a manifest")
    files.write_bytes(path, data)
    return path
