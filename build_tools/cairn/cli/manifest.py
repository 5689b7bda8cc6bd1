"""`cairn manifest`: the inputs of a build, frozen, made again, compared."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters, files
from cairn.cli import arguments
from cairn.cli import checkout as checkout_command
from cairn.cli.parser import Subparsers, add_command, add_commands
from cairn.errors import SourceError, UsageError
from cairn.output import console, wording

if TYPE_CHECKING:
    from cairn.sources.checkout.checkout import CheckoutRequest
    from cairn.sources.checkout.describe import Checkout
    from cairn.sources.manifest.manifest import Manifest
    from cairn.stack import Project, Stack

_PYTHON = re.compile(r"3\.[0-9]{1,3}t?")
_SHOWN = 12  # problems


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the commands of the group."""
    commands = add_commands(
        parser,
        description="Freeze what a build is made from in a manifest; make it again, and compare.",
        example="cairn manifest create --stack external-builds/pytorch --output manifest.json",
    )
    _add_create(commands)
    _add_checkout(commands)
    _add_diff(commands)
    _add_verify(commands)


def _add_create(commands: Subparsers) -> None:
    create = add_command(
        commands,
        "create",
        _create,
        about="write the manifest of a stack's checkouts",
        more="Commits that their origins do not have are refused, and so are local edits. With --as-of, the "
        "stack is checked out first, as its branches were then.",
        example="cairn manifest create --stack external-builds/pytorch --output manifest.json",
    )
    arguments.add_stack(create, default_line=arguments.LINE_OF_CHECKOUTS)
    arguments.add_build_env(create)
    _add_checkouts(create)
    arguments.add_targets(create, default="the stack's")
    create.add_argument(
        "--rocm-sdk-version",
        type=arguments.exact_version,
        metavar="VERSION",
        help="exact version of the ROCm SDK, 7.10.0 or ==7.10.0 (default: the stack's)",
    )
    create.add_argument("--python", help="versions of Python, joined by commas (default: this one's)")
    create.add_argument(
        "--output", type=converters.new_file, required=True, metavar="FILE", help="the manifest to write"
    )
    create.add_argument(
        "--allow-local",
        action="store_true",
        help="freeze local edits and commits too; no one else can reproduce the checkouts",
    )
    checkout_command.add_as_of(create)


def _add_checkout(commands: Subparsers) -> None:
    again = add_command(
        commands,
        "checkout",
        _checkout,
        about="make the checkouts that a manifest froze, and prove by their trees that they are the same",
        example="cairn manifest checkout manifest.json --root-checkout-dir src",
    )
    again.add_argument("manifest", type=converters.file, metavar="MANIFEST", help="a manifest.json")
    arguments.add_stack(again, required=False)
    _add_checkouts(again)
    checkout_command.add_depth(again)
    arguments.add_jobs(again, what="submodules that are fetched")
    arguments.add_force(again)
    arguments.add_python(again, what="that hipify runs in")


def _add_diff(commands: Subparsers) -> None:
    diff = add_command(
        commands,
        "diff",
        _diff,
        about="what changed between two manifests: commits, submodules, SDK, toolchain",
        example="cairn manifest diff monday.json tuesday.json --html changelog.html",
    )
    diff.add_argument("before", type=converters.file, metavar="BEFORE", help="the older manifest.json")
    diff.add_argument("after", type=converters.file, metavar="AFTER", help="the newer manifest.json")
    diff.add_argument(
        "--commits",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="name the commits between, which are fetched from their origins",
    )
    arguments.add_json(diff)
    diff.add_argument(
        "--html", type=converters.new_file, metavar="FILE", help="write a page for browsers too"
    )


def _add_verify(commands: Subparsers) -> None:
    verify = add_command(
        commands,
        "verify",
        _verify,
        about="compare checkouts with a manifest",
        example="cairn manifest verify manifest.json --stack external-builds/pytorch",
    )
    verify.add_argument("manifest", type=converters.file, metavar="MANIFEST", help="a manifest.json")
    arguments.add_stack(verify, required=False)
    _add_checkouts(verify)


def _add_checkouts(parser: argparse.ArgumentParser) -> None:
    arguments.add_json(parser)
    arguments.add_root_checkout_dir(parser)
    arguments.add_repeated(parser, "--checkout", "NAME=FOLDER", "a checkout that is elsewhere")


