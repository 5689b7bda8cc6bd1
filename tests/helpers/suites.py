"""A project with a small test suite, run as PyTorch's is."""

from __future__ import annotations

import functools
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cairn import datafile, files
from cairn.sources.worktree import contents
from cairn.testing.gpus.gpu import Gpu
from cairn.testing.install_set import Tested
from cairn.testing.junit import TestOutcome
from cairn.testing.record import TestedWheel
from cairn.testing.suite import merge, run, suite_results, worker
from cairn.testing.suite.merge import Merged
from cairn.testing.suite.run import SuiteRequest
from cairn.testing.suite.suite_results import ModuleCount, ShardResult
from cairn.testing.suite.suite_toml import Config, Group, Suite
from cairn.testing.testing_options import Limits
from helpers.sources import git


def suite_of(*modules: str, **more: Any) -> Suite:
    """A suite whose project is pytest itself, which is installed; no commit can be compared."""
    values: dict[str, Any] = {
        "project": "pytest",
        "tests": "test",
        "version_module": "_pytest/_version.py",
        "version_file": "version.txt",
        "configs": {"default": Config(groups=(Group(modules=modules or ("**/test_*",)),))},
    }
    return Suite(**{**values, **more})


def write_tests(checkout: Path, tests: Mapping[str, str]) -> Path:
    """Write the modules of a suite into the folder `test` of a checkout."""
    for name, text in tests.items():
        path = checkout / "test" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return checkout


def commit_all(checkout: Path) -> str:
    """Make a repository of a checkout, with all that it has; gives the commit."""
    git(checkout, "init", "--quiet")
    (checkout / ".git" / "info").mkdir(exist_ok=True)  # where tests put what git is to hide
    git(checkout, "add", "--all")
    git(checkout, "commit", "--quiet", "--message", "all")
    return git(checkout, "rev-parse", "HEAD").strip()


def request_of(
    tmp_path: Path, tests: Mapping[str, str], *, python: Path | None = None, **more: Any
) -> SuiteRequest:
    """A request to run these tests in `tmp_path`, with short limits; on our own interpreter by default."""
    # What the pytest around this one has set must not reach the one inside.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    values: dict[str, Any] = {
        "suite": suite_of(),
        "config": "default",
        "checkout": write_tests(tmp_path / "checkout", tests),
        "tested": Tested(
            python=python or Path(sys.executable),
            variables={**variables, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        ),
        "work_dir": tmp_path / "results",
        "limits": Limits(test=30.0, collection=30.0),
        "commits": (),
        "write_committed": functools.partial(contents.write_committed, tmp_path / "checkout"),
        "allow_mismatch": True,
        "retries": 0,
        "nodes": tmp_path / "no-gpus",
    }
    return SuiteRequest(**{**values, **more})


def run_and_judge(request: SuiteRequest, *, floor: int = 1) -> Merged:
    """Run a suite of one shard, and judge it."""
    return merge.merge([run.run_suite(request)], request.work_dir, floor=floor)


def by_test(merged: Merged) -> dict[str, TestOutcome]:
    """The outcomes by the last part of the node id."""
    return {outcome.test.rpartition("::")[2]: outcome for outcome in merged.outcomes}


def log_of(request: SuiteRequest) -> str:
    """What the processes wrote."""
    return (request.work_dir / run.LOG).read_text(encoding="utf-8")


def outcomes_of(folder: Path) -> dict[str, TestOutcome]:
    """The outcomes of a folder of results, by node id."""
    return {outcome.test: outcome for outcome in suite_results.read_outcomes(folder / suite_results.OUTCOMES)}


WHEEL = TestedWheel(file_name="torch-2.9.0-cp312-cp312-linux_x86_64.whl", sha256="a" * 64)


def other_accounts(folder: Path, tests: Sequence[TestOutcome]) -> dict[str, str]:
    """Write what a plugin and pytest would say of these tests; gives the digests."""
    ends = [worker.json_line({"event": "end", "test": one.test, "outcome": one.outcome}) for one in tests]
    return suite_results.write_accounts(folder, ends, [b"<testsuites/>"])


def shard_of(folder: Path, tests: Sequence[TestOutcome], number: int = 1, of: int = 1, **more: Any) -> Path:
    """Write the results of a shard, on the CPU unless `more` says otherwise."""
    folder.mkdir()
    (folder / suite_results.OUTCOMES).touch()
    suite_results.append_outcomes(folder / suite_results.OUTCOMES, tests)
    counts = Counter(test.module for test in tests if "::" in test.test)
    modules = [
        ModuleCount(module=module, selected=count, whole=count, cut=False, finished=True)
        for module, count in counts.items()
    ]
    values: dict[str, Any] = {
        "config": "default",
        "shard": number,
        "shards": of,
        "plan": "f" * 64,
        "set_id": None,
        "family": "cpu",
        "targets": ("cpu",),
        "wheels": (WHEEL,),
        "gpus": (),
        "disagreements": (),
        "sources": "",
        "modules": tuple(modules),
        "problems": (),
        "excluded": (),
        "outdated": (),
        "started": f"2026-11-22T0{number}:00:00Z",
        "duration_seconds": 60.0,
        "outcomes_sha256": files.sha256_of(folder / suite_results.OUTCOMES),
        "accounts": other_accounts(folder, tests),
    }
    values["gpus"] = tuple(Gpu(target=name) for name in more.pop("hardware", ()))
    datafile.write(folder / suite_results.SHARD, ShardResult(**{**values, **more}))
    return folder
