"""`cairn manifest`: the inputs of a build, frozen and compared with checkouts."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from cairn import console, jsonfile
from cairn.build.request import platform_tag, python_tag
from cairn.cli import options as common
from cairn.cli.groups import Subparsers
from cairn.errors import SourceError, UsageError
from cairn.sources import manifest
from cairn.sources.checkout import inspect
from cairn.stack import Stack


def register(subparsers: Subparsers) -> None:
    """Add the group to the program's parser."""
    group = subparsers.add_parser("manifest", help="freeze what a build is made from, and verify it")
    commands = group.add_subparsers(title="commands", required=True, metavar="COMMAND")
    create = commands.add_parser(
        "create",
        help="write the manifest of a stack's checkouts",
        epilog="example: cairn manifest create --stack external-builds/pytorch --output manifest.json",
        allow_abbrev=False,
    )
    common.add_stack(create)
    _add_checkouts(create)
    create.add_argument("--targets", help="GPU targets, joined by commas (default: the stack's)")
    create.add_argument("--sdk-version", help="version of the ROCm SDK")
    create.add_argument("--output", type=Path, required=True, help="the manifest to write")
    common.json_flag(create)
    create.set_defaults(run=_create)
    verify = commands.add_parser(
        "verify",
        help="compare checkouts with a manifest",
        epilog="example: cairn manifest verify manifest.json --stack external-builds/pytorch",
        allow_abbrev=False,
    )
    verify.add_argument("manifest", type=Path, help="a manifest.json")
    common.add_stack(verify)
    _add_checkouts(verify)
    common.json_flag(verify)
    verify.set_defaults(run=_verify)


def _add_checkouts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--root-checkout-dir", type=Path, help="folder of the checkouts (default: beside the stack.toml)"
    )
    parser.add_argument(
        "--checkout",
        action="append",
        default=[],
        metavar="NAME=FOLDER",
        help="a checkout that is elsewhere; may be repeated",
    )


def _create(options: argparse.Namespace) -> int:
    stack = common.read_stack(options)
    folders = _folders(stack, options)
    targets = options.targets.split(",") if options.targets else stack.targets
    made = manifest.create(
        [inspect(p, folders[p.name]) for p in stack.in_order() if folders[p.name].is_dir()],
        stack=stack.name,
        line=stack.line,
        targets=targets,
        python=python_tag(),
        platform=platform_tag(),
        sdk_version=options.sdk_version,
    )
    if not made.projects:
        raise SourceError("no project of the stack is checked out", tip="run `cairn checkout all` first")
    manifest.write(options.output, made)
    if options.json:
        console.current().json({"digest": made.digest(), **jsonfile.to_plain(made)})
    else:
        console.current().out(f"{options.output} sha256:{made.digest()}")
    return 0


def _verify(options: argparse.Namespace) -> int:
    wanted = manifest.read(options.manifest)
    problems = manifest.verify(wanted, _folders(common.read_stack(options), options))
    if options.json:
        console.current().json({"digest": wanted.digest(), "problems": list(problems)})
    else:
        _say(problems)
    if problems:
        raise SourceError(
            f"the checkouts are not what {options.manifest} froze ({len(problems)} differences)",
            tip="check the projects out again at the commits that it names",
        )
    return 0


def _say(problems: Sequence[str]) -> None:
    for problem in problems:
        console.current().out(problem)
    if not problems:
        console.current().out("the checkouts are exactly what the manifest froze")


def _folders(stack: Stack, options: argparse.Namespace) -> dict[str, Path]:
    root = (options.root_checkout_dir or Path(stack.folder)).absolute()
    folders = {p.name: root / p.checkout_dir for p in stack.projects}
    for text in options.checkout:
        name, sign, folder = text.partition("=")
        if not sign:
            raise UsageError(f"--checkout {text} is not NAME=FOLDER")
        folders[stack.project(name).name] = Path(folder).absolute()
    return folders