def _create(options: argparse.Namespace) -> int:
    from cairn import datafile, interpreters
    from cairn import stack as stacks
    from cairn import targets as gpu
    from cairn.build.inputs import overrides, toolchain
    from cairn.sources.checkout import release_line
    from cairn.sources.manifest import manifest

    stack, pythons = stacks.load(options.stack), _pythons(options.python)
    checkouts = _checkouts(stack.for_line(options.line), options)
    line = release_line.line_of(stack, {c.project.name: c.path for c in checkouts}, asked=options.line)
    _refuse_what_no_one_else_has(checkouts, allow_local=options.allow_local)
    sdk_version = options.rocm_sdk_version or (stack.sdk.version if stack.sdk else None)
    targets = gpu.parse_targets(options.targets) if options.targets else stack.targets
    build_env = overrides.parse(options.build_env, stack)
    made = manifest.create(
        checkouts,
        stack=stack.name,
        line=line,
        targets=targets,
        pythons=pythons,
        platform=interpreters.own().platform,
        sdk_version=sdk_version,
        build_env=build_env,
        toolchain=toolchain.of_manifest(
            interpreters.own(), host_compiler=targets == (gpu.CPU,), named=build_env
        ),
    )
    manifest.write(options.output, made)
    if options.json:
        console.current().json({"digest": made.digest(), **datafile.to_plain(made)})
    else:
        console.current().out(f"{options.output} sha256:{made.digest()}")
    return 0


def _pythons(text: str | None) -> tuple[str, ...]:
    from cairn import interpreters

    found = (
        tuple(word.strip() for word in text.split(",")) if text is not None else (interpreters.own().version,)
    )
    if wrong := [word for word in found if not _PYTHON.fullmatch(word)]:
        raise UsageError(f"{wrong[0]!r} is not a valid version of Python", tip="write --python 3.11,3.12")
    return found


def _checkouts(stack: Stack, options: argparse.Namespace) -> list[Checkout]:
    from cairn.sources import checkout_stack
    from cairn.sources.checkout import describe
    from cairn.sources.checkout.checkout import CheckoutRequest

    folders = _folders(stack, options, {p.name: p.checkout_dir for p in stack.projects})
    _refuse_missing(options)
    if options.as_of is not None:
        if options.checkout:
            raise UsageError(
                "--as-of checks the whole stack out, and --checkout names one that is elsewhere",
                tip="name the folder of all with --root-checkout-dir",
            )
        with console.current().stage(f"check out {stack.name} as of {options.as_of}") as stage:
            requests = [
                CheckoutRequest(
                    project=p, checkout_dir=_root(stack, options) / p.checkout_dir, as_of=options.as_of
                )
                for p in stack.projects
            ]
            checkout_stack.checkout_stack(stack, requests, say=stage.update)
    found = [describe.describe(p, folders[p.name]) for p in stack.in_order() if folders[p.name].is_dir()]
    if not found:
        raise SourceError("no project of the stack is checked out", tip="run `cairn checkout all` first")
    return found


def _refuse_missing(options: argparse.Namespace) -> None:
    """What --checkout names must be there; other projects that are not there are skipped."""
    for text in options.checkout:
        folder = text.partition("=")[2]
        if not files.expanded(folder).is_dir():
            kind = "is a file" if files.expanded(folder).exists() else "is not there"
            raise UsageError(f"--checkout {text}: {folder} {kind}", tip="name the folder of a checkout")


def _refuse_what_no_one_else_has(checkouts: Sequence[Checkout], *, allow_local: bool) -> None:
    from cairn.sources.manifest import check_origins

    with console.current().stage("look for the commits at their origins") as stage:
        problems = [*check_origins.missing(checkouts, say=stage.update)]
    tip = "push the commits to the origin, or check out what it has"
    if not allow_local and (local := check_origins.local_work(checkouts)):
        problems += local
        tip = "commit them to the origin and check that out; or pass --allow-local for edits of your own"
    if problems:
        raise SourceError(f"no one else could build this: {_some(problems)}", tip=tip)


def _checkout(options: argparse.Namespace) -> int:
    from cairn.sources.manifest import manifest, restore, therock

    if therock.recognise(options.manifest):
        return _checkout_upstreams(options)
    wanted = manifest.read(options.manifest)
    stack = _stack_of(options)
    folders = _folders(stack, options, _own_folders(wanted, stack))
    with console.current().stage(f"check out what {options.manifest.name} froze") as stage:
        origins = _local_origins(stack, wanted)
        requests = {
            p.name: _request(options, manifest.project_of(p), folders[p.name], origins.get(p.name, ""))
            for p in wanted.projects
        }
        restore.reproduce(wanted, requests, say=stage.update)
        stage.update("comparing the trees")
        problems = manifest.verify(wanted, folders)
    return _answer(options, wanted, problems, folders=folders)


def _request(
    options: argparse.Namespace, project: Project, folder: Path, origin: str = ""
) -> CheckoutRequest:
    from cairn.sources.checkout.checkout import CheckoutRequest

    return CheckoutRequest(
        project=project,
        checkout_dir=folder,
        origin=origin,
        depth=options.depth,
        jobs=options.jobs,
        force=options.force,
        python=options.python,
    )


