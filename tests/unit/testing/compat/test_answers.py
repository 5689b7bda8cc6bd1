"""What a probe leaves is read as far as it goes, and what ended it is not overlooked."""

import json
from pathlib import Path

import pytest

from cairn.testing.compat import measure
from cairn.testing.compat.report import Measured

ENDED = "the process was ended by SIGSEGV"


def begin(what: str, *, essential: bool = True) -> dict[str, object]:
    return {"begin": what, "essential": essential}


def end(outcome: str, reason: str = "") -> dict[str, object]:
    return {"end": outcome, "reason": reason}


DONE: dict[str, object] = {"complete": True}
GOOD = [begin("a"), end("passed")]


def read(folder: Path, *lines: dict[str, object], tail: str = "", clean: bool = True) -> Measured:
    path = folder / "answer.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines) + tail, encoding="utf-8")
    return measure.read_answer(path, ended=ENDED, seconds=1.0, clean=clean)


MISSING: dict[str, object] = {"not_measurable": "torchaudio is not installed"}
NO_GPU: dict[str, object] = {"no_gpu": "no GPU"}


@pytest.mark.parametrize(
    ("lines", "support", "reason"),
    [
        ([*GOOD, begin("b", essential=False), end("failed", "wrong")], "partial", "b: wrong"),
        ([*GOOD, begin("b"), end("failed", "wrong")], "unsupported", "b: wrong"),
        ([*GOOD, begin("b"), end("not measured", "one GPU")], "supported", "b not measured: one GPU"),
        ([MISSING], "not measurable", "torchaudio is not installed"),
        ([NO_GPU, MISSING], "not measurable", "torchaudio is not installed"),
        ([], "not measurable", "the probe tried nothing"),
    ],
)
def test_what_a_whole_answer_means(
    tmp_path: Path, lines: list[dict[str, object]], support: str, reason: str
) -> None:
    found = read(tmp_path, *lines, DONE)
    assert (found.support, found.reason, found.on_cpu) == (support, reason, None)


def test_everything_that_passed_is_support_and_on_the_cpu_says_nothing_of_a_gpu(tmp_path: Path) -> None:
    found = read(tmp_path, *GOOD, {"found": "2.3"}, {"device": "gfx942"}, DONE)
    assert (found.support, found.reason, found.found, found.device) == ("supported", "", "2.3", "gfx942")
    found = read(tmp_path, NO_GPU, *GOOD, DONE)
    assert (found.support, found.reason, found.on_cpu) == ("not measurable", "no GPU", "supported")


@pytest.mark.parametrize(
    ("lines", "where"),
    [
        ([], "the probe"),
        (GOOD, "the probe"),
        ([*GOOD, begin("b")], "b"),
        ([*GOOD, begin("b"), end("passed")], "the probe"),
    ],
)
def test_a_process_that_ended_early_has_failed_where_it_was(
    tmp_path: Path, lines: list[dict[str, object]], where: str
) -> None:
    found = read(tmp_path, *lines)
    assert (found.support, found.reason) == ("unsupported", f"{where}: {ENDED}")
    assert [check.outcome for check in found.checks].count("passed") == str(lines).count("passed")


def test_half_a_line_and_strange_lines_are_no_answer(tmp_path: Path) -> None:
    found = read(tmp_path, *GOOD, tail='[]\n3\n\n{"complete": tr')
    assert (found.support, found.reason) == ("unsupported", f"the probe: {ENDED}")


def test_a_process_that_crashes_when_all_is_done_is_not_whole(tmp_path: Path) -> None:
    found = read(tmp_path, *GOOD, DONE, clean=False)
    assert (found.support, found.reason) == ("partial", f"the end of the process: {ENDED}")


@pytest.mark.parametrize(
    "line", [{"begin": 3}, {"end": "wonderful"}, {"complete": "yes"}, {"found": "\ud800"}, {"x": 1}]
)
def test_a_line_that_is_not_ours_counts_for_nothing(tmp_path: Path, line: dict[str, object]) -> None:
    assert read(tmp_path, *GOOD, line, DONE) == read(tmp_path, *GOOD, DONE)


def test_no_file_is_no_support(tmp_path: Path) -> None:
    found = measure.read_answer(tmp_path / "missing", ended="it did not end within 3 seconds", seconds=3.0)
    assert (found.support, found.reason) == ("unsupported", "the probe: it did not end within 3 seconds")


def test_a_check_whose_end_was_cut_off_has_not_passed(tmp_path: Path) -> None:
    path = tmp_path / "answer.jsonl"
    lines = (
        '{"begin": "sum"}',
        '{"end": "fai',
        '{"begin": "mean"}',
        '{"end": "passed"}',
        '{"complete": true}',
    )
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = measure.read_answer(path, ended="", seconds=1.0, clean=True)
    assert (found.support, found.reason) == ("unsupported", "sum: it left no outcome")
