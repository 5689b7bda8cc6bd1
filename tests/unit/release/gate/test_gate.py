"""Single demands of the gate, on a set that no interpreter here can install."""

from __future__ import annotations

import contextlib
import json
import sys
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import pytest

from cairn import interpreters, isolation
from cairn.errors import CairnError, UsageError
from cairn.release import recipes
from cairn.release.gate import gate, installation
from cairn.release.gate.case import Case
from cairn.release.index.generation import MIRRORED, PUBLISHED
from cairn.release.index.listing import index_set
from cairn.release.index.snapshot import Change, Index
from cairn.release.promote import RefusedError, promote
from cairn.release.publish import distribution
from cairn.release.publish.files import publish_dists
from cairn.release.weighing import Answer, SetRecords
from cairn.stack import Floor, load, recipe
from cairn.store.memory import MemoryStore
from cairn.testing.record import TestPolicy
from cairn.wheels.wheelset import SetWheel, WheelSet
from helpers.faults import FaultyStore, Plan
from helpers.formats import make_elf
from helpers.gate import (
    AWAY,
    at,
    case_of,
    demand,
    given,
    judge,
    kept,
    record_of,
    stack_of,
    stage_torch,
    write_stack,
)
from helpers.release import commit, make_set, make_wheel, stage_set
from helpers.testing import named_set, named_wheel
from helpers.wheels import build_wheel

Stage = Callable[..., WheelSet]


@pytest.fixture
def stage(store: MemoryStore, tmp_path: Path) -> Stage:
    """Stages a set of torch alone, with more of `make_set`."""
    return partial(stage_torch, store, tmp_path)


def test_what_no_interpreter_is_here_for_is_resolved_and_the_rest_is_said(
    store: MemoryStore, stage: Stage
) -> None:
    made = stage()
    report = judge(store, made, records=[record_of(made)])
    found = demand(report, 3)
    assert (found.outcome, report.installed_with, report.holds) == ("met", (), True)
    assert "not installed, since no Python 3.11 for win_amd64 is at hand" in found.reason
    assert report.size == sum(file.size for file in made.files)
    assert report.metadata_size


