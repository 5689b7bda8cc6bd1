"""Run a suite or a shard of it: from the sources of its tests to a folder of results."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shlex
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec import structs
from packaging.utils import canonicalize_name

from cairn import datafile, files, isolation, owned, platforms
from cairn.errors import PrerequisiteError, TestsFailedError, UsageError
from cairn.output import Progress, silent, wording
from cairn.stack import recipe
from cairn.targets import CPU
from cairn.testing import pytest_runs
from cairn.testing import record as records
from cairn.testing.gpus import hangs, kernel
from cairn.testing.gpus.attest import Attestation, attest
from cairn.testing.gpus.gpu import Gpu
from cairn.testing.gpus.hangs import Answering
from cairn.testing.gpus.visible import GPU_VARIABLES, GpuChoice, VisibleGpus, choose_gpus
from cairn.testing.install_set import Tested
from cairn.testing.record import TestPolicy
from cairn.testing.skips import select
from cairn.testing.skips.conditions import RunFacts
from cairn.testing.skips.select import Selection
from cairn.testing.skips.skip_files import Listed
from cairn.testing.suite import modules, shards, sources, suite_results, suite_toml, worker
from cairn.testing.suite.attempt import Setup
from cairn.testing.suite.modules import ModuleRun
from cairn.testing.suite.shards import Piece, ShardPlan, Times
from cairn.testing.suite.sources import WheelVersion
from cairn.testing.suite.suite_results import ExcludedTest, ModuleCount, ShardResult
from cairn.testing.suite.suite_toml import Suite
from cairn.testing.testing_options import Choice, Limits

WriteCommitted: TypeAlias = Callable[[Sequence[str], Sequence[str], Path], object]
"""Writes files and folders of the first of some commits that the sources have below a folder."""

LOG, SKIPS = "suite.log", "skips.jsonl"
_FILES = (*suite_results.FILES, suite_results.SUITE, records.FILE, records.JUNIT, LOG, SKIPS)
_SPREADS = re.compile(r"-n|--numprocesses|--dist|--tx|--forked")  # of pytest-xdist and pytest-forked
_SHARD = "shard"  # what the worker takes away: other shards have it
_FOLDERS = ("tests", "plugins", "processes", "scratch")


@dataclass(frozen=True, kw_only=True)
class SuiteRequest:
    """A shard of a suite to run.

    Attributes:
        suite: which tests there are.
        config: the name of one of its configurations.
        checkout: the sources of the project.
        commits: what is checked out there: the commit, and those that it was made of by hipify; empty where
            that is not known.
        tested: the interpreter and wheels to test.
        work_dir: receives the copied tests, the log and the results, in place of those of an earlier run.
        write_committed: writes tests as a commit of `checkout` has them.
        edits: files in `checkout` that are not as these commits have them.
        choice: which modules of the configuration.
        shard: which shard, from 1.
        shards: of how many.
        times: how long tests took before.
        skips: the entries of skip-tests.
        only_skipped: run the tests of these and nothing else.
        torch_version: what the conditions of the entries are compared with; the wheel's where None, any where
            empty.
        pytest_args: the user's own.
        instead: what the user has put in place of the stack's own suite and skip-tests, as options.
        retries: how often a failed test is tried again.
        limits: of time.
        gpu_choice: one GPU, one of each kind, or all; the configuration's where None.
        allow_mismatch: run tests of a different commit than the wheel's.
        nodes: where the kernel describes the GPUs of the machine.
        hanging: the kernel's nodes of GPUs that are known to hang.
        policy: what the record says of the stack and of skip-tests; None where neither was named.
        lists: the suite's lists that a night has fetched, by address; None outside of a night.
        run: see `ShardResult.run`.
    """

    suite: Suite
    config: str
    checkout: Path
    commits: tuple[str, ...]
    write_committed: WriteCommitted
    tested: Tested
    work_dir: Path
    edits: tuple[str, ...] = ()
    choice: Choice = field(default_factory=Choice)
    shard: int = 1
    shards: int = 1
    times: Times = field(default_factory=Times)
    skips: tuple[Listed, ...] = ()
    only_skipped: bool = False
    torch_version: str | None = None
    pytest_args: tuple[str, ...] = ()
    instead: tuple[str, ...] = ()
    retries: int = 1
    limits: Limits = field(default_factory=Limits)
    gpu_choice: GpuChoice | None = None
    allow_mismatch: bool = False
    nodes: Path = kernel.KFD_NODES
    hanging: tuple[int, ...] = ()
    policy: TestPolicy | None = None
    lists: Mapping[str, bytes] | None = None
    run: str = ""


def run_suite(request: SuiteRequest, *, say: Progress = silent, on_line: Progress = silent) -> Path:
    """Run the tests of one shard; return the folder of its results, which `merge` judges.

    Args:
        request: what to run.
        say: called with remarks for the user, such as GPUs that are not used.
        on_line: called with what is being done.

    Raises:
        UsageError: there is no such configuration, module or shard, or the tests are of a different commit.
        PrerequisiteError: the interpreter does not have what is tested, or a pytest that the suite asks for.
        TestsFailedError: the machine has GPUs, and none that the wheels are for.
    """
    with ExitStack() as held:
        return _run(request, held, say, on_line)


def _run(request: SuiteRequest, held: ExitStack, say: Progress, on_line: Progress) -> Path:
    started, began = datetime.now(UTC), time.monotonic()
    prepared = _prepare(request, began, held, say, on_line)
    work_dir, tested, entries = request.work_dir, request.tested, prepared.selection.entries
    code = sources.hash_code(folders := (work_dir / "tests", work_dir / "plugins"))
    runs, hanging = _run_pieces(request, prepared)
    # Once more as a whole: a test that cleared a folder too many may have emptied or removed what was there.
    suite_results.write_outcomes(
        work_dir / suite_results.OUTCOMES, [test for _, run in runs for test in run.outcomes.values()]
    )
    accounts = suite_results.write_accounts(
        work_dir,
        [journal for _, run in runs for journal in run.journals],
        [xml for _, run in runs for xml in run.results],
    )
    problems = [problem for _, run in runs for problem in run.problems]
    if not prepared.setup.lost and (changed := sources.changed_code(code, folders)):
        problems.append(f"a test changed {wording.some(changed, shown=3)}: the tests that ran are unknown")
    hooks = tuple(sorted({hook for _, run in runs for hook in run.hooks}))
    problems += _undecided(hooks, request.suite)
    try:
        excluded, unmatched = select.read_excluded([work_dir / SKIPS], entries, tests=prepared.setup.tests)
    except TestsFailedError as error:
        problems, excluded, unmatched = [*problems, str(error)], (), ()
    result = ShardResult(
        config=request.config,
        shard=request.shard,
        shards=request.shards,
        plan=prepared.plan.digest,
        set_id=tested.set_id,
        family=tested.family,
        targets=tested.targets,
        wheels=tested.wheels,
        gpus=prepared.attested.gpus,
        disagreements=prepared.attested.disagreements,
        tested=prepared.wheel,
        sources=prepared.unlike,
        modules=tuple(_count(piece, run) for piece, run in runs),
        problems=tuple(problems),
        excluded=_excluded(entries, excluded),
        outdated=(
            *(f"{skip} matches no test: {wording.some(names)}" for skip, names in unmatched),
            *(f"{entry} has expired: {entry.entry.expires}" for entry in prepared.selection.expired),
        ),
        started=records.time_of(started),
        duration_seconds=round(time.monotonic() - began, 3),
        outcomes_sha256=files.sha256_of(work_dir / suite_results.OUTCOMES),
        accounts=accounts,
        pytest_args=_chosen_by_the_user(request, mismatch=bool(prepared.unlike)),
        policy=prepared.policy,
        hanging=hanging,
        flaky_ceiling=request.suite.config(request.config).flaky_ceiling,
        pytest=tuple(dict.fromkeys(name for _, run in runs for name in run.pytest)),
        hooks=hooks,
        settings=_settings(request),
        run=request.run,
        confinement=isolation.level(network=request.suite.config(request.config).network),
    )
    datafile.write(work_dir / suite_results.SHARD, result)
    return work_dir


def _undecided(hooks: Sequence[str], suite: Suite) -> list[str]:
    unlisted = wording.some([hook for hook in hooks if hook not in suite.hooks])
    problem = f"`hooks` of suite.toml lacks what decides which tests run and how they end: {unlisted}"
    return [problem] if unlisted else []


def _settings(request: SuiteRequest) -> str:
    settings = datafile.to_plain(request.suite), request.retries, request.gpu_choice
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def _count(piece: Piece, run: ModuleRun) -> ModuleCount:
    return ModuleCount(
        module=piece.module,
        selected=len(run.collected),
        whole=run.whole,
        cut=not piece.whole,
        finished=run.finished,
        gone=tuple(entry for entry in run.gone if entry.by != _SHARD),
    )


class _Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """The prepared run, before its first test.

    Attributes:
        setup: what the processes have in common.
        plan: the modules of each shard.
        environments: the variables of each module.
        attested: the GPUs that the tests see.
        selection: the entries of skip-tests that apply.
        wheel: its version and commit.
        unlike: the commit of the tests if it is not the wheel's.
        policy: by what the tests are chosen, with the digest of their files.
        left: the GPUs that do not hang.
    """

    setup: Setup
    plan: ShardPlan
    environments: Mapping[str, Mapping[str, str]]
    attested: Attestation
    selection: Selection
    wheel: str
    unlike: str
    policy: TestPolicy
    left: Answering


def _prepare(
    request: SuiteRequest, began: float, held: ExitStack, say: Progress, on_line: Progress
) -> _Prepared:
    """Check the request, and copy the tests; files of an earlier run are not touched before the checks."""
    tested, work_dir, config = request.tested, request.work_dir, request.suite.config(request.config)
    wheel, unlike = _check(request, say)
    plugins_on, off = sources.choose_plugins(request.suite, wheel)
    if off:
        say(f"pytest's plugins {', '.join(off)} are installed and off: the suite does not name them")
    visible = _choose(request, tested.variables)
    _refuse_other_hardware(request, visible)
    selection = _select(request, wheel, visible.hardware)
    for remark in (*visible.notes, *(selection.remarks if request.skips else ())):
        say(remark)
    held.enter_context(owned.alone_in(work_dir))
    owned.empty_places(work_dir, of_files=_FILES, of_folders=_FOLDERS)
    for file in (suite_results.OUTCOMES, SKIPS):
        files.write_bytes(work_dir / file, b"")
    left = _answering(request, Answering(variables=tested.variables)).require()
    if left.hanging:
        visible = _choose(request, left.variables)
        tested = structs.replace(tested, variables=left.variables)
        request = dataclasses.replace(request, tested=tested)
    tests, pytest_ini = _bring_tests(request, wheel, edited=bool(unlike))
    not_begun = () if request.only_skipped else selection.modules
    environments = suite_toml.choose(config, tests, request.choice, without=not_begun)
    shutil.copyfile(worker.__file__, (plugins := work_dir / "plugins") / "worker.py")
    pytest_runs.copy_counter(plugins)
    placed, digests = suite_toml.placed(request.suite, request.lists, tests, plugins, tested.variables, say)
    setup = Setup(
        python=tested.python,
        tests=tests,
        config=pytest_ini,
        work_dir=work_dir / "processes",
        plugins=(plugins, *tested.tools),
        plugin_names=(*plugins_on, select.PLUGIN, pytest_runs.COUNTER),
        variables=_variables(request, visible, selection, tests) | placed,
        arguments=request.pytest_args,
        uncollected=request.suite.uncollected,
        network=config.network,
        off=off,
        limits=request.limits,
        deadline=None if request.limits.all is None else began + request.limits.all,
        log=work_dir / LOG,
        on_line=on_line,
    )
    policy, tests_sha256 = request.policy or TestPolicy.of(None), recipe.digest_of_files([tests, pytest_ini])
    return _Prepared(
        setup=setup,
        plan=shards.plan_shards(environments, request.times, request.shards),
        environments=environments,
        attested=attest(
            setup.variables, python=tested.python, log=setup.log, nodes=request.nodes, hanging=left.hanging
        ),
        left=left,
        selection=selection,
        wheel=" ".join(filter(None, (wheel.version, wheel.commit))),
        unlike=unlike,
        policy=structs.replace(policy, tests_sha256=tests_sha256, lists=digests),
    )


def _check(request: SuiteRequest, say: Progress) -> tuple[WheelVersion, str]:
    """Check the request; return the wheel, and why the tests are not of its commit, or an empty text."""
    if not 1 <= request.shard <= request.shards:
        raise UsageError(f"there is no shard {request.shard} of {request.shards}")
    if spread := [word for word in request.pytest_args if _SPREADS.match(word)]:
        raise UsageError(
            f"{spread[0]} would run tests in processes that are not watched",
            tip="cut the suite into shards instead: --shard and --num-shards",
        )
    suite, tested = request.suite, request.tested
    sources.tests_of(request.checkout, suite)
    wheel = sources.installed(tested, suite)
    if missing := sources.unmet(suite, wheel):
        words, python = shlex.join(map(str, missing)), shlex.quote(str(tested.python))
        lacks = f"{tested.python} lacks what the tests of {suite.project} {wheel.version} need: {words}"
        # Under another pytest nothing runs; without another package some tests fail by themselves.
        if any(canonicalize_name(requirement.name) == "pytest" for requirement in missing):
            pip = f"{python} -m pip install" if "pip" in wheel.beside else f"uv pip install --python {python}"
            raise PrerequisiteError(lacks, line=f"{pip} {words}")
        say(lacks)
    problem = sources.mismatch(request.checkout, request.commits, suite, wheel, edits=request.edits)
    if problem is not None and not request.allow_mismatch:
        raise UsageError(
            problem, tip="check out the wheel's commit as it is, or pass --allow-version-mismatch"
        )
    if problem is not None:
        say(f"{problem}; run all the same, as was asked")
    return wheel, problem or ""


def _excluded(entries: Sequence[Listed], excluded: Iterable[tuple[str, Listed]]) -> tuple[ExcludedTest, ...]:
    modules = ((test, skip) for skip in entries for test in skip.entry.tests if "::" not in test)
    return tuple(
        ExcludedTest(test=test, reason=item.entry.reason, owner=item.entry.owner, issue=item.entry.issue)
        for test, item in dict([*modules, *excluded]).items()
    )


def _chosen_by_the_user(request: SuiteRequest, *, mismatch: bool) -> tuple[str, ...]:
    """Return the options that make the tests differ from the configuration's."""
    return (
        *request.pytest_args,
        *request.instead,
        *(f"--include={name}" for name in request.choice.include),
        *(f"--exclude={name}" for name in request.choice.exclude),
        *(["--allow-version-mismatch"] if mismatch else []),
        *(["--debug"] if request.only_skipped else []),
    )


