"""`cairn index`: serve, publish, audit, verify, mirror."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Sequence

from cairn.cli import common, paths
from cairn.cli.parser import Subparsers
from cairn.errors import StoreError, UsageError
from cairn.output import console
from cairn.release.gate.audit import audit
from cairn.release.index import keys
from cairn.release.index.snapshot import existing
from cairn.release.publish.files import Published, publish
from cairn.release.publish.mirror import mirror
from cairn.release.publish.wheel_set import stage_set
from cairn.release.serve.server import serving
from cairn.store.folder import open_existing, open_store
from cairn.wheels import wheelset as wheel_sets


def register(subparsers: Subparsers) -> None:
    """Add the group to the program."""
    group = subparsers.add_parser(
        "index",
        help="serve, publish, audit, verify or mirror an index",
        description="Work with an index: static files that pip and uv install from.",
        epilog="example: cairn index serve ./store",
    )
    commands = group.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_serve(commands)
    _add_publish(commands)
    _add_mirror(commands)
    _add_check(commands, "audit", hashes=False, what="compare pages and sizes with the state")
    _add_check(commands, "verify", hashes=True, what="audit, and read every file for its sha256")


def _add_serve(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "serve",
        help="serve a store over HTTP until interrupted",
        description="Serve a store over HTTP on this machine until interrupted: its own files, no others.",
        epilog="example: cairn index serve ./store",
    )
    parser.add_argument("store", metavar="URL", help="the store: a path or file://…")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument(
        "--port",
        type=int,
        default=common.PORT,
        help="port to listen on; 0 takes any free one (default: %(default)s)",
    )
    parser.set_defaults(run=_serve)


def _add_publish(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "publish",
        help="offer wheels and sdists in a channel",
        description="Offer wheels and sdists in staging or dev. Into the channels that people install from, "
        "sets come through the gate: see `cairn release promote`.",
        epilog="example: cairn index publish dist/*.whl --store ./store --set dist/set.json",
    )
    parser.add_argument("files", nargs="+", type=paths.file, metavar="FILE", help="a wheel or an sdist")
    _add_place(parser)
    parser.add_argument(
        "--set",
        type=paths.file,
        dest="set_file",
        metavar="FILE",
        help="set.json: the files are this set, whole",
    )
    parser.add_argument(
        "--require",
        action="append",
        default=[],
        metavar="REQUIREMENT",
        help="with --set: what the set needs and no metadata says; may be repeated",
    )
    common.add_dry_run(parser)
    parser.set_defaults(run=_publish)


def _add_mirror(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "mirror",
        help="fetch what distributions need and the channel lacks",
        description="Fetch what distributions need and the channel lacks, and keep it by its hash. What sets "
        "need comes with them into other channels.",
        epilog="example: cairn index mirror dist/*.whl --store ./store --index staging",
    )
    parser.add_argument(
        "files", nargs="*", type=paths.file, metavar="FILE", help="whose dependencies to fetch"
    )
    parser.add_argument(
        "--require",
        action="append",
        default=[],
        metavar="REQUIREMENT",
        help="fetch this too; may be repeated",
    )
    _add_place(parser)
    parser.set_defaults(run=_mirror)


def _add_check(commands: Subparsers, name: str, *, hashes: bool, what: str) -> None:
    parser = commands.add_parser(
        name,
        help=what,
        description=f"{what[0].upper()}{what[1:]}. Nothing is changed.",
        epilog=f"example: cairn index {name} --store ./store",
    )
    _add_place(parser, default="release")
    parser.set_defaults(run=_check, hashes=hashes)


def _add_place(parser: argparse.ArgumentParser, default: str = "staging") -> None:
    common.add_store(parser)
    common.add_index(parser, default=default)
    common.add_json(parser)


def _serve(options: argparse.Namespace) -> int:
    store = open_existing(options.store)
    indexes = existing(store)
    if not indexes and any(path.name not in keys.FOLDERS for path in store.path.iterdir()):
        raise StoreError(
            f"{store.url} is not a store: nothing was published into it, and it has other files",
            tip="name the folder that `cairn index publish --store` wrote",
        )
    try:
        with serving(store.path, host=options.host, port=options.port) as server:
            _announce(server.url, store.url, indexes)
            threading.Event().wait()
    except KeyboardInterrupt:
        console.current().info("stopped")
    return 0


def _announce(url: str, store: str, indexes: Sequence[str]) -> None:
    screen = console.current()
    screen.info(f"serving {store} until Ctrl-C")
    if not indexes:
        screen.warn("nothing is published in it yet")
    for index in indexes:
        screen.out(keys.index_url(url, index))


def _publish(options: argparse.Namespace) -> int:
    store = open_store(options.store)
    if options.set_file is None:
        if options.require:
            raise UsageError("--require says what a set needs", tip="give --set set.json as well")
        _say(publish(store, options.index, options.files, dry_run=options.dry_run), options)
        return 0
    wheel_set = wheel_sets.read(options.set_file)
    if options.dry_run:
        _say(publish(store, options.index, options.files, dry_run=True), options)
        return 0
    staged = stage_set(store, options.index, wheel_set, options.files, requirements=options.require)
    if options.json:
        console.current().json({"set": staged.set_id, "closure": [ref.filename for ref in staged.closure]})
    else:
        console.current().out(staged.set_id)
    return 0


def _mirror(options: argparse.Namespace) -> int:
    if not options.files and not options.require:
        raise UsageError("nothing to mirror", tip="name distributions, or give --require")
    store = open_store(options.store)
    with console.current().stage(f"mirror into {options.index}"):
        done = mirror(store, options.index, dists=options.files, requirements=options.require)
    _say(done, options)
    return 0


def _check(options: argparse.Namespace) -> int:
    problems = audit(open_existing(options.store), options.index, hashes=options.hashes)
    if options.json:
        console.current().json({"index": options.index, "problems": list(problems)})
    else:
        for problem in problems:
            console.current().out(problem)
    if problems:
        raise StoreError(
            f"{options.index} has {len(problems)} problem(s)",
            tip="publish the named files again or restore them",
        )
    if not options.json:
        console.current().out(f"{options.index} is what its state says")
    return 0


def _say(published: Published, options: argparse.Namespace) -> None:
    added = [entry.filename for entry in published.added]
    if options.json:
        console.current().json({"added": added, "already": list(published.already)})
        return
    for name in added:
        console.current().out(f"+ {name}")
    for name in published.already:
        console.current().out(f"= {name}")
