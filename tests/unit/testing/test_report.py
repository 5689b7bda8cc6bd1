"""A report says what the record says, tells new failures from known ones, and shows texts as they are."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cairn.cli.main import main
from cairn.errors import UsageError
from cairn.release import records as kept_records
from cairn.store.folder import LocalStore
from cairn.testing import junit_writer
from cairn.testing import record as records
from cairn.testing.compat import evidence
from cairn.testing.gpus.attest import Attestation
from cairn.testing.gpus.gpu import Gpu
from cairn.testing.junit import JUnit, Outcome, TestOutcome
from cairn.testing.record import Counts, TestPolicy, TestRecord
from cairn.testing.report import results, summary
from cairn.testing.report.results import TestRun
from cairn.testing.report.summary import EarlierRun
from cairn.testing.suite import merge, suite_results
from cairn.testing.suite.suite_results import ExcludedTest
from cairn.wheels.wheelset import WheelSet
from helpers import compat, html
from helpers.gate import at, attested_record, record_of
from helpers.release import make_set, make_wheel, stage_set
from helpers.suites import shard_of

HOSTILE = "test_a.py::TestÄ::test_x[<script>alert(1)</script>|`a`|</code>\x1b[31m\u202e&amp;"
GOOD = TestOutcome(test="a/test_a.py::TestA::test_one[x::y]", outcome="passed", seconds=2.0, device="gfx942")
BAD = TestOutcome(
    test=HOSTILE,
    outcome="failed",
    reason="https://ann:secret@example.org <b>failed</b> *twice*",
    detail="\x1b[31mE   assert 1 == 2\x1b[0m\n</pre><script>alert(2)</script>",
    seconds=1.0,
)
ERROR = TestOutcome(test="b/test_b.py", outcome="error", reason="ImportError: no module")
FLAKY = TestOutcome(
    test="b/test_b.py::test_y", outcome="passed", reason="a | b", attempts=2, flaky=True, seconds=0.5
)
SKIPPED = TestOutcome(test="b/test_b.py::test_z", outcome="skipped", reason="no device")
TESTS = (GOOD, BAD, ERROR, FLAKY, SKIPPED)
EXCLUDED = ExcludedTest(test="c/test_c.py", reason="hangs <x>", owner="ann", issue="https://example.org/1")


def record_on_gpu(**changes: Any) -> TestRecord:
    values: dict[str, Any] = {
        "set_id": "a" * 64,
        "wheels": (records.TestedWheel(file_name="torch-2.9.0-py3-none-any.whl", sha256="b" * 64),),
        "kind": "smoke",
        "family": "gfx94X-dcgpu",
        "targets": ("gfx942",),
        "hardware": ("gfx942",),
        "counts": Counts(passed=7),
        "junit_sha256": None,
        "started": "2026-11-22T01:00:00Z",
        "duration_seconds": 60.0,
        "verdict": "passed",
        "reason": "fine",
    }
    return attested_record(**(values | changes))


def record_file(folder: Path, tests: Sequence[TestOutcome] = TESTS, **changes: Any) -> Path:
    """The folder that a suite leaves, with a record."""
    folder.mkdir(parents=True, exist_ok=True)
    junit_writer.write(folder / "junit.xml", tests, name="default")
    values: dict[str, Any] = {
        "counts": JUnit.of(tests).counts,
        "junit_sha256": hashlib.sha256((folder / "junit.xml").read_bytes()).hexdigest(),
        "verdict": "failed",
        "reason": "2 of 4 tests failed",
    }
    records.write(folder / "record.json", record_on_gpu(**(values | changes)))
    return folder


def earlier(day: int, tests: dict[str, Outcome] | None) -> EarlierRun:
    """A run of another day."""
    record = record_on_gpu(set_id="c" * 64, kind="suite", started=f"2026-11-{day:02}T01:00:00Z")
    return EarlierRun(set_id="c" * 64, record=record, outcomes=tests)


# --- What is read ---------------------------------------------------------------------------------------


def test_node_ids_survive_junit(tmp_path: Path) -> None:
    odd = TestOutcome(test="test.dir/test_c.py::test_z[a.py::b]", outcome="passed")
    run = results.read(record_file(tmp_path, (GOOD, ERROR, FLAKY, odd)))
    assert [test.test for test in run.tests] == [GOOD.test, ERROR.test, FLAKY.test, odd.test]
    assert [test.flaky for test in run.tests] == [False, False, True, False]
    assert run.tests[2].reason == FLAKY.reason
    assert (run.title, run.verdict, run.counts.passed) == ("smoke", "failed", 3)


def test_results_that_are_not_those_of_the_record_prove_nothing(tmp_path: Path) -> None:
    record_file(tmp_path / "good", [GOOD], verdict="passed", counts=Counts(passed=1, device_passed=1))
    assert results.read(tmp_path / "good").verdict == "passed"
    (tmp_path / "good" / "junit.xml").write_bytes(b"<testsuites/>")
    run = results.read(tmp_path / "good")
    assert (run.verdict, run.reason) == ("invalid", "junit.xml is not what the record was made of")
    assert not run.tests
    (tmp_path / "good" / "junit.xml").unlink()
    run = results.read(tmp_path / "good")
    assert (run.verdict, run.remarks) == ("passed", ("junit.xml is not there: no test is known by name",))
    record_file(tmp_path / "lie", TESTS, verdict="passed", counts=Counts(passed=900, device_passed=4))
    run = results.read(tmp_path / "lie" / "record.json")
    assert (run.verdict, run.reason) == ("invalid", "junit.xml has other tests than the record counts")


def test_a_suite_says_what_was_left_out(tmp_path: Path) -> None:
    more = {"targets": ("gfx942",), "hardware": ("gfx942",), "excluded": (EXCLUDED,)}
    first = shard_of(tmp_path / "1", [GOOD, BAD], 1, 3, **more, outdated=("x matches no test",))
    second = shard_of(tmp_path / "2", [FLAKY, SKIPPED], 2, 3, **more)
    merge.merge([first, second], tmp_path / "whole")
    run = results.read(tmp_path / "whole")
    assert (run.title, run.verdict) == ("suite default", "failed")
    assert run.excluded == (EXCLUDED,)
    assert run.remarks == ("of 3 shards, 3 left no result", "x matches no test")
    assert [test.attempts for test in run.tests] == [1, 1, 2, 1]
    alone = results.read(second)
    assert (alone.title, alone.verdict) == ("suite default, shard 2 of 3", "passed")
    with (tmp_path / "whole" / suite_results.OUTCOMES).open("a") as file:
        file.write("\n")
    with pytest.raises(UsageError, match=r"is not what suite-result\.json is of"):
        results.read(tmp_path / "whole")


def test_what_lists_of_the_tests_skipped_is_one_group(tmp_path: Path) -> None:
    policy = TestPolicy(cairn="1.0", lists={"DISABLED_TESTS_FILE": "d" * 64})
    tests = [
        TestOutcome(test=f"a.py::test_{n}", outcome="skipped", reason=f"disabled: https://a.org/{n}. On rocm")
        for n in range(3)
    ]
    alone = TestOutcome(test="a.py::test_alone", outcome="skipped", reason="see https://a.org/4")
    merge.merge([shard_of(tmp_path / "1", [FLAKY, *tests, alone], policy=policy)], tmp_path / "whole")
    found = summary.of_run(results.read(tmp_path / "whole"))
    groups = {group.reason: len(group.tests) for group in found.skipped}
    assert groups == {"disabled: … On rocm": 3, "see https://a.org/4": 1}
    assert found.remarks == (f"the tests read the list DISABLED_TESTS_FILE, sha256 {'d' * 64}",)


def test_a_compatibility_report_belongs_to_its_record(tmp_path: Path) -> None:
    tested = msgspec.structs.replace(compat.ROCM, gpus=("gfx942",))
    found = compat.report(compat.row("torch.half", "supported", device="gfx942"), tested=tested)
    evidence.write(tmp_path, found)
    attested = Attestation(gpus=(Gpu(target="gfx942"),))
    evidence.write_record(tmp_path, found, earlier(1, None).record, attested)
    assert results.read(tmp_path).compat == found
    (tmp_path / "compat.json").write_text("{}")
    assert results.read(tmp_path).reason == "compat.json is not what the record was made of"


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no record\.json and no junit\.xml"):
        results.read(tmp_path)


# --- History --------------------------------------------------------------------------------------------


def test_failures_are_new_or_known() -> None:
    nights = [
        earlier(21, {"a": "failed", "b": "failed", "c": "passed", "d": "skipped"}),
        earlier(20, None),
        earlier(19, {"a": "error", "b": "passed", "c": "failed"}),
    ]
    said = {test: summary.known_failure(test, nights) for test in "abcde"}
    assert [test for test, (is_new, _) in said.items() if is_new] == ["c", "d", "e"]
    assert said["a"][1] == "known: it failed in all 2 earlier runs, since 2026-11-19 at least"
    assert said["b"][1] == "known: it fails since 2026-11-21"
    assert said["c"][1] == "new: it passed in the last run, 2026-11-21"
    assert said["e"][1] == "new: it was not there in the last run, 2026-11-21"
    assert summary.known_failure("a", nights[1:2]) == (True, "")
    now = [TestOutcome(test="a", outcome="passed"), TestOutcome(test="b", outcome="skipped")]
    assert summary.changes_since(now, nights) == (("a",), ("b",))
    # Two suites of JUnit XML may have tests of one name.
    failed = TestOutcome(test="a", outcome="failed")
    assert summary.changes_since([failed, *now], nights) == ((), ("b",))


def test_earlier_sets_of_the_same_line_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = LocalStore(tmp_path / "store")
    made: list[WheelSet] = []
    for night, (tests, family) in enumerate(
        [((GOOD, BAD), "gfx94X-dcgpu"), ((GOOD,), "gfx110X-all"), ((GOOD, BAD, ERROR), "gfx94X-dcgpu")]
    ):
        wheel = make_wheel(tmp_path / str(night), "torch", f"2.9.{night}")
        target = {"gfx94X-dcgpu": "gfx942", "gfx110X-all": "gfx1100"}[family]
        made.append(stage_set(store, "staging", make_set([wheel], family=family, targets=(target,)), [wheel]))
        folder = tmp_path / f"run{night}"
        of_set = {name: getattr(record_of(made[-1]), name) for name in ("set_id", "wheels")}
        place = {"family": family, "targets": (target,), "hardware": (target,)}
        record_file(folder, tests, kind="suite", started=at(0), **of_set, **place)
        if night < 2:
            given = kept_records.read_given(folder / "record.json")
            kept_records.add(store, given.data, results=given.results)
    command = ["test", "report", str(tmp_path / "run2"), "--store", str(tmp_path / "store"), "--json"]
    assert main(command) == 8
    (said,) = json.loads(capsys.readouterr().out)
    assert [night["set_id"] for night in said["nights"]] == [made[0].id]
    assert {failure["test"]["test"][:9]: failure["new"] for failure in said["failures"]} == {
        "b/test_b.": True,
        "test_a.py": False,
    }
    assert said["failures"][0]["new"], "new failures come first"


# --- What is shown --------------------------------------------------------------------------------------


def run_of(*tests: TestOutcome) -> TestRun:
    return TestRun(
        path=Path("run"),
        kind="suite default",
        verdict="failed",
        reason="it <i>failed</i>",
        counts=JUnit.of(tests).counts,
        hardware=("gfx942",),
        tests=tests,
        excluded=(EXCLUDED,),
    )


def test_the_page_shows_everything_as_text() -> None:
    run = run_of(*TESTS)
    found = summary.of_run(run, [earlier(21, {ERROR.test: "failed", "test_old.py::test": "failed"})])
    text = summary.page("A & B", [(run, found)], generated="2026-11-22T01:00:00Z")
    root = html.parse(text.encode())
    assert not list(root.all("script"))
    assert root.one("title").text == "A & B"
    shown = root.text
    for part in (
        "[<script>alert(1)</script>|`a`|</code>\\x1b[31m\\u202e&amp;",
        "E   assert 1 == 2\n</pre><script>alert(2)</script>",
        "https://***@example.org <b>failed</b> *twice*",
        "it <i>failed</i>",
        "2 failed, 1 of them new",
        "known: it failed in all 1 earlier runs, since 2026-11-21 at least",
        "1 failed in the last run and did not run now",
        "hangs <x>",
        "gfx942",
    ):
        assert part in shown, part
    assert "secret" not in text
    assert [link.attributes["href"] for link in root.all("a")] == ["https://example.org/1"]
    assert "1: no device" in [found.text for found in root.all("summary")]
    names = [cell.text for cell in root.all("td", class_="name")]
    assert names[:3] == ["b/test_b.py", "test_a.py", "a/test_a.py"]


def test_long_lists_are_cut_and_counted() -> None:
    tests = [
        TestOutcome(test=f"test_{n % 40}.py::test_{n}", outcome="failed", reason="no", detail="x" * 500)
        for n in range(summary.Limits().failures + 10)
    ]
    run = run_of(*tests)
    text = summary.page("t", [(run, summary.of_run(run))], generated="")
    assert "and 10 more" in text
    assert text.count("<pre>") == summary.Limits().logs
    said = summary.step_summary("t", [summary.of_run(run)])
    assert f"- and {len(tests) - 100} more" in said
    assert len(said) < 100_000


def test_the_summary_of_a_step_shows_everything_as_text() -> None:
    found = summary.of_run(run_of(*TESTS), [earlier(21, {ERROR.test: "failed"})])
    said = summary.step_summary("Night", [found])
    assert "### ❌ suite default: failed" in said
    assert r"\<script\>alert(1)\</script\>\|\`a\`\|\</code\>" in said
    assert "<script" not in said.replace("\\<", "")
    assert "secret" not in said
    assert "**1 new failure**" in said
    assert "<summary>1 known failure</summary>" in said
    assert "| ann | hangs \\<x\\> | https://example.org/1 | 1 |" in said


def test_the_command_writes_page_and_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu = Gpu(
        target="gfx942",
        name="AMD <Instinct>",
        memory_bytes=206_141_652_992,
        compute_partition="CPX",
        memory_partition="NPS4",
        seen_by=("kernel", "rocminfo"),
    )
    two = {"family": "gfx94X-dcgpu", "targets": ("gfx90a", "gfx942"), "covered": {"gfx90a": 0, "gfx942": 1}}
    folder = record_file(tmp_path / "run", gpus=(gpu,), **two)
    step = tmp_path / "step.md"
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    command = ["test", "report", str(folder), "--html", str(tmp_path / "out" / "report.html"), "--summary"]
    assert main(command) == 2
    assert "this is not a step of GitHub Actions" in capsys.readouterr().err
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(step))
    assert main(command) == 8
    assert "FAILED b/test_b.py: ImportError: no module" in capsys.readouterr().out
    assert "smoke: failed" in step.read_text()
    root = html.parse((tmp_path / "out" / "report.html").read_bytes())
    for part in (
        "torch-2.9.0-py3-none-any.whl",
        "AMD <Instinct>",
        "206.1 GB",
        "CPX, NPS4",
        "gfx90a ! not covered",
    ):
        assert part in root.text
    assert main(["test", "report", str(folder / "junit.xml"), "--json"]) == 8
    (said,) = json.loads(capsys.readouterr().out)
    assert said["reason"].startswith("2 of 4 tests failed")


@pytest.mark.by_hand
def test_43_000_tests_are_reported_in_three_seconds(tmp_path: Path) -> None:
    kinds = [BAD, SKIPPED, FLAKY, *[GOOD] * 40]
    tests = [
        msgspec.structs.replace(kinds[n % 43], test=f"test_{n % 400}.py::TestA::test_{n}_{'x' * 30}")
        for n in range(43_000)
    ]
    folder = record_file(tmp_path / "run", tests)
    began = time.process_time()
    run = results.read(folder)
    found = summary.of_run(run)
    text = summary.page("t", [(run, found)], generated="")
    summary.step_summary("t", [found])
    assert time.process_time() - began < 3
    assert len(found.failures) == 1_000
    assert len(text) < 3_000_000
