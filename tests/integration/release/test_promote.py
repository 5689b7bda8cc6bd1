"""Sets judged by the real gate: verify, records, pip and uv."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cairn.cli.main import main
from cairn.errors import GateError, StoreError, UsageError
from cairn.release.gate.evidence import Bypass
from cairn.release.promote import promote
from cairn.release.publish.files import publish
from cairn.store.folder import LocalStore
from cairn.testing import record as test_record
from cairn.testing.record import Counts, TestedWheel
from cairn.wheels import wheelset as wheel_sets
from cairn.wheels.wheelset import WheelSet
from helpers.gate import data_of, judge, record_of
from helpers.release import MANIFEST, audit, keys_of, make_sdist, make_set, make_wheel, put, stage_set

pytestmark = pytest.mark.slow

V = "2.9.0+rocm7.10.0"
Stage = Callable[..., WheelSet]


@pytest.fixture
def stage(tmp_path: Path, store: LocalStore) -> Stage:
    """Stages torch (with an extra) and torchvision, an sdist that torch needs, and a third party."""

    def run(version: str = V, family: str = "cpu", targets: tuple[str, ...] = ("gfx942",)) -> WheelSet:
        folder = tmp_path / f"dist-{version}"
        requires = ["rocm==7.10.0", 'filelock; extra == "locks"']
        wheels = [
            make_wheel(folder, "torch", version, requires=requires, extras=["locks"]),
            make_wheel(folder, "torchvision", version, requires=[f"torch=={version}"]),
        ]
        others = [
            make_sdist(tmp_path, "rocm", "7.10.0"),
            make_wheel(tmp_path, "filelock", "3.20.0"),
        ]
        publish(store, "staging", others)
        made = make_set(
            wheels,
            family=family,
            targets=("cpu",) if family == "cpu" else targets,
        )
        (folder / "manifest.json").write_bytes(MANIFEST)
        wheel_sets.write(folder / "set.json", made)
        return stage_set(store, "staging", made, wheels)

    return run


def test_a_tested_set_is_promoted_and_once_only(store: LocalStore, stage: Stage) -> None:
    made = stage()
    steps: list[str] = []
    done = promote(store, made.id, records=[data_of(record_of(made))], on_step=steps.append)
    assert done.report is not None
    assert [demand.number for demand in done.report.demands] == [1, 2, 3, 4, 5, 6]
    assert done.report.holds
    assert done.added[-1].startswith("torchvision")
    assert audit(store, "release", hashes=True) == ()
    assert not done.kept
    again = promote(store, made.id)
    assert (again.added, again.kept, again.report) == ((), True, done.report)


def test_a_proxy_is_not_asked_for_what_the_gate_serves_itself(
    store: LocalStore, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    made = stage()
    assert promote(store, made.id, records=[data_of(record_of(made))], dry_run=True).report is not None


def test_what_the_gate_said_is_kept_beside_the_set_and_not_believed_when_changed(
    store: LocalStore, stage: Stage
) -> None:
    made = stage()
    promote(store, made.id, records=[data_of(record_of(made))])
    (key,) = keys_of(store, f"sets/{made.id}/judgements/")
    store.write(key, store.read(key).data.replace(b"no finding", b"nothing"))
    with pytest.raises(StoreError, match="json was changed"):
        promote(store, made.id)


def test_a_target_that_no_record_is_of_is_untested(store: LocalStore, stage: Stage) -> None:
    made = stage(family="gfx94X-dcgpu", targets=("gfx942", "gfx950"))
    one, both = record_of(made, hardware=("gfx942",)), record_of(made, hardware=("gfx950",))
    report = judge(store, made, records=[one])
    assert (report.untested, report.demands[1].outcome) == (("gfx950",), "not met")
    assert report.demands[1].reason == "no record is of gfx950"
    report = judge(store, made, records=[one], bypass=Bypass(who="ann", reason="none here"))
    assert (report.untested_note, report.demands[1].outcome) == ("untested on hardware: gfx950", "bypassed")
    report = judge(store, made, records=[one, both], bypass=Bypass(who="ann", reason="none here"))
    assert (report.untested_note, report.demands[1].outcome) == (None, "met")


def test_the_gate_tells_all_that_does_not_hold(store: LocalStore, stage: Stage, tmp_path: Path) -> None:
    made = stage()
    put(store, "release", [make_wheel(tmp_path / "x", "torch", "2.9.1")])
    put(store, "release", [make_wheel(tmp_path / "x", "torchvision", V, content="OTHER = 1\n")])
    (key,) = [key for key in keys_of(store, "files/") if "/filelock-" in key and key.endswith(".whl")]
    store.write(key, store.read(key).data + b"\0")
    before = keys_of(store, "")
    with pytest.raises(GateError) as caught:
        promote(store, made.id)
    assert [reason.split(".")[0] for reason in caught.value.reasons] == ["1", "2", "3", "4", "5", "6"]
    reasons = "\n".join(caught.value.reasons)
    for said in (
        "there is no test record",
        "pip:",
        "uv:",
        "sorts below 2.9.1",
        "torchvision",
        "filelock-3.20.0",
    ):
        assert said in reasons
    assert keys_of(store, "") == before


def test_a_wheel_with_a_finding_is_held_back(store: LocalStore, stage: Stage) -> None:
    made = stage(family="gfx94X-dcgpu")
    # Bytes that no longer are what RECORD says; the index would notice the hash, verify notices on its own.
    report = judge(store, made, records=[record_of(made)])
    assert report.demands[0].holds
    (key,) = [key for key in keys_of(store, "files/") if "/torch-" in key and key.endswith(".whl")]
    store.write(key, store.read(key).data[:-30])
    assert not judge(store, made, records=[record_of(made)]).demands[0].holds


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"verdict": "failed", "reason": "2 failed"}, "failed: 2 failed"),
        ({"verdict": "untested"}, "untested"),
        ({"wheels": (TestedWheel(file_name="torch.whl", sha256="0" * 64),)}, "other wheels"),
        ({"family": "gfx110X-all", "hardware": ("gfx1100",)}, "of gfx110X-all"),
        ({}, "without any hardware"),
        ({"hardware": ("gfx942", "gfx1100")}, "on gfx942, gfx1100"),
        ({"hardware": ("gfx942",), "counts": Counts(passed=5)}, "none of its tests used the GPU"),
    ],
)
def test_a_record_that_proves_nothing_does_not_hold(
    store: LocalStore, stage: Stage, changes: dict[str, Any], said: str
) -> None:
    made = stage(family="gfx94X-dcgpu")
    record = record_of(made, **changes)
    demand = judge(store, made, records=[record]).demands[1]
    assert not demand.holds
    assert said in demand.reason


def test_hardware_of_the_family_holds_and_a_failure_beside_it_does_not(
    store: LocalStore, stage: Stage
) -> None:
    made = stage(family="gfx94X-dcgpu")
    good = record_of(made, hardware=("gfx942",))
    bad = record_of(made, hardware=("gfx942",), kind="suite", verdict="failed", reason="1 failed")
    assert judge(store, made, records=[good]).demands[1].holds
    assert not judge(store, made, records=[good, bad]).demands[1].holds


def test_a_bypass_does_not_stand_against_tests_that_failed(store: LocalStore, stage: Stage) -> None:
    made = stage(family="gfx94X-dcgpu")
    failed = record_of(made, verdict="failed", reason="1 failed")
    bypass = Bypass(who="ann", reason="no GPU here")
    demand = judge(store, made, records=[failed], bypass=bypass).demands[1]
    assert not demand.holds
    assert "1 failed" in demand.reason


def test_a_bypass_is_named_and_shown(store: LocalStore, stage: Stage) -> None:
    made = stage(family="gfx94X-dcgpu")
    promote(
        store, made.id, records=[data_of(record_of(made))], bypass=Bypass(who="ann", reason="no GPU here")
    )
    page = json.loads(store.read("release/simple/torch/index.json").data)
    said = "untested on hardware: gfx942; bypassed by ann: no GPU here"
    assert page["files"][0]["_untested"] == said
    assert said.encode() in store.read("release/simple/torch/index.html").data
    bypassed = judge(store, made, bypass=Bypass(who="ann", reason="no GPU here")).demands[1]
    assert (bypassed.outcome, bypassed.holds) == ("bypassed", True)
    assert bypassed.why == "there is no test record; bypassed by ann: no GPU here"


def test_the_command_shows_a_bypass_as_one(
    store: LocalStore, stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    made = stage(family="gfx94X-dcgpu")
    promotion = ["release", "promote", made.id, "--store", str(store.path)]
    assert main([*promotion, "--bypass", "ann", "--reason", "no GPU here"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[2] for line in lines if line.startswith("  ")] == ["✓", "!", "✓", "✓", "✓", "✓", "!"]
    assert "  ! untested on hardware: gfx942" in lines
    assert main(promotion) == 0
    assert "and not again" in capsys.readouterr().out
    with pytest.raises(UsageError, match="name and a reason"):
        Bypass(who="ann", reason=" ")


def test_the_commands_publish_judge_promote_and_check(
    store: LocalStore, stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = stage()
    folder = tmp_path / f"dist-{V}"
    test_record.write(tmp_path / "record.json", record_of(made))
    at = ["--store", str(store.path)]
    wheels = [str(folder / wheel.file_name) for wheel in made.wheels]
    assert main(["index", "publish", *wheels, *at, "--set", str(folder / "set.json")]) == 0
    assert capsys.readouterr().out.strip() == made.set_id
    promotion = ["release", "promote", made.id, *at]
    assert main(promotion) == 10
    assert "2. tested on hardware of each target: there is no test record" in capsys.readouterr().err
    assert main([*promotion, "--record", str(tmp_path / "record.json"), "--dry-run", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["dry_run"], len(answer["added"]), len(answer["demands"])) == (True, 4, 6)
    assert not store.exists("release/state.json")
    assert main([*promotion, "--record", str(tmp_path / "record.json")]) == 0
    assert main(["index", "verify", *at, "--json"]) == 0
    assert main(["index", "audit", *at, "--index", "staging"]) == 0
    store.delete("release/simple/index.html")
    capsys.readouterr()
    assert main(["index", "audit", *at]) == 9
    assert "release/simple/index.html is missing" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["release", "promote", "nothing", "--bypass", "ann"], 2, "needs a name and a reason"),
        (["release", "promote", "nothing", "--reason", "why"], 2, "--reason belongs to --bypass"),
        (["release", "promote", "0123abcd"], 9, "there is no index staging"),
        (["release", "promote", "nothing"], 2, "neither a set.json nor the id of a set"),
        (["release", "promote", "abcd", "--to", "staging"], 2, "from staging to staging"),
        (["index", "mirror"], 2, "nothing to mirror"),
        (["index", "mirror", "--require", "a b c"], 2, "is not a requirement"),
    ],
)
def test_bad_input_is_one_line(
    store: LocalStore, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, said: str
) -> None:
    store.path.mkdir()
    assert main([*arguments, "--store", str(store.path)]) == code
    errors = capsys.readouterr().err
    assert said in errors
    assert "Traceback" not in errors
