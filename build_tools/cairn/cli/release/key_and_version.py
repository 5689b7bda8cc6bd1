"""`cairn release key` and `new-version`: a key to sign with, and the wheels of the next stage."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cairn.cli import common_options as common
from cairn.cli.answer import Answer, Note
from cairn.cli.binder import command
from cairn.options import option


@dataclass(frozen=True, kw_only=True)
class CreateKey:
    """Options of `cairn release key create`.

    The private half stays with you; users get the public one from where they know it is yours.

        cairn release key create --output-dir ~/.config/cairn
    """

    output_dir: Path = common.output_dir()


def _create_key(request: CreateKey) -> Answer:
    from cairn.release.trust import signers

    key = signers.create(request.output_dir)
    private, public = (request.output_dir / name for name in (signers.PRIVATE_NAME, signers.PUBLIC_NAME))
    text = (
        key.key_id,
        Note(f"{private} signs: keep it to yourself, and a copy where nobody else can read it"),
        Note(f"{public} checks: give it to those who are to trust you"),
    )
    return Answer({"key_id": key.key_id, "private_key": private, "public_key": public}, text)


@dataclass(frozen=True, kw_only=True)
class NewVersion(common.StoreOptions):
    """Options of `cairn release new-version`.

    The wheels are new bytes: publish them as a set of their own, and test that one. Its set.json names
    the set that they come from.

        cairn release new-version SET --promote rc1 --store ./store --output-dir rc1
    """

    set_id: str = common.set_argument()
    promote: str = option("one stage further: rc1, rc2, … or final", metavar="STAGE", required=True)
    index: str = common.index("staging")
    output_dir: Path = common.output_dir()
    dry_run: bool = common.dry_run()


def _new_version(request: NewVersion) -> Answer:
    from cairn.release.index.snapshot import Index, whole_id
    from cairn.release.new_version import next_stage

    store, dry_run = request.open_existing_store(), request.dry_run
    set_id = whole_id(common.set_id_of(request.set_id), Index(store, request.index).load())
    _, changes = next_stage(store, set_id, request.promote, request.output_dir, dry_run=dry_run)
    wheels = [{"wheel": c.target, "version": {"old": c.old, "new": c.new}} for c in changes]
    return Answer(
        {"derived_from": set_id, "wheels": wheels, "dry_run": dry_run},
        [f"{'would write' if dry_run else '+'} {change.target}" for change in changes],
    )


COMMANDS = {
    "create": command(CreateKey, _create_key),
    "new-version": command(NewVersion, _new_version),
}
