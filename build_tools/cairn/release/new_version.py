"""Rename the wheels of a set to the versions of its next stage: from nightly to candidate, then to release.

They are new bytes, so they are a new set, with test records to be made anew; it names the set that it comes
from.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import structs

from cairn import files
from cairn.errors import UsageError
from cairn.release.index import keys
from cairn.release.index.snapshot import MANIFEST_FILE, SET_FILE, read_set
from cairn.release.ledger import Ledger
from cairn.release.provenance import evidence
from cairn.requirements import is_sdk, requirement
from cairn.store import transfer
from cairn.store.protocol import Store
from cairn.wheels import build_statement, wheels_to_set, wheelset
from cairn.wheels.rewrite.set_version import Change, set_versions
from cairn.wheels.rewrite.version_options import NewVersion
from cairn.wheels.wheelset import BUILDER_FILE, WheelSet


def next_stage(
    store: Store, set_id: str, stage: str, output_dir: Path, *, dry_run: bool = False
) -> tuple[WheelSet | None, tuple[Change, ...]]:
    """Write the wheels of a set under the versions of a stage, with their open set and its manifest.

    Args:
        store: what has the set.
        set_id: the set.
        stage: `rc1`, `rc2`, … or `final`.
        output_dir: where the files go.
        dry_run: say which versions they would have, and write nothing.

    Returns:
        The open set (None for a dry run), and what changes in each wheel.

    Raises:
        GateError: the set was yanked.
        StoreError: the set is not what its builder says.
        UsageError: the folder has a set already.
        WheelError: a version cannot go to that stage, or a pin or a file in a wheel cannot follow it.
    """
    if (output_dir / SET_FILE).exists():
        raise UsageError(f"{output_dir} has a set already", tip="choose an empty folder")
    old = read_set(store, set_id)
    Ledger(store).refuse_banned([old])
    keys_of_wheels = [keys.file_key(wheel.sha256, wheel.file_name) for wheel in old.wheels]
    with transfer.as_files(store, keys_of_wheels) as paths:
        evidence.require_builder(store, old, list(paths.values()))
        wheels = [paths[key] for key in keys_of_wheels]
        changes = set_versions(wheels, NewVersion(stage=stage), output_dir, dry_run=dry_run)
    if dry_run:
        return None, changes
    made = wheels_to_set.make(
        [change.target for change in changes],
        manifest_sha256=old.manifest_sha256,
        stack=old.stack,
        line=old.line,
        python=old.python,
        platform=old.platform,
        family=old.family,
        targets=old.targets,
        # What the `rocm` sdist chooses is of the SDK's version, which may be a different one now.
        requirements=[text for text in old.requirements if not is_sdk(requirement(text).name)],
    )
    made = structs.replace(made, derived_from=old.id)
    frozen, new = store.read(keys.set_key(old.id, MANIFEST_FILE)).data, [change.target for change in changes]
    statement = build_statement.of_set(
        made, new, manifest=frozen, inputs=evidence.builder_statement(store, old).inputs
    )
    files.write_bytes(output_dir / MANIFEST_FILE, frozen)
    files.write_bytes(output_dir / BUILDER_FILE, build_statement.encode(statement))
    wheelset.write(output_dir / SET_FILE, made)
    return made, changes
