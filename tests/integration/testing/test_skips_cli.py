"""`cairn test skips …`, as a user calls it."""

import json
from datetime import date, timedelta
from pathlib import Path

import pytest

from cairn.cli.main import main

COLLECTED = "test_nn.py::TestNN::test_print\ntest_nn.py::TestNN::test_print_all\n\n2 tests collected\n"
TOMORROW = date.today() + timedelta(days=1)  # noqa: DTZ011 - a day either way does not matter


def skips(*words: object) -> int:
    return main(["test", "skips", *map(str, words)])


@pytest.fixture
def collected(tmp_path: Path) -> Path:
    (tmp_path / "collection.txt").write_text(COLLECTED, encoding="utf-8")
    return tmp_path / "collection.txt"


def test_a_good_file_is_listed_and_counted(
    tmp_path: Path, collected: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Not the shipped skip list: it has hundreds of entries.
    text = f'tests = ["test_nn.py::TestNN::test_print"]\nreason = "x"\nowner = "me"\nexpires = {TOMORROW}\n'
    (tmp_path / "skips.toml").write_text(f'schema = "cairn.skips/1"\n[[skips]]\n{text}', encoding="utf-8")
    assert skips("lint", tmp_path / "skips.toml", "--collection", collected) == 0
    capsys.readouterr()
    assert skips("list", tmp_path / "skips.toml", "--targets", "gfx942", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["counts"] == {"ids": 1, "patterns": 0, "unresolved patterns": 0}
    assert found["entries"][0]["expires"] == str(TOMORROW)
    assert skips("list", tmp_path / "skips.toml") == 0
    said = capsys.readouterr()
    assert "test_nn.py::TestNN::test_print  always  me" in said.out
    assert "ids: 1, patterns: 0, unresolved patterns: 0" in said.out + said.err


def test_lint_names_what_is_out_of_date(
    tmp_path: Path, collected: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = '[[skips]]\n{}\nreason = "x"\nowner = "ann"\nexpires = {}\n'
    # Not the shipped skip list: what is wrong in a list is written here.
    text = 'schema = "cairn.skips/1"\n'
    text += entry.format('tests = ["test_nn.py::TestNN::test_prin", "test_fx.py::test_a"]', "2020-01-01")
    text += entry.format('tests = ["test_nn.py::TestNN::test_print_all"]', TOMORROW)
    text += entry.format('patterns = ["test_nn.py::TestNN::test_print_*"]', TOMORROW)
    text += entry.format('patterns = ["test_nn.py::TestNN::test_add_*"]', TOMORROW)
    text += entry.format('tests = ["test_nn.py::test_a"]\nwhen = { torch = "<2" }', TOMORROW)
    (tmp_path / "skips.toml").write_text(text, encoding="utf-8")
    words = ("lint", tmp_path / "skips.toml", "--collection", collected, "--pytorch-version", "2.13.0a0")
    assert skips(*words, "--json") == 1
    found = json.loads(capsys.readouterr().out)["findings"]
    assert [(one["kind"], one["number"]) for one in found] == [
        ("expired", 1), ("unmatched", 1), ("covered", 3), ("unmatched", 4),
    ]  # fmt: skip
    assert "did you mean test_print or test_print_all?" in found[1]["text"]
    assert skips(*words) == 1
    assert (
        "expired: skips.toml, entry 1 (test_nn.py::TestNN::test_prin and 1 more)" in capsys.readouterr().out
    )


def test_lint_fails_on_an_unresolved_entry_as_soon_as_its_sources_are_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = '[[skips]]\npatterns = ["test_nn.py::*::{}"]\nwhen = {{ torch = "{}" }}\nunresolved = true\n'
    entry += f'reason = "x"\nowner = "ann"\nexpires = {TOMORROW}\n'
    # Not the shipped skip list: its sources are not here.
    text = 'schema = "cairn.skips/1"\n' + entry.format("test_print", ">=2.8")
    text += entry.format("test_gone", ">=2.8") + entry.format("test_later", ">=2.14")
    (tmp_path / "skips.toml").write_text(text, encoding="utf-8")
    assert skips("lint", tmp_path / "skips.toml", "--pytorch-version", "2.13") == 0
    (tmp_path / "pytorch/test").mkdir(parents=True)
    (tmp_path / "pytorch/version.txt").write_text("2.13.0a0\n", encoding="utf-8")
    (tmp_path / "pytorch/test/test_nn.py").write_text("class TestNN:\n    def test_print(self): pass\n")
    capsys.readouterr()
    words = ("lint", tmp_path / "skips.toml", "--sources-dir", tmp_path / "pytorch")
    assert skips(*words, "--json") == 1
    found = json.loads(capsys.readouterr().out)["findings"]
    assert [(one["kind"], one["number"], one["tests"]) for one in found] == [
        ("unresolved", 1, ["test_nn.py::TestNN::test_print"]),
        ("unresolved", 2, []),
    ]
    assert (
        "no test is called test_nn.py::*::test_gone: end its range before torch 2.13.0a0" in found[1]["text"]
    )
    assert skips("lint", tmp_path / "skips.toml", "--sources-dir", tmp_path) == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('schema = "cairn.skips/1"\n[[skips]]\ntest = ["a.py::b"]\n', "did you mean tests?"),
        ('schema = "cairn.skips/2"\n', "has schema 'cairn.skips/2'"),
        ("", "has schema None"),
    ],
)
def test_a_malformed_file_stops_with_one_line(
    tmp_path: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "skips.toml").write_text(text, encoding="utf-8")
    assert skips("lint", tmp_path / "skips.toml") == 2
    assert said in capsys.readouterr().err


def test_an_empty_file_leaves_nothing_out_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "skips.toml").write_text('schema = "cairn.skips/1"\n', encoding="utf-8")
    assert skips("lint", tmp_path / "skips.toml") == 0
    assert "nothing is left out: there is no entry" in capsys.readouterr().err


def test_lint_names_conditions_that_no_gpu_meets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = (
        f'tests = ["test_nn.py::test_a"]\nreason = "r"\nowner = "me"\nexpires = {TOMORROW}\n'
        'when = { family = ["gfx110X-all"], target = ["gfx942"] }\n'
    )
    (tmp_path / "skips.toml").write_text(f'schema = "cairn.skips/1"\n\n[[skips]]\n{entry}', encoding="utf-8")
    assert skips("lint", tmp_path / "skips.toml") == 1
    assert "contradictory: skips.toml, entry 1" in (said := capsys.readouterr().out)
    assert "none of gfx942 is of gfx110X-all" in said