def _refuse_other_hardware(request: SuiteRequest, visible: VisibleGpus) -> None:
    # Hours of tests would run on the CPU. A machine without any GPU is right for those that need none.
    present, targets = kernel.gpu_names(request.nodes), request.tested.targets
    if present and targets not in ((), (CPU,)) and not visible.hardware:
        raise TestsFailedError(
            f"invalid: this machine has {', '.join(dict.fromkeys(present))}, of which the tests see none "
            f"that is for {', '.join(targets)}",
            tip="ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES may hide it; nothing was tested",
        )


def _select(request: SuiteRequest, wheel: WheelVersion, hardware: Sequence[str]) -> Selection:
    """Select the entries of skip-tests that apply here."""
    version = wheel.version if request.torch_version is None else request.torch_version
    facts = RunFacts(
        targets=tuple(dict.fromkeys(hardware)) or (CPU,),
        platform=wheel.platform,
        torch=version or None,
        python=wheel.python,
    )
    return select.select(request.skips, facts, today=datetime.now(UTC).date())


def _bring_tests(request: SuiteRequest, wheel: WheelVersion, *, edited: bool) -> tuple[Path, Path]:
    """Copy the tests to where they run; return their folder and pytest's configuration."""
    suite, target = request.suite, request.work_dir / "tests"
    if edited:  # as the user wants them, which the results say
        sources.copy_tests(request.checkout, suite, target)
    else:
        # Not as the checkout has them: git can be told not to see an edit there.
        names = tuple(filter(None, (suite.tests, suite.config_file)))
        request.write_committed((wheel.commit, *request.commits), names, target)
    return sources.tests_of(target, suite), sources.configuration(target, suite)


