"""`cairn install`: the lines that install a release on this machine, or the installation itself."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from cairn import converters
from cairn.cli import arguments, completion
from cairn.errors import UsageError
from cairn.output import console

if TYPE_CHECKING:
    from cairn.pipeline.install import Destination, Installation


def add_to(parser: argparse.ArgumentParser) -> None:
    """Make the parser that of this command: it has none below it."""
    parser.description = (
        "Find the GPUs of this machine, choose from an index what is for them, and print the lines that "
        "install it with pip and with uv. What was not tested on such a GPU is said to be untested."
    )
    parser.epilog = (
        'example: cairn install --index-url https://wheels.example/release/simple/ --product "RX 7900 XTX"'
    )
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument(
        "--index-url", type=converters.nonempty, metavar="URL", help="the only package index to use"
    )
    arguments.add_store(place)
    arguments.add_index(parser, default="release")
    gpu = parser.add_mutually_exclusive_group()
    gpu.add_argument(
        "--product",
        type=converters.nonempty,
        metavar="NAME",
        help='the GPU as it is sold, such as "RX 7900 XTX"',
    )
    arguments.completes(
        gpu.add_argument(
            "--target",
            type=converters.nonempty,
            help="the GPU's target, such as gfx1100; or cpu, to use none",
        ),
        completion.complete_targets,
    )
    gpu.add_argument(
        "--topology-dir",
        type=converters.folder,
        metavar="DIR",
        help="a copy of a machine's /sys/class/kfd/kfd/topology/nodes, to choose for that machine",
    )
    arguments.add_line(parser, default="the first that the index offers")
    parser.add_argument(
        "--python",
        type=converters.file_or_folder,
        metavar="FILE",
        help="interpreter to install for, or the folder of its environment (default: the active "
        "environment's; to print lines, else the first on PATH)",
    )
    parser.add_argument(
        "--run",
        dest="installer",
        choices=("pip", "uv"),
        help="install with it, into the environment of that interpreter; never into Cairn's own unless "
        "--python names that",
    )
    arguments.add_json(parser)
    parser.set_defaults(run=_install)


def _install(options: argparse.Namespace) -> int:
    from cairn.pipeline import install

    gpus = _named_gpus(options)
    chosen = install.destination(options.python, to_change=bool(options.installer))
    machine = install.this_machine(chosen.interpreter, gpus=gpus, topology=options.topology_dir)
    prepared = install.prepare(_index_url(options), machine, python=chosen.to_name, line=options.line)
    if options.json:
        console.current().json(_plain(prepared, chosen))
    else:
        console.current().info(str(chosen))
        _say(prepared)
    if options.installer:
        python = chosen.interpreter.path
        with console.current().stage(
            f"install with {options.installer} into {python.parent.parent}"
        ) as stage:
            install.run(prepared, options.installer, python, on_line=stage.update)
    return 0


def _named_gpus(options: argparse.Namespace) -> tuple[str, ...] | None:
    """The targets that the user named, without features; None where the machine is to be asked."""
    from cairn import products, targets

    if options.product:
        return (products.parse(options.product),)
    if options.target is None:
        return None
    try:
        named = targets.parse_targets(options.target, unbuilt=True)
    except UsageError as error:
        try:
            meant = products.parse(options.target)
        except UsageError:
            raise error from None
        raise UsageError(f"{options.target!r} is a product", tip=f"write --target {meant}") from None
    if len(named) > 1:
        raise UsageError(f"{options.target} is {len(named)} targets", tip=f"name one: {', '.join(named)}")
    return (named[0].partition(":")[0],)


def _index_url(options: argparse.Namespace) -> str:
    from cairn.release.index import keys
    from cairn.store.opening import open_folder

    if options.index_url:
        return str(options.index_url)
    return keys.index_url(open_folder(options.store).url, keys.checked_index(options.index))


def _say(prepared: Installation) -> None:
    from cairn.pipeline import install

    screen = console.current()
    for text in install.say(prepared):
        screen.info(text)
    for warning in prepared.choice.warnings:
        screen.warn(warning)
    for pick in prepared.choice.picks:
        if pick.untested:
            screen.warn(pick.untested)
        screen.out(prepared.line("pip", pick))
        screen.out(prepared.line("uv", pick))


def _plain(prepared: Installation, chosen: Destination) -> dict[str, Any]:
    return {
        "gpus": list(prepared.machine.gpus),
        "python": prepared.machine.python,
        "platform": prepared.machine.platform,
        "interpreter": str(chosen.interpreter.path),
        "warnings": list(prepared.choice.warnings),
        "choices": [
            {
                "targets": list(pick.targets),
                "index": pick.offer.index,
                "index_url": prepared.index_url(pick),
                "line": pick.offer.line,
                "packages": list(pick.offer.packages),
                "versions": dict(pick.offer.versions),
                "set": pick.offer.set_id,
                "added": pick.offer.added,
                "untested": pick.untested,
                "pip": prepared.line("pip", pick),
                "uv": prepared.line("uv", pick),
            }
            for pick in prepared.choice.picks
        ],
    }