def _checkout_upstreams(options: argparse.Namespace) -> int:
    from cairn.sources.manifest import restore, therock

    if options.stack is None:
        raise UsageError(
            f"{options.manifest} is a manifest of TheRock's, and does not say how its projects are hipified",
            tip="name the stack that has them: --stack external-builds/pytorch",
        )
    stack = arguments.read_stack(options)
    root = _root(stack, options)
    sources = [
        (_request(options, project, root / source.name), source)
        for project, source in therock.projects(stack, therock.read(options.manifest))
    ]
    with console.current().stage(f"check out what {options.manifest.name} names") as stage:
        done = restore.reproduce_upstreams(sources, say=stage.update)
    checkout_command.show(done, as_json=options.json)
    return 0


def _verify(options: argparse.Namespace) -> int:
    from cairn.sources.manifest import manifest

    wanted = manifest.read(options.manifest)
    stack = _stack_of(options)
    folders = _folders(stack, options, _own_folders(wanted, stack))
    return _answer(options, wanted, manifest.verify(wanted, folders), folders=folders)


def _answer(
    options: argparse.Namespace, wanted: Manifest, problems: Sequence[str], *, folders: Mapping[str, Path]
) -> int:
    if options.json:
        trees = {p.name: {"path": str(folders[p.name]), "tree": p.tree} for p in wanted.projects}
        answer = {"digest": wanted.digest(), "problems": list(problems), "projects": trees}
        console.current().json(answer)
    elif not problems:
        for project in wanted.projects:
            modules = f" and {len(project.submodules)} submodules" if project.submodules else ""
            console.current().out(
                f"{project.name}: tree {project.tree}{modules}, as frozen: {folders[project.name]}"
            )
    if problems:
        raise SourceError(
            f"the checkouts are not what {options.manifest} froze: {_some(problems)}",
            tip="make them with `cairn manifest checkout`, and --force where local work may go",
        )
    return 0


def _diff(options: argparse.Namespace) -> int:
    from cairn import datafile
    from cairn.sources.manifest import changelog, manifest

    before, after = manifest.read(options.before), manifest.read(options.after)
    with console.current().stage("compare") as stage:
        found = changelog.between(before, after, commits=options.commits, say=stage.update)
    if options.html:
        changelog.write_page(options.html, found)
    if options.json:
        console.current().json(datafile.to_plain(found))
        return 0
    for line in changelog.lines(found):
        console.current().out(line)
    return 0


def _some(problems: Sequence[str]) -> str:
    more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
    return "; ".join(problems[:_SHOWN]) + more


def _stack_of(options: argparse.Namespace) -> Stack | None:
    """The stack, which says where checkouts are; not needed where their folder is named."""
    if options.stack is not None:
        return arguments.read_stack(options)
    if options.root_checkout_dir is None:
        raise UsageError(
            "it is not clear where the checkouts are",
            tip="name their folder with --root-checkout-dir, or a --stack",
        )
    return None


def _local_origins(stack: Stack | None, wanted: Manifest) -> dict[str, str]:
    """Origins that the stack describes by a tree or an sdist: each machine has them in its own cache."""
    from cairn.sources import checkout_stack
    from cairn.sources.git import url

    if stack is None:
        return {}
    gone = [p.name for p in wanted.projects if url.is_local(p.origin) and not Path(p.origin).exists()]
    made = {name: checkout_stack.materialized(stack.project(name)) for name in gone}
    return {name: origin for name, origin in made.items() if origin is not None}


def _root(stack: Stack | None, options: argparse.Namespace) -> Path:
    given: Path | None = options.root_checkout_dir
    return (given or Path(stack.folder if stack else ".")).absolute()


def _own_folders(wanted: Manifest, stack: Stack | None) -> dict[str, str]:
    """Where `cairn checkout` puts each project of a manifest: its stack says, else the manifest itself."""
    return {p.name: stack.project(p.name).checkout_dir if stack else p.folder for p in wanted.projects}


def _folders(stack: Stack | None, options: argparse.Namespace, own: Mapping[str, str]) -> dict[str, Path]:
    root = _root(stack, options)
    folders = {name: root / folder for name, folder in own.items()}
    for text in options.checkout:
        name, sign, folder = text.partition("=")
        if not sign:
            raise UsageError(
                f"--checkout {text} is not NAME=FOLDER", tip="such as --checkout torch=~/pytorch"
            )
        name = stack.project(name).name if stack else name
        if name not in folders:
            tip = wording.did_you_mean(name, list(folders), what="the projects are")
            raise UsageError(f"--checkout {text}: there is no project {name!r}", tip=tip)
        # Not every shell expands the ~ in `torch=~/pytorch`.
        folders[name] = files.expanded(folder).absolute()
    return folders
