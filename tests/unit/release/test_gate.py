"""Single demands of the gate, on a set that no interpreter here can install."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cairn.errors import CairnError, UsageError
from cairn.release.gate import installation
from cairn.release.gate.case import Case
from cairn.release.gate.judgement import GateReport
from cairn.release.index.generation import MIRRORED, PUBLISHED
from cairn.release.index.snapshot import Index
from cairn.release.publish import distribution
from cairn.release.publish.files import publish_dists
from cairn.release.records import Answer, Kept
from cairn.store.memory import MemoryStore
from cairn.wheels.wheelset import SetWheel, WheelSet
from helpers.formats import make_elf
from helpers.gate import AWAY, at, case_of, demand, judge, kept, record_of, stack_of
from helpers.release import make_set, make_wheel, stage_set
from helpers.testing import named_set, named_wheel
from helpers.wheels import build_wheel

Stage = Callable[..., WheelSet]


@pytest.fixture
def stage(store: MemoryStore, tmp_path: Path) -> Stage:
    """Stages a set of torch alone, with more of `make_set`."""

    def run(**changes: Any) -> WheelSet:
        wheel = make_wheel(tmp_path, "torch", "2.9.0")
        return stage_set(store, "staging", make_set([wheel], **{**AWAY, **changes}), [wheel])

    return run


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
    for said, expected in (("3.98 linux-x86_64", None), ("nonsense", None), ("3.99 linux-x86_64", python)):
        python.write_text(f"#!/bin/sh\necho {said}\n", encoding="utf-8")
        python.chmod(0o755)
        assert installation.interpreter(case) == expected
    here = case_of(store, stage(platform="linux_x86_64"), python=Path(sys.executable))
    assert installation.interpreter(here) == Path(sys.executable)
    with pytest.raises(UsageError, match=r"is not Python 3\.99 on linux_x86_64"):
        installation.interpreter(case_of(store, case.wheel_set, python=Path(sys.executable)))


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


@pytest.mark.parametrize(("build", "outcome"), [(MIRRORED, "met"), (PUBLISHED, "not met")])
def test_how_others_link_what_is_mirrored_is_theirs(
    store: MemoryStore, tmp_path: Path, build: str, outcome: str
) -> None:
    library = make_elf(runpath="/opt/_internal/lib")
    tag = "cp311-cp311-manylinux_2_28_x86_64"
    scipy = build_wheel(
        tmp_path, name="scipy", tags=[tag], requires=[], pure=False, files={"scipy/x.so": library}
    )
    publish_dists(Index(store, "staging"), [distribution.read(scipy)], "mirror", build=build)
    torch = make_wheel(tmp_path, "torch", "2.9.0", requires=["scipy"])
    made = stage_set(store, "staging", make_set([torch]), [torch])
    found = demand(judge(store, made), 1)
    assert (found.outcome, "/opt/_internal" in found.reason) == (outcome, outcome == "not met"), found.reason


@pytest.mark.parametrize(("build", "outcome"), [(MIRRORED, "met"), (PUBLISHED, "not met")])
def test_what_is_mirrored_was_not_built_against_the_set(
    store: MemoryStore, tmp_path: Path, build: str, outcome: str
) -> None:
    optree = build_wheel(tmp_path, name="optree", requires=['torch; extra == "torch"'])
    publish_dists(Index(store, "staging"), [distribution.read(optree)], "mirror", build=build)
    torch = make_wheel(tmp_path, "torch", "2.9.0", requires=["optree"])
    made = stage_set(store, "staging", make_set([torch]), [torch])
    found = demand(judge(store, made), 1)
    said = 'it requires torch; extra == "torch", but was built against torch 2.9.0'
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
            fresh = Index(store, "staging")
            report = _judged_without_cache(store, fresh, made, record)
            assert report is None or not report.holds, key
            store.objects[key] = before
    assert judge(store, made, records=[record]).holds


def _judged_without_cache(store: MemoryStore, index: Index, made: WheelSet, record: Any) -> GateReport | None:
    """What the gate says where something is lost; None where not even the case can be made."""

    try:
        return judge(store, made, records=[record], source=index.load())
    except CairnError:
        return None


def test_an_answer_and_a_bypass_are_in_the_word_that_pages_show(store: MemoryStore, stage: Stage) -> None:
    made = stage(family="gfx94X-dcgpu", targets=("gfx942",))
    given = kept(record_of(made, verdict="failed", reason="1 failed", hardware=("gfx942",)))
    said = Answer(set_id=made.id, record=given.records[0].digest, who="ann", reason="a full disk", when=at(0))
    answered = Kept(records=given.records, answers=(("a" * 64, said),))
    report = judge(store, made, kept=answered)
    assert (demand(report, 2).outcome, report.untested) == ("not met", ("gfx942",))
    assert report.word is not None
    assert "answered by ann: a full disk" in report.word
    assert report.answers == ("a" * 64,)


def test_a_set_needs_what_its_stack_requires_and_no_more(store: MemoryStore, stage: Stage) -> None:
    made = stage()
    stack = stack_of(made)
    more = msgspec.structs.replace(stack.projects[0], name="apex", distribution="apex", rocm_only=True)
    both = msgspec.structs.replace(stack, projects=(*stack.projects, more))
    assert demand(judge(store, made, stack=both), 6).outcome == "met"
    wanted = msgspec.structs.replace(both, gate=msgspec.structs.replace(both.gate, required=("apex",)))
    assert "it has no apex" in demand(judge(store, made, stack=wanted), 6).reason
