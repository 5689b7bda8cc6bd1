from __future__ import annotations

from pathlib import Path

import pytest

from cairn.errors import UsageError
from cairn.output import github


@pytest.fixture
def summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    return path


def test_outputs_and_summaries_are_added(
    summary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "output"
    monkeypatch.setenv("GITHUB_OUTPUT", str(output))
    github.write_outputs({"count": "2"})
    github.write_outputs({"empty": "false"})
    assert output.read_bytes() == b"count=2\nempty=false\n"
    github.add_summary("first")
    github.add_summary("zweitens: 山 \ud800")
    assert summary.read_bytes() == "first\nzweitens: 山 \\ud800\n".encode()
    with pytest.raises(UsageError, match="the output count has several lines"):
        github.write_outputs({"count": "2\nempty=true"})


def test_elsewhere_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    github.write_outputs({"count": "2"})
    github.add_summary("text")
    assert not list(tmp_path.iterdir())


def test_a_summary_is_no_longer_than_github_takes(summary: Path) -> None:
    github.add_summary("begin\n")
    github.add_summary("\n".join("wörter " * 5 for _ in range(60_000)))
    text = summary.read_text()
    assert github.SUMMARY_LIMIT - 200 < summary.stat().st_size <= github.SUMMARY_LIMIT
    assert text.startswith("begin\n\nwörter")
    assert text.endswith("GitHub shows 1 MiB of a step's summary.*\n")
    assert "wörter wörter wörter wörter wörter \n\n\n*The rest" in text, "it is cut between two lines"
    github.add_summary("and more\n" * 50)
    assert summary.read_text() == text
