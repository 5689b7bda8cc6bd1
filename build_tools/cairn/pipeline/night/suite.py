"""A shard of a leg's suite, on the machine that this runs on; its results go into the store."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from pathlib import Path

from cairn import interpreters
from cairn.errors import StoreError, TestsFailedError
from cairn.output import Progress, console
from cairn.pipeline.night import plan, shards, smoke
from cairn.pipeline.night.build import origin_of
from cairn.pipeline.night.plan import NightRun
from cairn.pipeline.night.shards import Shard
from cairn.release.index import keys
from cairn.release.index.snapshot import read_set
from cairn.release.serve import server
from cairn.sources.checkout.checkout import CheckoutRequest, checkout
from cairn.sources.git import repository
from cairn.sources.hipify import in_copy
from cairn.sources.manifest import manifest
from cairn.sources.manifest.manifest import ProjectSource
from cairn.sources.worktree import contents
from cairn.stack import policy
from cairn.testing.gpus import kernel
from cairn.testing.record import TestPolicy
from cairn.testing.skips import skip_files
from cairn.testing.suite import merge as merging
from cairn.testing.suite import on_set
from cairn.testing.suite.merge import Merged
from cairn.testing.suite.run import SuiteRequest, Tested, run_suite
from cairn.testing.testing_options import Limits
from cairn.venv import PackageSource

"""Beside the stack.toml: the tests that are left out."""


@dataclass(frozen=True, kw_only=True)
class ShardTest:
    """A shard that is to be run here.

    Attributes:
        run: the night.
        shard: which.
        work_dir: receives the sources of the tests, and the environment, the log and the results.
        limits: of time.
        gpus: where the kernel describes the GPUs of the machine.
        later: leave the results in the work folder, for a step that may write to the store (`handover`).
    """

    run: NightRun
    shard: Shard
    work_dir: Path
    limits: Limits = field(default_factory=Limits)
    gpus: Path = kernel.KFD_NODES
    later: bool = False

    @property
    def results(self) -> Path:
        """The folder of the results."""
        return self.shard.results_in(self.work_dir)


def run_shard(request: ShardTest) -> Merged:
    """Install a leg's staged set, run a shard of its suite, and store the results.

    The set is the store's own, the tests are of the commit that the manifest names, and the wheel must say
    that it was built from it.

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
    with server.serving(run.store) as serving, show.stage(f"install the set of {shard.leg.name}") as stage:
        tested = on_set.install(
            on_set.SetRequest(
                wheel_set=read_set(run.store, set_id),
                work_dir=request.results,
                source=PackageSource(index_url=keys.set_url(serving.url, set_id)),
                extra_wheels=stack.extra_wheels,
                requires=suite.requires,
                python=interpreters.find(shard.leg.python).path,
            ),
            on_line=stage.update,
        )
    with show.stage(f"tests of {suite.project}, {shard.part} of {shard.count}") as stage:
        results = run_suite(
            _suite_request(request, folder, commits, tested), say=show.warn, on_line=stage.update
        )
    if not request.later:
        shards.keep(run.store, run.plan, shard, results)
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
    folder = Path(stack.folder) / policy.SKIPS
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
        policy=TestPolicy.of(stack, skips=skips),
        limits=request.limits,
        # An SDK that reaches no GPU sees none of this machine's.
        nodes=request.gpus if stack.reaches_gpus else request.work_dir / "no-gpus",
    )


def _sources(request: ShardTest, project: str, say: Progress) -> tuple[Path, tuple[str, ...]]:
    """The checkout with the tests, and the commits that a wheel of the manifest may say it was built from."""
    run = request.run
    frozen = plan.manifest_of(run.store, run.plan)
    source = next((one for one in frozen.projects if one.name == project), None)
    if source is None:
        raise StoreError(
            f"the manifest of the night {run.plan.night} has no {project}",
            tip="correct `project` in the suite.toml",
        )
    folder = request.work_dir / "src" / run.stack.project(project).checkout_dir
    # Neither hipify nor submodules: tests need none of it, and torch's take gigabytes.
    checkout(_checkout_request(run, source, folder), say=say)
    root = repository.root_at(folder)
    hipified = in_copy.commit_id(root, source.commit, source.tree)
    return folder, tuple(dict.fromkeys((source.commit, hipified)))


def _checkout_request(run: NightRun, source: ProjectSource, folder: Path) -> CheckoutRequest:
    return CheckoutRequest(
        project=manifest.project_of(source),
        checkout_dir=folder,
        origin=origin_of(run.stack, source) or source.origin,
        hashtag=source.hashtag,
        commit=source.commit,
        depth=1,
        submodules=False,
        hipify=False,
    )
