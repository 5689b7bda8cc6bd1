"""Judge the results of a test run; unless shown otherwise, it has not passed.

Smoke tests, suites and compatibility reports are all judged here, and whether they have used the GPUs that
the wheels are for. A test names the GPU that it computed on in the results of its run
(`junit.TestOutcome.device`): a suite's tests by the memory that was allocated there (`suite.worker`), smoke
tests and the probes of compatibility by what they write themselves. These names are compared with the GPUs of
the machine (`gpus.attest`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cairn.output import wording
from cairn.targets import CPU
from cairn.testing.gpus.gpu import covers, is_amd, matches
from cairn.testing.junit import JUnit
from cairn.testing.record import Counts, Deselected, Verdict

_SHOWN = 3  # problems, in a reason
_FEW_FLAKES = 3  # that any run may have
_TESTS_FOR_A_FLAKE = 100  # so many tests may have one flake among them


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict and its reason, in one sentence."""

    verdict: Verdict
    reason: str


def judge(  # noqa: PLR0913 - each is one independent property of the run
    outcome: JUnit | None,
    *,
    exit_code: int,
    targets: Sequence[str],
    hardware: Sequence[str],
    disagreements: Sequence[str] = (),
    floor: int = 1,
    device_floor: int = 0,
    translated: str = "",
    deselected: Sequence[Deselected] = (),
    problems: Sequence[str] = (),
    unfinished: tuple[int, int] = (0, 0),
    without_tests: Sequence[str] = (),
    flaky_ceiling: int | None = None,
    hooks: Sequence[str] = (),
) -> Judgement:
    """Judge a test run.

    `untested` is a run for GPUs in which nothing failed and no test computed on one.

    Args:
        outcome: its results; None where they are missing, truncated or refused.
        exit_code: the runner's.
        targets: what the wheels were built for.
        hardware: the GPUs that the tests could use.
        disagreements: where the sources of that contradict each other.
        floor: fewest tests that must have run.
        device_floor: fewest tests that must have passed on a GPU.
        translated: what stood in for a GPU; whatever passed with it, no GPU was tested.
        deselected: the tests that were collected and did not run.
        problems: why the results cannot be believed as they are, a sentence each.
        unfinished: how many modules did not come to their end, and how many there are.
        without_tests: modules of which pytest collected no test: they are named.
        flaky_ceiling: most tests that may be flaky, where that is less than 1% of those that ran, or 3.
        hooks: what else decided which tests ran and how they ended: it is named; see `TestRecord.hooks`.
    """
    # First: on the wrong GPU neither success nor failure says anything about these wheels.
    if wrong := wrong_hardware(outcome, targets, hardware, disagreements):
        return Judgement(verdict="invalid", reason=wrong)
    if outcome is None:
        return Judgement(verdict="failed", reason="the run left no complete results")
    failures, objections = _failures(outcome), _first(problems)
    missing = f"{unfinished[0]} of {unfinished[1]} modules did not come to their end" if unfinished[0] else ""
    if failures or missing:
        reason = "; ".join(filter(None, (failures or missing, objections)))
        return Judgement(verdict="failed" if failures else "invalid", reason=reason)
    problem = (
        objections
        or _deselections(deselected)
        or _absences(outcome.counts, floor, device_floor)
        or _flakes(outcome, flaky_ceiling)
        or _runner(outcome, exit_code)
    )
    if problem:
        return Judgement(verdict="failed", reason=problem)
    passed, remarks = outcome.counts.passed, _remarks(outcome, deselected, without_tests, hooks)
    if unused := no_gpu_used(outcome, targets, translated):
        return Judgement(verdict="untested", reason=f"{passed} tests passed, {unused}{remarks}")
    return Judgement(verdict="passed", reason=_passed(outcome, targets) + remarks)


def _remarks(
    outcome: JUnit, deselected: Sequence[Deselected], without_tests: Sequence[str], hooks: Sequence[str]
) -> str:
    counts, cases = outcome.counts, outcome.cases
    chosen = [part for part in deselected if part.origin != "ours"]
    overruled = [case.name for case in cases if case.overruled]
    called = " or ".join(sorted({case.outcome for case in cases if case.overruled}))
    flaky = sum(case.flaky for case in cases)
    remarks = {
        f"{counts.skipped} skipped": counts.skipped,
        f"left out: {_names(chosen)}": chosen,
        f"{flaky} flaky": flaky,
        _first(outcome.remarks): outcome.remarks,
        f"no test in {wording.some(without_tests)}": without_tests,
        f"with {wording.some(hooks)}": hooks,
        f"{len(overruled)} raised and were called {called}: {wording.some(overruled)}": overruled,
    }
    return "".join(f"; {remark}" for remark, holds in remarks.items() if holds)


def _passed(outcome: JUnit, targets: Sequence[str]) -> str:
    counts = outcome.counts
    used = [name for case in outcome.cases if case.outcome == "passed" for name in case.devices]
    where = f", {counts.device_passed} of them on {wording.each_once(used)}" if counts.device_passed else ""
    left = [target for target, count in passed_by_target(outcome, targets).items() if not count]
    uncovered = f"; none on {wording.each_once(left)}" if left else ""
    return f"{counts.passed} tests passed{where}{uncovered}"


