from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cairn.build.engine import compile_jobs
from cairn.build.engine.compile_jobs import Pool
from cairn.build.engine.schedule import Limits, Step


def step(name: str, *, cores: int = 8, memory: int = 0) -> Step:
    return Step(name=name, kind="build", cores=cores, memory=memory)


def fifo(makeflags: str) -> Path:
    return Path(makeflags.partition("fifo:")[2])


def take(makeflags: str) -> int:
    """Take every token that a tool could take now."""
    pipe = os.open(fifo(makeflags), os.O_RDWR | os.O_NONBLOCK)
    try:
        return len(os.read(pipe, 100))
    except BlockingIOError:
        return 0
    finally:
        os.close(pipe)


def test_a_step_alone_has_all_jobs_and_the_pipes_go_with_the_run() -> None:
    with Pool(Limits(cores=4)) as pool:
        with pool.join(step("a")) as flags:
            place = fifo(flags)
            assert place.exists()
            assert take(flags) == 3  # and one that needs no token
        assert not place.exists()
        with pool.join(step("next")) as flags:
            assert take(flags) == 3, "those of a step that was killed with them are not lost"
    assert not place.parent.exists()


def test_what_one_step_does_not_use_goes_to_one_that_has_nothing_left() -> None:
    with Pool(Limits(cores=6)) as pool, pool.join(step("idle")) as idle, pool.join(step("busy")) as busy:
        used = take(busy)
        pool.balance({"idle": 9.0, "busy": 1.0}, {})
        used += take(busy)
        assert used + 2 == 6
        assert take(idle) == 0


def test_a_step_has_no_more_jobs_than_it_can_use_or_memory_has_room_for() -> None:
    with Pool(Limits(cores=16, memory=6)) as pool:
        with pool.join(step("narrow", cores=2)) as flags:
            assert take(flags) == 1
        with pool.join(step("large", memory=2)) as flags:
            assert take(flags) == 2


def test_steps_that_keep_their_jobs_leave_fewer_to_share() -> None:
    with Pool(Limits(cores=8)) as pool, pool.join(step("a")) as flags:
        take(flags)
        pool.balance({}, {"a": 1, "fixed": 6})
        assert take(flags) == 0


def tool(folder: Path, name: str, version: str) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!{sys.executable}\nprint({version!r})\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("ninja", "make", "answer"),
    [
        ("1.13.0.git", None, True),
        ("1.13.0", "GNU Make 4.4.1", True),
        ("1.13.0", "GNU Make 4.3", True),
        ("1.11.1", None, False),
        (None, "GNU Make 4.4", False),
    ],
)
def test_only_tools_that_speak_the_protocol_take_part(
    tmp_path: Path, ninja: str | None, make: str | None, *, answer: bool
) -> None:
    tmp_path.joinpath("bin").mkdir()
    for name, version in (("ninja", ninja), ("make", make)):
        if version is not None:
            tool(tmp_path / "bin", name, version)
    assert compile_jobs.speaks(str(tmp_path / "bin")) is answer


def test_a_make_that_knows_no_named_pipe_is_called_without_one(tmp_path: Path) -> None:
    make = shutil.which("make")
    if make is None:
        pytest.skip("no make here")
    (tmp_path / "Makefile").write_text("all:\n\t@echo made\n")
    path = compile_jobs.without_old_make(os.environ["PATH"], tmp_path / "a folder")
    with Pool(Limits(cores=3)) as pool, pool.join(step("a")) as flags:
        env = {**os.environ, "PATH": path, "MAKEFLAGS": flags}
        called = subprocess.run(["make"], cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    assert called.stdout == "made\n"
    new = tmp_path / "new"
    new.mkdir()
    tool(new, "make", "GNU Make 4.4.1")
    assert compile_jobs.without_old_make(str(new), tmp_path / "unused") == str(new)
    assert not (tmp_path / "unused").exists()


def test_a_real_ninja_runs_as_many_jobs_as_it_has_tokens(tmp_path: Path) -> None:
    ninja = shutil.which("ninja")
    if ninja is None or compile_jobs._version(ninja) < (1, 13):
        pytest.skip("no ninja 1.13 on PATH")
    rules = "rule wait\n command = echo x >> begun; sleep 0.3; wc -l < begun > $out\n"
    (tmp_path / "build.ninja").write_text(rules + "".join(f"build {n}: wait\n" for n in range(6)))
    with Pool(Limits(cores=3)) as pool, pool.join(step("a")) as flags:
        subprocess.run([ninja], cwd=tmp_path, env={**os.environ, "MAKEFLAGS": flags}, check=True)
    # The first to end sees what has begun until then: those that ran beside it.
    assert min(int((tmp_path / str(n)).read_text()) for n in range(6)) <= 3
