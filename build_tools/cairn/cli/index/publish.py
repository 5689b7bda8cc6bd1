"""`cairn index publish`: wheels and sdists into a channel, alone or as a set."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import fields, signing
from cairn.cli.answer import Answer
from cairn.cli.binder import command
from cairn.cli.index.mirror import added
from cairn.errors import UsageError
from cairn.options import argument, option, repeated
from cairn.output import console

if TYPE_CHECKING:
    from cairn.store.protocol import Store


@dataclass(frozen=True, kw_only=True)
class Publish(signing.AttestOptions, fields.StoreOptions):
    """What `cairn index publish` is asked for.

    Into the channels that users install from, sets come through the gate: see `cairn release promote`.

        cairn index publish dist/*.whl --store ./store --set dist/set.json
    """

    files: tuple[Path, ...] = argument("FILE", "a wheel or an sdist", nargs="+", convert=converters.file)
    index: str = fields.index("staging")
    set_file: Path | None = option(
        "set.json: the files are this set, whole; it is sealed with all it needs, and written again",
        "--set",
        metavar="FILE",
        convert=converters.file,
    )
    manifest: Path | None = option(
        "with --set: the manifest.json that it was built from (default: the one beside set.json)",
        metavar="FILE",
        convert=converters.file,
    )
    require: tuple[str, ...] = repeated(
        "with --set: what the set needs and no metadata says", metavar="REQUIREMENT"
    )
    json: bool = fields.json()


def _publish(request: Publish) -> Answer:
    from cairn.release.publish.files import publish

    store = request.open_store()
    if request.set_file is not None:
        return _publish_set(store, request, request.set_file)
    for flag, value in (
        ("--require", request.require),
        ("--manifest", request.manifest),
        ("--sign-key", request.sign_key),
        ("--sign-as-workflow", request.sign_as_workflow),
    ):
        if value:
            raise UsageError(f"{flag} is about a set", tip="give --set set.json as well")
    with console.current().stage(f"publish into {request.index}") as stage:
        result = publish(store, request.index, request.files, dry_run=request.dry_run, on_step=stage.update)
    return added((entry.filename for entry in result.added), result.already)


def _publish_set(store: Store, request: Publish, set_file: Path) -> Answer:
    from cairn.release.publish.wheel_set import stage_set
    from cairn.sources.manifest import manifest
    from cairn.wheels import build_statement, wheelset

    built_from = manifest.read(request.manifest or set_file.with_name("manifest.json"))
    name = f"publish into {request.index}"
    with request.attester() as attester, console.current().stage(name) as stage:
        sealed = stage_set(
            store,
            request.index,
            wheelset.read(set_file),
            request.files,
            manifest=built_from.canonical(),
            statement=build_statement.beside(set_file),
            requirements=request.require,
            attester=attester,
            dry_run=request.dry_run,
            on_step=stage.update,
        )
    if not request.dry_run:
        # Tests bind to the sealed set, so it takes the place of the open one.
        wheelset.write(set_file, sealed)
    closure = [file.file_name for file in sealed.closure]
    return Answer({"set": sealed.id, "closure": closure}, [sealed.id])


COMMANDS = {"publish": command(Publish, _publish)}
