"""`cairn index publish`: wheels and sdists into a channel, alone or as a set."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import arguments, signing
from cairn.cli.parser import Subparsers, add_command
from cairn.errors import UsageError
from cairn.output import console

if TYPE_CHECKING:
    from cairn.release.publish.files import Published
    from cairn.store.protocol import Store


def add_to(commands: Subparsers) -> None:
    """Add `publish`."""
    parser = add_command(
        commands,
        "publish",
        _publish,
        about="offer wheels and sdists in a channel: staging or dev",
        more="Into the channels that users install from, sets come through the gate: see `cairn release "
        "promote`.",
        example="cairn index publish dist/*.whl --store ./store --set dist/set.json",
    )
    parser.add_argument("files", nargs="+", type=converters.file, metavar="FILE", help="a wheel or an sdist")
    arguments.add_store(parser)
    arguments.add_index(parser, default="staging")
    arguments.add_json(parser)
    parser.add_argument(
        "--set",
        type=converters.file,
        dest="set_file",
        metavar="FILE",
        help="set.json: the files are this set, whole; it is sealed with all it needs, and written again",
    )
    parser.add_argument(
        "--manifest",
        type=converters.file,
        metavar="FILE",
        help="with --set: the manifest.json that it was built from (default: the one beside set.json)",
    )
    arguments.add_repeated(
        parser, "--require", "REQUIREMENT", "with --set: what the set needs and no metadata says"
    )
    signing.add_attesting(parser)
    arguments.add_dry_run(parser)


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
    from cairn.wheels.provenance import build_statement

    built_from = manifest.read(options.manifest or options.set_file.with_name("manifest.json"))
    name = f"publish into {options.index}"
    with signing.attester(options) as attester, console.current().stage(name) as stage:
        sealed = stage_set(
            store,
            options.index,
            wheelset.read(options.set_file),
            options.files,
            manifest=built_from.canonical(),
            statement=build_statement.beside(options.set_file),
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
