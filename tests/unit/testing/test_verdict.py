import pytest

from cairn.testing.gpus.usage import passed_by_target
from cairn.testing.junit import JUnit, Outcome, TestOutcome
from cairn.testing.record import Deselected
from cairn.testing.verdict import Judgement, judge


def results(*outcomes: Outcome, device: str = "", announced: int | None = None) -> JUnit:
    cases = tuple(
        TestOutcome(
            test=f"test_{i}", outcome=outcome, device=device, reason="it is so" if outcome != "passed" else ""
        )
        for i, outcome in enumerate(outcomes)
    )
    return JUnit(cases=cases, announced=len(cases) if announced is None else announced)


def test_a_clean_run_on_the_right_gpu_passes() -> None:
    verdict = judge(
        results("passed", "passed", device="gfx942"), exit_code=0, targets=["gfx942"], hardware=["gfx942"]
    )
    assert verdict.verdict == "passed"
    assert verdict.reason == "2 tests passed, 2 of them on gfx942"


@pytest.mark.parametrize("hardware", [[], ["gfx942"]])
def test_a_run_for_gpus_that_used_none_is_untested(hardware: list[str]) -> None:
    verdict = judge(results("passed", "skipped"), exit_code=0, targets=["gfx942"], hardware=hardware)
    assert verdict.verdict == "untested"
    assert verdict.reason == "1 tests passed, none of them on a GPU; 1 skipped"
    failed = judge(results("passed", "failed"), exit_code=1, targets=["gfx942"], hardware=hardware)
    assert failed.verdict == "failed"


@pytest.mark.parametrize("targets", [["cpu"], ["gfx942"]])
def test_a_run_that_was_translated_never_passes(targets: list[str]) -> None:
    what = {"exit_code": 0, "targets": targets, "hardware": [], "translated": "torchdevice 0.1.0"}
    verdict = judge(results("passed", "skipped"), **what)  # type: ignore[arg-type]
    assert verdict.verdict == "untested"
    assert verdict.reason == (
        "1 tests passed, translated by torchdevice 0.1.0, so none of them on a GPU; 1 skipped"
    )
    assert judge(results("passed", "failed"), **what).verdict == "failed"  # type: ignore[arg-type]
    assert judge(results("skipped"), **what).verdict == "failed"  # type: ignore[arg-type]


@pytest.mark.parametrize("outcomes", [("failed",), ("passed", "error"), ("passed", "failed", "skipped")])
@pytest.mark.parametrize("exit_code", [0, 1])
def test_failures_in_the_results_count_whatever_the_runner_says(
    outcomes: tuple[Outcome, ...], exit_code: int
) -> None:
    verdict = judge(results(*outcomes), exit_code=exit_code, targets=["cpu"], hardware=[])
    assert verdict.verdict == "failed"
    assert "tests failed; the first is test_" in verdict.reason
    assert "it is so" in verdict.reason


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (None, "no complete results"),
        (results(), "no test was collected"),
        (results("skipped", "skipped"), "all 2 tests were skipped"),
        (results("passed", "passed", announced=9), "announce 9 tests and list 2"),
        (
            JUnit(cases=results("passed").cases, announced=1, announced_failures=2),
            "announce 2 failures and list none",
        ),
    ],
)
def test_an_absence_is_never_a_success(outcome: JUnit | None, reason: str) -> None:
    verdict = judge(outcome, exit_code=0, targets=["cpu"], hardware=[])
    assert verdict.verdict == "failed"
    assert reason in verdict.reason


def test_a_floor_must_be_reached_by_tests_that_ran() -> None:
    run = results("passed", "passed", "skipped")
    assert judge(run, exit_code=0, targets=["cpu"], hardware=[], floor=2).verdict == "passed"
    below = judge(run, exit_code=0, targets=["cpu"], hardware=[], floor=3)
    assert (below.verdict, below.reason) == ("failed", "2 tests ran, fewer than the floor of 3")


def test_a_device_floor_must_be_reached_on_a_device() -> None:
    verdict = judge(results("passed"), exit_code=0, targets=["gfx942"], hardware=["gfx942"], device_floor=1)
    assert verdict.verdict == "failed"
    assert "0 tests passed on a GPU" in verdict.reason


def test_a_runner_that_failed_without_a_failed_test_is_a_failure() -> None:
    verdict = judge(results("passed"), exit_code=3, targets=["cpu"], hardware=[])
    assert verdict.verdict == "failed"
    assert "exit code 3" in verdict.reason


