import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cairn import venv
from cairn.cli.main import main
from cairn.errors import PrerequisiteError
from cairn.testing import record
from cairn.testing.gpus.kernel import gpu_names
from cairn.wheels import wheelset as wheel_sets
from helpers.testing import MakeWheel, Serve, set_of

SCRIPT = Path(__file__).parents[3] / "external-builds" / "pytorch" / "run_pytorch_smoke_tests.py"
GOOD = (
    '<testsuite tests="2"><testcase name="a"/>'
    '<testcase name="b"><skipped message="no GPU"/></testcase></testsuite>'
)
BAD = '<testsuite tests="1"><testcase name="c"><failure message="1 is not 2"/></testcase></testsuite>'


def cairn(*words: object) -> int:
    return main(["test", *map(str, words)])


def results(folder: Path, **texts: str) -> list[Path]:
    paths = [folder / f"{name}.xml" for name in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text, encoding="utf-8")
    return paths


def test_report_tells_counts_and_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cairn("report", *results(tmp_path, good=GOOD)) == 0
    assert "1 tests passed; 1 skipped" in " ".join(capsys.readouterr().out.split())


def test_report_fails_for_one_bad_file_among_good_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [*results(tmp_path, good=GOOD, bad=BAD, cut=BAD[:-5]), tmp_path / "none.xml"]
    assert cairn("report", "--json", *paths) == 8
    seen = capsys.readouterr()
    rows = json.loads(seen.out)
    assert [row["verdict"] for row in rows] == ["passed", "failed", "failed", "failed"]
    assert rows[0]["counts"]["skipped"] == 1
    assert "1 is not 2" in rows[1]["reason"]
    assert "3 of 4 test runs did not pass: bad.xml, cut.xml, none.xml" in seen.err


GTEST = (
    '<testsuites tests="2" failures="0" disabled="1" errors="0" time="0" name="AllTests">'
    '<testsuite name="A" tests="2" failures="0" disabled="1" errors="0">'
    '<testcase name="ok" status="run" result="completed" classname="A"/>'
    '<testcase name="DISABLED_b" status="notrun" result="suppressed" classname="A"/></testsuite></testsuites>'
)


def test_report_counts_a_test_that_did_not_run_as_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cairn("report", "--json", *results(tmp_path, gtest=GTEST)) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["verdict"], row["reason"]) == ("passed", "1 tests passed; 1 skipped")
    assert cairn("report", "--floor", "2", *results(tmp_path, gtest=GTEST)) == 8
    text = '<testsuite name="A" tests="1" skipped="1"><testcase name="a"/></testsuite>'
    assert cairn("report", *results(tmp_path, less=text)) == 8
    assert "A announces 1 skipped tests and lists none" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("floor", [["--floor", "2"], ["--device-floor", "1"]])
def test_report_honours_floors(tmp_path: Path, floor: list[str]) -> None:
    assert cairn("report", *floor, *results(tmp_path, good=GOOD)) == 8


@pytest.fixture
def trial(
    tmp_path: Path,
    make_wheel: MakeWheel,
    serve: Serve,
) -> list[object]:
    """The arguments that test a set of one wheel with a stack of its own, and where it is served."""
    wheel = make_wheel("alpha", "1.0", {"alpha.py": "__version__ = '1.0'\n"})
    wheel_sets.write(tmp_path / "set.json", set_of([wheel]))
    (tmp_path / "stack" / "checks").mkdir(parents=True)
    (tmp_path / "stack" / "checks" / "test_it.py").write_text(
        "import alpha\ndef test_one():\n    pass\ndef test_two():\n    assert alpha.__version__ == '2'\n"
    )
    # Not a shipped stack: its checks are of a wheel that the test makes.
    (tmp_path / "stack" / "stack.toml").write_text(
        'schema = "cairn.stack/1"\nname = "trial"\nline = "x"\ntargets = ["cpu"]\nsmoke_tests = ["checks"]\n'
        '[[projects]]\nname = "alpha"\ndistribution = "alpha"\ncheckout_dir = "alpha"\nhashtag = "main"\n'
        'origin = { url = "none" }\nsmoke_imports = ["alpha"]\n'
    )
    where = ["--index-url", serve([wheel]), "--output-dir", tmp_path / "out"]
    return ["smoke", "--set", tmp_path / "set.json", "--stack", tmp_path / "stack", *where]


