"""What the real command lines say to lines of workflows, with values that are not known yet."""

from __future__ import annotations

import pytest

from cairn.cli.ci import command_lines
from cairn.output import console
from cairn.workflows.shell import VALUE


@pytest.mark.parametrize(
    "line",
    [
        "cairn matrix --stack external-builds/sample --trigger VALUE --github-output",
        "cairn --version",
        "cairn build --stack nowhere --output-dir out --jobs VALUE --targets VALUE",
        "cairn wheel verify dist/*.whl",
        "python -m cairn ci run --stack VALUE",
        "python3 -X utf8 -m cairn ci lint",
        ".venv/bin/cairn test smoke --help",
        "C:/venv/Scripts/cairn.exe ci lint --json",
        "VALUE -m cairn ci lint",
        "python external-builds/pytorch/pytorch_torch_repo.py checkout --repo-hashtag VALUE",
        "python run_pytorch_smoke_tests.py -- -k x -v",
        "python build_prod_wheels.py build --output-dir out --pytorch-rocm-arch VALUE --no-build-triton",
        "python build_prod_wheels.py build --output-dir out --release-type VALUE",
        "python other.py --what",
        "python",
        "ninja --what",
    ],
)
def test_takes_what_is_right_or_not_ours(line: str) -> None:
    assert command_lines.refusal(line.replace("VALUE", VALUE).split()) is None


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("cairn matrix --trigger nightly", "--stack"),
        ("cairn matrix --stack x --trigger VALUE --trigger weekly", "cannot be 'weekly'"),
        ("cairn", "names no command"),
        ("cairn ci", "cairn ci names no command"),
        ("cairn build --stack x --output-dir out --jobs many", "'many' is not a positive number"),
        ("cairn ci lint VALUE --VALUE", "unknown option --…"),
        ("python -m cairn mtrix", "did you mean matrix?"),
        ("python build_prod_wheels.py biuld", "did you mean build?"),
        ("python build_prod_wheels.py build --release-type weekly --output-dir x", "cannot be 'weekly'"),
        (
            "./pytorch_audio_repo.py checkout --require-related-commits",
            "did you mean --require-related-commit",
        ),
        ("python run_pytorch_smoke_tests.py --k x", "unknown option --k"),
    ],
)
def test_says_what_is_wrong(line: str, said: str) -> None:
    before = console.current()
    assert said in str(command_lines.refusal(line.replace("VALUE", VALUE).split()))
    assert console.current() is before


def test_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_lines.refusal(["cairn", "ci"])
    assert command_lines.refusal(["cairn", "--help"]) is None
    assert capsys.readouterr() == ("", "")
