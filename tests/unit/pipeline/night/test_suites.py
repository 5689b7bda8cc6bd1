"""The shards of a night's suites: a record needs all of them, and a promotion needs the record."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cairn import datafile, files
from cairn.cli.ci import night_options
from cairn.errors import UsageError
from cairn.matrix.legs import Leg
from cairn.pipeline.night import freeze, plan, promote, report, results, shards, smoke, standing, suite
from cairn.pipeline.night.plan import NightRun, StepNote
from cairn.pipeline.night.shards import Shard
from cairn.pipeline.night.suite import SuiteMerge
from cairn.release import records
from cairn.release.index import keys
from cairn.release.index.generation import now
from cairn.stack import Floor, Gate, Sdk
from cairn.testing.compat.report import CompatReport, Tested
from cairn.testing.gpus.gpu import Gpu
from cairn.testing.junit import TestOutcome
from cairn.testing.record import TestedWheel, TestPolicy
from cairn.testing.suite import suite_results
from cairn.testing.suite.suite_results import ModuleCount, ShardResult
from cairn.testing.suite.suite_toml import load
from helpers.gate import at, data_of, record_of
from helpers.night import MakeNight, Night, leg_of, run_of, staged
from helpers.provenance import signer
from helpers.release import move
from helpers.suites import other_accounts
from helpers.trust import BUILDER, TESTER, trust_of_roles

LEG = leg_of("gfx94X-dcgpu", suites=("default",))
ON_GPU = {"hardware": ("gfx942",)}


@dataclasses.dataclass(frozen=True)
class Scene:
    """A night whose only leg is staged, and has passed its smoke tests."""

    run: NightRun
    set_id: str
    folder: Path

    @property
    def leg(self) -> Leg:
        return self.run.plan.legs[0]

    def leave(self, number: int, *, attempt: int = 1, failed: Sequence[str] = (), **changes: Any) -> None:
        """Keep what a shard leaves: two tests, of which some failed."""
        shard = shards.expected(self.run.stack, self.leg)[number - 1]
        folder = self.folder / f"{number}.{attempt}"
        folder.mkdir(parents=True)
        device = "gfx942" if changes.get("hardware", ON_GPU["hardware"]) else ""
        tests = [
            TestOutcome(
                test=f"test_{number}.py::{name}",
                outcome="failed" if name in failed else "passed",
                reason="1 != 2" if name in failed else "",
                device=device,
            )
            for name in ("test_a", "test_b")
        ]
        suite_results.append_outcomes(folder / suite_results.OUTCOMES, tests)
        made = staged(self.run, self.set_id)
        values: dict[str, Any] = {
            "config": "default", "shard": number, "shards": 2, "plan": "p" * 64, "set_id": self.set_id,
            "family": made.family, "targets": made.targets,
            "wheels": tuple(TestedWheel(file_name=f.file_name, sha256=f.sha256) for f in made.files),
            "sources": "", "problems": (), "excluded": (), "outdated": (), "started": at(attempt - 1),
            "modules": (
                ModuleCount(module=f"test_{number}.py", selected=2, whole=2, cut=False, finished=True),
            ),
            "duration_seconds": 1.0, "outcomes_sha256": files.sha256_of(folder / suite_results.OUTCOMES),
            "disagreements": (), "accounts": other_accounts(folder, tests),
        }  # fmt: skip
        signer = changes.pop("signer", None)
        names = changes.pop("hardware", ON_GPU["hardware"])
        values["gpus"] = tuple(Gpu(target=name) for name in names)
        datafile.write(folder / suite_results.SHARD, ShardResult(**(values | changes)))
        shards.keep(self.run, shard, folder, signer)

    def merge(self) -> SuiteMerge:
        (found,) = suite.merge_night(self.run, self.folder / "work")
        return found

    @property
    def merged(self) -> Path:
        return self.folder / f"work/suites/{self.leg.id}.default"

    def state(self) -> str:
        return standing.look(self.run, self.leg).state

    def wanted(self) -> list[str]:
        return [shard.part for shard in shards.due(self.run, self.leg)]


def scene_of(night: Night, **smoke: Any) -> Scene:
    made = night.built_and_staged()
    night.record(made, **{**ON_GPU, **smoke})
    return Scene(night.run, made.id, night.artifacts.parent / "shards")


@pytest.fixture
def scene(night_of: MakeNight) -> Scene:
    return scene_of(night_of(LEG))


def test_a_set_that_has_passed_its_smoke_tests_waits_for_its_suite(scene: Scene) -> None:
    found = standing.look(scene.run, scene.leg)
    assert (found.state, found.reason) == ("untested", "no suite record of default has passed on gfx942")
    assert scene.wanted() == ["default-1", "default-2"]
    assert not promote.promote_night(scene.run)[0][0].promoted


def test_in_a_store_with_a_root_the_shards_that_a_tester_signed_are_judged(scene: Scene) -> None:
    rooted = dataclasses.replace(scene, run=dataclasses.replace(scene.run, trust=trust_of_roles()))
    with pytest.raises(UsageError, match="what a job leaves for the next one is signed"):
        rooted.leave(1)
    store = scene.run.store
    rooted.leave(1, attempt=2, signer=TESTER)
    (passed,) = [item.key for item in store.list("nights/7/shards/") if item.key.endswith("/signed.json")]
    rooted.leave(2, signer=TESTER, failed=["test_a"])
    (failed,) = [
        item.key
        for item in store.list("nights/7/shards/")
        if item.key.endswith("/signed.json") and item.key != passed
    ]
    for attempt, (number, his) in enumerate(((1, BUILDER), (2, signer(66))), 3):
        rooted.leave(number, attempt=attempt, signer=his)  # later, and all of it has passed
    assert rooted.wanted() == ["default-2"]
    # He puts what passed in place of what failed: with its signature, with that of another shard, with none.
    result = failed.replace("signed.json", "shard.json")
    store.write(result, store.read(result).data.replace(b"{", b"{ ", 1))
    assert rooted.wanted() == ["default-2"]
    store.write(failed, store.read(passed).data)
    assert rooted.wanted() == ["default-2"]
    store.delete(failed)
    merged = rooted.merge()
    assert not merged.good
    assert "2 left no result" in merged.reason


def test_two_shards_become_one_record_and_let_the_set_through(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = scene.folder / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    scene.leave(1)
    assert scene.wanted() == ["default-2"]
    scene.leave(2)
    assert all(keys.is_own(item.key) for item in scene.run.store.list(""))  # foreign to no `index check`
    assert scene.wanted() == []
    found = scene.merge()
    assert found.good, found.reason
    (made,) = [
        item.record for item in records.read(scene.run.store, scene.set_id).records if item.record.config
    ]
    assert (made.kind, made.config, made.verdict) == ("suite", "default", "passed")
    assert made.counts.device_passed == 4
    assert scene.state() == "ready"
    assert "## Suite default of main gfx94X-dcgpu" in summary.read_text()
    assert "test_1.py" in (scene.merged / results.PAGE).read_text()
    # Judged again, it is the same record; what was promoted is not judged any more.
    scene.merge()
    assert len(records.read(scene.run.store, scene.set_id).records) == 2


def note_of(shard: Shard, reason: str) -> StepNote:
    return StepNote(
        night="7", leg=shard.leg.id, stage="test", attempt=1, good=False, reason=reason, started=now(),
        finished=now(), part=shard.part,
    )  # fmt: skip


def test_a_shard_that_left_nothing_is_a_failure_until_it_has_run(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.leave(1)
    plan.note(scene.run.store, note_of(shards.expected(scene.run.stack, LEG)[1], "no space left"))
    found = scene.merge()
    assert not found.good
    assert found.reason == "failed: of 2 shards, 2 left no result; default-2: no space left"
    assert scene.state() == "failed"
    assert not promote.promote_night(scene.run)[0][0].promoted
    assert "of 2 shards, 2 left no result" in str(report.of_night(scene.run)[0].reason)
    monkeypatch.setenv("GITHUB_RUN_ATTEMPT", "2")
    scene.leave(2, attempt=2)
    assert scene.merge().good
    assert scene.state() == "ready"


@pytest.mark.parametrize("name", suite_results.FILES)
def test_no_link_that_tests_left_is_followed_into_the_store(scene: Scene, tmp_path: Path, name: str) -> None:
    scene.leave(1)
    folder = scene.folder / "1.1"
    (folder / name).rename(tmp_path / name)
    (folder / name).symlink_to(tmp_path / name)
    with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
        shards.keep(scene.run, shards.expected(scene.run.stack, scene.leg)[0], folder)


def test_without_any_shard_there_is_no_record(scene: Scene) -> None:
    found = scene.merge()
    assert (found.good, found.reason) == (False, "none of its 2 shards left a result")
    assert len(records.read(scene.run.store, scene.set_id).records) == 1
    assert scene.state() == "untested"


def test_a_test_that_failed_stands_until_its_shard_has_passed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.leave(1, failed=["test_b"])
    scene.leave(2)
    assert scene.wanted() == ["default-1"]
    assert "1 of 4 tests failed" in scene.merge().reason
    assert scene.state() == "failed"
    monkeypatch.setenv("GITHUB_RUN_ATTEMPT", "2")
    scene.leave(1, attempt=2)
    assert scene.merge().good
    assert scene.state() == "ready"


@pytest.mark.parametrize(
    "changes",
    [
        {"plan": "q" * 64},
        {"pytest_args": ("-k", "one")},
        {"sources": "of another commit"},
        {"policy": TestPolicy(cairn="9.9", skips_sha256="5" * 64)},  # a test was left out meanwhile
        {"tested": "2.9.0 of another commit"},
    ],
)
def test_shards_of_two_plans_are_not_put_together(
    scene: Scene, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.leave(1)
    monkeypatch.setenv("GITHUB_RUN_ATTEMPT", "2")
    scene.leave(2, attempt=2, **changes)
    assert scene.wanted() == ["default-1"]
    assert "of 2 shards, 1 left no result" in scene.merge().reason


@pytest.mark.parametrize("changes", [{"set_id": "e" * 64}, {"shards": 3}, {"config": "full"}])
def test_what_is_of_another_set_or_number_of_shards_does_not_count(
    scene: Scene, changes: dict[str, Any]
) -> None:
    scene.leave(1, **changes)
    assert scene.wanted() == ["default-1", "default-2"]


def test_too_few_tests_are_a_failure(scene: Scene) -> None:
    for number in (1, 2):
        module = ModuleCount(module=f"test_{number}.py", selected=2, whole=2, cut=False, finished=True)
        scene.leave(number, modules=(module,))
    config = load(Path(scene.run.stack.folder)).configs["default"]
    assert config.floor == 3
    text = (Path(scene.run.stack.folder) / "suite.toml").read_text().replace("floor = 3", "floor = 5")
    (Path(scene.run.stack.folder) / "suite.toml").write_text(text)
    assert "4 tests ran, fewer than the floor of 5" in scene.merge().reason


def test_the_matrix_lets_a_suite_without_a_gpu_through_but_not_a_part_of_it(night_of: MakeNight) -> None:
    leg = msgspec.structs.replace(LEG, bypass_tests=True)
    scene = scene_of(night_of(leg), hardware=())
    scene.leave(1, hardware=())
    assert not scene.merge().good
    assert scene.state() == "failed"
    scene.leave(2, hardware=(), duration_seconds=5.0)
    found = scene.merge()
    assert found.good, found.reason
    assert found.reason.startswith("untested: ")
    stands = standing.look(scene.run, leg)
    assert stands.state == "ready", stands.reason
    assert stands.bypass is not None


def test_tests_that_need_several_gpus_run_where_there_are_some(tmp_path: Path) -> None:
    both = ("default", "distributed")
    alone, several = (
        leg_of("gfx94X-dcgpu", suites=both, multi_gpu_runs_on=runners) for runners in ((), ("8gpu",))
    )
    stack = run_of(alone, folder=tmp_path).stack
    assert [one.part for one in shards.expected(stack, alone)] == ["default-1", "default-2"]
    assert shards.expected(stack, several)[-1].runs_on == ("8gpu",)
    assert shards.demanding(stack, several).gate.records["suite"].configs == both
    assert shards.demanding(stack, alone).gate.records["suite"].configs == ("default",)
    assert shards.demanding(stack, leg_of("gfx94X-dcgpu")).gate == stack.gate
    compat_too = shards.demanding(stack, leg_of("gfx94X-dcgpu", compat=True)).gate
    assert compat_too.records.keys() == {"smoke", "compat"}


def test_a_matrix_of_shards_names_what_a_job_runs(tmp_path: Path) -> None:
    stack = run_of(LEG, folder=tmp_path).stack
    reaching = msgspec.structs.replace(stack, sdk=Sdk())
    told = night_options.shard_outputs(shards.expected(stack, LEG), reaching)
    assert told["suite_count"] == "2"
    (first, second) = msgspec.json.decode(told["suite"])["include"]
    assert (first["config"], first["shard"], second["shard"], second["num_shards"]) == ("default", 1, 2, 2)
    assert first["runs_on"] == ["linux-gpu"]
    assert first["os"] == "linux"
    assert "--device=/dev/kfd --device=/dev/dri " in first["container_options"]


@pytest.mark.parametrize(
    ("leg", "gate", "said"),
    [
        (leg_of("gfx94X-dcgpu", suites=("defualt",)), Gate(), "no configuration 'defualt'"),
        (leg_of("gfx94X-dcgpu", suites=("../x",)), Gate(), "cannot name a configuration"),
        (leg_of("gfx94X-dcgpu"), Gate(records={"suite": Floor()}), "asks for suite records, and no job"),
        (LEG, Gate(records={"compat": Floor()}), "asks for compat records, and no job"),
    ],
)
def test_a_night_whose_tests_cannot_be_those_of_the_gate_does_not_begin(
    tmp_path: Path, leg: Leg, gate: Gate, said: str
) -> None:
    run = run_of(leg, folder=tmp_path)
    stack = msgspec.structs.replace(run.stack, gate=gate)
    request = freeze.FreezeRequest(
        night="8", stack=stack, legs=(leg,), work_dir=tmp_path / "work", release="release", like="7"
    )
    with pytest.raises(UsageError, match=said):
        freeze.freeze(run.store, request)


def test_what_a_page_claims_is_compared_with_the_last_night_that_was_promoted(scene: Scene) -> None:
    assert smoke.baseline(scene.run, scene.leg) is None
    scene.leave(1)
    scene.leave(2)
    scene.merge()
    tested = Tested(torch="2.9.0", python="3.11", platform="linux")
    found = CompatReport(tested=tested, tables=(), started=at(0), duration_seconds=1.0)
    report = datafile.dumps(found).encode()
    made = record_of(
        staged(scene.run, scene.set_id), kind="compat", **ON_GPU, compat_sha256=sha256(report).hexdigest()
    )
    records.add(scene.run.store, data_of(made), results=[report])
    later = dataclasses.replace(
        scene.run, plan=msgspec.structs.replace(scene.run.plan, night="8", frozen=at(5))
    )
    assert smoke.baseline(later, LEG) is None  # nobody can install it yet
    indexes = {"origin": f"staging/{LEG.family}", "target": f"release/{LEG.family}"}
    move(scene.run.store, staged(scene.run, scene.set_id), **indexes)
    assert smoke.baseline(later, LEG) == found
    assert smoke.baseline(scene.run, LEG) is None  # itself
    # A damaged one is none: were it to hold up the measurement, no set could replace that one.
    scene.run.store.write(f"sets/{scene.set_id}/results/{sha256(report).hexdigest()}.json", b"{}")
    assert smoke.baseline(later, LEG) is None


def test_shards_are_planned_by_the_times_of_the_last_whole_night(scene: Scene) -> None:
    later = msgspec.structs.replace(scene.run.plan, night="8", frozen=at(5))
    then = dataclasses.replace(scene.run, plan=later)
    shard = shards.expected(scene.run.stack, LEG)[0]
    scene.leave(1)
    assert shards.times(then, shard).tests == {}
    scene.leave(2)
    assert shards.times(then, shard).tests.keys() == {"test_1.py", "test_2.py"}
    assert shards.times(scene.run, shard).tests == {}  # itself


@pytest.mark.parametrize(
    ("name", "pattern", "lie"),
    [
        ("shard.json", rb"(?s).*", b"{}\n"),
        ("outcomes.jsonl", rb"(?s).*", b"{}\n"),
        ("shard.json", rb'"started": "[^"]*"', b'"started": "yesterday"'),
        ("shard.json", rb'"started": "[^"]*"', b'"started": "9999-12-31T23:59:59Z"'),
    ],
)
def test_results_that_were_edited_run_again_and_hold_up_no_other_leg(
    scene: Scene, name: str, pattern: bytes, lie: bytes
) -> None:
    scene.leave(1)
    scene.leave(2)
    listed = scene.run.store.list(f"nights/7/shards/{LEG.id}.default/1.0.1.")
    (key,) = (item.key for item in listed if item.key.endswith(name))
    data = scene.run.store.read(key).data
    scene.run.store.write(key, re.sub(pattern, lie, data, count=1))
    assert scene.wanted() == ["default-1"]
    assert not scene.merge().good
    assert scene.state() == "failed"


def test_what_ran_again_in_the_same_attempt_of_a_run_is_kept_too(scene: Scene) -> None:
    # As where the worker of a cluster was lost before the step had ended, or the scheduler came back.
    scene.leave(1, attempt=1, failed=["test_a"])
    scene.leave(1, attempt=2)
    assert scene.wanted() == ["default-2"]
