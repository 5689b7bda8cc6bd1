"""`cairn manifest`: the inputs of a build, frozen, made again, compared."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.build.build_options import build_env
from cairn.cli import checkout as checkout_command
from cairn.cli import common_options as common
from cairn.cli.answer import Answer
from cairn.cli.binder import command
from cairn.errors import SourceError, UsageError
from cairn.options import argument, flag, option, part
from cairn.output import console
from cairn.sources.checkout.checkout_options import CheckoutOptions, as_of

if TYPE_CHECKING:
    from cairn.sources.checkout.describe import Checkout
    from cairn.sources.manifest.manifest import Manifest
    from cairn.stack import Stack

_PYTHON = re.compile(r"3\.[0-9]{1,3}t?")
_SHOWN = 12  # problems
# What the manifest says, or does not leave to a user.
_FROZEN = (
    *("origin", "hashtag", "require_related_commit", "release", "as_of"),
    *("submodules", "hipify", "commit_hipify"),
)


@dataclass(frozen=True, kw_only=True)
class CheckoutPlaces:
    """Where the checkouts of a manifest are."""

    root_checkout_dir: Path | None = common.root_checkout_dir()


@dataclass(frozen=True, kw_only=True)
class Create(CheckoutPlaces):
    """Options of `cairn manifest create`.

    Commits that their origins do not have are refused, and so are local edits. With --as-of, the stack is
    checked out first, as its branches were then.

        cairn manifest create --stack pytorch --output manifest.json
    """

    stack: Path = common.stack()
    line: str | None = common.line(common.LINE_OF_CHECKOUTS)
    build_env: tuple[str, ...] = build_env()
    targets: str | None = common.targets("the stack's")
    rocm_version: str | None = option(
        "exact version of the ROCm SDK, 7.10.0 or ==7.10.0 (default: the stack's)",
        metavar="VERSION",
        convert=converters.exact_version,
    )
    python: str | None = option("versions of Python, joined by commas (default: this one's)")
    output: Path = option("the manifest to write", required=True, convert=converters.new_file)
    allow_local: bool = flag("freeze local edits and commits too; no one else can reproduce the checkouts")
    as_of: datetime | None = as_of()


@dataclass(frozen=True, kw_only=True)
class OfManifest(CheckoutPlaces, common.OptionalStack):
    """Options of `cairn manifest verify`: a manifest, and its checkouts.

    cairn manifest verify manifest.json --stack pytorch
    """

    manifest: Path = argument("MANIFEST", "a manifest.json", convert=converters.file)


@dataclass(frozen=True, kw_only=True)
class Again(OfManifest):
    """Options of `cairn manifest checkout`.

    cairn manifest checkout manifest.json --root-checkout-dir src
    """

    how: CheckoutOptions = part(CheckoutOptions)


def _create(request: Create) -> Answer:
    from cairn import datafile, interpreters
    from cairn import stack as stacks
    from cairn import targets as gpu
    from cairn.build.inputs import machine, variables
    from cairn.sources import checkout_stack
    from cairn.sources.manifest import manifest
    from cairn.stack import recipe

    stack, pythons = stacks.load(request.stack), _pythons(request.python)
    checkouts = _checkouts(stack.for_line(request.line), request)
    line = checkout_stack.line_of(stack, {c.project.name: c.path for c in checkouts}, line=request.line)
    _refuse_what_no_one_else_has(checkouts, allow_local=request.allow_local)
    sdk_version = request.rocm_version or (stack.sdk.version if stack.sdk else None)
    targets = gpu.parse_targets(request.targets) if request.targets else stack.targets
    build_env = variables.parse_build_env(request.build_env, stack)
    frozen = manifest.create(
        checkouts,
        stack=stack.name,
        line=line,
        targets=targets,
        pythons=pythons,
        platform=interpreters.current().platform,
        sdk_version=sdk_version,
        build_env=build_env,
        toolchain=machine.toolchain_of_manifest(
            interpreters.current(), host_compiler=targets == (gpu.CPU,), build_env=build_env
        ),
        recipe=recipe.digest_of(stack),
    )
    manifest.write(request.output, frozen)
    digest = frozen.digest()
    plain = {"digest": digest, **datafile.to_plain(frozen)}
    return Answer(plain, [f"{request.output} sha256:{digest}"])


def _pythons(text: str | None) -> tuple[str, ...]:
    from cairn import interpreters

    versions = (
        tuple(word.strip() for word in text.split(","))
        if text is not None
        else (interpreters.current().version,)
    )
    if wrong := [word for word in versions if not _PYTHON.fullmatch(word)]:
        raise UsageError(f"{wrong[0]!r} is not a valid version of Python", tip="write --python 3.11,3.12")
    return versions


def _checkouts(stack: Stack, request: Create) -> list[Checkout]:
    from cairn.sources import checkout_stack
    from cairn.sources.checkout import describe
    from cairn.sources.checkout.checkout import CheckoutRequest

    folders = _folders(stack, request, {p.name: p.checkout_dir for p in stack.projects})
    if request.as_of is not None:
        with console.current().stage(f"check out {stack.name} as of {request.as_of}") as stage:
            requests = [
                CheckoutRequest(
                    project=p, checkout_dir=_root(stack, request) / p.checkout_dir, as_of=request.as_of
                )
                for p in stack.projects
            ]
            checkout_stack.checkout_stack(stack, requests, say=stage.update)
    checkouts = [describe.describe(p, folders[p.name]) for p in stack.in_order() if folders[p.name].is_dir()]
    if not checkouts:
        raise SourceError("no project of the stack is checked out", tip="run `cairn checkout all` first")
    return checkouts


def _refuse_what_no_one_else_has(checkouts: Sequence[Checkout], *, allow_local: bool) -> None:
    from cairn.sources.manifest import restore

    with console.current().stage("look for the commits at their origins") as stage:
        problems = [*restore.missing_at_origins(checkouts, say=stage.update)]
    tip = "push the commits to the origin, or check out what it has"
    if not allow_local and (local := restore.local_work(checkouts)):
        problems += local
        tip = "commit them to the origin and check that out; or pass --allow-local for edits of your own"
    if problems:
        raise SourceError(f"no one else could build this: {_some(problems)}", tip=tip)


def _checkout(request: Again) -> Answer:
    from cairn.sources.checkout.checkout import CheckoutRequest
    from cairn.sources.manifest import manifest, restore

    if manifest.is_of_therock(request.manifest):
        return _checkout_upstreams(request)
    frozen = manifest.read(request.manifest)
    stack = _stack_of(request)
    folders = _folders(stack, request, _own_folders(frozen, stack))
    with console.current().stage(f"check out what {request.manifest.name} froze") as stage:
        origins = _local_origins(stack, frozen)
        requests = {
            p.name: CheckoutRequest.of(
                dataclasses.replace(request.how, origin=origins.get(p.name, "")),
                project=manifest.project_of(p),
                checkout_dir=folders[p.name],
            )
            for p in frozen.projects
        }
        restore.reproduce(frozen, requests, say=stage.update)
        stage.update("comparing the trees")
        problems = manifest.verify(frozen, folders)
    return _answer(request, frozen, problems, folders=folders)


def _checkout_upstreams(request: Again) -> Answer:
    from cairn.sources.checkout.checkout import CheckoutRequest
    from cairn.sources.manifest import manifest, restore

    stack = request.load_stack()
    if stack is None:
        raise UsageError(
            f"{request.manifest} is a manifest of TheRock's, and does not say how its projects are hipified",
            tip="name the stack that has them: --stack pytorch",
        )
    root = _root(stack, request)
    sources = [
        (CheckoutRequest.of(request.how, project=project, checkout_dir=root / source.name), source)
        for project, source in manifest.therock_projects(stack, manifest.read_therock(request.manifest))
    ]
    with console.current().stage(f"check out what {request.manifest.name} names") as stage:
        checkouts = restore.reproduce_upstreams(sources, say=stage.update)
    return checkout_command.answer(checkouts)


def _verify(request: OfManifest) -> Answer:
    from cairn.sources.manifest import manifest

    frozen = manifest.read(request.manifest)
    stack = _stack_of(request)
    folders = _folders(stack, request, _own_folders(frozen, stack))
    return _answer(request, frozen, manifest.verify(frozen, folders), folders=folders)


def _answer(
    request: OfManifest, frozen: Manifest, problems: Sequence[str], *, folders: Mapping[str, Path]
) -> Answer:
    trees = {p.name: {"path": folders[p.name], "tree": p.tree} for p in frozen.projects}
    text = []
    for project in frozen.projects:
        modules = f" and {len(project.submodules)} submodules" if project.submodules else ""
        text.append(f"{project.name}: tree {project.tree}{modules}, as frozen: {folders[project.name]}")
    error = SourceError(
        f"the checkouts are not what {request.manifest} froze: {_some(problems)}",
        tip="make them with `cairn manifest checkout`, and --force where local work may go",
    )
    return Answer(
        {"digest": frozen.digest(), "problems": problems, "projects": trees},
        () if problems else text,
        error=error if problems else None,
    )


def _some(problems: Sequence[str]) -> str:
    more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
    return "; ".join(problems[:_SHOWN]) + more


def _stack_of(request: OfManifest) -> Stack | None:
    """Return the stack, which names the folders of checkouts; not needed if their folder is given."""
    if (stack := request.load_stack()) is not None:
        return stack
    if request.root_checkout_dir is None:
        raise UsageError(
            "it is not clear where the checkouts are",
            tip="name their folder with --root-checkout-dir, or a --stack",
        )
    return None


def _local_origins(stack: Stack | None, frozen: Manifest) -> dict[str, str]:
    """Origins that the stack describes by a tree or an sdist: each machine has them in its own cache."""
    from cairn.sources import checkout_stack
    from cairn.sources.git import url

    if stack is None:
        return {}
    missing = [p.name for p in frozen.projects if url.is_local(p.origin) and not Path(p.origin).exists()]
    folders = {name: checkout_stack.materialized(stack.project(name)) for name in missing}
    return {name: origin for name, origin in folders.items() if origin is not None}


def _root(stack: Stack | None, request: CheckoutPlaces) -> Path:
    from cairn import stack as stacks

    here = stacks.checkouts_folder(stack) if stack else Path()
    return (request.root_checkout_dir or here).absolute()


def _own_folders(frozen: Manifest, stack: Stack | None) -> dict[str, str]:
    """Return where `cairn checkout` puts each project, according to the stack or else the manifest itself."""
    return {p.name: stack.project(p.name).checkout_dir if stack else p.folder for p in frozen.projects}


def _folders(
    stack: Stack | None, request: CheckoutPlaces, folder_options: Mapping[str, str]
) -> dict[str, Path]:
    root = _root(stack, request)
    return {name: root / folder for name, folder in folder_options.items()}


COMMANDS = {
    "create": command(Create, _create),
    "checkout": command(Again, _checkout, omit=_FROZEN),
    "verify": command(OfManifest, _verify),
}
