"""`cairn index`: serve and publish; mirror, verify and what looks after a store have modules of their own."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cairn.cli import arguments, index_mirror, index_verify, signing, upkeep
from cairn.cli.parser import Subparsers, add_command, add_commands
from cairn.errors import StoreError, UsageError
from cairn.output import console

if TYPE_CHECKING:
    from cairn.release.publish.files import Published
    from cairn.store.protocol import Store


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the commands of the group."""
    commands = add_commands(
        parser,
        description="Work with an index: static files that pip and uv install from.",
        example="cairn index serve ./store",
    )
    _add_serve(commands)
    _add_publish(commands)
    index_mirror.add_to(commands)
    upkeep.add_upkeep(commands)
    index_verify.add_to(commands, audit=upkeep.audit)


def _add_serve(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "serve",
        _serve,
        about="serve a store over HTTP on this machine until interrupted",
        more="Its own files are served, and no others.",
        example="cairn index serve ./store",
    )
    parser.add_argument("store", metavar="URL", help="the store: a path, file://… or s3://bucket/prefix")
    arguments.add_endpoint_url(parser)
    parser.add_argument(
        "--host",
        type=arguments.nonempty,  # an empty one would be every address of the machine
        default="127.0.0.1",
        help="address to listen on (default: %(default)s)",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=arguments.PORT,
        help="port to listen on; 0 takes any free one (default: %(default)s)",
    )


def _add_publish(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "publish",
        _publish,
        about="offer wheels and sdists in a channel: staging or dev",
        more="Into the channels that users install from, sets come through the gate: see `cairn release "
        "promote`.",
        example="cairn index publish dist/*.whl --store ./store --set dist/set.json",
    )
    parser.add_argument("files", nargs="+", type=arguments.file, metavar="FILE", help="a wheel or an sdist")
    _add_place(parser)
    parser.add_argument(
        "--set",
        type=arguments.file,
        dest="set_file",
        metavar="FILE",
        help="set.json: the files are this set, whole; it is sealed with all it needs, and written again",
    )
    parser.add_argument(
        "--manifest",
        type=arguments.file,
        metavar="FILE",
        help="with --set: the manifest.json that it was built from (default: the one beside set.json)",
    )
    arguments.add_repeated(
        parser, "--require", "REQUIREMENT", "with --set: what the set needs and no metadata says"
    )
    signing.add_attesting(parser)
    arguments.add_dry_run(parser)


def _add_place(parser: argparse.ArgumentParser, default: str = "staging") -> None:
    arguments.add_store(parser)
    arguments.add_index(parser, default=default)
    arguments.add_json(parser)


def _serve(options: argparse.Namespace) -> int:
    from cairn.release.index import keys
    from cairn.release.index.snapshot import existing
    from cairn.release.serve.server import serving
    from cairn.store.folder import LocalStore

    store = arguments.open_existing_store(options)
    indexes = existing(store)
    named = {path.name for path in store.path.iterdir()} if isinstance(store, LocalStore) else set()
    if not indexes and named - keys.FOLDERS:
        raise StoreError(
            f"{store.url} is not a store: nothing was published into it, and it has other files",
            tip="name the folder that `cairn index publish --store` wrote",
        )
    try:
        with serving(store, host=options.host, port=options.port) as server:
            _announce(server.url, store, indexes)
            threading.Event().wait()
    except KeyboardInterrupt:
        console.current().info("stopped")
    return 0


def _announce(url: str, store: Store, indexes: Sequence[str]) -> None:
    from cairn.release.index import keys

    screen = console.current()
    screen.info(f"serving {store.url} until Ctrl-C")
    if store.exists(keys.LANDING):
        screen.info(f"what there is, and how to install it: {url}/")
    if not indexes:
        screen.warn("nothing is published in it yet")
    for index in indexes:
        screen.out(keys.index_url(url, index))


def _publish(options: argparse.Namespace) -> int:
    from cairn.release.publish.files import publish

    store = arguments.open_store(options)
    if options.set_file is not None:
        return _publish_set(store, options)
    flags = {"--require": options.require, "--manifest": options.manifest, "--sign-key": options.sign_key}
    flags["--sign-as-workflow"] = options.sign_as_workflow
    if flag := next((flag for flag, given in flags.items() if given), None):
        raise UsageError(f"{flag} is about a set", tip="give --set set.json as well")
    with console.current().stage(f"publish into {options.index}") as stage:
        done = publish(store, options.index, options.files, dry_run=options.dry_run, on_step=stage.update)
    _say(done, options)
    return 0


def _publish_set(store: Store, options: argparse.Namespace) -> int:
    from cairn.release.publish.wheel_set import stage_set
    from cairn.sources.manifest import manifest
    from cairn.wheels import wheelset

    built_from = manifest.read(options.manifest or options.set_file.with_name("manifest.json"))
    name = f"publish into {options.index}"
    with signing.attester(options) as attester, console.current().stage(name) as stage:
        sealed = stage_set(
            store,
            options.index,
            wheelset.read(options.set_file),
            options.files,
            manifest=built_from.canonical(),
            requirements=options.require,
            attester=attester,
            dry_run=options.dry_run,
            on_step=stage.update,
        )
    if not options.dry_run:
        # Tests bind to the sealed set, so it takes the place of the open one.
        wheelset.write(options.set_file, sealed)
    if options.json:
        console.current().json({"set": sealed.id, "closure": [file.file_name for file in sealed.closure]})
    else:
        console.current().out(sealed.id)
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
