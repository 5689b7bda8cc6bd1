"""Upstream's `pytorch_*_repo.py` and `checkout_from_manifest.py`: their flags, over `cairn.sources`.

Source of the flags: ROCm/TheRock, external-builds/pytorch.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import binder
from cairn.cli import common_options as common
from cairn.cli.answer import Answer
from cairn.cli.checkout import PlaceOptions, answer, torch_dir
from cairn.cli.parser import Parser
from cairn.errors import NetworkError, UsageError
from cairn.options import Exclusive, flag, option, part
from cairn.output import console
from cairn.sources.checkout.checkout_options import CheckoutOptions, HipifyOptions, force

if TYPE_CHECKING:
    from cairn.sources.manifest.manifest import UpstreamSource
    from cairn.stack import Project, Stack

_STACK = ("stack", "line")


@dataclass(frozen=True, kw_only=True)
class _Script(common.StackOptions, PlaceOptions):
    """Options of each command of a script: which project, and where.

    Attributes:
        project: its name in the stack.
        beside: the folder of the script, which has the stack.toml and the default checkouts.
    """

    project: str
    beside: Path

    def place(self) -> tuple[Stack, Project, Path]:
        """The stack, the project and the folder of its checkout."""
        stack = self.load_stack()
        project = stack.project(self.project)
        return stack, project, self.folder(self.beside, project)


@dataclass(frozen=True, kw_only=True)
class _CheckOut(_Script):
    torch_dir: Path | None = torch_dir()
    how: CheckoutOptions = part(CheckoutOptions)


@dataclass(frozen=True, kw_only=True)
class _Hipify(_Script):
    how: HipifyOptions = part(HipifyOptions)


def pytorch_repo(project: str, script: Path) -> Parser:
    """The parser of `pytorch_*_repo.py`; the stack.toml and the default checkouts are beside it."""
    beside = script.absolute().parent
    parser = Parser(
        prog=script.name,
        description=f"Check {project} out and hipify it, for building a wheel with ROCm.",
        epilog=f"example: python {script.name} checkout",
    )
    binder.add_options(parser, common.StackOptions, defaults={"stack": beside})
    parser.set_defaults(project=project, beside=beside)
    commands = parser.add_subparsers(required=True, metavar="checkout|hipify")
    checkout = commands.add_parser(
        "checkout",
        help="check out, hipify, and tag what upstream gave",
        description=f"Check {project} out, hipify it, and tag what upstream gave.",
        epilog=f"example: python {script.name} checkout --repo-hashtag main",
    )
    # torch is pinned by nothing, and triton by a file of torch's instead of related_commits.
    omit = {
        "torch": ("torch_dir", "require_related_commit", "release"),
        "triton": ("require_related_commit",),
    }
    binder.bind(checkout, _CheckOut, _check_out, inherited=_STACK, omit=omit.get(project, ("release",)))
    hipify = commands.add_parser(
        "hipify",
        help="hipify a checkout made with --no-hipify, or by hand",
        description="Hipify a checkout that was made with --no-hipify, or by hand, and tag it.",
        epilog=f"example: python {script.name} hipify --checkout-dir ~/pytorch",
    )
    binder.bind(hipify, _Hipify, _hipify, inherited=_STACK)
    return parser


def _check_out(command: _CheckOut) -> Answer:
    from cairn.sources import checkout_stack
    from cairn.sources.checkout.checkout import CheckoutRequest

    stack, project, folder = command.place()
    pinning = command.torch_dir or checkout_stack.find_torch_dir(stack, command.beside)
    with console.current().stage(f"check out {project.name}") as stage:
        request = CheckoutRequest.of(command.how, project=project, checkout_dir=folder)
        checkout = checkout_stack.checkout_project(request, torch_dir=pinning, say=stage.update)
    return answer((checkout,))


def _hipify(command: _Hipify) -> Answer:
    from cairn.sources.checkout.checkout import hipify_checkout

    _, project, folder = command.place()
    with console.current().stage(f"hipify {project.name}") as stage:
        checkout = hipify_checkout(
            project, folder, commit=command.how.commit_hipify, python=command.how.python, say=stage.update
        )
    return answer((checkout,))


_SECONDS = 60.0  # for a server's answer
_LIMIT = 1 << 20  # bytes; a manifest has one kilobyte
_DOWNLOADED = "pytorch_manifest.json"  # upstream's name for it
_SOURCE = Exclusive(required=True)


@dataclass(frozen=True, kw_only=True)
class _FromManifest(common.StackOptions):
    """Options of the script.

    Check out what a manifest of TheRock's names, each at its commit, and hipify it.

        python checkout_from_manifest.py --manifest manifest.json --checkout-root src
    """

    manifest: Path | None = option(
        "a manifest file of TheRock's", metavar="MANIFEST", group=_SOURCE, convert=converters.file
    )
    manifest_url: str | None = option(
        f"where to download one from, into {_DOWNLOADED} of the root",
        metavar="URL",
        group=_SOURCE,
        convert=converters.url,
    )
    checkout_root: Path = option(
        "folder of the checkouts; made when missing",
        metavar="CHECKOUT_ROOT",
        required=True,
        convert=converters.new_folder,
    )
    projects: str = option(
        "names in the manifest, by spaces or semicolons: pytorch, pytorch_audio, … (default: all)", default=""
    )
    expected_pytorch_git_ref: str = option(
        "refuse a manifest whose pytorch is of a different branch", metavar="REF", default=""
    )
    no_hipify: bool = flag("check out as upstream has it")
    force: bool = force()


def checkout_from_manifest(script: Path) -> Parser:
    """The parser of `checkout_from_manifest.py`; the stack.toml is beside it."""
    return binder.script(script, _FromManifest, _check_out_all, defaults={"stack": script.absolute().parent})


def _check_out_all(command: _FromManifest) -> Answer:
    from cairn.sources.checkout.checkout import CheckoutRequest
    from cairn.sources.manifest import manifest, restore

    root = command.checkout_root.absolute()
    path = command.manifest or _download(str(command.manifest_url), root / _DOWNLOADED)
    upstreams = manifest.read_therock(path)
    _refuse_other_branch(upstreams, command.expected_pytorch_git_ref)
    names = command.projects.replace(";", " ").split()
    hipify, force = not command.no_hipify, command.force
    sources = [
        (CheckoutRequest(project=p, checkout_dir=root / s.name, hipify=hipify, force=force), s)
        for p, s in manifest.therock_projects(command.load_stack(), upstreams, names)
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
    except ValueError as error:
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
