"""Read from and write to the store before and after a job, so that the job needs no credentials.

`fetch` copies the objects that the job reads to a folder, which is itself a store. `keep_tests` and
`keep_shard` store the results in the job's work folder, as `smoke.smoke_leg` and `suite.run_shard` would have
done.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cairn import datafile
from cairn.errors import CairnError, UsageError
from cairn.matrix.legs import Leg
from cairn.pipeline.night import plan, shards, smoke
from cairn.pipeline.night.plan import NightRun, StepNote
from cairn.pipeline.night.shards import Shard
from cairn.pipeline.night.stage import NOTE_FILE
from cairn.release.index import keys
from cairn.release.index.snapshot import read_set
from cairn.release.provenance.signers import Signer
from cairn.store.folder import LocalStore
from cairn.store.memory import OverlayStore
from cairn.store.protocol import Store, StoredObject
from cairn.testing import record
from cairn.testing.gpus import kernel
from cairn.testing.suite import suite_results


class _Copying(OverlayStore):
    """A store that copies each object that is read from it as a whole."""

    def __init__(self, below: Store, copy: LocalStore) -> None:
        super().__init__(below, {})
        self._copy = copy

    def read(self, key: str) -> StoredObject:
        """See `Store.read`."""
        item = super().read(key)
        self._copy.write(key, item.data)
        return item


def fetch(run: NightRun, folder: Path, leg: Leg | None = None, shard: Shard | None = None) -> None:
    """Copy the objects of a night that a job reads.

    Args:
        run: the night.
        folder: receives the objects.
        leg: whose staged set is tested; None for a build, which reads the manifest alone.
        shard: of its suite; None for its smoke tests.

    Raises:
        StoreError: no set of the leg is staged, or objects of it are missing.
    """
    copy = LocalStore(folder)
    store = _Copying(run.store, copy)
    run = replace(run, store=store)
    plan.find(store, run.plan.night)
    plan.manifest_of(store, run.plan)
    if leg is None:
        return
    wheel_set = read_set(store, smoke.staged_set(run, leg))
    try:
        smoke.refuse_other_hardware(run, leg, kernel.KFD_NODES)
    except CairnError:
        return  # the tests will say so, and gigabytes are not fetched for it
    if shard is not None:
        shards.times(run, shard)
    elif leg.compat:
        smoke.baseline(run, leg)
    for item in store.list(keys.set_simple_prefix(wheel_set.id)):
        store.read(item.key)
    for file in wheel_set.files:
        for item in store.list(keys.file_key(file.sha256, file.file_name)):
            with store.as_file(item.key) as path:
                copy.put_file(item.key, path)


def forget(folder: Path) -> None:
    """Remove the results of an earlier job, so that they are not taken for those of the next."""
    for name in (NOTE_FILE, record.FILE, f"compat/{record.FILE}", suite_results.SHARD):
        (folder / name).unlink(missing_ok=True)


def keep_tests(run: NightRun, leg: Leg, work_dir: Path, signer: Signer | None) -> bool:
    """Store the results of a leg's smoke tests; return whether there are any.

    Raises:
        UsageError: a record is of a different set than the leg's staged one.
    """
    set_id, has_results = smoke.staged_set(run, leg), False
    for folder, keep in ((work_dir, smoke.keep), (work_dir / "compat", smoke.keep_compat)):
        path = folder / record.FILE
        if path.is_file():
            if (other := record.read(path).set_id) != set_id:
                raise UsageError(
                    f"{path} is of the set {other}, and the staged one of {leg.name} is {set_id}"
                )
            keep(run, leg, folder, signer)
            has_results = True
    return _keep_note(run, leg, work_dir) or has_results


def keep_shard(run: NightRun, shard: Shard, results: Path) -> bool:
    """Store the results of a shard; return whether there are any."""
    if has_results := (results / suite_results.SHARD).is_file():
        shards.keep(run.store, run.plan, shard, results)
    return _keep_note(run, shard.leg, results, shard.part) or has_results


def _keep_note(run: NightRun, leg: Leg, folder: Path, part: str = "") -> bool:
    if not (folder / NOTE_FILE).is_file():
        return False
    note = datafile.read(folder / NOTE_FILE, StepNote)
    if (note.night, note.leg, note.stage, note.part) == (run.plan.night, leg.id, "test", part):
        plan.note(run.store, note)
    return True
