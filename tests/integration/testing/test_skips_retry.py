"""`cairn test skips retry`: what is left out is run, and what passes leaves the files by a patch."""

import json
import subprocess
from pathlib import Path

import pytest

from cairn.cli.main import main
from helpers.suites import write_tests

# Not the shipped suite: its tests are written here, and need no torch.
SUITE = """
schema = "cairn.suite/1"
project = "pytest"
tests = "test"
version_module = "_pytest/_version.py"
version_file = "version.txt"
configs = { default = { groups = [{ modules = ["test_*"] }] } }
"""
TESTS = {
    "test_a.py": (
        "import os, pathlib\n"
        "def test_good(): pass\n"
        "def test_bad(): assert False\n"
        "def test_crashes(): os._exit(0)\n"
        "def test_left_in(): raise AssertionError('it is not left out')\n"
        "def test_flaky():\n"
        "    ran = pathlib.Path(os.environ['RAN_LOG'])\n"
        "    assert not ran.exists()\n"
        "def test_also_good(): pathlib.Path(os.environ['RAN_LOG']).touch()\n"
    ),
    "test_closed.py": "def test_good(): pass\n",
    "test_late.py": "import atexit, os\ndef test_ends_badly(): atexit.register(os._exit, 3)\n",
}
WHY = 'reason = "x"\nowner = "me"\nexpires = 2099-01-01\n'
SKIPS = f"""\
schema = "cairn.skips/1"

[[skips]]
tests = [
    "test_a.py::test_good",
    "test_a.py::test_bad",
    "test_a.py::test_crashes",
    "test_a.py::test_flaky",
    "test_a.py::test_also_good",
    "test_a.py::test_gone",
]
{WHY}
[[skips]]
tests = ["test_closed.py"]
{WHY}
[[skips]]
tests = ["test_nn.py::test_good"]
when = {{ target = ["gfx942"] }}
{WHY}"""


def retry(tmp_path: Path, skips: str, *more: str) -> int:
    (tmp_path / "suite.toml").write_text(SUITE, encoding="utf-8")
    (tmp_path / "skips.toml").write_text(skips, encoding="utf-8")
    checkout = write_tests(tmp_path / "checkout", TESTS)
    words = [
        "test",
        "skips",
        "retry",
        tmp_path / "skips.toml",
        "--suite",
        tmp_path,
        "--sources-dir",
        checkout,
    ]
    words += ["--output-dir", tmp_path / "out", "--allow-version-mismatch", "--test-timeout", "60", *more]
    return main([str(word) for word in words])


def test_what_passes_each_time_leaves_the_files_by_a_patch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.chdir(tmp_path)
    ran = f"RAN_LOG={tmp_path / 'ran'}"
    assert retry(tmp_path, SKIPS, "--tries", "2", "--test-env", ran, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["retried"] == 6
    assert [(one["number"], one["names"]) for one in found["solved"]] == [
        (1, ["test_a.py::test_good", "test_a.py::test_also_good"]),
        (2, ["test_closed.py"]),
    ]
    subprocess.run(["git", "apply", "out/solved.patch"], cwd=tmp_path, check=True)
    left = (tmp_path / "skips.toml").read_text(encoding="utf-8")
    gone = ('    "test_a.py::test_good",\n', '    "test_a.py::test_also_good",\n')
    expected = SKIPS.replace(gone[0], "").replace(gone[1], "")
    assert left == expected.replace(f'[[skips]]\ntests = ["test_closed.py"]\n{WHY}\n', "")


def test_entries_that_are_not_for_this_machine_are_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    only_gpu = SKIPS[: SKIPS.index("[[skips]]")] + SKIPS[SKIPS.rindex("[[skips]]") :]
    assert retry(tmp_path, only_gpu.replace("test_nn.py", "test_a.py"), "--tries", "1") == 8
    assert "none of the tests that the entries name ran here" in capsys.readouterr().err
    assert retry(tmp_path, only_gpu) == 2
    assert "has none of the files that the entries name" in capsys.readouterr().err
    assert retry(tmp_path, 'schema = "cairn.skips/1"\n') == 2
    assert "there is no entry to retry" in capsys.readouterr().err


def test_what_passed_is_said_where_no_patch_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    why = 'reason = """\n[[skips]]\n"""\nowner = "me"\nexpires = 2099-01-01\n'
    names = ("test_closed.py::test_good", "test_late.py::test_ends_badly")
    entries = "".join(f'\n[[skips]]\ntests = ["{name}"]\n{why}' for name in names)
    assert retry(tmp_path, f'schema = "cairn.skips/1"\n{entries}', "--tries", "1") == 2
    said = capsys.readouterr()
    assert "passes by now: test_closed.py::test_good" in said.out
    assert "test_ends_badly" not in said.out  # its process crashed behind it
    assert "written in a way that entries cannot be taken out of it" in said.err
