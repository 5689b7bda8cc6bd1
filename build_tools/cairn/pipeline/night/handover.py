"""Read from and write to the store before and after a job, so that the job needs no credentials.

`fetch` copies the objects that the job reads to a folder, which is itself a store. `keep_tests` and
`keep_shard` store the results that `smoke.smoke_leg` and `suite.run_shard` left. `keep_built` and
`stage_built` bring wheels from build to stage where no workflow has artifacts:

nights/<id>/built/<build>/<run>.<attempt>/  the output folder of a build, until its sets are staged
"""

from __future__ import annotations

import dataclasses
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from msgspec import structs

from cairn import datafile, files
from cairn.build.compiler_cache import session as compiler_cache
from cairn.errors import CairnError, StoreError, UsageError
from cairn.matrix.legs import Leg
from cairn.output import Progress, console, github, silent
from cairn.pipeline.night import plan, shards, signed, smoke, stage
from cairn.pipeline.night.plan import NightRun, StepNote
from cairn.pipeline.night.shards import Shard
from cairn.pipeline.night.stage import NOTE_FILE, StagedLeg
from cairn.release import recipes
from cairn.release.index import keys
from cairn.release.index.snapshot import read_set
from cairn.release.provenance.dsse import SignatureError
from cairn.release.trust import anchor
from cairn.release.trust.metadata import key_of
from cairn.release.trust.signers import Signer
from cairn.store.folder import LocalStore
from cairn.store.memory import OverlayStore
from cairn.store.protocol import Store, StoredObject
from cairn.testing import record
from cairn.testing.gpus import kernel
from cairn.testing.suite import suite_results

_ATTEMPT = re.compile(r"[0-9]+\.[0-9]+")


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
    run = dataclasses.replace(run, store=store)
    # What is read through `store` is copied. So each reader that the job will call is called here, and its
    # answer left: plan, manifest, recipe, set, the notes of GPUs that hang, lists, times and baselines.
    plan.find(store, run.plan.night)
    # The job refuses a stack that has moved on, and needs the frozen one to say what differs.
    tuple(recipes.problems(store, plan.manifest_of(store, run.plan).recipe, run.stack))
    if leg is None:
        _copy_root(run.store, copy)
        return
    wheel_set = read_set(store, smoke.staged_set(run, leg))
    try:
        smoke.refuse_other_hardware(run, leg, kernel.KFD_NODES)
    except CairnError:
        return  # the tests will say so, and gigabytes are not fetched for it
    if shard is not None:
        shards.times(run, shard)
        shards.lists_of(run)
    elif leg.compat and leg.test_runs_on:
        smoke.baseline(run, leg)
    for item in store.list(keys.set_simple_prefix(wheel_set.id)):
        store.read(item.key)
    for file in wheel_set.files:
        for item in store.list(keys.file_key(file.sha256, file.file_name)):
            with store.as_file(item.key) as path:
                copy.put_file(item.key, path)


def _copy_root(store: Store, copy: LocalStore) -> None:
    """Copy the root, of whose builders a build takes wheels, and for which its SDK has to be reviewed.

    Raises:
        UsageError: whoever can write to the store could give its compilers what is kept there.
    """
    if trusted := anchor.anchor(store):
        compiler_cache.refuse_bucket(store.url)
        first = anchor.version_of(trusted.first)
        copy.write(key_of("root", first), trusted.first)
        for version in range(first + 1, trusted.root.version + 1):
            copy.write(key_of("root", version), trusted.history(version).read_bytes())


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
    for folder, keep in ((work_dir, smoke.keep), (work_dir / smoke.COMPAT, smoke.keep_compat)):
        path = folder / record.FILE
        if path.is_file():
            if (tested_set := record.read(path).set_id) != set_id:
                raise UsageError(
                    f"{path} is of the set {tested_set}, and the staged one of {leg.name} is {set_id}"
                )
            keep(run, leg, folder, signer)
            has_results = True
    return _keep_note(run, leg, work_dir) or has_results


def keep_shard(run: NightRun, shard: Shard, results: Path, signer: Signer | None = None) -> bool:
    """Store the results of a shard; return whether there are any."""
    if has_results := (results / suite_results.SHARD).is_file():
        shards.keep(run, shard, results, signer)
    return _keep_note(run, shard.leg, results, shard.part) or has_results


