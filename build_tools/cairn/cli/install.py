"""`cairn install`: the lines that install a release on this machine, or the installation itself."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn import converters
from cairn.cli import common_options as common
from cairn.cli import signing
from cairn.cli.answer import Answer, Note, Piece, Warn
from cairn.cli.binder import command
from cairn.errors import UsageError
from cairn.options import Exclusive, option
from cairn.output import console

if TYPE_CHECKING:
    from cairn.pipeline.install import Destination, Installation
    from cairn.release.pages.targets_file import Installer
    from cairn.release.trust.anchor import Anchor

_PLACE = Exclusive(required=True)
_GPU = Exclusive()


@dataclass(frozen=True, kw_only=True)
class Install(signing.RootOptions):
    """Options of `cairn install`.

    The GPUs of this machine are found, and what is for them is chosen from an index; the lines are for pip
    and for uv. What was not tested on such a GPU is said to be untested. Where the store has a root, the
    choice is held against what its promoter signed, and --run installs nothing but that.

        cairn install --index-url https://wheels.example/release/simple/ --gpu "RX 7900 XTX"
    """

    index_url: str | None = common.index_url(group=_PLACE)
    store: str | None = common.store(required=False, group=_PLACE)
    index: str = common.index("release")
    gpu: str = option(
        'the GPU: a product such as "RX 7900 XTX", a target such as gfx1100, or cpu to use none '
        "(default: auto, the GPUs of this machine)",
        metavar="GPU",
        convert=converters.nonempty,
        completer=common.complete_targets,
        group=_GPU,
        default="auto",
        formerly=("--product", "--target"),
    )
    topology_dir: Path | None = option(
        "a copy of a machine's /sys/class/kfd/kfd/topology/nodes, to choose for that machine",
        convert=converters.folder,
        group=_GPU,
    )
    line: str | None = common.line("the first that the index offers")
    python: Path | None = option(
        "interpreter to install for, or the folder of its environment (default: the active "
        "environment's; to print lines, else the first on PATH)",
        metavar="FILE",
        convert=converters.file_or_folder,
    )
    installer: Installer | None = option(
        "install with it, into the environment of that interpreter; never into Cairn's own unless "
        "--python names that",
        "--run",
        choices=("pip", "uv"),
    )
    json: bool = common.json()


def _install(request: Install) -> Iterator[Answer]:
    from cairn.pipeline import install
    from cairn.release.index import keys
    from cairn.store.opening import open_folder

    gpus = _gpus_by_name(request)
    destination = install.destination(request.python, to_change=bool(request.installer))
    machine = install.this_machine(destination.interpreter, gpus=gpus, topology=request.topology_dir)
    if (url := request.index_url) is None:
        url = keys.index_url(open_folder(str(request.store)).url, keys.checked_index(request.index))
    prepared = install.prepare(url, machine, python=destination.to_name, line=request.line)
    trusted = install.signed_by(prepared)
    plain = _plain(prepared, destination) | {"root": trusted.fingerprint if trusted else None}
    yield Answer(plain, itertools.chain(_text(prepared, destination), _of_root(trusted)))
    if request.installer:
        python = destination.interpreter.path
        name = f"install with {request.installer} into {python.parent.parent}"
        with console.current().stage(name) as stage:
            install.run(prepared, request.installer, python, on_line=stage.update)


def _gpus_by_name(request: Install) -> tuple[str, ...] | None:
    """The target that the user named, without features; None where the machine is to be asked."""
    from cairn import targets

    if request.gpu == "auto":
        return None
    try:
        names = targets.parse_targets(request.gpu, unbuilt=True)
    except UsageError:
        if request.gpu.casefold().startswith("gfx"):
            raise
        return (targets.parse_product(request.gpu),)
    if len(names) > 1:
        raise UsageError(f"{request.gpu} is {len(names)} targets", tip=f"name one: {', '.join(names)}")
    return (names[0].partition(":")[0],)


def _text(prepared: Installation, destination: Destination) -> Iterator[Piece]:
    from cairn.pipeline import install

    yield Note(str(destination))
    yield from map(Note, install.say(prepared))
    yield from map(Warn, prepared.choice.warnings)
    for pick in prepared.choice.picks:
        if pick.untested:
            yield Warn(pick.untested)
        yield prepared.line("pip", pick)
        yield prepared.line("uv", pick)


def _of_root(trusted: Anchor | None) -> Iterator[Piece]:
    if trusted is None:
        return
    yield Note(f"as signed under the root {trusted.fingerprint}")
    yield Note("the lines above trust the server; --run installs nothing but what was signed")
    if trusted.is_new:
        yield Warn("this machine meets that root for the first time: compare it with what the releaser says")


def _plain(prepared: Installation, destination: Destination) -> dict[str, Any]:
    return {
        "gpus": prepared.machine.gpus,
        "python": prepared.machine.python,
        "platform": prepared.machine.platform,
        "interpreter": destination.interpreter.path,
        "warnings": prepared.choice.warnings,
        "choices": [
            {
                "targets": pick.targets,
                "index": pick.offer.index,
                "index_url": prepared.index_url(pick),
                "line": pick.offer.line,
                "packages": pick.offer.packages,
                "versions": pick.offer.versions,
                "set": pick.offer.set_id,
                "added": pick.offer.added,
                "untested": pick.untested,
                "pip": prepared.line("pip", pick),
                "uv": prepared.line("uv", pick),
            }
            for pick in prepared.choice.picks
        ],
    }


COMMANDS = {"install": command(Install, _install)}
