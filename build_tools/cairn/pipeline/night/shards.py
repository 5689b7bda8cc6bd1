"""The shards of a night's suites: the expected ones, and the stored results of those that ran.

nights/<id>/shards/<leg>.<config>/<shard>.<run>.<attempt>.<digest>/shard.json, with its other files beside it

They are in the store and not among the artifacts of a run: any job may upload anything under any name, and a
night may continue in other runs, which do not see the artifacts of the first.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import tempfile
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
from msgspec import structs

from cairn import files
from cairn.errors import CairnError, StoreError, UsageError
from cairn.matrix.legs import Leg
from cairn.output import console, github
from cairn.pipeline.night import hanging, plan, signed
from cairn.pipeline.night.plan import NightPlan, NightRun
from cairn.release.index import keys, write
from cairn.release.trust.signers import Signer
from cairn.stack import Floor, Stack
from cairn.store.protocol import Store
from cairn.testing.junit import TestOutcome
from cairn.testing.suite import suite_results, suite_toml
from cairn.testing.suite.shards import Times, times_of
from cairn.testing.suite.suite_results import ShardResult
from cairn.testing.suite.suite_toml import Config, Suite

_NIGHTS = 10  # before this one that are asked for the times of tests
_CONFIG = re.compile("[A-Za-z0-9][A-Za-z0-9_-]{0,49}")


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a leg's suites that one job runs.

    Attributes:
        leg: whose set is tested.
        config: the configuration of the suite.
        number: which shard, from 1.
        count: of how many.
        runs_on: the labels of the runner.
    """

    leg: Leg
    config: str
    number: int
    count: int
    runs_on: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its name for people."""
        return f"{self.leg.name}, {self.config} {self.number}/{self.count}"

    @property
    def part(self) -> str:
        """Its name in notes."""
        return f"{self.config}-{self.number}"

    def results_in(self, work_dir: Path) -> Path:
        """The folder of its results."""
        return work_dir / "suite" / self.part


class StoredShard(msgspec.Struct, frozen=True, kw_only=True):
    """The stored results of a shard.

    Attributes:
        prefix: of its keys.
        result: what it says.
    """

    prefix: str
    result: ShardResult

    @property
    def ended(self) -> datetime:
        """When the shard ended."""
        return datetime.fromisoformat(self.result.started) + timedelta(seconds=self.result.duration_seconds)


def suite_of(stack: Stack) -> Suite:
    """Read the suite.toml beside a stack's stack.toml.

    Raises:
        UsageError: there is none, or it is wrong.
    """
    return suite_toml.load(Path(stack.folder))


def config_of(stack: Stack, name: str) -> Config:
    """Return a configuration of a stack's suite.

    Raises:
        UsageError: there is none with that name, or the name is not valid in a key.
    """
    if not _CONFIG.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot name a configuration of a night", tip="use letters, digits and dashes"
        )
    return suite_of(stack).config(name)


def expected(stack: Stack, leg: Leg) -> tuple[Shard, ...]:
    """Return the shards that a leg must run; none if no runner has the GPUs for them.

    Raises:
        UsageError: the stack has no such suite.
    """
    every = []
    for name in leg.suites:
        config = config_of(stack, name)
        labels = leg.multi_gpu_runs_on if config.gpus == "all" else leg.test_runs_on
        every += [
            Shard(leg=leg, config=name, number=number, count=config.shards, runs_on=labels)
            for number in range(1, config.shards + 1)
            if labels
        ]
    return tuple(every)


def shard_of(run: NightRun, leg: Leg, config: str, number: int) -> Shard:
    """Return a shard of a leg's suites.

    Raises:
        UsageError: the leg has none like that.
    """
    every = expected(run.stack, leg)
    for shard in every:
        if (shard.config, shard.number) == (config, number):
            return shard
    raise UsageError(
        f"{leg.name} has no shard {number} of {config}",
        tip=f"its shards are: {', '.join(shard.part for shard in every)}"
        if every
        else "its matrix names no suites",
    )


def demanding(stack: Stack, leg: Leg) -> Stack:
    """Return the stack with a gate that also demands a record of all tests that the night runs for a leg."""
    configs = tuple(dict.fromkeys(shard.config for shard in expected(stack, leg)))
    records = dict(stack.gate.records)
    if configs:
        floor = records.get("suite", Floor())
        both = tuple(dict.fromkeys((*floor.configs, *configs)))
        records["suite"] = structs.replace(floor, configs=both)
    if leg.compat and leg.test_runs_on:
        records.setdefault("compat", Floor())
    return structs.replace(stack, gate=structs.replace(stack.gate, records=records))


def keep(run: NightRun, shard: Shard, folder: Path, signer: Signer | None = None) -> None:
    """Store the results of a shard from a folder, signed.

    Raises:
        UsageError: it has left none.
        OSError: one of its files is a link.
    """
    result, _ = suite_results.read_shard(folder)
    hanging.keep(run.store, run.plan.night, result.hanging)
    digest = files.sha256_of(folder / suite_results.SHARD)
    # With a digest: a cluster may run a shard again in the same attempt of a run.
    name = f"{shard.number}.{github.run_id()}.{github.attempt()}.{digest[:12]}"
    prefix = f"{_prefix(run.plan, shard.leg, shard.config)}{name}/"
    signed.sign(run, prefix, {suite_results.SHARD: digest}, signer)  # which has the digests of the others
    # The result last: what has one is whole.
    for name in suite_results.FILES:
        # What the tests left running may put a link there meanwhile, to what only we may read.
        with files.plain_file(folder, name) as path:
            write.create(run.store, prefix + name, path.read_bytes())


def results_of(run: NightRun, shard: Shard, *, set_id: str) -> dict[int, StoredShard]:
    """Return the latest results of each shard of one configuration, by number.

    Only results of this set count and, if the plan, the wheels, the sources or skip-tests changed between two
    attempts, only results of the latest of these. In a store with a root, what no tester signed does not.

    Args:
        run: the night.
        shard: any shard of the configuration.
        set_id: the set.
    """
    of_this = (set_id, shard.count)
    candidates = [
        stored
        for stored in _all(run, run.plan, shard)
        if (stored.result.set_id, stored.result.shards) == of_this
    ]
    return {
        stored.result.shard: stored
        for stored in candidates
        if not candidates[-1].result.differences(stored.result)
    }


def _all(run: NightRun, night: NightPlan, shard: Shard) -> list[StoredShard]:
    """Return all stored results of the shards of a configuration, ordered by their end.

    Those of another night than the run's may be unsigned: how long tests took is no reason to promote.
    """
    items, store = [], run.store
    for item in store.list(_prefix(night, shard.leg, shard.config)):
        if not item.key.endswith(f"/{suite_results.SHARD}"):
            continue
        try:
            prefix = item.key.removesuffix(suite_results.SHARD)
            if night == run.plan:
                data = signed.read(run, prefix, suite_results.SHARD, by="tester")
            else:
                data = store.read(item.key).data
            result = suite_results.loads_shard(data, name=f"{store.url}/{item.key}")
        except CairnError as error:  # as if the shard had left nothing: it runs again
            console.current().warn(f"skipping the results of a shard: {error}")
            continue
        if result.config == shard.config:
            items.append(StoredShard(prefix=prefix, result=result))
    return sorted(items, key=lambda stored: stored.ended)


def fetch(store: Store, stored: StoredShard, folder: Path) -> Path:
    """Copy the stored results of a shard to a folder, as the shard wrote them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in suite_results.FILES:
        files.write_bytes(folder / name, store.read(stored.prefix + name).data)
    return folder


