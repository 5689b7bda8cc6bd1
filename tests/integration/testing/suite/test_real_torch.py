"""A few modules of PyTorch's own tests on a PyTorch that is installed somewhere, in two shards.

`CAIRN_TORCH_PYTHON` names the interpreter that has torch and pytest 8, `CAIRN_TORCH_TREE` a tree of its
sources.
"""

import functools
import json
import os
from pathlib import Path

import pytest

from cairn.sources.git import repository
from cairn.sources.worktree import contents
from cairn.testing.install_set import Tested
from cairn.testing.skips import skip_files
from cairn.testing.suite import merge, run, suite_toml
from cairn.testing.suite.run import SuiteRequest
from cairn.testing.testing_options import Choice

PYTORCH = Path(__file__).resolve().parents[4] / "external-builds" / "pytorch"
# Not the shipped skip list: no entry of it is of these modules. The suite is the shipped one.
SKIPS = """
schema = "cairn.skips/1"

[[skips]]
tests = ["test_futures.py::TestFuture::test_wait"]
reason = "to see that it alone is left out, and not test_wait_all and test_wait_multi_thread"
owner = "the tests"
expires = 2099-01-01
"""

# In the shape of upstream's, for the shipped address of it.
DISABLED = {
    "test_wait_all (__main__.TestFuture)": ["1", "https://example.org/1", ["linux"]],
    "test_wait_multi_thread (__main__.TestFuture)": ["2", "https://example.org/2", ["mac"]],
}


@pytest.mark.by_hand
@pytest.mark.skipif(
    not {"CAIRN_TORCH_PYTHON", "CAIRN_TORCH_TREE"} <= os.environ.keys(),
    reason="CAIRN_TORCH_PYTHON and CAIRN_TORCH_TREE name no torch",
)
def test_modules_of_torch_in_two_shards_are_one_verdict(tmp_path: Path) -> None:
    python, tree = Path(os.environ["CAIRN_TORCH_PYTHON"]), Path(os.environ["CAIRN_TORCH_TREE"])
    (tmp_path / "skips.toml").write_text(SKIPS, encoding="utf-8")
    suite = suite_toml.load(PYTORCH)
    request = SuiteRequest(
        suite=suite,
        lists={suite.lists["DISABLED_TESTS_FILE"].url: json.dumps(DISABLED).encode()},
        config="default",
        checkout=tree,
        commits=repository.commits_at(tree),
        write_committed=functools.partial(contents.write_committed, tree),
        tested=Tested(python=python, variables=os.environ, family="cpu", targets=("cpu",)),
        work_dir=tmp_path,
        choice=Choice(include=("test_futures", "test_type_info", "test_indexing")),
        skips=skip_files.read([tmp_path / "skips.toml"]),
        allow_mismatch=True,  # trees of a different version have these modules as well
        nodes=tmp_path / "no-gpus",
    )
    folders = []
    for number in (1, 2):
        folder = tmp_path / f"shard{number}"
        folders.append(
            run.run_suite(SuiteRequest(**{**vars(request), "work_dir": folder, "shard": number, "shards": 2}))
        )
    merged = merge.merge(folders, tmp_path / "whole", floor=60)
    assert merged.problems == ()
    by_name = {
        outcome.test.removeprefix("test_futures.py::TestFuture::"): outcome for outcome in merged.outcomes
    }
    assert "test_wait" not in by_name
    assert by_name["test_wait_all"].reason.startswith(
        "Test is disabled because an issue exists disabling it: https://example.org/1 for platform(s) linux. "
    )
    assert by_name["test_wait_multi_thread"].outcome == "passed"
    assert {
        result.policy.lists.keys() == suite.lists.keys() for result in merged.results if result.policy
    } == {True}
    assert merged.judgement.verdict == "passed", merged.judgement.reason
