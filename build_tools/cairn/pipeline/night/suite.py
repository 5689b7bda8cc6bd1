"""Run the suites of a night: each shard on one machine; all shards of a leg are judged together.

The results of each shard go into the store, and each configuration of a leg becomes one record there.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import msgspec

from cairn import files, interpreters
from cairn.errors import CairnError, StoreError, TestsFailedError
from cairn.matrix.legs import Leg
from cairn.output import Progress, console, silent
from cairn.pipeline.night import hanging, plan, results, shards, smoke, standing
from cairn.pipeline.night.build import origin_of
from cairn.pipeline.night.plan import NightRun
from cairn.pipeline.night.shards import Shard
from cairn.release.index import keys
from cairn.release.index.generation import now
from cairn.release.index.snapshot import read_set
from cairn.release.serve import serving
from cairn.release.trust.signers import Signer
from cairn.sources.checkout.checkout import CheckoutRequest, checkout
from cairn.sources.manifest import manifest
from cairn.sources.worktree import contents
from cairn.stack import recipe
from cairn.testing import install_set
from cairn.testing.gpus import kernel
from cairn.testing.install_set import Tested
from cairn.testing.record import FILE, TestPolicy
from cairn.testing.skips import skip_files
from cairn.testing.suite import merge as merging
from cairn.testing.suite.merge import Merged
from cairn.testing.suite.run import SuiteRequest, run_suite
from cairn.testing.testing_options import Limits
from cairn.venv import PackageSource


class ShardTest(msgspec.Struct, frozen=True, kw_only=True):
    """A shard to run on this machine.

    Attributes:
        run: the night.
        shard: which.
        work_dir: receives the sources of the tests, and the environment, the log and the results.
        limits: of time.
        gpus: where the kernel describes the GPUs of the machine.
    """

    run: NightRun
    shard: Shard
    work_dir: Path
    limits: Limits = msgspec.field(default_factory=Limits)
    gpus: Path = kernel.KFD_NODES

    @property
    def results(self) -> Path:
        """The folder of the results."""
        return self.shard.results_in(self.work_dir)


def run_shard(request: ShardTest) -> Merged:
    """Install a leg's staged set, and run a shard of its suite.

    The results stay in the work folder, for a phase that may write to the store (`handover`).

    The set comes from the store, the tests are of the manifest's commit, and the wheel must state that it was
    built from that commit.

    Raises:
        StoreError: no set of the leg is staged, or its manifest has no such project.
        PrerequisiteError: the machine has no GPU, and the set is for one that its ROCm reaches.
        TestsFailedError: the set cannot be installed, the machine has other GPUs, or tests failed; what ran
            is kept.
    """
    run, shard = request.run, request.shard
    stack, suite = run.stack, shards.suite_of(run.stack)
    set_id = smoke.staged_set(run, shard.leg)
    smoke.refuse_other_hardware(run, shard.leg, request.gpus)
    show = console.current()
    with show.stage(f"check out the tests of {suite.project}") as stage:
        folder, commits = _sources(request, suite.project, stage.update)
    wheel_set = read_set(run.store, set_id)
    with serving(run.store) as server, show.stage(f"install the set of {shard.leg.name}") as stage:
        tested = install_set.install_for_suite(
            install_set.SuiteSetRequest(
                wheel_set=wheel_set,
                work_dir=request.results,
                source=PackageSource(index_url=keys.set_url(server.url, set_id)),
                extra_wheels=stack.extra_wheels,
                requires=suite.requires_with(wheel_set),
                python=interpreters.find(shard.leg.python).path,
            ),
            on_line=stage.update,
        )
    with show.stage(f"tests of {suite.project}, {shard.part} of {shard.count}") as stage:
        results = run_suite(
            _suite_request(request, folder, commits, tested), say=show.warn, on_line=stage.update
        )
    merged = merging.merge([results], results, part=True)
    if merged.judgement.verdict in ("failed", "invalid"):
        raise TestsFailedError(
            f"{shard.name}: {merged.judgement.verdict}: {merged.judgement.reason}", tip=f"read {merged.junit}"
        )
    return merged


def _suite_request(
    request: ShardTest, checkout_dir: Path, commits: tuple[str, ...], tested: Tested
) -> SuiteRequest:
    stack, shard = request.run.stack, request.shard
    folder = Path(stack.folder) / recipe.SKIPS
    skips = [folder] if folder.is_dir() else []
    return SuiteRequest(
        suite=shards.suite_of(stack),
        config=shard.config,
        checkout=checkout_dir,
        commits=commits,
        write_committed=functools.partial(contents.write_committed, checkout_dir),
        tested=tested,
        work_dir=request.results,
        shard=shard.number,
        shards=shard.count,
        times=shards.times(request.run, shard),
        skips=skip_files.read(skips),
        # As the gate will have it, which also demands all records of the night.
        policy=TestPolicy.of(shards.demanding(stack, shard.leg), skips=skips),
        limits=request.limits,
        # An SDK that reaches no GPU sees none of this machine's.
        nodes=request.gpus if stack.reaches_gpus else request.work_dir / "no-gpus",
        hanging=hanging.nodes_here(request.run.store, request.run.plan.night),
        lists=shards.lists_of(request.run),
        run=f"night {request.run.plan.night}",
    )


def _sources(request: ShardTest, project: str, say: Progress) -> tuple[Path, tuple[str, ...]]:
    """Return the checkout with the tests, and the commits that a wheel of the manifest may name."""
    run = request.run
    frozen = plan.frozen(run)
    source = next(
        (frozen_project for frozen_project in frozen.projects if frozen_project.name == project), None
    )
    if source is None:
        raise StoreError(
            f"the manifest of the night {run.plan.night} has no {project}",
            tip="correct `project` in the suite.toml",
        )
    folder = request.work_dir / "src" / run.stack.project(project).checkout_dir
    tests = CheckoutRequest(
        project=manifest.project_of(source),
        checkout_dir=folder,
        origin=origin_of(run.stack, source) or source.origin,
        hashtag=source.hashtag,
        commit=source.commit,
        depth=1,
        # Neither hipify nor submodules: tests need none of it, and torch's take gigabytes.
        submodules=False,
        hipify=False,
    )
    checkout(tests, say=say)
    return folder, (source.commit,)


class SuiteMerge(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one configuration of a leg's suite.

    Attributes:
        leg: whose set was tested.
        config: the configuration.
        good: nothing counts against the set, also if the matrix accepts it without a GPU.
        reason: of the verdict.
        record: its digest; None where there is none.
    """

    leg: Leg
    config: str
    good: bool
    reason: str
    record: str | None = None

    @property
    def name(self) -> str:
        """Its name for people."""
        return f"{self.leg.name}, {self.config}"


