from typing import Any

import pytest

from cairn.testing.junit import JUnit, Outcome, TestOutcome
from cairn.testing.record import Deselected
from cairn.testing.verdict import Judgement, judge, passed_by_target


def results(*outcomes: Outcome, device: str = "", objections: tuple[str, ...] = ()) -> JUnit:
    cases = tuple(
        TestOutcome(
            test=f"test_{outcome}_{i}",
            outcome=outcome,
            device=device,
            reason="it is so" if outcome != "passed" else "",
        )
        for i, outcome in enumerate(outcomes)
    )
    return JUnit(listed=cases, objections=objections)


def judged(outcome: JUnit | None, **changes: Any) -> Judgement:
    """The judgement of a run on the CPU that ended well, unless `changes` say otherwise."""
    return judge(outcome, **({"exit_code": 0, "targets": ["cpu"], "hardware": []} | changes))


GPU = {"targets": ["gfx942"], "hardware": ["gfx942"]}
PASSED = results("passed")


def test_a_clean_run_on_the_right_gpu_passes() -> None:
    found = judged(results("passed", "passed", device="gfx942"), **GPU)
    assert (found.verdict, found.reason) == ("passed", "2 tests passed, 2 of them on gfx942")


@pytest.mark.parametrize("hardware", [[], ["gfx942"]])
def test_a_run_for_gpus_that_used_none_is_untested(hardware: list[str]) -> None:
    asked = {"targets": ["gfx942"], "hardware": hardware}
    found = judged(results("passed", "skipped"), **asked)
    assert found.verdict == "untested"
    assert found.reason == "1 tests passed, none of them on a GPU; 1 skipped"
    assert judged(results("passed", "failed"), exit_code=1, **asked).verdict == "failed"


@pytest.mark.parametrize("targets", [["cpu"], ["gfx942"]])
def test_a_run_that_was_translated_never_passes(targets: list[str]) -> None:
    what = {"targets": targets, "translated": "torchdevice 0.1.0"}
    found = judged(results("passed", "skipped"), **what)
    assert found.verdict == "untested"
    assert found.reason == (
        "1 tests passed, translated by torchdevice 0.1.0, so none of them on a GPU; 1 skipped"
    )
    assert judged(results("passed", "failed"), **what).verdict == "failed"
    assert judged(results("skipped"), **what).verdict == "failed"


@pytest.mark.parametrize("outcomes", [("failed",), ("passed", "error"), ("passed", "failed", "skipped")])
@pytest.mark.parametrize("exit_code", [0, 1])
def test_failures_in_the_results_count_whatever_the_runner_says(
    outcomes: tuple[Outcome, ...], exit_code: int
) -> None:
    found = judged(results(*outcomes), exit_code=exit_code)
    assert found.verdict == "failed"
    assert "tests failed; the first is test_" in found.reason
    assert "it is so" in found.reason


@pytest.mark.parametrize(
    ("outcome", "changes", "reason"),
    [
        (None, {}, "no complete results"),
        (results(), {}, "no test was collected"),
        (results("skipped", "skipped"), {}, "all 2 tests were skipped"),
        (results("passed", objections=("a announces 3 tests and lists 1",)), {}, "a announces 3 tests"),
        (PASSED, {"exit_code": 1}, "exit code 1"),
        (PASSED, {"exit_code": 3}, "exit code 3"),
        (PASSED, {**GPU, "device_floor": 1}, "0 tests passed on a GPU"),
        (results("passed", "skipped"), {"floor": 2}, "1 tests ran, fewer than the floor of 2"),
    ],
)
def test_an_absence_is_never_a_success(outcome: JUnit | None, changes: dict[str, Any], reason: str) -> None:
    found = judged(outcome, **changes)
    assert found.verdict == "failed"
    assert reason in found.reason


def test_a_floor_that_is_reached_passes() -> None:
    assert judged(results("passed", "passed", "skipped"), floor=2).verdict == "passed"


@pytest.mark.parametrize("outcome", [PASSED, results("failed"), None])
def test_the_wrong_hardware_proves_nothing_either_way(outcome: JUnit | None) -> None:
    found = judged(outcome, targets=["gfx950"], hardware=["gfx942"])
    assert found.verdict == "invalid"
    assert "gfx942" in found.reason


@pytest.mark.parametrize("hardware", [["gfx942"], ["NVIDIA H200"]])
def test_gpus_do_not_matter_to_cpu_wheels(hardware: list[str]) -> None:
    assert judged(PASSED, hardware=hardware, disagreements=["torch sees others"]).verdict == "passed"


@pytest.mark.parametrize(
    ("device", "hardware", "said"),
    [
        # What a test writes down is its own word, and not every word is a GPU.
        ("yes", ["gfx942"], "tests computed on yes, which is not among the targets"),
        ("cuda:0", ["gfx942"], "tests computed on cuda:0, which is not among the targets"),
        ("gfx1036", ["gfx942"], "tests computed on gfx1036, which is not among the targets"),
        ("gfx942, sm_90", ["gfx942"], "tests computed on sm_90, which is not among the targets"),
        ("gfx942", [], "tests say that they computed on gfx942, and there is no GPU"),
        ("gfx950", ["gfx942"], "tests say that they computed on gfx950, and there is only gfx942"),
        ("NVIDIA H200", ["NVIDIA H200"], "the GPUs of this machine (NVIDIA H200) are not all among"),
        ("", ["gfx942", "NVIDIA T400"], "the GPUs of this machine (gfx942, NVIDIA T400) are not all among"),
    ],
)
def test_nobody_passes_for_a_gpu_that_is_not_there(device: str, hardware: list[str], said: str) -> None:
    found = judged(results("passed", device=device), targets=["gfx942", "gfx950"], hardware=hardware)
    assert found.verdict == "invalid"
    assert said in found.reason


def test_sources_that_contradict_each_other_prove_nothing() -> None:
    said = ["rocminfo says this", "torch says that"]
    found = judged(results("passed", device="gfx942"), disagreements=said, **GPU)
    assert found.verdict == "invalid"
    assert found.reason.endswith("which GPUs this machine has: rocminfo says this, and 1 more")


def test_each_target_is_covered_by_what_passed_on_it_or_named() -> None:
    cases = (*results("passed", device="gfx942, gfx942:xnack-").cases, *results("skipped").cases)
    run = JUnit(listed=(*cases, *results("failed", device="gfx950").cases))
    both = ["gfx942", "gfx950"]
    assert passed_by_target(run, both) == {"gfx942": 1, "gfx950": 0}
    assert passed_by_target(run, ["cpu"]) == {}
    assert passed_by_target(None, ["gfx942"]) == {"gfx942": 0}
    found = judged(JUnit(listed=cases), targets=both, hardware=both)
    assert found.reason == "1 tests passed, 1 of them on gfx942, gfx942:xnack-; none on gfx950; 1 skipped"


@pytest.mark.parametrize(
    ("origin", "verdict", "said"),
    [
        ("ours", "passed", "1 tests passed"),
        ("tests", "passed", "1 tests passed; left out: 3 by -k ok"),
        ("command line", "passed", "1 tests passed; left out: 3 by -k ok"),
        ("elsewhere", "failed", "nor was asked for: 3 by -k ok"),
    ],
)
def test_tests_that_were_taken_away_are_in_the_sentence_or_the_failure(
    origin: Any, verdict: str, said: str
) -> None:
    found = judged(PASSED, deselected=[Deselected(by="-k ok", origin=origin, tests=3)])
    assert found.verdict == verdict
    assert found.reason == said or (verdict == "failed" and said in found.reason)
