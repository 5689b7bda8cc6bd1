"""Sets judged by the real gate: verify, records, pip and uv."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cairn import interpreters
from cairn.cli.main import main
from cairn.errors import GateError, StoreError, UsageError
from cairn.release import records as kept_records
from cairn.release import weighing
from cairn.release.index import keys
from cairn.release.index.snapshot import Index, existing
from cairn.release.promote import RefusedError, promote
from cairn.release.publish.files import publish
from cairn.release.weighing import Bypass
from cairn.stack import load, recipe
from cairn.store.folder import LocalStore
from cairn.testing import record as test_record
from cairn.testing.smoke import SmokeRequest, run_smoke
from cairn.wheels import wheelset as wheel_sets
from cairn.wheels.wheelset import WheelSet
from helpers.gate import ON_GPU, data_of, demand, given, judge, record_of, stack_of, write_stack
from helpers.release import (
    audit,
    contents,
    keys_of,
    make_sdist,
    make_set,
    make_wheel,
    manifest_of,
    put,
    stage_set,
    statement_of,
)

pytestmark = pytest.mark.slow

V = "2.9.0+rocm7.10.0"
Stage = Callable[..., WheelSet]


@pytest.fixture
def stage(tmp_path: Path, store: LocalStore) -> Stage:
    """Stages torch (with an extra) and torchvision, an sdist that torch needs, and a third party."""

    def run(
        version: str = V,
        family: str = "cpu",
        targets: tuple[str, ...] = ("gfx942",),
        more: str | None = None,
    ) -> WheelSet:
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
        place: dict[str, Any] = {"family": family, "targets": ("cpu",) if family == "cpu" else targets}
        made, frozen = make_set(wheels, **place), ""
        if more is not None:  # of a stack in a folder, which the night froze
            frozen = recipe.digest_of(load(write_stack(tmp_path / "stack", made, more)))
            made = make_set(wheels, **place, recipe=frozen)
        (folder / "manifest.json").write_bytes(manifest_of(recipe=frozen))
        (folder / "builder.json").write_bytes(statement_of(made, wheels, manifest_of(recipe=frozen)))
        wheel_sets.write(folder / "set.json", made)
        return stage_set(store, "staging", made, wheels, recipe=frozen)

    return run


def test_a_tested_set_is_promoted_and_once_only(store: LocalStore, stage: Stage) -> None:
    made = stage()
    steps: list[str] = []
    record = given(record_of(made))
    done = promote(store, made.id, stack=stack_of(made), records=[record], on_step=steps.append)
    assert done.report is not None
    assert [demand.number for demand in done.report.demands] == [0, 1, 2, 3, 4, 5, 6]
    assert done.report.holds
    assert done.report.installed_with == ("pip", "uv")
    assert done.report.size == sum(file.size for file in made.files)
    assert done.added[-1].startswith("torchvision")
    assert audit(store, "release", hashes=True) == ()
    assert not done.already_present
    again = promote(store, made.id, stack=stack_of(made))
    assert (again.added, again.already_present, again.report, again.late_objections) == (
        (),
        True,
        done.report,
        (),
    )
    failed = given(record_of(made, verdict="failed", reason="1 failed"))
    after = promote(store, made.id, stack=stack_of(made), records=[failed])
    assert [line.partition(": ")[2] for line in after.late_objections] == ["failed: 1 failed"]


def test_what_was_tested_goes_on_from_channel_to_channel(
    store: LocalStore, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tests are older than its promotion to the first, but not than its staging."""
    monkeypatch.setattr(weighing, "SKEW", timedelta())
    made = stage()
    record = given(record_of(made, started=datetime.now(UTC).isoformat(), duration_seconds=0.0))
    promote(store, made.id, stack=stack_of(made), target="nightly", records=[record])
    done = promote(store, made.id, stack=stack_of(made), source="nightly")
    assert done.report is not None
    assert demand(done.report, 2).outcome == "met"
    staged = Index(store, "staging").load().set(made.id)
    assert {Index(store, name).load().set(made.id).staged for name in ("nightly", "release")} == {
        staged.added
    }


def test_a_dry_run_writes_nothing_and_reads_the_records_that_it_is_given(
    store: LocalStore, stage: Stage
) -> None:
    made = stage()
    before = contents(store)
    done = promote(store, made.id, stack=stack_of(made), records=[given(record_of(made))], dry_run=True)
    assert done.report is not None
    assert demand(done.report, 2).outcome == "met"
    assert contents(store) == before