def test_an_interpreter_is_looked_for_and_must_be_what_it_is_called(
    store: MemoryStore, stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = case_of(store, stage(python="3.99", platform="linux_x86_64"))
    assert installation.interpreter(case) is None
    monkeypatch.setenv("PATH", str(tmp_path))
    python = tmp_path / "python3.99"
    facts = interpreters.describe(Path(sys.executable)) | {"platform": "linux-x86_64"}
    for change, expected in (
        ({"version": "3.98.1"}, None),
        ({"version": "3.99.1", "implementation": "PyPy"}, None),
        ({"version": "3.99.1", "free": True}, None),
        ({"version": "3.99.1", "platform": "linux-aarch64"}, None),
        (None, None),
        ({"version": "3.99.1"}, python),
    ):
        answer = "nonsense" if change is None else json.dumps(facts | change)
        python.write_text(f"#!/bin/sh\nprintf %s '{answer}'\n", encoding="utf-8")
        python.chmod(0o755)
        assert installation.interpreter(case) == expected
    here = case_of(store, stage(platform="linux_x86_64"), python=Path(sys.executable))
    assert installation.interpreter(here) == Path(sys.executable)
    with pytest.raises(UsageError, match=r"is not Python 3\.99 on linux_x86_64"):
        installation.interpreter(case_of(store, case.wheel_set, python=Path(sys.executable)))


def test_an_interpreter_of_another_system_is_not_looked_for(
    store: MemoryStore, stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(isolation.VARIABLE, str(tmp_path))  # where this interpreter takes a note
    python = tmp_path / "python3.99"
    python.write_text(f"#!/bin/sh\n: > {tmp_path}/asked\n", encoding="utf-8")
    python.chmod(0o755)
    for platform, is_asked in (("win_amd64", False), ("linux_aarch64", True)):
        assert installation.interpreter(case_of(store, stage(python="3.99", platform=platform))) is None
        assert (tmp_path / "asked").exists() == is_asked


def test_the_pages_that_will_be_lie_over_those_that_are(store: MemoryStore, stage: Stage) -> None:
    made = stage()
    case = case_of(store, made, target="release/gfx94X-dcgpu")
    will_be = installation.as_it_will_be(case)
    page = "release/gfx94X-dcgpu/simple/torch/index.html"
    assert b"torch-2.9.0-py3-none-any.whl" in will_be.read(page).data
    assert not store.exists(page)


def test_a_finding_is_let_through_by_a_reviewed_file_alone(store: MemoryStore, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "torch", "2.9.0")
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("torch/more.py", "")
    made = stage_set(store, "staging", make_set([wheel], **AWAY), [wheel])
    found = demand(judge(store, made), 1)
    assert found.outcome == "not met"
    allow = tmp_path / "allow.toml"
    allow.write_text(
        'schema = "cairn.allow/1"\n[[finding]]\nwheel = "torch-*"\ncode = "record-missing"\n'
        'member = "torch/more.py"\nreason = "empty"\n',
        encoding="utf-8",
    )
    assert demand(judge(store, made, stack=stack_of(made, allow=str(allow))), 1).outcome == "met"
    gone = demand(judge(store, made, stack=stack_of(made, allow=str(tmp_path / "gone.toml"))), 1)
    assert (gone.outcome, "gone.toml" in gone.reason) == ("not met", True)


def linked(folder: Path) -> Path:
    """A wheel whose library is linked in a way that ours may not be."""
    files = {"scipy/x.so": make_elf(runpath="/opt/_internal/lib")}
    tags = ["py3-none-manylinux_2_28_x86_64"]
    return build_wheel(folder, name="scipy", tags=tags, requires=[], pure=False, files=files)


def loose(folder: Path) -> Path:
    """A wheel that takes any torch, as one may that was not built against the set."""
    return build_wheel(folder, name="optree", requires=['torch; extra == "fast"'])


@pytest.mark.parametrize(("build", "outcome"), [(MIRRORED, "met"), (PUBLISHED, "not met")])
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (linked, "/opt/_internal"),
        (loose, 'it requires torch; extra == "fast", but was built against torch 2.9.0'),
    ],
)
def test_how_others_link_and_require_is_theirs_in_what_is_mirrored(
    tmp_path: Path, make: Callable[[Path], Path], said: str, build: str, outcome: str
) -> None:
    store, other = MemoryStore(), distribution.read(make(tmp_path))
    publish_dists(Index(store, "staging"), [other], "mirror", build=build)
    torch = make_wheel(tmp_path, "torch", "2.9.0", requires=[other.name])
    made = stage_set(store, "staging", make_set([torch], python="3.99"), [torch])
    found = demand(judge(store, made), 1)
    assert (found.outcome, said in found.reason) == (outcome, outcome == "not met"), found.reason


def wheel_of(distribution: str) -> SetWheel:
    # What set.json says of device code counts for nothing.
    return named_wheel(f"{distribution.replace('-', '_')}-2.9.0-py3-none-any.whl", targets=("gfx90a",))


def code_of(targets: tuple[str, ...], *names: str) -> dict[str, tuple[str, ...]]:
    store = MemoryStore()
    wheels = tuple(map(wheel_of, names))
    made = named_set(*wheels, family="f", targets=targets)
    there = Index(store, "staging").load()
    stack = stack_of(made, device_code=("torch",))
    stack = msgspec.structs.replace(
        stack, projects=tuple(p for p in stack.projects if "-device-" not in p.name)
    )
    case = Case(source=there, target=there, wheel_set=made, stack=stack)
    return {wheel.distribution: case.code_of(wheel) for wheel in wheels}