@pytest.mark.parametrize("outcome", [results("passed"), results("failed"), None])
def test_the_wrong_hardware_proves_nothing_either_way(outcome: JUnit | None) -> None:
    verdict = judge(outcome, exit_code=0, targets=["gfx950"], hardware=["gfx942"])
    assert verdict.verdict == "invalid"
    assert "gfx942" in verdict.reason


def test_a_device_that_the_targets_lack_makes_a_run_invalid() -> None:
    verdict = judge(
        results("passed", device="gfx1036"), exit_code=0, targets=["gfx1100"], hardware=["gfx1100"]
    )
    assert verdict.verdict == "invalid"


@pytest.mark.parametrize("hardware", [["gfx942"], ["NVIDIA H200"]])
def test_gpus_do_not_matter_to_cpu_wheels(hardware: list[str]) -> None:
    unsure = ["torch sees others"]
    verdict = judge(results("passed"), exit_code=0, targets=["cpu"], hardware=hardware, disagreements=unsure)
    assert verdict.verdict == "passed"


@pytest.mark.parametrize(
    ("device", "hardware", "said"),
    [
        # What a test writes down is its own word, and not every word is a GPU.
        ("yes", ["gfx942"], "tests computed on yes, which is not among the targets"),
        ("cuda:0", ["gfx942"], "tests computed on cuda:0, which is not among the targets"),
        ("gfx942, sm_90", ["gfx942"], "tests computed on sm_90, which is not among the targets"),
        ("gfx942", [], "tests say that they computed on gfx942, and there is no GPU"),
        ("gfx950", ["gfx942"], "tests say that they computed on gfx950, and there is only gfx942"),
        ("NVIDIA H200", ["NVIDIA H200"], "the GPUs of this machine (NVIDIA H200) are not all among"),
        ("", ["gfx942", "NVIDIA T400"], "the GPUs of this machine (gfx942, NVIDIA T400) are not all among"),
    ],
)
def test_nobody_passes_for_a_gpu_that_is_not_there(device: str, hardware: list[str], said: str) -> None:
    targets = ["gfx942", "gfx950"]
    verdict = judge(results("passed", device=device), exit_code=0, targets=targets, hardware=hardware)
    assert verdict.verdict == "invalid"
    assert said in verdict.reason


def test_sources_that_contradict_each_other_prove_nothing() -> None:
    verdict = judge(
        results("passed", device="gfx942"),
        exit_code=0,
        targets=["gfx942"],
        hardware=["gfx942"],
        disagreements=["rocminfo says this", "torch says that"],
    )
    assert verdict.verdict == "invalid"
    assert verdict.reason.endswith("which GPUs this machine has: rocminfo says this, and 1 more")


def test_each_target_is_covered_by_what_passed_on_it_or_named() -> None:
    cases = (*results("passed", device="gfx942, gfx942:xnack-").cases, *results("skipped").cases)
    run = JUnit(cases=(*cases, *results("failed", device="gfx950").cases), announced=3)
    assert passed_by_target(run, ["gfx942", "gfx950"]) == {"gfx942": 1, "gfx950": 0}
    assert passed_by_target(run, ["cpu"]) == {}
    assert passed_by_target(None, ["gfx942"]) == {"gfx942": 0}
    good = JUnit(cases=cases, announced=2)
    hardware = ["gfx942", "gfx950"]
    verdict = judge(good, exit_code=0, targets=hardware, hardware=hardware)
    assert verdict.reason == "1 tests passed, 1 of them on gfx942, gfx942:xnack-; none on gfx950; 1 skipped"


def test_tests_that_were_taken_away_are_in_the_sentence_or_the_failure() -> None:
    def judged(origin: str) -> Judgement:
        gone = Deselected(by="-k ok", origin=origin, tests=3)  # type: ignore[arg-type]
        one = JUnit(cases=(TestOutcome(test="test_a", outcome="passed"),), announced=1)
        return judge(one, exit_code=0, targets=("cpu",), hardware=(), deselected=[gone])

    assert judged("ours").reason == "1 tests passed"
    assert judged("tests").reason == judged("command line").reason == "1 tests passed; left out: 3 by -k ok"
    assert judged("elsewhere").verdict == "failed"
    assert "nor was asked for: 3 by -k ok" in judged("elsewhere").reason
