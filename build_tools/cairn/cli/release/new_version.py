"""`cairn release new-version`: the wheels of a set under the versions of its next stage."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cairn.cli import fields
from cairn.cli.answer import Answer
from cairn.cli.binder import command
from cairn.options import option


@dataclass(frozen=True, kw_only=True)
class NewVersion(fields.StoreOptions):
    """What `cairn release new-version` is asked for.

    The wheels are new bytes: publish them as a set of their own, and test that one. Its set.json names
    the set that they come from.

        cairn release new-version SET --promote rc1 --store ./store --output-dir rc1
    """

    set_id: str = fields.set_argument()
    promote: str = option("one stage further: rc1, rc2, … or final", metavar="STAGE", required=True)
    index: str = fields.index("staging")
    output_dir: Path = fields.output_dir()
    dry_run: bool = fields.dry_run()
    json: bool = fields.json()


def _new_version(request: NewVersion) -> Answer:
    from cairn.release.index.snapshot import Index, whole_id
    from cairn.release.new_version import next_stage

    store, dry_run = request.open_existing_store(), request.dry_run
    set_id = whole_id(fields.set_id_of(request.set_id), Index(store, request.index).load())
    _, changes = next_stage(store, set_id, request.promote, request.output_dir, dry_run=dry_run)
    wheels = [{"wheel": c.target, "version": {"old": c.old, "new": c.new}} for c in changes]
    return Answer(
        {"derived_from": set_id, "wheels": wheels, "dry_run": dry_run},
        [f"{'would write' if dry_run else '+'} {change.target}" for change in changes],
    )


COMMANDS = {"new-version": command(NewVersion, _new_version)}
