import pytest

from cairn.testing.junit import Case, JUnit, Outcome
from cairn.testing.verdict import judge


def results(*outcomes: Outcome, device: str = "", announced: int | None = None) -> JUnit:
    cases = tuple(
        Case(
            name=f"test_{i}", outcome=outcome, device=device, reason="it is so" if outcome != "passed" else ""
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


def test_gpus_do_not_matter_to_cpu_wheels() -> None:
    assert judge(results("passed"), exit_code=0, targets=["cpu"], hardware=["gfx942"]).verdict == "passed"
