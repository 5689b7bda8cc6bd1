"""The tests that run are those of the commit that the wheel was built from, whatever the checkout shows."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cairn.sources.git import repository
from cairn.sources.worktree import contents
from cairn.stack import recipe
from cairn.testing.install_set import Tested
from cairn.testing.suite.merge import Merged
from cairn.testing.suite.run import SuiteRequest
from helpers.sources import git
from helpers.suites import commit_all, request_of, run_and_judge, suite_of, write_tests

TESTS = {
    "test_a.py": "import sibling\n\ndef test_bad():\n    assert sibling.GOOD\n",
    "sibling.py": "GOOD = False\n",
}
GOOD = "GOOD = True\n"
SKIPS_ALL = "collect_ignore_glob = ['*']\ndef pytest_collection_modifyitems(items):\n    items.clear()\n"


def installed(tmp_path: Path, commit: str) -> Path:
    """An interpreter that has pytest, and a package `thing` that says which commit it was built from."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (site / "ours.pth").write_text(
        "\n".join(path for path in sys.path if "site-packages" in path), encoding="utf-8"
    )
    (site / "thing").mkdir()
    (site / "thing" / "__init__.py").touch()
    text = f"__version__ = '1.0'\ngit_version = '{commit}'\n"
    (site / "thing" / "version.py").write_text(text, encoding="utf-8")
    return tmp_path / "venv" / "bin" / "python"


def request(tmp_path: Path, commit: str, **more: Any) -> SuiteRequest:
    checkout = tmp_path / "checkout"
    return request_of(
        tmp_path,
        {},
        suite=suite_of(project="thing", version_module="thing/version.py", config_file="pytest.ini"),
        tested=Tested(
            python=installed(tmp_path, commit),
            variables={"PATH": os.environ["PATH"], "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        ),
        commits=repository.commits_at(checkout),
        edits=repository.edits_at(checkout),
        **{"allow_mismatch": False, **more},
    )


def hide_by_index(checkout: Path, option: str) -> None:
    git(checkout, "update-index", option, "test/sibling.py")
    (checkout / "test" / "sibling.py").write_text(GOOD, encoding="utf-8")


def hide_new_file(checkout: Path) -> None:
    (checkout / ".git" / "info" / "exclude").write_text("conftest.py\n", encoding="utf-8")
    (checkout / "test" / "conftest.py").write_text(SKIPS_ALL, encoding="utf-8")


def hide_by_filter(checkout: Path) -> None:
    git(checkout, "config", "filter.good.smudge", "sed s/False/True/")
    git(checkout, "config", "filter.good.clean", "sed s/True/False/")
    (checkout / ".git" / "info" / "attributes").write_text("sibling.py filter=good\n", encoding="utf-8")
    (checkout / "test" / "sibling.py").write_text(GOOD, encoding="utf-8")


def hide_by_replacement(checkout: Path) -> None:
    (checkout / "good").write_text(GOOD, encoding="utf-8")
    other = git(checkout, "hash-object", "-w", "good").strip()
    (checkout / "good").unlink()
    git(checkout, "replace", git(checkout, "rev-parse", "HEAD:test/sibling.py").strip(), other)
    (checkout / "test" / "sibling.py").write_text(GOOD, encoding="utf-8")


@pytest.mark.parametrize(
    "hide",
    [
        lambda checkout: hide_by_index(checkout, "--skip-worktree"),
        lambda checkout: hide_by_index(checkout, "--assume-unchanged"),
        hide_new_file,
    ],
    ids=["skip-worktree", "assume-unchanged", "exclude"],
)
def test_an_edit_that_git_does_not_see_has_no_part_in_the_run(tmp_path: Path, hide: Any) -> None:
    checkout = write_tests(tmp_path / "checkout", TESTS)
    commit = commit_all(checkout)
    hide(checkout)
    assert repository.edits_at(checkout) == ()
    merged = run_and_judge(request(tmp_path, commit))
    assert [(one.test, one.outcome) for one in merged.outcomes] == [("test_a.py::test_bad", "failed")]
    assert merged.results[0].sources == ""
    # What the record names are the files that ran, with the configuration that they came without.
    contents.write_committed(checkout, [commit], ["test"], tmp_path / "written")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    ran = merged.results[0].policy
    assert ran is not None
    expected = recipe.digest_of_files([tmp_path / "written" / "test", tmp_path / "pytest.ini"])
    assert ran.tests_sha256 == expected


@pytest.mark.parametrize("hide", [hide_by_filter, hide_by_replacement])
def test_what_the_repository_is_set_up_to_show_is_not_what_is_written(tmp_path: Path, hide: Any) -> None:
    checkout = write_tests(tmp_path / "checkout", TESTS)
    commit = commit_all(checkout)
    hide(checkout)
    contents.write_committed(checkout, [commit], ["test"], tmp_path / "written")
    assert (tmp_path / "written" / "test" / "sibling.py").read_text(encoding="utf-8") == "GOOD = False\n"


def test_a_commit_on_top_of_the_wheels_has_no_part_in_the_run(tmp_path: Path) -> None:
    checkout = write_tests(tmp_path / "checkout", TESTS)
    commit = commit_all(checkout)
    git(checkout, "tag", repository.UPSTREAM_TAG)
    (checkout / "test" / "sibling.py").write_text(GOOD, encoding="utf-8")
    commit_all(checkout)
    assert run_and_judge(request(tmp_path, commit)).judgement.verdict == "failed"


def test_an_edit_that_is_asked_for_runs_and_the_results_say_so(tmp_path: Path) -> None:
    checkout = write_tests(tmp_path / "checkout", TESTS)
    commit = commit_all(checkout)
    (checkout / "test" / "sibling.py").write_text(GOOD, encoding="utf-8")
    merged: Merged = run_and_judge(request(tmp_path, commit, allow_mismatch=True))
    assert merged.judgement.verdict == "passed"
    assert merged.results[0].sources == "the tests have local edits: test/sibling.py"
    assert merged.results[0].pytest_args == ("--allow-version-mismatch",)


def test_a_submodule_among_the_tests_is_that_of_the_commit(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    (inner / "deep").mkdir(parents=True)
    (inner / "deep" / "data.txt").write_text("committed", encoding="utf-8")
    commit_all(inner)
    checkout = write_tests(tmp_path / "checkout", TESTS)
    commit_all(checkout)
    git(checkout, "submodule", "add", "--quiet", str(inner), "test/inner")
    commit = commit_all(checkout)
    (checkout / "test" / "inner" / "deep" / "data.txt").write_text("edited", encoding="utf-8")
    (checkout / "pytest.ini").write_text("not committed", encoding="utf-8")
    (checkout / "test" / "link").symlink_to("sibling.py")
    commit = commit_all(checkout)
    found = tmp_path / "written"
    assert contents.write_committed(checkout, ["0" * 40, commit], ["test", "absent.ini"], found) == commit
    assert sorted(str(path.relative_to(found)) for path in found.rglob("*")) == [
        "test",
        "test/inner",
        "test/inner/deep",
        "test/inner/deep/data.txt",
        "test/link",
        "test/sibling.py",
        "test/test_a.py",
    ]
    assert (found / "test" / "inner" / "deep" / "data.txt").read_text(encoding="utf-8") == "committed"
    assert (found / "test" / "link").is_symlink()
