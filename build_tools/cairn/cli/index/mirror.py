"""`cairn index mirror`: what sets need of other indexes, locked, fetched and compared."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import arguments
from cairn.cli.parser import Subparsers, add_command, add_commands
from cairn.errors import StoreError, UsageError
from cairn.output import console

if TYPE_CHECKING:
    from cairn.release.publish.mirror_lock import MirrorLock
    from cairn.stack import Stack


def add_to(commands: Subparsers) -> None:
    """Add the group to `cairn index`."""
    about = "have an index hold what sets need of other indexes, by hash"
    parser = commands.add_parser("mirror", help=about)
    group = add_commands(
        parser,
        description="Have an index hold what sets need of other indexes, by hash. A lock, which is reviewed, "
        "names every file for all Pythons and platforms of a stack.",
        example="cairn index mirror sync --stack external-builds/pytorch --store ./store",
        default="fetch",
    )
    _add_lock(group)
    _add_sync(group)
    _add_verify(group)
    _add_fetch(group)


def _add_lock(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "lock",
        _lock,
        about="write what a stack needs of other indexes into mirror.lock.toml, to be reviewed",
        more="What the wheels require is kept in it, so that later runs need none.",
        example="cairn index mirror lock --stack external-builds/pytorch dist/*.whl",
    )
    parser.add_argument(
        "files", nargs="*", type=converters.file, metavar="FILE", help="a wheel or an sdist of the stack"
    )
    arguments.add_repeated(parser, "--require", "REQUIREMENT", "lock this too")
    _add_stack(parser)
    parser.add_argument(
        "--upgrade", action="store_true", help="take the newest versions, not those that are locked"
    )
    arguments.add_dry_run(parser)
    arguments.add_json(parser)


def _add_sync(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "sync",
        _sync,
        about="fetch what a lock names and an index lacks",
        more="Other bytes than the lock names are refused, and then nothing is published.",
        example="cairn index mirror sync --stack external-builds/pytorch --store ./store",
    )
    _add_stack(parser)
    _add_place(parser)
    arguments.add_dry_run(parser)


def _add_verify(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "verify",
        _verify,
        about="say where a lock does not cover its stack, and where lock and index differ",
        more="Nothing is changed.",
        example="cairn index mirror verify --stack external-builds/pytorch --store ./store",
    )
    _add_stack(parser)
    _add_place(parser)


def _add_fetch(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "fetch",
        _fetch,
        about="fetch what distributions need on this machine and an index lacks, without a lock",
        more="The word may be left out: cairn index mirror FILE …",
        example="cairn index mirror fetch dist/*.whl --store ./store",
    )
    parser.add_argument(
        "files", nargs="*", type=converters.file, metavar="FILE", help="whose requirements to fetch"
    )
    arguments.add_repeated(parser, "--require", "REQUIREMENT", "fetch this too")
    _add_place(parser)
    arguments.add_dry_run(parser)


def _add_stack(parser: argparse.ArgumentParser) -> None:
    arguments.add_stack(parser)
    parser.add_argument(
        "--lock", type=converters.any_path, metavar="FILE", help="the lock (default: beside the stack.toml)"
    )


def _add_place(parser: argparse.ArgumentParser) -> None:
    arguments.add_store(parser)
    arguments.add_index(parser, default="staging")
    arguments.add_json(parser)


def _lock(options: argparse.Namespace) -> int:
    from cairn import pip_settings
    from cairn.release.publish import distribution, mirror_lock, mirror_resolve

    stack, path = _lock_of(options)
    before = mirror_lock.read(path) if path.exists() else None
    new = mirror_resolve.asked_by(map(distribution.read, options.files), options.require, stack=stack)
    asked = mirror_resolve.merged(before.asked if before else (), new, stack=stack)
    if not asked:
        raise UsageError(
            "nothing to lock: no wheel that needs anything, and no lock to renew",
            tip="name wheels of the stack, or give --require",
        )
    with console.current().stage(f"resolve for {stack.name}"):
        made = mirror_resolve.resolve(
            stack,
            mirror_lock.places_of(stack),
            asked,
            settings=pip_settings.read(),
            before=None if options.upgrade else before,
        )
    if not options.dry_run:
        mirror_lock.write(path, made)
    _say_changes(mirror_lock.changes(before, made), made, options)
    return 0


def _say_changes(changes: tuple[str, ...], lock: MirrorLock, options: argparse.Namespace) -> None:
    if options.json:
        console.current().json({"changes": list(changes), "files": len(lock.files)})
        return
    for line in changes:
        console.current().out(line)
    total = sum(file.size or 0 for file in lock.files)
    console.current().info(
        f"files: {len(lock.files)}, {total / 1e6:.0f} MB where sizes are known; changes: {len(changes)}"
    )


def _sync(options: argparse.Namespace) -> int:
    from cairn.release.publish import mirror_lock, mirror_sync

    _, path = _lock_of(options)
    lock, store = mirror_lock.read(path), arguments.open_store(options)
    with console.current().stage(f"mirror into {options.index}"):
        fetched = mirror_sync.sync(store, options.index, lock, dry_run=options.dry_run)
    _say_added([file.file_name for file in fetched], options)
    return 0


def _verify(options: argparse.Namespace) -> int:
    from cairn.release.index.snapshot import Index
    from cairn.release.publish import mirror_lock, mirror_sync

    stack, path = _lock_of(options)
    snapshot = Index(arguments.open_existing_store(options), options.index).load()
    problems = mirror_sync.problems(mirror_lock.read(path), stack, snapshot)
    if options.json:
        console.current().json({"index": options.index, "problems": list(problems)})
    else:
        for problem in problems:
            console.current().out(problem)
    if problems:
        raise StoreError(f"{options.index} and {path.name} do not agree: {len(problems)} problem(s)")
    if not options.json:
        console.current().out(f"{options.index} holds what {path.name} names, and that covers {stack.name}")
    return 0


def _fetch(options: argparse.Namespace) -> int:
    from cairn.release.publish.mirror import mirror, missing

    if not options.files and not options.require:
        raise UsageError("nothing to mirror", tip="name distributions, or give --require")
    store, wanted = arguments.open_store(options), {"dists": options.files, "requirements": options.require}
    if options.dry_run:
        _say_added([item.requirement for item in missing(store, options.index, **wanted)], options)
        return 0
    with console.current().stage(f"mirror into {options.index}"):
        done = mirror(store, options.index, **wanted)
    _say_added([entry.filename for entry in done.added], options)
    return 0


def _say_added(names: list[str], options: argparse.Namespace) -> None:
    if options.json:
        console.current().json({"added": names, "already": []})
        return
    for name in names:
        console.current().out(f"+ {name}")


def _lock_of(options: argparse.Namespace) -> tuple[Stack, Path]:
    """The stack, and where its lock is."""
    from cairn.release.publish import mirror_lock

    stack = arguments.read_stack(options)
    return stack, options.lock or mirror_lock.path_of(stack)
