import tracemalloc
from pathlib import Path

import pytest

from cairn.errors import TestsFailedError
from cairn.testing import junit, junit_writer
from cairn.testing.junit import TestOutcome
from cairn.testing.record import Counts

GOOD = """<?xml version="1.0" encoding="utf-8"?>
<testsuites name="pytest tests"><testsuite name="pytest" errors="1" failures="1" skipped="1" tests="5">
<testcase classname="test_a" name="test_ok" time="0.5"/>
<testcase classname="test_a" name="test_gpu" time="1"><properties>
  <property name="device" value="gfx942"/></properties></testcase>
<testcase classname="test_a" name="test_bad[1]" time="0"><failure message="assert 1 == 2
 +  where">long text</failure></testcase>
<testcase classname="test_a" name="test_skip">
<skipped type="pytest.skip" message="no GPU">x</skipped></testcase>
<testcase classname="test_a" name="test_teardown"><error message="boom">trace</error></testcase>
</testsuite></testsuites>"""


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def case_of(tmp_path: Path, attributes: str, inside: str = "") -> TestOutcome:
    """What is read of the only case of a file."""
    text = f'<testsuite tests="1"><testcase {attributes}>{inside}</testcase></testsuite>'
    (case,) = junit.read(write(tmp_path / "j.xml", text)).cases
    return case


def test_every_outcome_is_told_apart(tmp_path: Path) -> None:
    result = junit.read(write(tmp_path / "j.xml", GOOD))
    assert result.counts == Counts(passed=2, failed=1, errors=1, skipped=1, device_passed=1)
    assert [case.outcome for case in result.cases] == ["passed", "passed", "failed", "skipped", "error"]
    failed = result.cases[2]
    assert (failed.name, failed.reason) == ("test_a::test_bad[1]", "assert 1 == 2 + where")
    assert failed.detail == "long text"
    assert result.cases[3].reason == "no GPU"
    assert result.cases[1].device == "gfx942"
    assert result.objections == ()
    assert list(result.by_test.items()) == [(case.name, case.outcome) for case in result.cases]


def test_the_worst_phase_of_a_test_is_its_outcome(tmp_path: Path) -> None:
    case = case_of(tmp_path, 'name="t"', '<error message="e"/><failure message="f"/>')
    assert (case.name, case.outcome, case.reason) == ("t", "error", "e")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not complete JUnit XML"),
        (GOOD[: len(GOOD) // 2], "not complete JUnit XML"),
        (GOOD + "<again/>", "not complete JUnit XML"),
        ("<html></html>", "its top is <html>"),
        ('<testsuite tests="many"/>', "not complete JUnit XML"),
        ("<testsuite><testcase/></testsuite>", "no name"),
        ('<testsuite tests="-5"/>', "not a count"),
        ('<testsuite tests="1_0"/>', "not a count"),
        ('<testsuite><error message="setup"/><testcase name="t"/></testsuite>', "outside of any test case"),
        (
            '<testsuite><testcase name="t"><failure/><testcase name="u"/></testcase></testsuite>',
            "the test case t has another in it",
        ),
        ('<testsuite><Failure/><testcase name="t"/></testsuite>', "an <Failure> outside of any test case"),
        ('<testsuite><f:testcase name="t"/></testsuite>', "an <f:testcase> outside of any test case"),
        ("<testsuite>" * 100, "nested too deep"),
        (
            '<!DOCTYPE t [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><testsuite name="&b;"/>',
            "document type",
        ),
        ('<!DOCTYPE t SYSTEM "file:///etc/hostname"><testsuite/>', "document type"),
    ],
)
def test_what_is_not_a_whole_result_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TestsFailedError, match=message):
        junit.read(write(tmp_path / "j.xml", text))


