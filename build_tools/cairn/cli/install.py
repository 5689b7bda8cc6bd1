"""`cairn install`: install torch and what belongs to it for the GPUs of this machine, and prove it there."""

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
from cairn.errors import PrerequisiteError, UsageError
from cairn.options import Exclusive, option
from cairn.output import console

if TYPE_CHECKING:
    from cairn.pipeline.install import Destination, Installation
    from cairn.release.pages.targets_file import Installer
    from cairn.release.trust.anchor import Anchor

_PLACE = Exclusive()
_GPU = Exclusive()


@dataclass(frozen=True, kw_only=True)
class Install(signing.RootOptions):
    """Options of `cairn install`.

    The GPUs of this machine are found, and what is for them is installed into the environment that you work
    in, never into Cairn's own; at the end the GPU computes something. --dry-run prints the lines for pip,
    if it is there, and for uv instead. Without an index, here or in the settings, AMD's is taken: one whole
    set of it, by exact versions. Sets not tested on this GPU are marked untested. Where the store has a root,
    nothing but what its promoter signed is installed.

        cairn install --gpu "RX 7900 XTX"
    """

    index_url: str | None = common.index_url(group=_PLACE)
    store: str | None = common.store(required=False, group=_PLACE)
    stream: str | None = common.stream("stable", group=_PLACE)
    index: str = common.index("release")
    gpu: str = option(
        'the GPU: a product such as "RX 7900 XTX", a target such as gfx1100, or cpu to use none '
        "(default: auto, the GPUs of this machine)",
        metavar="GPU",
        convert=converters.nonempty,
        completer=common.complete_targets,
        group=_GPU,
        default="auto",
    )
    topology_dir: Path | None = common.topology_dir()
    line: str | None = common.line("the first that the index offers")
    python: Path | None = option(
        "interpreter to install for, or the folder of its environment (default: the active environment's, "
        "or one that is asked for)",
        metavar="FILE",
        convert=converters.file_or_folder,
    )
    installer: Installer | None = option(
        "what installs (default: pip, or uv where there is none)",
        choices=("pip", "uv"),
    )
    json: bool = False
    dry_run: bool = common.dry_run()


def _install(request: Install) -> Iterator[Answer | Piece]:
    from cairn.pipeline import install, installed
    from cairn.release.index import keys
    from cairn.store.opening import open_folder

    gpus = _gpus_by_name(request)
    destination = _destination(request)
    machine = install.this_machine(destination.interpreter, gpus=gpus, topology=request.topology_dir)
    if (url := request.index_url) is None and request.store is not None:
        url = keys.index_url(open_folder(request.store).url, keys.checked_index(request.index))
    prepared = install.prepare(
        url, machine, python=destination.to_name, line=request.line, stream=request.stream
    )
    trusted = prepared.signed.anchor if prepared.signed else None
    plain = _plain(prepared, destination) | {"root": trusted.fingerprint if trusted else None}
    if request.dry_run:
        yield Answer(plain, itertools.chain(_text(prepared, destination), _of_root(trusted)))
        return
    yield from (piece for piece in _text(prepared, destination) if not isinstance(piece, str))
    yield from _of_root(trusted)
    python = destination.interpreter.path
    with console.current().stage(f"install into {python.parent.parent}") as stage:
        compared = install.run(prepared, request.installer, python, on_line=stage.update)
    if unread := [name for name, count in compared.items() if count is None]:
        yield Warn(f"compared by version alone: {', '.join(unread)}; the index does not offer parts of files")
    with console.current().stage("try what was installed") as stage:
        works, proof = installed.prove(prepared.choice.picks[0], python, on_line=stage.update)
    # A GPU that was named may be in a different machine, as where an image is made.
    error = (
        None if works or request.gpu not in ("auto", "cpu") else PrerequisiteError(proof, tip=installed.LOOK)
    )
    if count := sum(filter(None, compared.values())):
        yield Note(f"compared with their wheels: {count:,} files")
    text: list[Piece] = [proof] if works else [] if error else [Warn(f"{proof}: {installed.LOOK}")]
    plain["proof"] = {"works": works, "text": proof, "tip": "" if works else installed.LOOK}
    yield Answer(plain | {"compared": compared}, text, error=error)


def _destination(request: Install) -> Destination:
    """The Python to install for; who sits before a terminal is asked where there is none."""
    from cairn import files, venv
    from cairn.pipeline import install

    try:
        return install.destination(request.python, to_change=not request.dry_run)
    except install.NoEnvironmentError as error:
        if request.json or not console.current().can_ask():
            raise
        folder = files.expanded(
            console.current().ask(f"{error}. Folder of one, made if missing", "torch-env")
        )
    if not folder.is_dir():
        first = install.destination(None, to_change=False)
        venv.create(folder, python=first.interpreter.path)
        console.current().info(f"made {folder}: `source {folder}/bin/activate` is how to work in it")
    return install.destination(folder, to_change=True)


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
    is_ours = destination.origin.endswith("Cairn's own")
    if is_ours or "no environment" in destination.origin:  # a system's takes no packages (PEP 668)
        besides = " other than Cairn's own" if is_ours else ""
        yield Note(f"an installation needs an environment{besides}; {install.MAKE_ONE}")
    yield from map(Note, install.say(prepared))
    yield from map(Warn, prepared.choice.warnings)
    for pick in prepared.choice.picks:
        if pick.untested:
            yield Warn(pick.untested)
        yield from (prepared.line(installer, pick) for installer in _installers(destination))


def _installers(destination: Destination) -> tuple[Installer, ...]:
    """What can install there: whoever has no environment yet makes one, with pip in it."""
    is_named = destination.origin in ("the active environment", "--python")
    return ("uv",) if is_named and not destination.interpreter.has_pip else ("pip", "uv")


def _of_root(trusted: Anchor | None) -> Iterator[Piece]:
    if trusted is None:
        return
    yield Note(f"as signed under the root {trusted.fingerprint}")
    yield Note("pip and uv by themselves trust the server; cairn installs nothing but what was signed")
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
                "pip": None,
                **{installer: prepared.line(installer, pick) for installer in _installers(destination)},
            }
            for pick in prepared.choice.picks
        ],
    }


COMMANDS = {"install": command(Install, _install)}
