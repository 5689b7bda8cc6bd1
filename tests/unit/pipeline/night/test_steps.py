"""What the steps of a night are, what each waits for, and which of their commands get credentials."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

import pytest
import yaml

from cairn import __version__
from cairn.cli.main import make_parser
from cairn.pipeline.night import step_run, steps
from cairn.pipeline.night.placing import Demand
from cairn.pipeline.night.plan import NightRun
from cairn.pipeline.night.step_run import StepJob
from cairn.pipeline.night.steps import Command, Container, NightStep, Settings
from helpers.night import MakeNight, leg_of
from helpers.trail import ROOT

A = leg_of("gfx94X-dcgpu", suites=("default",))
B = leg_of("gfx110X-all", test_runs_on=(), suites=("default",))


@pytest.fixture
def run(night_of: MakeNight) -> NightRun:
    return night_of(A, B).run


def settings(**changes: object) -> Settings:
    values = {"stack": Path("/stack"), "store": "s3://b/s", "work_dir": Path("/work"), "cores": 8}
    return Settings(**(values | changes))  # type: ignore[arg-type]


def made(run: NightRun, *built: object, **changes: object) -> dict[str, NightStep]:
    every = steps.steps_of(
        run.plan,
        run.stack,
        settings(**changes),
        builds={leg.id for leg in (A, B) if leg in (built or (A, B))},
        legs=(A, B),
    )
    return {one.step.name: one for one in every}


def test_a_leg_waits_for_no_step_of_another(run: NightRun) -> None:
    graph = steps.graph_of(tuple(made(run).values()))
    for step in graph.steps:
        of = A.id if A.id in step.name else B.id
        assert all(of in name for name in step.waits_for), step
    assert [step.name.replace(A.id, "A") for step in graph.order if A.id in step.name] == [
        "build A", "stage A", "test A", "suite A default-1", "suite A default-2", "merge A", "promote A",
    ]  # fmt: skip


def test_legs_of_one_build_are_staged_at_once_and_then_go_their_own_ways(night_of: MakeNight) -> None:
    one, other = (leg_of(family, build="both") for family in ("gfx94X-dcgpu", "gfx110X-all"))
    night = night_of(one, other).run
    every = steps.steps_of(night.plan, night.stack, settings(), builds={"both"}, legs=(one, other))
    assert [step.step.name for step in every] == [
        "build both", "stage both",
        f"test {one.id}", f"promote {one.id}", f"test {other.id}", f"promote {other.id}",
    ]  # fmt: skip
    assert every[1].step.exclusive == ("staging/gfx94X-dcgpu", "staging/gfx110X-all")
    assert [word for word in every[1].command.arguments if word in (one.id, other.id)] == [
        one.id,
        other.id,
    ]
    assert every[4].step.waits_for == ("stage both",)


def test_what_fails_is_staged_merged_and_judged_all_the_same(run: NightRun) -> None:
    every = made(run)
    assert every[f"stage {A.id}"].step.needs == ()
    assert every[f"stage {A.id}"].step.after == (f"build {A.id}",)
    assert every[f"merge {A.id}"].step.needs == every[f"promote {A.id}"].step.needs == (f"stage {A.id}",)
    assert f"test {A.id}" in every[f"promote {A.id}"].step.after


def test_a_leg_without_a_gpu_is_built_tested_once_and_judged(run: NightRun) -> None:
    every = made(run)
    kinds = [name.partition(" ")[0] for name in every if B.id in name]
    assert sorted(kinds) == ["build", "promote", "stage", "test"]
    assert every[f"test {B.id}"].demand == Demand(platform=B.platform)


def test_what_is_built_is_staged_without_a_build(run: NightRun) -> None:
    every = made(run, A)
    assert f"build {B.id}" not in every
    assert every[f"stage {B.id}"].step.waits_for == ()


def test_writers_of_one_index_come_one_after_another(run: NightRun) -> None:
    every = made(run)
    assert every[f"stage {A.id}"].step.exclusive == ("staging/gfx94X-dcgpu",)
    assert every[f"promote {A.id}"].step.exclusive == ("release/gfx94X-dcgpu",)


def test_only_central_steps_write_what_users_see(run: NightRun) -> None:
    assert {one.step.kind for one in made(run).values() if one.is_central} == {"stage", "merge", "promote"}


def test_the_commands_are_those_of_the_jobs_and_have_their_credentials(run: NightRun) -> None:
    """A step of an action that has credentials in its environment is a phase, or a command, that has them."""
    every = made(run, cache_store="")
    for kind in ("build", "test", "suite", "stage", "merge", "promote"):
        action = yaml.safe_load((ROOT / f".github/actions/night-{kind}/action.yml").read_text())
        theirs = [
            (
                tuple(word for word in match[1].split() if word != "--phase"),
                "AWS_SESSION_TOKEN" in step["env"] and "cache-store" not in step["env"]["AWS_SESSION_TOKEN"],
            )
            for step in action["runs"]["steps"]
            if (
                match := re.match(
                    r"cairn ci night (step \w+ --phase \w+|step merge|\w+)", step.get("run", "")
                )
            )
        ]
        one = next(one for name, one in every.items() if name.startswith(f"{kind} {A.id}"))
        if one.is_central:
            words = one.command.arguments[2:]
            ours = [(words[: 2 if words[0] == "step" else 1], one.command.has_credentials)]
        else:
            # What a workflow has as artifacts goes through the store.
            last = () if kind == "build" else (("keep", True),)
            phases = (("fetch", True), ("run", one.command.has_credentials), *last)
            ours = [(("step", kind, phase), has) for phase, has in phases]
            assert one.command.arguments[2:6] == ("step", kind, "--phase", "run")
        assert ours == theirs


def test_what_runs_foreign_code_is_told_of_no_store(run: NightRun) -> None:
    every = [one for one in made(run, sign_key=Path("/key")).values() if not one.is_central]
    assert {one.step.kind for one in every} == {"build", "test", "suite"}
    for one in every:
        assert not one.command.has_credentials
        assert {"--store", "s3://b/s", "--sign-key", "/key"}.isdisjoint(one.command.arguments)


def test_with_a_cache_of_wheels_a_build_has_credentials(run: NightRun) -> None:
    build = made(run, cache_store="s3://b/cache")[f"build {A.id}"].command
    assert build.has_credentials
    assert build.arguments[-2:] == ("--cache-store", "s3://b/cache")


def test_every_command_is_one_that_cairn_takes(run: NightRun) -> None:
    for one in made(run, patience=5.0, endpoint_url="http://127.0.0.1:1").values():
        words = [
            word.replace(steps.CORES, "3").replace("/stack", str(ROOT)) for word in one.command.arguments
        ]
        make_parser(whole=True).parse_args(words)


ENGINE = """#!/bin/sh
echo "$*" | tr '\\n' ' ' >> {calls}; echo >> {calls}
[ "$1" = run ] || exit 0
while [ "$1" != my-image ]; do shift; done
shift
PATH={programs}:$PATH exec "$@"
"""


@pytest.mark.skipif(sys.platform != "linux", reason="tests of Linux run in containers")
@pytest.mark.parametrize(("version", "code"), [(__version__, 0), ("0.0.1", 3)])
def test_tests_run_in_a_container_that_sees_their_folder_and_no_credentials(
    run: NightRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, code: int
) -> None:
    programs, calls = tmp_path / "bin", tmp_path / "calls"
    programs.mkdir()
    own = {"docker": ENGINE.format(calls=calls, programs=tmp_path / "inside")}
    own["cairn"] = (
        f'#!/bin/sh\n[ "$*" = --version ] && echo "cairn {version}" || echo "$*" > {tmp_path}/ran\n'
    )
    for name, text in own.items():
        path = (tmp_path / "inside" if name == "cairn" else programs) / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "f4ke")
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "1")
    stack = ROOT / "external-builds/sample"
    container = Container(image="my-image")
    one = made(run, stack=stack, work_dir=tmp_path / "work", container=container)[f"test {A.id}"]
    test = one.command
    assert test.container == Container(image="my-image", gpu=bool(one.demand.gpu))
    job = StepJob(name=one.step.name, command=test, folder=one.folder, cores=1, variables={"V": "1"})
    end = step_run.run_step(job)
    assert end.code == code, end.tail
    asked, remove, started, removed = map(shlex.split, calls.read_text().splitlines())
    assert (asked, remove) == (["version"], removed)
    assert remove[:2] == ["rm", "--force"]
    assert started[started.index("--name") + 1] == remove[2]
    assert {f"{one.folder}:{one.folder}", f"{stack}:{stack}:ro", "V=1", "ROCR_VISIBLE_DEVICES=1"} <= {
        *started
    }
    assert "f4ke" not in calls.read_text()
    if code:
        assert f"the image has cairn 0.0.1, and this is cairn {__version__}" in end.tail[-1]
    else:
        assert (tmp_path / "ran").read_text().startswith(f"ci night step test --phase run --stack {stack} ")


def test_a_step_whose_run_ends_before_its_command_has_not_succeeded(tmp_path: Path) -> None:
    command, lines = Command(arguments=("version",)), list[str]()
    job = StepJob(name="a", command=command, folder=tmp_path / "a", cores=1)
    assert step_run.run_step(job, say=lines.append, is_ended=lambda: True).code == 130
    assert not lines
    assert step_run.run_step(job, say=lines.append, is_ended=lambda: bool(lines)).code == 130
    assert sum(__version__ in line for line in lines) == 1
