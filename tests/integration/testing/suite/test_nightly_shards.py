"""The shards of a night on a real wheel, from its repository to the record that lets its set through."""

from __future__ import annotations

import dataclasses
from hashlib import sha256
from pathlib import Path

import pytest
from msgspec import structs

from cairn import interpreters
from cairn.formats import cyclonedx
from cairn.pipeline.night import handover, plan, shards, smoke, standing, suite
from cairn.pipeline.night import stage as staging
from cairn.pipeline.night.plan import NightRun
from cairn.pipeline.night.suite import ShardTest, run_shard
from cairn.release import records
from cairn.release.publish import mirror
from cairn.sources.manifest.manifest import ProjectSource
from cairn.stack import Origin, Sdk
from cairn.store.folder import LocalStore
from cairn.store.memory import MemoryStore
from cairn.testing.suite import suite_results
from cairn.wheels import sbom, wheelset
from helpers.gate import data_of, record_of, stack_of
from helpers.night import FROZEN, SUITE, leg_of, plan_of, staged
from helpers.packing import write_wheel
from helpers.release import make_set, statement_of
from helpers.sources import git

PYTHON = interpreters.current()
# In the tests as in PyTorch's: the file says what is skipped, and an issue why.
READS_LIST = """
import json, os, pytest

def test_disabled():
    with open(os.environ["DISABLED"]) as file:
        (address, platforms), = json.load(file).values()
    assert platforms == ["rocm"] and json.load(open(os.environ["SLOW"])) == {"test_slow": 61.5}
    pytest.skip(f"an issue disables it: {address}")
"""
LIST = b'{"test_disabled": ["1", "https://example.org/1", ["rocm"]]}'
TESTS = {
    "test_one.py": f"import torch\n\ndef test_answer():\n    assert torch.answer() == 42\n{READS_LIST}",
    "slow.json": '{"test_slow": 61.5}',
    "test_two.py": "import pytest, torch\n\n@pytest.mark.parametrize('n', [1, 2])\n"
    "def test_it_is_installed(n):\n    assert 'site-packages' in torch.__file__\n",
}


def upstream(folder: Path) -> str:
    """A repository with a small torch and its tests; its commit."""
    (folder / "test").mkdir(parents=True)
    for name, text in TESTS.items():
        (folder / "test" / name).write_text(text)
    (folder / "version.txt").write_text("2.9.0\n")
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "a suite")
    commit = git(folder, "rev-parse", "HEAD").strip()
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "upstream goes on after the freeze")
    return commit


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NightRun:
    """A night whose only set is staged: a torch that says which commit it was built from."""
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "cache"))
    commit = upstream(tmp_path / "upstream")
    leg = leg_of(
        "gfx94X-dcgpu",
        suites=("default",),
        bypass_tests=True,
        python=PYTHON.version,
        platform=PYTHON.platform,
    )
    tree = git(tmp_path / "upstream", "rev-parse", f"{commit}^{{tree}}").strip()
    source = ProjectSource(
        name="torch", distribution="torch", origin=(tmp_path / "upstream").as_uri(), hashtag="main",
        commit=commit, tree=tree, checkout_dir="torch",
    )  # fmt: skip
    frozen = structs.replace(FROZEN, projects=(source,), pythons=(PYTHON.version,), platform=PYTHON.platform)
    folder = tmp_path / "artifacts" / staging.artifact_name(leg.id, 1)
    folder.mkdir(parents=True)
    members = {
        "torch/__init__.py": "def answer():\n    return 42\n",
        "torch/version.py": f"__version__ = '2.9.0'\ngit_version = '{commit}'\n",
    }
    plain = write_wheel(tmp_path / "plain", "torch", "2.9.0", members)
    built_of = cyclonedx.Source(name="torch", commit=commit)
    wheel = sbom.add(plain, folder, sources=[built_of], rocm_version=None)
    made = make_set([wheel], family=leg.family, targets=("gfx942",))
    made = structs.replace(
        made, manifest_sha256=frozen.digest(), python=PYTHON.version, platform=PYTHON.platform
    )
    wheelset.write(folder / "set.json", made)
    statement = statement_of(made, [wheel], frozen.canonical())
    (folder / wheelset.BUILDER_FILE).write_bytes(statement)
    stack = stack_of(made)
    project = structs.replace(stack.projects[0], origin=Origin(url=source.origin))
    (tmp_path / "stack").mkdir()
    (tmp_path / "list.json").write_bytes(LIST)
    url = (tmp_path / "list.json").as_uri()
    (tmp_path / "stack" / "suite.toml").write_text(
        f'{SUITE}lists.DISABLED = {{ format = "condensed", url = "{url}" }}\n'
        'lists.SLOW = { format = "times", path = "slow.json" }\n'
    )
    stack = structs.replace(
        stack, projects=(project,), folder=str(tmp_path / "stack"), sdk=Sdk(devices=False)
    )
    digest = sha256(LIST).hexdigest()
    night = structs.replace(plan_of(leg), manifest_sha256=frozen.digest(), lists={url: digest})
    found = NightRun(store=MemoryStore(), plan=night, stack=stack)
    plan.create(found.store, night, frozen, {url: LIST})
    mirror.mirror(found.store, f"staging/{leg.family}", dists=[wheel])
    (done,) = staging.stage_night(found, tmp_path / "artifacts")
    assert done.set_id is not None, done.reason
    records.add(found.store, data_of(record_of(staged(found, done.set_id))))
    return found


def test_each_shard_runs_the_tests_of_the_frozen_commit_and_both_are_one_record(
    run: NightRun, tmp_path: Path
) -> None:
    (leg,) = run.plan.legs
    first, second = shards.expected(run.stack, leg)
    run_shard(ShardTest(run=run, shard=first, work_dir=tmp_path / "first"))
    assert handover.keep_shard(run, first, first.results_in(tmp_path / "first"))
    assert shards.due(run, leg) == (second,)
    # As a step without credentials does it, between two that have them.
    handover.fetch(run, tmp_path / "fetched", leg, second)
    apart = dataclasses.replace(run, store=LocalStore(tmp_path / "fetched"))
    run_shard(ShardTest(run=apart, shard=second, work_dir=tmp_path / "second"))
    assert shards.due(run, leg) == (second,)
    assert handover.keep_shard(run, second, second.results_in(tmp_path / "second"))
    assert not handover.keep_shard(run, second, tmp_path / "nothing")
    (found,) = suite.merge_night(run, tmp_path / "merged")
    assert found.good, found.reason
    kept = tmp_path / f"merged/suites/{leg.id}.default" / suite_results.OUTCOMES
    assert len(suite_results.read_outcomes(kept)) == 4
    (record,) = [
        item.record
        for item in records.read(run.store, smoke.staged_set(run, leg)).records
        if item.record.config
    ]
    slow = sha256(TESTS["slow.json"].encode()).hexdigest()
    assert record.policy is not None
    assert record.policy.lists == {"DISABLED": sha256(LIST).hexdigest(), "SLOW": slow}
    assert (record.counts.passed, record.counts.skipped) == (3, 1)
    stands = standing.look(run, leg)
    assert (stands.state, stands.bypass is not None) == ("ready", True), stands.reason