def _variables(
    request: SuiteRequest, visible: VisibleGpus, selection: Selection, tests: Path
) -> dict[str, str]:
    suite = request.suite
    added = {**suite.environment, **(suite.gpu_environment if visible.hardware else {})}
    scratch = str(request.work_dir / "scratch")
    variables = visible.applied_to(request.tested.variables)
    variables |= {name: value.replace("{scratch}", scratch) for name, value in added.items()}
    skips = select.write_plan(
        selection,
        request.work_dir / "plugins" / "skips.json",
        journal=request.work_dir / SKIPS,
        only=request.only_skipped,
    )
    home = request.work_dir / "scratch" / "home"
    home.mkdir()
    # As upstream's own runner does, and before whatever the suite has there.
    path = os.pathsep.join(filter(None, (str(tests), variables.get("PYTHONPATH"))))
    return variables | platforms.here.home_variables(home) | skips | {"PYTHONPATH": path}


def _run_pieces(
    request: SuiteRequest, prepared: _Prepared
) -> tuple[list[tuple[Piece, ModuleRun]], tuple[Gpu, ...]]:
    """Run the shard's part of each module, and write the outcomes as they come.

    After a module in which a test ran out of time, the GPUs are asked again: the next ones run on those that
    are left. Also return the GPUs that hang.
    """
    setup, left, stuck, runs = prepared.setup, prepared.left, False, list[tuple[Piece, ModuleRun]]()
    for piece in prepared.plan.shards[request.shard - 1]:
        if stuck or setup.over or setup.lost:
            why = "a process could not be ended" if stuck else "the time was over"
            why = f"a test of {runs[-1][0].module} or before removed {setup.lost}" if setup.lost else why
            runs.append((piece, ModuleRun(problems=[f"{piece.module} did not run: {why}"])))
            continue
        variables = {**setup.variables, **prepared.environments[piece.module]}
        run = modules.run(structs.replace(setup, variables=variables), piece, retries=request.retries)
        request.work_dir.mkdir(parents=True, exist_ok=True)  # a test may have removed it
        suite_results.append_outcomes(request.work_dir / suite_results.OUTCOMES, run.outcomes.values())
        stuck = run.stuck
        runs.append((piece, run))
        if run.slow or run.stuck:
            now = _answering(request, left)
            if now.hanging != left.hanging and not now.is_empty:
                visible, stuck = _choose(request, now.variables), False
                environ = {
                    name: setup.variables[name] for name in setup.variables if name not in GPU_VARIABLES
                }
                chosen = {name: now.variables[name] for name in GPU_VARIABLES if name in now.variables}
                setup = structs.replace(setup, variables=visible.applied_to(environ | chosen))
            left = now
    return runs, left.hanging


def _answering(request: SuiteRequest, before: Answering) -> Answering:
    """Return the GPUs that do not hang, of those that are left."""
    now = hangs.hide(
        before.variables,
        python=request.tested.python,
        log=request.work_dir / LOG,
        nodes=request.nodes,
        hanging_nodes=request.hanging,
    )
    return structs.replace(now, hanging=(*before.hanging, *now.hanging))


def _choose(request: SuiteRequest, variables: Mapping[str, str]) -> VisibleGpus:
    targets = request.tested.targets
    return choose_gpus(
        variables,
        targets=() if targets == (CPU,) else targets,
        how_many=request.gpu_choice or request.suite.config(request.config).gpus,
        nodes=request.nodes,
    )