def _first(problems: Sequence[str]) -> str:
    more = [f"and {len(problems) - _SHOWN} more"] if len(problems) > _SHOWN else []
    return "; ".join((*problems[:_SHOWN], *more))


def _failures(outcome: JUnit) -> str | None:
    counts = outcome.counts
    if not outcome.failures:
        return None
    first = next(case for case in outcome.cases if case.failed)
    why = f": {first.reason}" if first.reason else ""
    return f"{outcome.failures} of {counts.executed} tests failed; the first is {first.name}{why}"


def _flakes(outcome: JUnit, ceiling: int | None) -> str | None:
    flaky = sum(case.flaky for case in outcome.cases)
    usual = max(_FEW_FLAKES, outcome.counts.executed // _TESTS_FOR_A_FLAKE)
    most = usual if ceiling is None else min(usual, ceiling)
    if flaky <= most:
        return None
    return f"{flaky} of {outcome.counts.executed} tests were flaky, more than the ceiling of {most}"


def _deselections(deselected: Sequence[Deselected]) -> str | None:
    strange = [part for part in deselected if part.origin == "elsewhere"]
    if not strange:
        return None
    return f"tests were deselected by what neither came with them nor was asked for: {_names(strange)}"


def _names(deselected: Sequence[Deselected]) -> str:
    return ", ".join(f"{part.tests} by {part.by}" for part in deselected)


def _absences(counts: Counts, floor: int, device_floor: int) -> str | None:
    # "All skipped" is its own case, since it is the usual way in which a broken import looks green.
    if not counts.total:
        return "no test was collected"
    if not counts.executed:
        return f"all {counts.skipped} tests were skipped"
    if counts.executed < floor:
        return f"{counts.executed} tests ran, fewer than the floor of {floor}"
    if counts.device_passed < device_floor:
        return f"{counts.device_passed} tests passed on a GPU, fewer than the floor of {device_floor}"
    return None


def _runner(outcome: JUnit, exit_code: int) -> str | None:
    # pytest exits with 0 or, where tests failed, 1 (which the results name); any other code, or a 1 without
    # a failed test, is a runner that broke.
    if exit_code:
        return f"the runner ended with exit code {exit_code}, and its results name no failure"
    return _first(outcome.objections)


def wrong_hardware(
    outcome: JUnit | None, targets: Sequence[str], hardware: Sequence[str], disagreements: Sequence[str]
) -> str | None:
    """Return why a run's GPUs are not, or not certainly, those that the wheels are for; None if they are.

    Args:
        outcome: the results; None where there are none.
        targets: what the wheels were built for.
        hardware: the GPUs that the tests could use.
        disagreements: where the sources of that contradict each other.
    """
    if not _for_gpus(targets):
        return None
    if disagreements:
        more = f", and {len(disagreements) - 1} more" if len(disagreements) > 1 else ""
        return f"it is not certain which GPUs this machine has: {disagreements[0]}{more}"
    on_machine, expected = wording.each_once(hardware), wording.each_once(targets)
    if not (all(map(is_amd, hardware)) and matches(hardware, targets)):
        return f"the GPUs of this machine ({on_machine}) are not all among the targets ({expected})"
    # What tests recorded counts as well, but it is their word: an override (HSA_OVERRIDE_GFX_VERSION), or a
    # test that is wrong, may call a GPU what it is not.
    used = tuple(dict.fromkeys(name for case in (outcome.cases if outcome else ()) for name in case.devices))
    untargeted = [name for name in used if not (is_amd(name) and matches([name], targets))]
    if untargeted:
        return f"tests computed on {', '.join(untargeted)}, which is not among the targets ({expected})"
    absent = [name for name in used if not covers(hardware, name)]
    if absent:
        present = f"only {on_machine}" if hardware else "no GPU"
        return f"tests say that they computed on {', '.join(absent)}, and there is {present}"
    return None


def no_gpu_used(outcome: JUnit, targets: Sequence[str], translated: str = "") -> str | None:
    """Return why no passed test counts for a GPU although the wheels are for one; None if one does.

    Args:
        outcome: the results.
        targets: what the wheels were built for.
        translated: what stood in for a GPU; whatever passed with it, no GPU was tested.
    """
    if translated:
        return f"translated by {translated}, so none of them on a GPU"
    if _for_gpus(targets) and not outcome.counts.device_passed:
        return "none of them on a GPU"
    return None


def passed_by_target(outcome: JUnit | None, targets: Sequence[str]) -> dict[str, int]:
    """Return, for each GPU target, the number of tests that passed on such a GPU."""
    passed = [case.devices for case in outcome.cases if case.outcome == "passed"] if outcome else []
    return {
        target: sum(covers(filter(is_amd, names), target) for names in passed)
        for target in targets
        if target != CPU
    }


def _for_gpus(targets: Sequence[str]) -> bool:
    return any(target != CPU for target in targets)
