"""`cairn ci lint`: what it prints, its exit codes, and what it needs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from cairn.cli import main as program
from helpers import workflows

FAULTY = workflows.GOOD.replace("    timeout-minutes: 60\n", "").replace(
    "--trigger nightly", "--trigger night"
)


def test_says_where_what_and_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = workflows.write(tmp_path, FAULTY)
    assert program.main(["ci", "lint", str(path)]) == 1
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [
        f"{path}:24: cairn matrix: --trigger cannot be 'night' (did you mean nightly?) [command-line]",
        "    what to do: correct the command: its `--help` shows what it takes",
        f"{path}:25: the job build has no time limit [time-limit]",
        "    what to do: give it a `timeout-minutes`",
    ]
    assert "2 findings in 1 file" in printed.err


def test_prints_json_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = workflows.write(tmp_path, FAULTY)
    assert program.main(["ci", "lint", "--json", str(path)]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [(one["rule"], one["line"]) for one in found] == [("command-line", 24), ("time-limit", 25)]
    assert found[1]["fix"] == "give it a `timeout-minutes`"
    assert program.main(["ci", "lint", "--json", str(workflows.write(tmp_path))]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_reads_all_of_a_repository_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert program.main(["ci", "lint"]) == 2
    assert "has no workflows" in capsys.readouterr().err
    workflows.write(tmp_path)
    workflows.write(tmp_path, FAULTY, name="other.yaml")
    action = tmp_path / ".github" / "actions" / "a" / "action.yml"
    action.parent.mkdir(parents=True)
    action.write_text("runs:\n  using: composite\n  steps:\n    - run: cairn buidl\n", encoding="utf-8")
    assert program.main(["ci", "lint"]) == 1
    printed = capsys.readouterr()
    assert "3 findings in 3 files" in printed.err
    assert (
        ".github/actions/a/action.yml:4: cairn: there is no command 'buidl' (did you mean build?)"
        in printed.out
    )


def test_a_file_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        program.main(["ci", "lint", "none.yml"])
    assert end.value.code == 2
    assert "there is no file none.yml" in capsys.readouterr().err


def test_says_what_to_install_where_it_cannot_read_yaml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    # What was read before is kept by name and time.
    path = workflows.write(tmp_path, workflows.GOOD, name=f"{tmp_path.name}.yml")
    assert program.main(["ci", "lint", str(path)]) == 3
    assert 'pip install "cairn[ci]"' in capsys.readouterr().err