def times(run: NightRun, shard: Shard) -> Times:
    """Return the times of a configuration's tests in the last earlier night that has all its shards.

    Each shard of a night finds the same times, and so makes the same plan; were a shard of an earlier night
    to end between two of them, the plans would differ, and those of the earlier plan would run again.
    """
    store = run.store
    for night in plan.before(run)[:_NIGHTS]:
        by_set: dict[str | None, dict[int, StoredShard]] = {}
        for stored in _all(run, night, shard):
            by_set.setdefault(stored.result.set_id, {})[stored.result.shard] = stored
        whole = [
            by_number
            for by_number in by_set.values()
            if len(by_number) == next(iter(by_number.values())).result.shards
        ]
        if not whole:
            continue
        with contextlib.suppress(CairnError), tempfile.TemporaryDirectory(prefix="cairn-shard-") as folder:
            tests: list[TestOutcome] = []
            for number, stored in sorted(whole[-1].items()):
                tests += suite_results.read_shard(fetch(store, stored, Path(folder, str(number))))[1]
            return times_of(tests)
    return Times()


def due(run: NightRun, leg: Leg) -> tuple[Shard, ...]:
    """Return the shards of a leg's staged set that have not run yet, or that had problems."""
    staged = plan.set_of(run.index(leg, run.plan.staging), run.plan, leg)
    if staged is None:
        return ()
    return tuple(
        shard
        for shard in expected(run.stack, leg)
        if not _is_good(run.store, results_of(run, shard, set_id=staged.set_id).get(shard.number))
    )


def _is_good(store: Store, stored: StoredShard | None) -> bool:
    if stored is None or stored.result.problems or stored.result.unfinished:
        return False
    with tempfile.TemporaryDirectory(prefix="cairn-shard-") as folder:
        try:
            _, tests = suite_results.read_shard(fetch(store, stored, Path(folder)))
        except CairnError:  # its outcomes are not those that it had
            return False
    return not any(test.failed for test in tests)


def lists_of(run: NightRun) -> dict[str, bytes]:
    """Return the lists of tests that a night froze, by address.

    Raises:
        StoreError: the store lacks one, or it was changed.
    """
    lists: dict[str, bytes] = {}
    for url, sha256 in run.plan.lists.items():
        key = keys.list_key(run.plan.night, sha256)
        lists[url] = run.store.read(key).data
        if hashlib.sha256(lists[url]).hexdigest() != sha256:
            raise StoreError(f"{run.store.url}/{key} was changed", tip="restore it from a copy")
    return lists


def _prefix(night: NightPlan, leg: Leg, config: str) -> str:
    return keys.night_key(night.night, f"shards/{leg.id}.{config}/")
