"""The command line of upstream's `checkout_from_manifest.py`: its name and flags, over `cairn.sources`.

Source of the flags: ROCm/TheRock, external-builds/pytorch.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import binder, fields
from cairn.cli.answer import Answer
from cairn.cli.checkout import answer
from cairn.cli.guard import guarded
from cairn.cli.parser import Parser
from cairn.errors import NetworkError, UsageError
from cairn.options import Exclusive, flag, option
from cairn.output import console
from cairn.sources.checkout.options import force

if TYPE_CHECKING:
    from cairn.sources.manifest.therock import UpstreamSource

_SECONDS = 60.0  # for a server's answer
_LIMIT = 1 << 20  # bytes; a manifest has one kilobyte
_DOWNLOADED = "pytorch_manifest.json"  # upstream's name for it
_SOURCE = Exclusive(required=True)


def main(argv: Sequence[str] | None = None, *, script: str) -> int:
    """Run the script; returns its exit code. The stack.toml is beside it."""
    return guarded(_parser(Path(script)).parse_args(argv))


@dataclass(frozen=True, kw_only=True)
class _Command(fields.StackOptions):
    """What the script is asked for.

    Check out what a manifest of TheRock's names, each at its commit, and hipify it.

        python checkout_from_manifest.py --manifest manifest.json --checkout-root src
    """

    manifest: Path | None = option("a manifest file of TheRock's", group=_SOURCE, convert=converters.file)
    manifest_url: str | None = option(
        f"where to download one from, into {_DOWNLOADED} of the root",
        metavar="URL",
        group=_SOURCE,
        convert=converters.nonempty,
    )
    checkout_root: Path = option(
        "folder of the checkouts; made when missing", required=True, convert=converters.new_folder
    )
    projects: str = option(
        "names in the manifest, by spaces or semicolons: pytorch, pytorch_audio, … (default: all)", default=""
    )
    expected_pytorch_git_ref: str = option(
        "refuse a manifest whose pytorch is of a different branch", metavar="REF", default=""
    )
    no_hipify: bool = flag("check out as upstream has it")
    force: bool = force()


def _parser(script: Path) -> Parser:
    return binder.script(script, _Command, _run, defaults={"stack": script.absolute().parent})


def _run(command: _Command) -> Answer:
    from cairn.sources.checkout.checkout import CheckoutRequest
    from cairn.sources.manifest import restore, therock

    root = command.checkout_root.absolute()
    path = command.manifest or _download(str(command.manifest_url), root / _DOWNLOADED)
    upstreams = therock.read(path)
    _refuse_other_branch(upstreams, command.expected_pytorch_git_ref)
    names = command.projects.replace(";", " ").split()
    hipify, force = not command.no_hipify, command.force
    sources = [
        (CheckoutRequest(project=p, checkout_dir=root / s.name, hipify=hipify, force=force), s)
        for p, s in therock.projects(command.load_stack(), upstreams, names)
    ]
    with console.current().stage(f"check out what {path.name} names") as stage:
        checkouts = restore.reproduce_upstreams(sources, say=stage.update)
    return answer(checkouts)


def _refuse_other_branch(sources: Collection[UpstreamSource], expected: str) -> None:
    if not expected:
        return
    branch = next((source.branch for source in sources if source.name == "pytorch"), None)
    if branch != expected:
        raise UsageError(
            f"the manifest's pytorch is of {branch or 'no branch'}, and {expected} was expected",
            tip="name the manifest of that branch, or leave --expected-pytorch-git-ref out",
        )


def _download(url: str, path: Path) -> Path:
    import requests

    from cairn import files
    from cairn.sources.git import url as git_url

    shown = git_url.without_credentials(url)
    try:
        with requests.get(url, timeout=_SECONDS, stream=True) as response:
            response.raise_for_status()
            data = response.raw.read(_LIMIT + 1, decode_content=True)
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