@pytest.mark.parametrize(
    ("inside", "outcome", "reason"),
    [
        pytest.param('status="run" result="completed">', "passed", "", id="googletest"),
        pytest.param('status="notrun" result="suppressed">', "skipped", 'status="notrun"', id="disabled"),
        pytest.param('status="run" result="skipped"><skipped message="m"/>', "skipped", "m", id="skipped"),
        pytest.param('status="disabled">', "skipped", 'status="disabled"', id="CTest"),
        pytest.param('status="notrun"><skipped message="Not Run"/>', "skipped", "Not Run", id="not run"),
        pytest.param('status="fail"><failure message="m"/>', "failed", "m", id="CTest fails"),
        pytest.param('result="failed">', "failed", 'result="failed"', id="failed"),
        pytest.param('status="PASSED">', "passed", "", id="capitals"),
        pytest.param('status="inconclusive">', "error", 'status="inconclusive" is not known', id="state"),
        pytest.param('outcome="Failed">', "failed", 'outcome="Failed"', id="outcome"),
        pytest.param('executed="True" success="False">', "failed", 'success="False"', id="NUnit 2"),
        pytest.param('executed="False">', "skipped", 'executed="False"', id="NUnit 2 ignores"),
        pytest.param('executed="True" success="True">', "passed", "", id="NUnit 2 passes"),
        pytest.param(">x<Failure/>", "error", "it has an element that is not known: <Failure>", id="Failure"),
        pytest.param(
            "><f:failure/>", "error", "it has an element that is not known: <f:failure>", id="namespace"
        ),
        pytest.param("><warning/>", "error", "it has an element that is not known: <warning>", id="PHPUnit"),
        pytest.param("><system-out/><system-err/><properties/>", "passed", "", id="notes"),
        pytest.param('><rerunFailure message="again"/>', "failed", "again", id="Surefire"),
        pytest.param('><system-out><failure message="m"/></system-out>', "failed", "m", id="deep"),
    ],
)
def test_states_and_elements_that_are_not_known_are_not_passed(
    tmp_path: Path, inside: str, outcome: str, reason: str
) -> None:
    attributes, _, children = inside.partition(">")
    case = case_of(tmp_path, f'name="t" {attributes}', children)
    assert (case.outcome, case.reason) == (outcome, reason)


def test_what_failed_before_it_passed_is_flaky(tmp_path: Path) -> None:
    case = case_of(
        tmp_path, 'name="t"', '<flakyFailure message="m"><stackTrace>s</stackTrace></flakyFailure>'
    )
    assert (case.outcome, case.reason, case.flaky) == ("passed", "m", True)


def test_what_a_suite_announces_and_does_not_list_is_an_objection(tmp_path: Path) -> None:
    inner = (
        '<testsuite name="a" tests="3" failures="1" errors="1"><testcase name="t"/></testsuite>'
        '<testsuite name="b" skipped="1" disabled="1"><testcase name="u"><skipped/></testcase></testsuite>'
    )
    mine = [
        "a announces 3 tests and lists 1",
        "a announces 2 failed tests and lists none",
        "b announces 2 skipped tests and lists 1",
    ]
    for outer, more in (("", []), ('tests="4"', ["the suite announces 4 tests and lists 2"])):
        text = f"<testsuites><testsuite {outer}>{inner}</testsuite></testsuites>"
        assert list(junit.read(write(tmp_path / "j.xml", text)).objections) == mine + more


@pytest.mark.parametrize(
    ("attribute", "kind"), [("failed", "failed"), ("timeouts", "failed"), ("skip", "skipped")]
)
def test_counts_under_other_names_are_announced_too(tmp_path: Path, attribute: str, kind: str) -> None:
    text = f'<testsuite name="a" {attribute}="1"><testcase name="t"/></testsuite>'
    objection = f"a announces 1 {kind} tests and lists none"
    assert junit.read(write(tmp_path / "j.xml", text)).objections == (objection,)


def test_a_suite_that_lists_what_it_announces_meets_no_objection(tmp_path: Path) -> None:
    for outer in ('tests="5" failures="1" errors="1" skipped="1"', ""):
        text = GOOD.replace('name="pytest tests"', outer)
        assert junit.read(write(tmp_path / "j.xml", text)).objections == ()


def test_a_clock_that_jumped_leaves_no_time(tmp_path: Path) -> None:
    for time in ("nan", "inf", "-inf", "-3", "1e300"):
        assert case_of(tmp_path, f'name="t" time="{time}"').seconds == 0.0, time


def test_a_file_that_is_missing_or_larger_than_any_run_writes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TestsFailedError, match="left no results"):
        junit.read(tmp_path / "none.xml")
    path = tmp_path / "j.xml"
    with path.open("wb") as file:
        file.truncate(junit._MAX_SIZE + 1)
    with pytest.raises(TestsFailedError, match="more than"):
        junit.read(path)


