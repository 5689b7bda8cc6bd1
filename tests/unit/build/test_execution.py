import resource
from pathlib import Path

import pytest
from msgspec import structs

from cairn import isolation
from cairn.build import execution, plan
from cairn.build.build_options import RunOptions
from cairn.build.engine import schedule
from cairn.cli import guard
from cairn.errors import BuildError, ProblemsError, WheelError
from helpers import packing
from helpers.build import MakeRequest, with_project

SLOW = """
import pathlib, time
def build_wheel(folder, settings=None, metadata=None):
    pathlib.Path({up!r}).touch()
    time.sleep(600)
"""
FAILING = """
import pathlib, time
def build_wheel(folder, settings=None, metadata=None):
    while not pathlib.Path({up!r}).exists():
        time.sleep(0.01)
    raise SystemExit("the reason it failed")
"""
LISTING = """
import os
def build_wheel(folder, settings=None, metadata=None):
    raise SystemExit("build holds " + " ".join(sorted(os.listdir("build"))))
"""
CAUSED = """
def build_wheel(folder, settings=None, metadata=None):
    print("CMake Error at cmake/Dependencies.cmake:1728 (message):\\n  no ROCm here\\n")
    for n in range(200):
        print("line", n)
    raise SystemExit("it failed")
"""
WHOLE = """
def build_wheel(folder, settings=None, metadata=None):
    return write_wheel(folder, "good", "1.0", {"good.py": ""}).name
"""
TALKING = """
def build_wheel(folder, settings=None, metadata=None):
    print("x" * 2_000_000)
"""


def test_a_failure_ends_the_build_beside_it_and_is_what_is_reported(
    request_for: MakeRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    up = str(tmp_path / "up")
    monkeypatch.setenv(isolation.VARIABLE, str(tmp_path))  # where one of the two waits for the other
    request = request_for(slow=SLOW.format(up=up), failing=FAILING.format(up=up))
    with pytest.raises(BuildError, match="building failing failed") as caught:
        execution.run(plan.make(request))
    assert any("the reason it failed" in line for line in caught.value.tail)
    assert caught.value.log == request.output_dir / "logs" / "failing.log"
    assert not list(request.output_dir.glob("*.whl"))


def test_the_cause_is_shown_however_far_above_the_end_of_the_log_it_stands(
    request_for: MakeRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BuildError) as caught:
        execution.run(plan.make(request_for(a=CAUSED)))
    (cause,) = caught.value.causes
    number = int(cause.split(":")[1])
    assert caught.value.log is not None
    assert caught.value.log.read_text().startswith("foreign code ")
    assert "Dependencies.cmake:1728" in caught.value.log.read_text().splitlines()[number - 1]
    assert cause == f"a.log:{number}: CMake Error at cmake/Dependencies.cmake:1728 (message): no ROCm here"
    guard._report(caught.value, None)
    shown = capsys.readouterr().err
    assert (
        shown.index("Dependencies.cmake:1728") < shown.index("it failed") < shown.index("error: building a")
    )


def test_what_cannot_be_written_of_one_plan_hides_no_failed_step_of_another(
    request_for: MakeRequest, tmp_path: Path
) -> None:
    request = structs.replace(
        request_for(good=packing.backend(WHOLE), bad=CAUSED), run=RunOptions(keep_going=True)
    )
    plans = [
        plan.make(
            structs.replace(
                request, checkouts={name: request.checkouts[name]}, output_dir=tmp_path / str(number)
            )
        )
        for number, name in enumerate(("good", "bad", "good"))
    ]

    def refuse(number: int, _wheels: object) -> None:
        written.append(number)
        raise WheelError("a tree was moved meanwhile")

    written: list[int] = []
    with pytest.raises(ProblemsError) as caught:
        execution.run_all(plans, labels=["0", "1", "2"], on_whole=refuse)
    assert [str(each) for each in caught.value.problems] == [
        "building bad failed",
        "a tree was moved meanwhile",
    ]
    assert written == [0, 2], "what one plan raises holds no other back"


def test_a_broken_pyproject_is_one_clear_line(request_for: MakeRequest) -> None:
    request = request_for(a="")
    (request.checkouts["a"] / "pyproject.toml").write_text("[build-system\n")
    with pytest.raises(BuildError, match="building a failed") as caught:
        execution.run(plan.make(request))
    assert "pyproject.toml" in caught.value.tail[-1]


def test_a_log_that_cannot_be_written_is_not_called_a_failed_build(request_for: MakeRequest) -> None:
    made = plan.make(request_for(a=TALKING))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            execution.run(made)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_build_that_goes_on_needs_no_room_for_what_is_there(request_for: MakeRequest) -> None:
    record = schedule.Record(kind="build", project="a", seconds=1, disk=10**18)
    (step,) = plan.make(request_for(a=""))

    def needed(step: plan.BuildStep) -> int:
        return execution.graph_of([step], schedule.Durations({"build a": record})).steps[0].disk

    assert needed(step) == 10**18
    assert needed(structs.replace(step, inputs={**step.inputs, "start": "what was left"})) == 0


@pytest.mark.parametrize(
    ("folders", "kept"),
    [
        (("lib", "lib.linux", "bdist.linux", "temp.linux"), "temp.linux"),
        (("lib", "lib.linux", "CMakeCache.txt"), "CMakeCache.txt lib"),
    ],
)
def test_what_setuptools_would_add_again_is_removed_where_it_builds(
    request_for: MakeRequest, folders: tuple[str, ...], kept: str
) -> None:
    request = request_for(a="")
    tree = request.checkouts["a"]
    (tree / "python").mkdir()
    for name in ("pyproject.toml", "backend.py"):
        (tree / name).rename(tree / "python" / name)
    (tree / "python" / "backend.py").write_text(LISTING)
    for name in folders:
        (tree / "python" / "build" / name).mkdir(parents=True)
    with pytest.raises(BuildError) as caught:
        execution.run(plan.make(with_project(request, source_dirs=(".", "python"))))
    assert f"build holds {kept}" in caught.value.tail