def _keep_note(run: NightRun, leg: Leg, folder: Path, part: str = "") -> bool:
    if not (folder / NOTE_FILE).is_file():
        return False
    note = datafile.read(folder / NOTE_FILE, StepNote)
    if (note.night, note.leg, note.stage, note.part) == (run.plan.night, leg.id, "test", part):
        plan.note(run.store, note)
    return True


def keep_built(run: NightRun, build: str, folder: Path, signer: Signer | None = None) -> bool:
    """Store the output folder of a build, signed; return whether it has left anything.

    Of a build that failed, it is the note that says why.
    """
    # The build ran foreign code, which may have linked what only we may read; so may what it left running.
    plain = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    if folder.is_symlink() or folder / NOTE_FILE not in plain:
        return False
    with files.plain_file(folder, NOTE_FILE) as path:
        is_good = datafile.loads(path.read_bytes(), StepNote, name=str(folder / NOTE_FILE)).good
    paths = [path.relative_to(folder) for path in plain]
    # Hidden files are of the build alone; a workflow's artifacts have none either.
    names = [path.as_posix() for path in paths if not any(part.startswith(".") for part in path.parts)]
    prefix = f"{_built(run, build)}{github.run_id()}.{github.attempt()}/"
    # The note last: what has one is whole.
    names = [*sorted(set(names) - {NOTE_FILE, signed.FILE} if is_good else ()), NOTE_FILE]
    digests: dict[str, str] = {}
    for name in names:
        with files.plain_file(folder, name) as path:
            digests[name] = files.sha256_of(path)
    signed.sign(run, prefix, digests if signer else {}, signer)
    for name in names:
        with files.plain_file(folder, name) as path:
            run.store.put_file(prefix + name, path, sha256=digests[name])
    return True


def built(run: NightRun) -> frozenset[str]:
    """The builds that have ended well and wait to be staged."""
    names = run.store.folders(keys.night_key(run.plan.night, "built/"))
    return frozenset(name for name in names if any(note.good for _, note in _attempts(run, name)))


def stage_built(run: NightRun, *, say: Progress = silent) -> tuple[StagedLeg, ...]:
    """Stage what builds have left in the store, and remove it there once all legs of it are staged."""
    builds = dict.fromkeys(leg.build_id for leg in run.legs)
    with tempfile.TemporaryDirectory(prefix="cairn-built-") as temporary:
        for name in builds:
            attempts = sorted(
                _attempts(run, name), key=lambda attempt: (attempt[1].good, attempt[1].finished)
            )
            for prefix, note in attempts[-1:]:
                say(f"fetching {name}")
                # Of this attempt from here on: this run may have yet to come to that of another run.
                copy = Path(temporary, f"wheels-{name}-{github.attempt()}")
                _copy(run, prefix, copy)
                datafile.write(copy / NOTE_FILE, structs.replace(note, attempt=github.attempt()))
        staged = stage.stage_night(run, Path(temporary), say=say)
    is_staged = {result.leg.id: result.set_id is not None for result in staged}
    for name in builds if not run.dry_run else ():
        if all(is_staged.get(leg) for leg in run.plan.build(name).legs):
            for item in list(run.store.list(_built(run, name))):
                run.store.delete(item.key)
    return staged


def _attempts(run: NightRun, build: str) -> Iterator[tuple[str, StepNote]]:
    """Yield the prefix and the note of each whole output folder of a build, signed where there is a root."""
    for name in run.store.folders(_built(run, build)):
        prefix = f"{_built(run, build)}{name}/"
        if not _ATTEMPT.fullmatch(name) or not run.store.exists(prefix + NOTE_FILE):
            continue
        try:
            data = signed.read(run, prefix, NOTE_FILE, by="builder")
        except SignatureError as error:  # as if it had left nothing: it is made again
            console.current().warn(f"skipping what a build has left: {error}")
            continue
        yield prefix, datafile.loads(data, StepNote, name=prefix + NOTE_FILE)


def _copy(run: NightRun, prefix: str, folder: Path) -> None:
    digests = signed.digests(run, prefix, by="builder")
    for name in digests or [item.key.removeprefix(prefix) for item in run.store.list(prefix)]:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with run.store.as_file(prefix + name) as source:
            files.copy(source, path)
        if digests and files.sha256_of(path) != digests[name]:
            raise StoreError(f"{prefix}{name} was changed since it was built", tip="build it again")


def _built(run: NightRun, build: str) -> str:
    return keys.night_key(run.plan.night, f"built/{build}/")
