"""`cairn index mirror`: what sets need of other indexes, locked, fetched and compared."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.cli import arguments
from cairn.cli.parser import Subparsers, add_command
from cairn.errors import StoreError, UsageError
from cairn.output import console

if TYPE_CHECKING:
    from cairn.release.publish.mirror_lock import MirrorLock
    from cairn.stack import Stack

_LOCK, _SYNC, _VERIFY = "lock", "sync", "verify"


def add_to(commands: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "mirror",
        _mirror,
        about="have an index hold what sets need of other indexes, by hash",
        more="`lock` writes what the stack needs for all its Pythons and platforms into mirror.lock.toml, "
        "to be reviewed; `sync` fetches what that names and the index lacks; `verify` says where the two "
        "differ. With files alone, what they need on this machine is fetched without a lock.",
        example="cairn index mirror sync --stack external-builds/pytorch --store ./store --index staging",
    )
    parser.add_argument(
        "files",
        nargs="*",
        type=_word_or_file,
        metavar="lock|sync|verify|FILE",
        help="what to do, and for `lock` whose requirements count; or files whose requirements to fetch",
    )
    arguments.add_repeated(parser, "--require", "REQUIREMENT", "lock or fetch this too")
    arguments.add_stack(parser, required=False)
    parser.add_argument(
        "--lock", type=arguments.any_path, metavar="FILE", help="the lock (default: beside the stack.toml)"
    )
    parser.add_argument(
        "--upgrade", action="store_true", help="with `lock`: the newest versions, not those that are locked"
    )
    arguments.add_store(parser, required=False)
    arguments.add_index(parser, default="staging")
    arguments.add_dry_run(parser)
    arguments.add_json(parser)


def _word_or_file(text: str) -> str | Path:
    return text if text in (_LOCK, _SYNC, _VERIFY) else arguments.file(text)


def _mirror(options: argparse.Namespace) -> int:
    word = options.files[0] if options.files and isinstance(options.files[0], str) else None
    given = options.files[1:] if word else options.files
    if any(isinstance(item, str) for item in given):
        raise UsageError("lock, sync and verify are three commands", tip="give the first argument alone")
    if word is not None and options.stack is None:
        raise UsageError(f"mirror {word} needs a stack", tip="name one with --stack")
    if word != _LOCK and options.store is None:
        raise UsageError("no store is named", tip="name one with --store")
    if word in (_SYNC, _VERIFY) and (given or options.require):
        raise UsageError(f"mirror {word} goes by the lock alone", tip="put them into it with mirror lock")
    if word == _LOCK:
        return _lock(options, given)
    if word == _SYNC:
        return _sync(options)
    return _verify(options) if word == _VERIFY else _fetch(options, given)


def _lock(options: argparse.Namespace, given: list[Path]) -> int:
    from cairn.release.publish import distribution, mirror_lock, mirror_resolve, pip_settings

    stack, path = _lock_of(options)
    before = mirror_lock.read(path) if path.exists() else None
    new = mirror_resolve.asked_by(map(distribution.read, given), options.require, stack=stack)
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


def _fetch(options: argparse.Namespace, given: list[Path]) -> int:
    from cairn.release.publish.mirror import mirror, missing

    if not given and not options.require:
        raise UsageError("nothing to mirror", tip="name distributions, or give --require")
    store, wanted = arguments.open_store(options), {"dists": given, "requirements": options.require}
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