def test_which_device_code_a_wheel_must_have_follows_from_the_stack() -> None:
    both = ("gfx90a:xnack+", "gfx942")
    assert code_of(both, "torch", "triton") == {"torch": both, "triton": ("cpu",)}
    assert code_of(("cpu",), "torch", "triton") == {"torch": ("cpu",), "triton": ("cpu",)}
    split = code_of(both, "torch", "torch-device-gfx90a", "torch-device-gfx942")
    assert split == {
        "torch": ("cpu",),
        "torch-device-gfx90a": ("gfx90a:xnack+",),
        "torch-device-gfx942": ("gfx942",),
    }


@pytest.mark.slow
def test_nothing_passes_because_it_could_not_be_judged(store: MemoryStore, stage: Stage) -> None:
    made = stage()
    record = record_of(made)
    for key in list(store.objects):
        if key.startswith(("files/", f"sets/{made.id}/manifest", "staging/parts/")):
            before = store.objects.pop(key)
            with contextlib.suppress(CairnError):  # where not even the case can be made
                report = judge(store, made, records=[record], source=Index(store, "staging").load())
                assert not report.holds, key
            store.objects[key] = before
    assert judge(store, made, records=[record]).holds


def test_an_answer_and_a_bypass_are_in_the_word_that_pages_show(store: MemoryStore, stage: Stage) -> None:
    made = stage(family="gfx94X-dcgpu", targets=("gfx942",))
    given = kept(record_of(made, verdict="failed", reason="1 failed", hardware=("gfx942",)))
    said = Answer(set_id=made.id, record=given.records[0].digest, who="ann", reason="a full disk", when=at(0))
    answered = SetRecords(records=given.records, answers=(("a" * 64, said),))
    report = judge(store, made, set_records=answered)
    assert (demand(report, 2).outcome, report.untested) == ("not met", ("gfx942",))
    assert report.caveat is not None
    assert "answered by ann: a full disk" in report.caveat
    assert report.answers == ("a" * 64,)


def test_a_set_needs_what_its_stack_requires_and_no_more(store: MemoryStore, stage: Stage) -> None:
    made = stage()
    stack = stack_of(made)
    more = msgspec.structs.replace(stack.projects[0], name="apex", distribution="apex", rocm_only=True)
    both = msgspec.structs.replace(stack, projects=(*stack.projects, more))
    assert demand(judge(store, made, stack=both), 6).outcome == "met"
    wanted = msgspec.structs.replace(both, gate=msgspec.structs.replace(both.gate, required=("apex",)))
    assert "it has no apex" in demand(judge(store, made, stack=wanted), 6).reason


def test_a_judgement_names_what_it_was_made_by(store: MemoryStore, stage: Stage) -> None:
    made = stage()
    report = judge(store, made)
    assert report.policy is not None
    assert (report.policy.stack, report.policy.line) == (made.stack, made.line)
    assert report.weakened == ()
    weak = stack_of(made, records={"smoke": Floor(tests=0, device_tests=0)})
    other = judge(store, made, stack=weak)
    assert other.policy is not None
    assert other.policy.floors != report.policy.floors
    assert "the floor of smoke tests is 0" in other.weakened
    case = case_of(store, made, stack=stack_of(made, records={}))
    assert list(gate.weakened(case)) == [f"the stack {made.stack} demands no test record"]


def test_a_record_of_another_policy_than_the_stacks_is_named(
    store: MemoryStore, stage: Stage, tmp_path: Path
) -> None:
    made = stage()
    (tmp_path / "smoke").mkdir()
    (tmp_path / "smoke" / "test_it.py").write_text("def test(): pass\n", encoding="utf-8")
    (tmp_path / "skip-tests").mkdir()
    # Not the shipped skip list: one that changes after the tests ran.
    (tmp_path / "skip-tests" / "all.toml").write_text('schema = "cairn.skips/1"\n', encoding="utf-8")
    stack = load(write_stack(tmp_path, made, 'smoke_tests = ["smoke"]'))
    ran = TestPolicy.of(stack, skips=[tmp_path / "skip-tests"])
    ran = msgspec.structs.replace(ran, tests_sha256=recipe.digest_of_files([tmp_path / "smoke"]))

    def said(kind: str, how: TestPolicy | None) -> list[str]:
        case = case_of(store, made, set_records=kept(record_of(made, kind=kind, policy=how)), stack=stack)
        return list(gate.weakened(case))

    assert said("smoke", ran) == said("suite", ran) == []
    assert "an unknown policy" in "".join(said("smoke", None))
    assert "without a stack" in "".join(said("smoke", msgspec.structs.replace(ran, stack_sha256=None)))
    assert "made by another" in "".join(said("smoke", msgspec.structs.replace(ran, stack_sha256="1" * 64)))
    assert judge(store, made, stack=stack).policy.stack_sha256 == ran.stack_sha256  # type: ignore[union-attr]
    (tmp_path / "smoke" / "test_it.py").write_text("", encoding="utf-8")
    (tmp_path / "skip-tests" / "all.toml").write_text("", encoding="utf-8")
    assert "other test files" in "".join(said("smoke", ran))
    assert "another skip list" in "".join(said("suite", ran))