def test_smoke_runs_the_stacks_tests_and_fails_with_them(
    trial: list[object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cairn(*trial) == 8
    seen = capsys.readouterr()
    assert "FAILED stack.checks.test_it::test_two: AssertionError" in seen.out
    assert "the smoke tests failed" in seen.err
    assert record.read(tmp_path / "out" / "record.json").verdict == "failed"


def test_smoke_passes_arguments_on_and_answers_in_json(
    trial: list[object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cairn(*trial, "--json", "--targets", "cpu", "--", "-k", "test_one") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer == json.loads((tmp_path / "out" / "record.json").read_text(encoding="utf-8"))
    assert (answer["verdict"], answer["pytest_args"]) == ("passed", ["-k", "test_one"])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--targets", "gfx942"], "the set is for cpu, not for gfx942"),
        (["--targets", "gfx9999"], "unknown GPU target"),
        (["--stack", "/none"], "there is no stack /none"),
    ],
)
def test_smoke_refuses_what_cannot_be_meant(
    trial: list[object], more: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cairn(*trial, *more) == 2
    assert message in capsys.readouterr().err


def test_a_set_that_is_not_there_is_called_that(
    trial: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cairn(*trial, "--set", "/none")
    assert "there is no file /none" in capsys.readouterr().err


def environment_with_torch(tmp_path: Path) -> Path:
    """Make an environment with an empty torch, and nothing else."""
    environment = venv.create(tmp_path / "torch env")
    (environment.site_packages / "torch").mkdir()
    (environment.site_packages / "torch/__init__.py").touch()
    return environment.path


def run_script(
    tmp_path: Path, test: str, *words: str, active: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a copy of the script with other tests beside it; an environment with a torch is active."""
    folder = tmp_path / "scripts"
    (folder / "smoke-tests").mkdir(parents=True)
    shutil.copy2(SCRIPT, folder / SCRIPT.name)
    (folder / "smoke-tests" / "test_it.py").write_text(test, encoding="utf-8")
    env = {**os.environ, "VIRTUAL_ENV": str(active or environment_with_torch(tmp_path))}
    command = [sys.executable, str(folder / SCRIPT.name), *words]
    return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("named", [True, False])
def test_the_script_says_where_torch_is_missing_and_how_to_name_another_python(
    tmp_path: Path, *, named: bool
) -> None:
    text = "import sys\ndef test_a():\n    import torch\n    assert 'torch env' in sys.prefix\n"
    environment = environment_with_torch(tmp_path)
    cairns = Path(sys.executable).parents[1]  # active, and without torch
    words = ("--python", str(venv.describe(environment).python)) if named else ()
    done = run_script(tmp_path, text, *words, active=cairns)
    if named:
        assert done.returncode == 0, done.stdout + done.stderr
        return
    assert done.returncode == PrerequisiteError.exit_code
    first, second = done.stderr.splitlines()
    assert first == f"error: {sys.executable} has no torch to test"
    assert "--python" in second


def test_the_script_does_not_take_a_python_that_does_not_run_for_one_without_torch(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    done = run_script(tmp_path, "def test_a():\n    pass\n", "--python", str(broken))
    assert done.returncode != 0
    assert f"error: {broken} is not a Python that runs" in done.stderr


def test_the_script_passes_arguments_on_to_pytest(tmp_path: Path) -> None:
    text = "def test_a():\n    pass\ndef test_b():\n    assert False\n"
    done = run_script(tmp_path, text, "--", "--log-cli-level=INFO", "-v", "-k", "test_a")
    assert done.returncode == 0, done.stderr
    assert "test_a PASSED" in done.stdout
    assert "passed: 1 tests passed" in done.stdout


@pytest.mark.parametrize(("family", "code"), [("cpu", 0), ("", 0), ("gfx110X-all", 8), ("gfx942", 8)])
def test_the_script_takes_the_family_that_it_is_to_run_on(tmp_path: Path, family: str, code: int) -> None:
    if gpu_names():
        pytest.skip("for a machine without a GPU")
    done = run_script(tmp_path, "def test_a():\n    pass\n", "--amdgpu-family", family)
    assert done.returncode == code, done.stderr


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def test_a():\n    assert 1 == 2\n", "assert 1 == 2"),
        ("import pytest\ndef test_a():\n    pytest.skip('no GPU')\n", "all 1 tests were skipped"),
        ("import no_such_torch\n", "No module named 'no_such_torch'"),
    ],
)
def test_the_script_fails_when_nothing_was_proved(tmp_path: Path, text: str, reason: str) -> None:
    done = run_script(tmp_path, text)
    assert done.returncode == 8
    assert reason in done.stdout + done.stderr
    assert "Traceback (most recent call last)" not in done.stderr


def test_the_script_tests_what_is_installed_and_not_the_folder_it_is_called_in(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise RuntimeError('the source tree was imported')\n")
    done = run_script(tmp_path, "import torch\ndef test_a():\n    assert 'site-packages' in torch.__file__\n")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_script_says_how_to_install_cairn() -> None:
    command = [sys.executable, "-S", "-I", str(SCRIPT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "Cairn is not installed: run `pip install -e " in done.stderr
