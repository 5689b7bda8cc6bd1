"""How long tests took: upstream's files and ours."""

import json
from pathlib import Path

import pytest

from cairn import datafile
from cairn.errors import UsageError
from cairn.testing.junit import TestOutcome
from cairn.testing.suite import shards, suite_results

UPSTREAM = {
    "default": {"inductor": {"test_nn": 700.0}, "default": {"test_nn": 100.5, "inductor/test_x": 7}},
    "linux-noble-rocm-py3.12-mi300": {"inductor": {"test_nn": 900.0}, "default": {"test_nn": 300.0}},
}


def write(path: Path, plain: object) -> Path:
    path.write_text(json.dumps(plain), encoding="utf-8")
    return path


def test_upstreams_file_is_read_by_config_or_its_default(tmp_path: Path) -> None:
    file = write(tmp_path / "test-times.json", UPSTREAM)
    assert shards.read_times([file]).modules == {"test_nn.py": 100.5, "inductor/test_x.py": 7}
    assert shards.read_times([file], config="inductor").modules == {"test_nn.py": 700.0}
    assert shards.read_times([file], config="new").of("test_nn.py") == 100.5


def test_classes_add_up_where_nothing_better_is_known(tmp_path: Path) -> None:
    plain = {"default": {"default": {"test_nn": {"TestNN": 60.0, "TestB": 5.0}}}}
    found = shards.read_times([write(tmp_path / "test-class-times.json", plain)])
    assert found.of("test_nn.py") == 65.0
    assert found.of("test_other.py") is None


def test_outcomes_of_earlier_shards_are_times_of_tests(tmp_path: Path) -> None:
    one, two = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    suite_results.append_outcomes(
        one, [TestOutcome(test="test_a.py::test_x", outcome="passed", seconds=3.0, attempts=2)]
    )
    suite_results.append_outcomes(
        two,
        [
            TestOutcome(test="test_b.py::TestB::test_y[a::b]", outcome="failed", seconds=2.0),
            TestOutcome(test="test_c.py", outcome="error"),
        ],
    )
    found = shards.read_times([one, two])
    assert found.tests == {"test_a.py": {"test_x": 1.5}, "test_b.py": {"TestB::test_y[a::b]": 2.0}}
    datafile.write(tmp_path / "times.json", found)
    assert shards.read_times([tmp_path / "times.json"]) == found


@pytest.mark.parametrize(
    ("plain", "said"),
    [
        ([], "no test times"),
        ({"linux": {}}, "no test times"),
        ({"default": {"default": {"test_nn": -1.0}}}, "time of test_nn.py is not one"),
        ({"default": {"default": {"test_nn": 1e308}}}, "time of test_nn.py is not one"),
        ({"default": {"default": {"test_nn": {"TestA": 1e308, "TestB": 1e308}}}}, "time of TestA is not one"),
        ({"default": {"default": {"test_nn": {"TestA": "long"}}}}, "test_nn"),
        ({"schema": "cairn.test-times/9"}, "schema"),
    ],
)
def test_what_is_no_file_of_times_is_refused(tmp_path: Path, plain: object, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        shards.read_times([write(tmp_path / "x.json", plain)])


def test_half_a_file_of_outcomes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "outcomes.jsonl"
    path.write_text('{"test": "test_a.py::test_x", "outcome"', encoding="utf-8")
    with pytest.raises(UsageError, match="middle of a line"):
        shards.read_times([path])


@pytest.mark.parametrize("numbers", ['"attempts": 0', '"attempts": -1', '"seconds": 1e308', '"seconds": -1'])
def test_outcomes_with_impossible_numbers_are_refused(tmp_path: Path, numbers: str) -> None:
    path = tmp_path / "outcomes.jsonl"
    path.write_text(f'{{"test": "test_a.py::test_x", "outcome": "passed", {numbers}}}\n', encoding="utf-8")
    with pytest.raises(UsageError, match=r"how often test_a.py::test_x ran, or for how long"):
        shards.read_times([path])