def test_a_set_of_another_recipe_is_not_as_it_was_built(
    store: MemoryStore, stage: Stage, tmp_path: Path
) -> None:
    wheel = make_wheel(tmp_path, "torch", "2.9.0")
    stack = load(write_stack(tmp_path / "stack", make_set([wheel], **AWAY)))
    digest = recipe.digest_of(stack)
    made = stage_set(store, "staging", make_set([wheel], **AWAY, recipe=digest), [wheel], recipe=digest)
    assert demand(judge(store, made, stack=stack), 0).outcome == "met"
    recipes.put(store, stack)
    (tmp_path / "stack" / "hooks.py").write_text("", encoding="utf-8")
    (tmp_path / "stack" / "stack.toml").write_text(
        (tmp_path / "stack" / "stack.toml").read_text(encoding="utf-8") + "\n", encoding="utf-8"
    )
    refused = demand(judge(store, made, stack=stack), 0)
    assert refused.outcome == "not met"
    assert "the stack sample is not the frozen one: hooks.py (new), stack.toml (changed)" in refused.reason
    unnamed = stage()  # of a manifest without any
    assert "names no recipe" in demand(judge(store, unnamed, stack=stack), 0).reason


def test_fewer_projects_and_targets_than_the_last_set_had_are_named(store: MemoryStore, stage: Stage) -> None:
    made = stage()
    before = index_set(msgspec.structs.replace(made, set_id="a" * 64))
    more = {"projects": {**before.projects, "torchaudio": "2.8.0"}}
    elsewhere = ("stack", "line", "family", "python", "platform", "yanked")
    for change, weak in (
        (more, "no torchaudio is demanded"),
        ({"targets": (*before.targets, "gfx1103", "gfx950")}, "it is not for gfx950, gfx1103"),
        *(({**more, field: "another"}, None) for field in elsewhere),
    ):
        last = msgspec.structs.replace(before, **change)
        copy = MemoryStore(store.objects)
        commit(Index(copy, "release"), "promote", lambda _now, last=last: Change(sets={last.set_id: last}))
        weakened = list(gate.weakened(case_of(copy, made)))
        said = f"{weak}, which the last set of release has ({'a' * 12})"
        assert weakened == ([] if weak is None else [said]), change


def test_a_set_without_a_record_is_refused_before_its_files_are_read(
    store: MemoryStore, stage: Stage
) -> None:
    made = stage()
    stack, plan = stack_of(made, required=("apex",)), Plan()
    with pytest.raises(RefusedError) as caught:
        promote(FaultyStore(store, plan), made.id, stack=stack)
    assert [reason.partition(":")[0][0] for reason in caught.value.reasons] == ["2", "6"]
    assert "there is no test record" in caught.value.reasons[0]
    assert "neither verified nor installed" in str(caught.value.tip)
    wheels_read = [key for kind, key in plan.requests if kind == "as_file" and key.endswith(".whl")]
    assert wheels_read == []
    with pytest.raises(RefusedError):
        promote(FaultyStore(store, plan), made.id, stack=stack, records=[given(record_of(made))])
    assert [key for kind, key in plan.requests if kind == "as_file" and key.endswith(".whl")]