def merge_night(
    run: NightRun, work_dir: Path, *, signer: Signer | None = None, say: Progress = silent
) -> tuple[SuiteMerge, ...]:
    """Judge every suite that a staged leg must run, and store the records; a missing shard is a failure.

    A promoted leg is skipped. A leg without results of any shard gets no record, and is not promoted.

    Args:
        run: the night.
        work_dir: receives a folder `suites/<leg>.<config>` for each, with JUnit XML, outcomes and record.
        signer: signs the records.
        say: progress callback.
    """
    merges = []
    for leg in run.legs:
        stands = standing.look(run, leg)
        if stands.set_id is None or stands.state == "promoted":
            continue
        by_config: dict[str, list[Shard]] = {}
        for shard in shards.expected(run.stack, leg):
            by_config.setdefault(shard.config, []).append(shard)
        for config, suite_shards in by_config.items():
            say(f"{leg.name}, {config}")
            started = now()
            result = _judge(run, suite_shards, stands.set_id, work_dir, signer)
            reason = f"the suite {config}: {result.reason}"
            ended = plan.step_note(run, leg, "test", started, good=result.good, reason=reason, part=config)
            plan.note(run.store, ended)
            merges.append(result)
    return tuple(merges)


def refusal(merges: Sequence[SuiteMerge]) -> TestsFailedError | None:
    """Return an error that names the suites that did not pass, of legs that are expected to; or None."""
    bad = [merge for merge in merges if not merge.good and not merge.leg.expect_failure]
    if not bad:
        return None
    return TestsFailedError(
        f"{len(bad)} of {len(merges)} suites did not pass: {'; '.join(merge.name for merge in bad)}",
        tip="run the failed shards again: those that are done stay done",
    )


def _judge(
    run: NightRun, suite_shards: Sequence[Shard], set_id: str, work_dir: Path, signer: Signer | None
) -> SuiteMerge:
    first = suite_shards[0]
    try:
        merged = _merge(run, suite_shards, set_id, work_dir / "suites" / f"{first.leg.id}.{first.config}")
        record = merged.record
        if record is None:
            return SuiteMerge(
                leg=first.leg, config=first.config, good=False, reason="nothing says what was tested"
            )
        title = f"Suite {first.config} of {first.leg.name}"
        name = f"the record of {first.leg.name}, {first.config}"
        results.keep(run, first.leg, merged.junit.parent, title=title, name=name, signer=signer)
    except (CairnError, OSError) as error:  # one leg holds up no other
        return SuiteMerge(leg=first.leg, config=first.config, good=False, reason=str(error))
    let_through = record.verdict == "untested" and first.leg.bypass_tests
    # Why shards that left no result have left none, as far as they could say so.
    numbers = {result.shard for result in merged.results}
    by_part = plan.notes_of_parts(run.store, run.plan)
    notes = [
        by_part.get((shard.leg.id, "test", shard.part))
        for shard in suite_shards
        if shard.number not in numbers
    ]
    missing = [f"{note.part}: {note.reason}" for note in notes if note is not None]
    return SuiteMerge(
        leg=first.leg,
        config=first.config,
        good=record.verdict == "passed" or let_through,
        reason="; ".join((f"{record.verdict}: {record.reason}", *missing)),
        record=files.sha256_of(merged.junit.parent / FILE),
    )


def _merge(run: NightRun, suite_shards: Sequence[Shard], set_id: str, folder: Path) -> Merged:
    first = suite_shards[0]
    plan.frozen(run)
    results = shards.results_of(run, first, set_id=set_id)
    if not results:
        raise TestsFailedError(f"none of its {first.count} shards left a result", tip="read their logs")
    folders = [
        shards.fetch(run.store, stored, folder / "shards" / str(number))
        for number, stored in sorted(results.items())
    ]
    config = shards.config_of(run.stack, first.config)
    on_gpus = any(stored.result.hardware for stored in results.values())
    return merging.merge(
        folders, folder, floor=config.floor, device_floor=config.device_floor if on_gpus else 0
    )
