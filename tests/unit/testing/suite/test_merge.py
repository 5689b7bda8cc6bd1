"""Shards put together: what is missing, twice or different is no passed suite."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cairn import files
from cairn.errors import TestsFailedError, UsageError
from cairn.stack import Floor
from cairn.testing import junit, record
from cairn.testing.junit import TestOutcome
from cairn.testing.record import Deselected, TestedWheel, TestPolicy
from cairn.testing.suite import merge, suite_results
from cairn.testing.suite.suite_results import ModuleCount
from helpers.suites import WHEEL, shard_of


def passed(*tests: str, device: str = "") -> list[TestOutcome]:
    return [TestOutcome(test=test, outcome="passed", device=device, seconds=1.0) for test in tests]


def test_two_shards_are_one_record(tmp_path: Path) -> None:
    flaky = TestOutcome(
        test="test_b.py::test_y", outcome="passed", attempts=2, flaky=True, reason="it failed"
    )
    skipped = TestOutcome(test="test_b.py::test_z", outcome="skipped", reason="no device")
    folders = [
        shard_of(tmp_path / "2", [flaky, skipped], 2, 2),
        shard_of(tmp_path / "1", passed("test_a.py::TestA::test_x[é\x00]"), 1, 2),
    ]
    merged = merge.merge(folders, tmp_path / "whole")
    assert (merged.judgement.verdict, merged.problems) == ("passed", ())
    assert merged.judgement.reason == "2 tests passed; 1 skipped; 1 flaky"
    made = record.read(tmp_path / "whole" / "record.json")
    assert made == merged.record
    assert (made.kind, made.config, made.flaky) == ("suite", "default", ("test_b.py::test_y",))
    assert (made.started, made.duration_seconds) == ("2026-11-22T01:00:00Z", 3660.0)
    assert (made.counts.passed, made.counts.skipped) == (2, 1)
    assert made.junit_sha256 == files.sha256_of(merged.junit)
    cases = junit.read(merged.junit)
    assert cases.counts == made.counts
    assert (len(cases.cases), cases.objections) == (3, ())
    assert cases.cases[0].name == "test_a.TestA::test_x[é\\x00]"
    assert len(suite_results.read_outcomes(tmp_path / "whole" / suite_results.OUTCOMES)) == 3


def test_the_record_says_by_which_policy_its_shards_ran(tmp_path: Path) -> None:
    ran = TestPolicy(cairn="1.0", stack="pytorch", skips_sha256="1" * 64, tests_sha256="2" * 64)
    tests = passed("test_a.py::test_x"), passed("test_b.py::test_y")
    folders = [shard_of(tmp_path / str(n), tests[n - 1], n, 2, policy=ran) for n in (1, 2)]
    made = merge.merge(folders, tmp_path / "whole", floor=2).record
    assert made is not None
    assert made.policy == msgspec.structs.replace(ran, floor=Floor(tests=2, device_tests=0))
    other = msgspec.structs.replace(ran, skips_sha256="3" * 64)
    folders[1] = shard_of(tmp_path / "other", tests[1], 2, 2, policy=other)
    with pytest.raises(UsageError, match="policy differ"):
        merge.merge(folders, tmp_path / "mixed")


def test_a_missing_shard_is_a_failure(tmp_path: Path) -> None:
    folders = [shard_of(tmp_path / "1", passed("test_a.py::test_x"), 1, 3), tmp_path / "2"]
    merged = merge.merge(folders, tmp_path / "whole")
    assert merged.judgement.verdict == "failed"
    assert merged.judgement.reason.startswith("of 3 shards, 2, 3 left no result; cannot read")
    more = merge.merge([folders[0], shard_of(tmp_path / "3", [], 3, 3)], tmp_path / "two")
    assert more.judgement.reason == "of 3 shards, 2 left no result"
    assert record.read(tmp_path / "whole" / "record.json").verdict == "failed"
    host = shard_of(tmp_path / "host", passed("test_a.py::test_x"), 1, 3, targets=("gfx942",))
    assert merge.merge([host], tmp_path / "without a GPU").judgement.verdict == "failed"


def test_a_shard_by_itself_passes_and_makes_no_record(tmp_path: Path) -> None:
    folder = shard_of(tmp_path / "1", [], 1, 3)
    merged = merge.merge([folder], folder, part=True)
    assert (merged.judgement.verdict, merged.record) == ("passed", None)
    broken = shard_of(tmp_path / "2", [], 2, 3, problems=("test_x.py: 7 tests did not run",))
    assert merge.merge([broken], broken, part=True).judgement.verdict == "failed"


def test_no_shard_at_all_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TestsFailedError, match="no shard left a result"):
        merge.merge([tmp_path / "1"], tmp_path / "whole")


def test_outcomes_that_were_edited_are_a_missing_shard(tmp_path: Path) -> None:
    folders = [shard_of(tmp_path / str(n), passed(f"test_{n}.py::test_x"), n, 2) for n in (1, 2)]
    with (folders[1] / suite_results.OUTCOMES).open("a", encoding="utf-8") as file:
        file.write("\n")
    assert merge.merge(folders, tmp_path / "whole").judgement.reason.startswith(
        "of 2 shards, 2 left no result"
    )


def test_a_shard_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    folders = [shard_of(tmp_path / name, passed("test_a.py::test_x"), 1, 2) for name in ("first", "again")]
    with pytest.raises(UsageError, match="shard 1 is there 2 times"):
        merge.merge(folders, tmp_path / "whole")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("plan", "0" * 64),
        ("set_id", "b" * 64),
        ("wheels", (TestedWheel(file_name=WHEEL.file_name, sha256="c" * 64),)),
        ("config", "inductor"),
        ("tested", "2.9.0 1234abcd"),
        ("shards", 3),
        ("settings", "0" * 64),
        ("run", "17123441166"),
        ("pytest", ("pytest 9.2.0",)),
    ],
)
def test_shards_of_different_runs_are_refused(tmp_path: Path, name: str, value: object) -> None:
    more = {"run": "night 2026-11-22", "pytest": ("pytest 8.4.2", "pytest-check 2.5.0")}
    one = shard_of(tmp_path / "1", passed("test_a.py::test_x"), 1, 2, **more)
    other = shard_of(tmp_path / "2", passed("test_b.py::test_x"), 2, 2, **{**more, name: value})
    values = {
        "run": "run (night 2026-11-22 / 17123441166)",
        "pytest": "pytest (pytest 8.4.2, pytest-check 2.5.0 / pytest 9.2.0)",
    }
    message = f"shard 1 of 2 and shard 2 of {2 + (name == 'shards')} are not of one run: "
    with pytest.raises(UsageError, match=re.escape(message + values.get(name, name))):
        merge.merge([one, other], tmp_path / "whole")


def test_a_shard_in_which_no_pytest_began_is_of_the_run(tmp_path: Path) -> None:
    one = shard_of(tmp_path / "1", passed("test_a.py::test_x"), 1, 2, pytest=("pytest 9.2.0",))
    other = shard_of(tmp_path / "2", [], 2, 2, problems=("test_b.py did not run: the time was over",))
    assert merge.merge([one, other], tmp_path / "whole").judgement.verdict == "failed"


@pytest.mark.parametrize("more", [{}, {"gone": (Deselected(by="-k x", origin="tests", tests=8),)}])
def test_tests_that_vanish_without_a_deselection_contradict(tmp_path: Path, more: dict[str, Any]) -> None:
    count = ModuleCount(module="test_a.py", selected=1, whole=10, cut=False, finished=True, **more)
    folder = shard_of(tmp_path / "1", passed("test_a.py::test_x"), modules=(count,))
    left = 2 if more else 10
    with pytest.raises(TestsFailedError, match=f"test_a.py has {left} tests, and 1 of them were selected"):
        merge.merge([folder], tmp_path / "whole")


def test_a_test_that_ran_twice_or_nowhere_is_a_failure(tmp_path: Path) -> None:
    def half(selected: int, whole: int) -> tuple[ModuleCount, ...]:
        return (ModuleCount(module="test_a.py", selected=selected, whole=whole, cut=True, finished=True),)

    one = shard_of(tmp_path / "1", passed("test_a.py::test_x"), 1, 2, modules=half(1, 3))
    other = shard_of(tmp_path / "2", passed("test_a.py::test_x"), 2, 2, modules=half(1, 3))
    merged = merge.merge([one, other], tmp_path / "whole")
    assert merged.judgement.verdict == "failed"
    assert merged.problems == (
        "1 tests ran in two shards: test_a.py::test_x",
        "test_a.py has 3 tests, and its shards had 2",
    )
    fewer = shard_of(tmp_path / "3", passed("test_a.py::y", "test_a.py::z"), 2, 2, modules=half(2, 2))
    assert merge.merge([one, fewer], tmp_path / "uneven").problems == (
        "test_a.py has 2 and 3 tests, and its shards had 3",
    )


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_a_module_that_fails_as_a_whole_in_one_shard_has_failed(
    tmp_path: Path, order: tuple[int, int]
) -> None:
    whole = {
        1: TestOutcome(test="test_a.py", outcome="error", reason="it cannot be imported"),
        2: TestOutcome(test="test_a.py", outcome="skipped", reason="no device"),
    }
    folders = [
        shard_of(tmp_path / str(n), [*passed(f"test_b.py::test_{n}"), whole[order[n - 1]]], n, 2)
        for n in (1, 2)
    ]
    assert merge.merge(folders, tmp_path / "whole").judgement.verdict == "failed"


def test_what_shards_of_one_module_left_out_is_counted_once(tmp_path: Path) -> None:
    def part(number: int, gone: int) -> Path:
        left_out = (Deselected(by="conftest.py", origin="tests", tests=gone),)
        count = ModuleCount(
            module="test_a.py", selected=1, whole=2 + gone, cut=True, finished=True, gone=left_out
        )
        tests = passed(f"test_a.py::test_{number}")
        return shard_of(tmp_path / str(number), tests, number, 2, modules=(count,))

    merged = merge.merge([part(1, 3), part(2, 2)], tmp_path / "whole")
    assert merged.judgement.reason == "2 tests passed; left out: 3 by conftest.py"


def test_shards_on_different_gpus_prove_nothing_of_either(tmp_path: Path) -> None:
    targets = ("gfx942", "gfx950")
    folders = []
    for number, gpu in enumerate(targets, start=1):
        tests = passed(f"test_{number}.py::test_x", device=gpu)
        folder = tmp_path / str(number)
        folders.append(shard_of(folder, tests, number, 2, hardware=(gpu,), targets=targets))
    merged = merge.merge(folders, tmp_path / "whole")
    assert merged.problems == ("the shards ran on different hardware: gfx942; gfx950",)


def test_a_set_for_gpus_that_no_test_used_is_untested(tmp_path: Path) -> None:
    for name, hardware in (("no GPU", ()), ("a GPU", ("gfx942",))):
        folder = shard_of(tmp_path / name, passed("a.py::x"), targets=("gfx942",), hardware=hardware)
        judged = merge.merge([folder], folder).judgement
        assert (judged.verdict, judged.reason) == ("untested", "1 tests passed, none of them on a GPU")
    both = ("gfx942", "gfx950")
    tests = passed("a.py::x", device=", ".join(both))
    used = shard_of(tmp_path / "used", tests, targets=both, hardware=both)
    assert merge.merge([used], used).judgement.verdict == "passed"


def test_a_target_that_no_test_used_is_named(tmp_path: Path) -> None:
    both = ("gfx942", "gfx950")
    folder = shard_of(
        tmp_path / "1", passed("a.py::x", device="gfx942"), targets=both, hardware=both, family="m"
    )
    merged = merge.merge([folder], folder)
    assert merged.judgement.reason == "1 tests passed, 1 of them on gfx942; none on gfx950"
    found = record.read(folder / "record.json")
    assert (found.covered, found.not_covered) == ({"gfx942": 1, "gfx950": 0}, ("gfx950",))
    assert [gpu.target for gpu in found.gpus] == ["gfx942", "gfx950"]


def test_a_shard_whose_gpus_are_uncertain_makes_the_whole_invalid(tmp_path: Path) -> None:
    values: dict[str, Any] = {"targets": ("gfx942",), "hardware": ("gfx942",), "family": "gfx94X-dcgpu"}
    good = shard_of(tmp_path / "1", passed("a.py::x", device="gfx942"), 1, 2, **values)
    bad = shard_of(tmp_path / "2", passed("b.py::x", device="gfx942"), 2, 2, disagreements=("so",), **values)
    merged = merge.merge([good, bad], tmp_path / "whole")
    assert (merged.judgement.verdict, merged.judgement.reason) == (
        "invalid",
        "it is not certain which GPUs this machine has: so",
    )


def test_floors_count_the_whole(tmp_path: Path) -> None:
    folder = shard_of(tmp_path / "1", passed("test_a.py::test_x"))
    assert merge.merge([folder], folder, floor=2).judgement.reason == "1 tests ran, fewer than the floor of 2"
    gpu = shard_of(tmp_path / "2", passed("test_a.py::test_x"), targets=("gfx942",), hardware=("gfx942",))
    merged = merge.merge([gpu], gpu, device_floor=1)
    assert merged.judgement.reason == "0 tests passed on a GPU, fewer than the floor of 1"


def test_more_flaky_tests_than_the_ceiling_have_failed(tmp_path: Path) -> None:
    def suite(name: str, flaky: int, good: int, ceiling: int | None = None, shards: int = 1) -> Path:
        again = [TestOutcome(test=f"a.py::f{n}", outcome="passed", flaky=True) for n in range(flaky)]
        tests = [*again, *passed(*(f"a.py::g{n}" for n in range(good)))]
        return shard_of(tmp_path / name, tests, of=shards, flaky_ceiling=ceiling)

    def judged(folder: Path) -> str:
        return merge.merge([folder], folder).judgement.reason

    assert judged(suite("few", 3, 0)) == "3 tests passed; 3 flaky"
    assert judged(suite("more", 4, 96)) == "4 of 100 tests were flaky, more than the ceiling of 3"
    assert judged(suite("of many", 4, 396)) == "400 tests passed; 4 flaky"
    assert judged(suite("too many", 5, 394)) == "5 of 399 tests were flaky, more than the ceiling of 3"
    assert judged(suite("strict", 1, 399, 0)) == "1 of 400 tests were flaky, more than the ceiling of 0"
    assert judged(suite("lenient", 4, 96, 50)) == "4 of 100 tests were flaky, more than the ceiling of 3"
    part = suite("part", 4, 0, shards=2)
    assert merge.merge([part], part, part=True).judgement.verdict == "passed"  # the whole is judged later


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"started": "yesterday"}, "'yesterday' is not a time with its zone"),
        ({"started": "2026-11-22T01:00:00"}, "is not a time with its zone"),
        ({"duration_seconds": 1e300}, "it cannot have taken 1e+300 seconds"),
        ({"number": 3}, "there is no shard 3 of 1"),
        (
            {"modules": (ModuleCount(module="test_a.py", selected=2, whole=2, cut=False, finished=True),)},
            "shard 1 of 1 was to run 2 tests of test_a.py, and",
        ),
    ],
)
def test_a_shard_that_cannot_be_true_is_a_missing_one(
    tmp_path: Path, values: dict[str, Any], said: str
) -> None:
    folder = shard_of(tmp_path / "1", passed("test_a.py::test_x"), **values)
    with pytest.raises(TestsFailedError) as caught:
        merge.merge([folder], tmp_path / "whole")
    assert said in str(caught.value)


def test_a_whole_does_not_replace_the_results_of_a_shard(tmp_path: Path) -> None:
    folders = [shard_of(tmp_path / str(n), passed(f"test_{n}.py::test_x"), n, 2) for n in (1, 2)]
    (tmp_path / "link").symlink_to(folders[0])
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.js*")}
    for output in (folders[0], tmp_path / "2/../1", tmp_path / "link"):
        with pytest.raises(UsageError, match="has the results of a shard"):
            merge.merge(folders, output)
        with pytest.raises(UsageError, match="has the results of a shard"):
            merge.merge(folders[1:], output)
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*.js*")}