def test_what_takes_more_memory_than_any_run_is_refused_before_it_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(junit, "_MAX_TESTS", 3)
    for text in ('<testcase name="t"/>' * 4, '<testsuite tests="1"/>' * 3):
        with pytest.raises(TestsFailedError, match=r"j\.xml has more than the 3 tests and suites that are"):
            junit.read(write(tmp_path / "j.xml", f"<testsuite>{text}</testsuite>"))
    monkeypatch.setattr(junit, "_MAX_TOKEN", 1 << 20)
    path = write(tmp_path / "j.xml", f'<testsuite name="{"x" * (16 << 20)}"/>')
    text = write(tmp_path / "t.xml", '<testsuite><testcase name="t"><failure>' + "x\n" * (2 << 20))
    for file, message in ((path, "a tag of more than the 1048576 bytes"), (text, "not complete JUnit XML")):
        tracemalloc.start()
        with pytest.raises(TestsFailedError, match=message):
            junit.read(file)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 4 << 20, file


def test_merged_files_hold_all_cases(tmp_path: Path) -> None:
    one = write(tmp_path / "1.xml", GOOD)
    two = write(tmp_path / "2.xml", '<testsuite tests="1"><testcase name="x &lt;y&gt; é"/></testsuite>')
    junit_writer.merge([one.read_bytes(), two.read_bytes()], tmp_path / "all.xml")
    merged = junit.read(tmp_path / "all.xml")
    assert merged.cases == junit.read(one).cases + junit.read(two).cases
    assert len(merged.cases) == 6
    with pytest.raises(TestsFailedError):
        junit_writer.merge([one.read_bytes(), b"<testsuite>"], tmp_path / "broken.xml")
    assert not (tmp_path / "broken.xml").exists()


def test_merging_holds_one_file_at_a_time(tmp_path: Path) -> None:
    case = '<testcase name="x"><failure message="m">{}</failure></testcase>'.format("x" * 1000)
    one = write(tmp_path / "1.xml", f'<testsuite tests="2000">{case * 2000}</testsuite>')
    peaks = []
    for count in (1, 6):
        tracemalloc.start()
        junit_writer.merge((path.read_bytes() for path in [one] * count), tmp_path / "all.xml")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert len(junit.read(tmp_path / "all.xml").listed) == 12_000
    assert peaks[1] < 1.5 * peaks[0]


FAILS, BREAKS, SKIPS = '<failure message="f"/>', '<error message="e"/>', '<skipped message="s"/>'


@pytest.mark.parametrize(
    ("attempts", "outcome", "reason", "flaky"),
    [
        (("", "", ""), "passed", "it was run 3 times", True),  # as pytest-rerunfailures writes them
        ((FAILS, ""), "failed", "f", False),  # two tests of one name, as Jest may have them
        (("", FAILS), "failed", "f", False),
        ((FAILS, FAILS), "failed", "f", False),
        ((FAILS, BREAKS), "error", "e", False),  # of its teardown
        ((BREAKS, FAILS), "error", "e", False),
        ((FAILS, SKIPS), "failed", "f", False),
        (("", SKIPS), "skipped", "s", False),
        ((SKIPS, SKIPS), "skipped", "s", False),
    ],
)
def test_a_test_counts_once_however_often_it_ran(
    tmp_path: Path, attempts: tuple[str, ...], outcome: str, reason: str, *, flaky: bool
) -> None:
    cases = "".join(f'<testcase name="t" time="2">{inside}</testcase>' for inside in attempts)
    found = junit.read(write(tmp_path / "j.xml", f'<testsuite>{cases}<testcase name="u"/></testsuite>'))
    case, other = found.cases
    assert (case.outcome, case.reason, case.flaky) == (outcome, reason, flaky)
    assert (case.attempts, case.seconds) == (len(attempts), 2.0 * len(attempts))
    assert (other.test, other.attempts, other.flaky) == ("u", 1, False)
    assert (found.counts.total, len(found.listed)) == (2, len(attempts) + 1)