def test_a_proxy_is_not_asked_for_what_the_gate_serves_itself(
    store: LocalStore, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    made = stage()
    record = given(record_of(made))
    assert promote(store, made.id, stack=stack_of(made), records=[record], dry_run=True).report is not None


def test_what_the_gate_said_is_kept_beside_the_set_and_not_believed_when_changed(
    store: LocalStore, stage: Stage
) -> None:
    made = stage()
    promote(store, made.id, stack=stack_of(made), records=[given(record_of(made))])
    (key,) = keys_of(store, f"sets/{made.id}/judgements/")
    store.write(key, store.read(key).data.replace(b"no finding", b"nothing"))
    with pytest.raises(StoreError, match="json was changed"):
        promote(store, made.id, stack=stack_of(made))


def test_the_gate_tells_all_that_does_not_hold(store: LocalStore, stage: Stage, tmp_path: Path) -> None:
    made = stage()
    put(store, "release", [make_wheel(tmp_path / "x", "torch", "2.9.1")])
    put(store, "release", [make_wheel(tmp_path / "x", "torchvision", V, tag="cp311-cp311-win_amd64")])
    (key,) = [key for key in keys_of(store, "files/") if "/filelock-" in key and key.endswith(".whl")]
    store.write(key, store.read(key).data[:-30])
    record = record_of(made, verdict="untested", reason="no test used a GPU")
    kept_records.add(store, data_of(record), name="the record", set_id=made.id)
    before = contents(store)
    with pytest.raises(GateError) as caught:
        promote(store, made.id, stack=stack_of(made))
    assert [reason.split(".")[0] for reason in caught.value.reasons] == ["1", "2", "3", "4", "5", "6"]
    reasons = "\n".join(caught.value.reasons)
    for said in (
        "no test used a GPU",
        "pip:",
        "uv:",
        "sorts below 2.9.1",
        "torchvision",
        "filelock-3.20.0-py3-none-any.whl was changed in the store",
    ):
        assert said in reasons
    assert contents(store) == before


def test_what_installers_would_take_instead_is_told(store: LocalStore, stage: Stage, tmp_path: Path) -> None:
    made = stage()
    put(store, "release", [make_wheel(tmp_path / "x", "filelock", "3.21.0")])
    found = demand(judge(store, made, records=[record_of(made)]), 3)
    assert found.outcome == "not met"
    assert (
        "an installer takes filelock-3.21.0-py3-none-any.whl, and the set has filelock-3.20.0" in found.reason
    )
    assert "pip installed something else: filelock 3.21.0" in found.reason


def test_an_interpreter_of_a_different_python_is_not_taken(
    store: LocalStore, stage: Stage, tmp_path: Path
) -> None:
    made = stage()
    liar = tmp_path / "python3.11"
    facts = interpreters.describe(Path(sys.executable)) | {"version": "3.9.2"}
    liar.write_text(f"#!/bin/sh\nprintf %s '{json.dumps(facts)}'\n", encoding="utf-8")
    liar.chmod(0o755)
    found = demand(judge(store, made, python=liar), 3)
    assert found.outcome == "not met"
    assert "is not Python 3.11 on linux_x86_64" in found.reason
    assert demand(judge(store, made, python=Path(sys.executable)), 3).outcome == "met"


@pytest.mark.parametrize("target", ["release", "release/gfx94X-dcgpu"])
def test_a_bypass_is_named_and_shown(store: LocalStore, stage: Stage, target: str) -> None:
    made = stage(family="gfx94X-dcgpu")
    promote(
        store,
        made.id,
        stack=stack_of(made),
        target=target,
        records=[given(record_of(made))],
        bypass=Bypass(who="ann", reason="no GPU here"),
    )
    page = json.loads(store.read(f"{target}/simple/torch/index.json").data)
    said = "untested on hardware: gfx942; bypassed by ann: no GPU here"
    assert page["files"][0]["_untested"] == said
    assert said.encode() in store.read(f"{target}/simple/torch/index.html").data
    assert Index(store, target).load().set(made.id).installed_with == ("pip", "uv")


def test_the_command_shows_a_bypass_as_one(
    store: LocalStore, stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made, stack = stage(family="gfx94X-dcgpu", more=""), tmp_path / "stack" / "stack.toml"
    promotion = ["release", "promote", made.id, "--store", str(store.path), "--stack", str(stack)]
    bypass = [*promotion, "--bypass", "ann", "--reason", "no GPU here"]
    # What needs no GPU ran first; the error names the record that is missing, and the line that makes it.
    assert main(bypass) == 10
    said = capsys.readouterr().err
    assert "2. tested on hardware of each target: there is no test record" in said
    assert (
        f"cairn test smoke --set {store.path}/sets/{made.id}/set.json --stack {stack.parent} --index-url"
        in said
    )
    assert "--allow-untested --output-dir smoke" in said
    assert "--record smoke/record.json" in said
    test_record.write(tmp_path / "record.json", record_of(made, verdict="untested", reason="no GPU"))
    assert main([*bypass, "--record", str(tmp_path / "record.json")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[2] for line in lines if line.startswith("  ")] == ["✓", "✓", "!", *"✓✓✓✓", "!", "!"]
    assert "  ! untested on hardware: gfx942" in lines
    assert main(promotion) == 0
    assert "and not again" in capsys.readouterr().out
    with pytest.raises(UsageError, match="name and a reason"):
        Bypass(who="ann", reason=" ")


@pytest.mark.parametrize("content", ["raise ImportError('no libamdhip64.so')", "import os\nos._exit(0)"])
def test_a_package_that_does_not_import_is_promoted_by_nobody(
    store: LocalStore, tmp_path: Path, content: str
) -> None:
    wheel = make_wheel(tmp_path / "dist", "torch", "2.9.0", content=content)
    made = stage_set(store, "staging", make_set([wheel], **ON_GPU), [wheel])
    result = run_smoke(
        SmokeRequest(
            wheel_set=made,
            work_dir=tmp_path / "smoke",
            index_url=keys.set_url(store.path.as_uri(), made.id),
            python=interpreters.find(made.python).path,
        )
    )
    assert any("test_imports[torch]" in line for line in result.failures)
    assert result.record.host is not None
    assert result.record.host.imported == {}
    word = {"bypass": Bypass(who="ann", reason="no GPU here")}
    bad = kept_records.add_file(store, result.record_path, name="the record")
    with pytest.raises(RefusedError) as refused:
        promote(store, made.id, stack=stack_of(made), **word)
    assert "smoke record" in refused.value.reasons[0]
    assert "tests failed" in refused.value.reasons[0]
    # Nor where somebody answers the failure: what is missing is a record that it imports.
    kept_records.answer(store, made.id, bad.digest, who="ann", reason="in a hurry")
    for target in ("release", "untested"):
        with pytest.raises(RefusedError) as refused:
            promote(store, made.id, stack=stack_of(made), target=target, **word)
        assert "no record shows that every package imports" in refused.value.reasons[0]
        assert existing(store) == ("staging",)


def test_the_commands_publish_judge_promote_and_check(
    store: LocalStore, stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = stage(more="")
    folder = tmp_path / f"dist-{V}"
    test_record.write(tmp_path / "record.json", record_of(made))
    at = ["--store", str(store.path)]
    wheels = [str(folder / wheel.file_name) for wheel in made.wheels]
    assert main(["index", "publish", *wheels, *at, "--set", str(folder / "set.json")]) == 0
    assert capsys.readouterr().out.strip() == made.set_id
    promotion = ["release", "promote", made.id, *at, "--stack", str(tmp_path / "stack")]
    assert main(promotion) == 10
    assert "2. tested on hardware of each target: there is no test record" in capsys.readouterr().err
    assert main([*promotion, "--record", str(tmp_path / "record.json"), "--dry-run", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["dry_run"], len(answer["added"]), len(answer["demands"])) == (True, 4, 7)
    assert answer["installed_with"] == ["pip", "uv"]
    assert not store.exists("release/state.json")
    assert main([*promotion, "--record", str(tmp_path / "record.json")]) == 0
    assert main(["index", "check", *at]) == 0
    (recipe_key,) = (listed.key for listed in store.list("recipes/"))
    store.delete(recipe_key)
    capsys.readouterr()
    assert main(["index", "check", *at]) == 9
    assert f"{recipe_key} is missing" in capsys.readouterr().out
    assert main(promotion) == 0  # it is there already, but for its recipe
    assert main(["index", "check", *at]) == 0
    store.delete("release/simple/index.html")
    capsys.readouterr()
    assert main(["index", "check", *at]) == 9
    assert "release/simple/index.html is missing" in capsys.readouterr().out


def test_who_is_to_be_told_is_told_and_changes_nothing(
    store: LocalStore, stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hook = tmp_path / "hook.py"
    hook.write_text("import sys, pathlib; pathlib.Path(sys.argv[1]).write_bytes(sys.stdin.buffer.read())\n")
    more = f'gate.notify = ["{sys.executable}", "{hook}", "heard.json"]'
    made = stage(more=more)
    promotion = [
        "release",
        "promote",
        made.id,
        "--store",
        str(store.path),
        "--stack",
        str(tmp_path / "stack"),
    ]
    assert main(promotion) == 10
    heard = json.loads((tmp_path / "stack" / "heard.json").read_bytes())
    assert (heard["outcome"], heard["set_id"], heard["target"]) == ("refused", made.id, "release")
    assert heard["reasons"] == ["2. tested on hardware of each target: there is no test record"]
    test_record.write(tmp_path / "record.json", record_of(made))
    capsys.readouterr()
    promotion += ["--record", str(tmp_path / "record.json"), "--notify", "false"]
    assert main(promotion) == 0
    assert "false was to be told of it, and failed" in capsys.readouterr().err
    assert audit(store, "release", hashes=False) == ()


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
    store: LocalStore,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    said: str,
) -> None:
    store.path.mkdir()
    made = make_set([make_wheel(tmp_path, "torch", V)])
    stack = ["--stack", str(write_stack(tmp_path / "stack", made))] if arguments[0] == "release" else []
    assert main([*arguments, *stack, "--store", str(store.path)]) == code
    errors = capsys.readouterr().err
    assert said in errors
    assert "Traceback" not in errors