def test_a_test_that_failed_and_was_skipped_when_pytest_ran_it_again_has_failed(tmp_path: Path) -> None:
    again = f'<testcase name="t"/><testcase name="t">{SKIPS}</testcase>'  # as pytest-rerunfailures writes it
    noted = f'<testcase name="t"><properties><property name="flaky"/></properties>{SKIPS}</testcase>'
    for text in (f'<testsuite name="pytest">{again}</testsuite>', f"<testsuite>{noted}</testsuite>"):
        (case,) = junit.read(write(tmp_path / "j.xml", text)).cases
        reason = "it failed, and was skipped when it was run again: s"
        assert (case.outcome, case.reason, case.flaky) == ("failed", reason, False)


def test_pytest_announces_subtests_and_each_failure_and_skip_of_them(tmp_path: Path) -> None:
    cases = f'<testcase name="t">{FAILS}{FAILS}</testcase><testcase name="u">{SKIPS}{SKIPS}</testcase>'
    suite = '<testsuite name="{}" tests="9" failures="2" skipped="{}">' + cases + "</testsuite>"
    read = junit.read(write(tmp_path / "j.xml", suite.format("pytest", 2)))
    assert read.remarks == ("pytest announces 9 tests and lists 2: it counts passed subtests",)
    assert read.objections == ()
    read = junit.read(write(tmp_path / "j.xml", suite.format("pytest", 3)))
    assert read.objections == ("pytest announces 3 skipped tests and lists 2",)
    read = junit.read(write(tmp_path / "j.xml", suite.format("another", 2)))
    assert len(read.objections) == 3  # its cases are its tests
    read = junit.read(write(tmp_path / "j.xml", '<testsuite name="pytest" tests="9"/>'))
    assert read.objections == ("pytest announces 9 tests and lists none",)


@pytest.mark.parametrize("attributes", ['classname="util" name="TestX"', 'file="a.test.js" name="works"'])
def test_equal_names_in_two_suites_are_two_tests(tmp_path: Path, attributes: str) -> None:
    inside = f"<testcase {attributes}>{{}}</testcase>"
    suites = "".join(
        f'<testsuite name="example.com/{name}/util">{inside.format(end)}</testsuite>'
        for name, end in (("a", FAILS), ("b", ""), ("c", ""))
    )
    found = junit.read(write(tmp_path / "j.xml", f"<testsuites>{suites}</testsuites>"))
    assert [(case.outcome, case.flaky) for case in found.cases] == [
        ("failed", False),
        ("passed", False),
        ("passed", False),
    ]
    assert found.counts == Counts(passed=2, failed=1, errors=0, skipped=0)


def test_the_reason_is_the_first_line_of_the_message_unless_that_is_long(tmp_path: Path) -> None:
    failure = '<failure message="Failed: import a: ImportError&#10;Traceback"/>'
    assert case_of(tmp_path, 'name="t"', failure).reason == "import a: ImportError"
    failure = f'<failure message="{"x" * 5000}"/>'
    assert case_of(tmp_path, 'name="t"', failure).reason == "x" * 300 + "…"


@pytest.mark.parametrize(
    ("attributes", "node_id"),
    [
        (
            'file="a/test_b.py" classname="a.test_b.TestC" name="test_d[x::y]"',
            "a/test_b.py::TestC::test_d[x::y]",
        ),
        ('file="test_b.py" classname="test_b.TestC.TestD" name="test_e"', "test_b.py::TestC::TestD::test_e"),
        ('file="test_b.py" classname="test_b" name="test_e"', "test_b.py::test_e"),
        ('file="test_b.py" classname="test_b" name="test_b"', "test_b.py"),
        ('file="test_b.py" classname="other.TestC" name="test_e"', "other.TestC::test_e"),
        ('file="test_b.py" classname="test_bc" name="test_e"', "test_bc::test_e"),
        ('classname="test_b" name="test_e"', "test_b::test_e"),
    ],
)
def test_a_node_id_is_told_where_the_file_is(tmp_path: Path, attributes: str, node_id: str) -> None:
    assert case_of(tmp_path, attributes).test == node_id


def test_what_cannot_be_believed_is_refused_by_its_name() -> None:
    for text in (GOOD[:-30], "<!DOCTYPE a><testsuite/>", "<testsuite><testcase/></testsuite>", ""):
        with pytest.raises(TestsFailedError, match=r"j\.xml is not complete"):
            junit.loads(text.encode(), name="j.xml")
