from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest

from cairn import process
from cairn.build.engine import events, run, schedule
from cairn.build.engine.run import Options, OutOfMemoryError, Running
from cairn.build.engine.schedule import Graph, Limits, Record, Step
from cairn.errors import BuildError, CairnError, ProblemsError, SystemFailureError

SLEEP = (sys.executable, "-c", "import time; time.sleep(600)")


def graph(**needs: tuple[str, ...]) -> Graph:
    return Graph(tuple(Step(name=name, kind="build", needs=before) for name, before in needs.items()))


def options(
    folder: Path, *, cores: int = 4, keep_going: bool = False, time_limit: float | None = None
) -> Options:
    return Options(
        limits=Limits(cores=cores),
        keep_going=keep_going,
        time_limit=time_limit,
        events=folder / "events.jsonl",
        durations=folder / "durations.json",
        logs={n: folder / "logs" / f"{n}.log" for n in ("hanging",)},
        place=folder,
    )


def nothing(_running: Running) -> str:
    return "done"


def failing(_running: Running) -> str:
    raise BuildError("it broke")


def endings(folder: Path) -> dict[str, str]:
    found = events.last_run(folder / "events.jsonl")
    return {event.step: event.ending for event in found if isinstance(event, events.StepEnded)}


def test_a_step_has_all_that_it_needs_when_it_starts(tmp_path: Path) -> None:
    done: list[str] = []
    whole = graph(a=(), b=("a",), c=("a",), d=("b", "c"))
    work = {name: lambda running: done.append(running.step.name) for name in whole.by_name}
    run.run(whole, work, options(tmp_path)).require()
    assert done[0] == "a"
    assert done[-1] == "d"
    assert set(endings(tmp_path).values()) == {"done"}


def test_steps_run_side_by_side_up_to_the_number_of_cores(tmp_path: Path) -> None:
    most, now, lock = 0, 0, threading.Lock()

    def work(_running: Running) -> None:
        nonlocal most, now
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.1)
        with lock:
            now -= 1

    whole = graph(**{f"s{n}": () for n in range(6)})
    run.run(whole, dict.fromkeys(whole.by_name, work), options(tmp_path, cores=3)).require()
    assert most == 3


def test_a_step_waits_for_those_it_comes_after_and_runs_whether_they_fail_are_skipped_or_are_done(
    tmp_path: Path,
) -> None:
    steps = (
        Step(name="first", kind="build"),
        Step(name="behind it", kind="build", needs=("first",)),
        Step(name="second", kind="build", after=("first",)),
        Step(name="third", kind="build", after=("second", "behind it")),
    )
    done: list[str] = []

    def fail(_running: Running) -> None:
        time.sleep(0.05)
        done.append("first")
        raise BuildError("it broke")

    work = {step.name: lambda running: done.append(running.step.name) for step in steps}
    found = run.run(Graph(steps), {**work, "first": fail}, options(tmp_path, keep_going=True))
    assert done == ["first", "second", "third"]
    assert found.skipped == {"behind it": "first"}


def test_steps_that_use_the_same_thing_run_one_after_another(tmp_path: Path) -> None:
    lock = threading.Lock()

    def work(_running: Running) -> None:
        assert lock.acquire(blocking=False)
        time.sleep(0.05)
        lock.release()

    steps = tuple(Step(name=f"s{n}", kind="build", exclusive=("tree",)) for n in range(4))
    run.run(Graph(steps), dict.fromkeys((s.name for s in steps), work), options(tmp_path)).require()


def test_a_failure_ends_the_programs_beside_it_and_what_waits_never_starts(tmp_path: Path) -> None:
    def slow(_running: Running) -> str:
        process.run(SLEEP)
        return "done"

    whole = graph(slow=(), broken=(), behind=("broken",), later=("slow",))
    started = time.monotonic()
    work = {"slow": slow, "broken": failing, "behind": nothing, "later": nothing}
    outcome = run.run(whole, work, options(tmp_path))
    assert time.monotonic() - started < 10
    with pytest.raises(BuildError, match="it broke"):
        outcome.require()
    assert outcome.skipped == {"behind": "broken", "later": "broken"}
    assert endings(tmp_path)["broken"] == "failed"
    assert endings(tmp_path)["slow"] == "stopped"
    assert endings(tmp_path)["behind"] == "skipped"


def test_with_keep_going_only_what_needs_a_failed_step_is_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = graph(a=(), b=("a",), c=("b",), x=(), y=("x",), z=())
    work = dict.fromkeys(whole.by_name, nothing) | {"a": failing, "z": failing}
    outcome = run.run(whole, work, options(tmp_path, keep_going=True))
    assert set(outcome.results) == {"x", "y"}
    assert outcome.skipped == {"b": "a", "c": "a"}
    assert "b  skipped: because a failed" in capsys.readouterr().err
    with pytest.raises(ProblemsError, match="2 steps failed, and 2 were skipped") as caught:
        outcome.require()
    assert len(caught.value.problems) == 2


def test_a_step_that_takes_too_long_is_ended_alone(tmp_path: Path) -> None:
    def hanging(running: Running) -> str:
        process.run(SLEEP, log=running.log)
        return "done"

    whole = graph(hanging=(), other=(), behind=("hanging",))
    work = {"hanging": hanging, "other": nothing, "behind": nothing}
    outcome = run.run(whole, work, options(tmp_path, keep_going=True, time_limit=0.5))
    assert set(outcome.results) == {"other"}
    assert set(outcome.skipped) == {"behind"}
    with pytest.raises(BuildError, match=r"had not come to its end within 0\.5 s") as caught:
        outcome.require()
    assert caught.value.tail[0].startswith("$ ")


def test_a_step_out_of_memory_runs_again_with_half_the_jobs_and_it_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs: list[int] = []

    def work(running: Running) -> str:
        jobs.append(running.jobs)
        if running.jobs > 1 or running.step.name == "b":
            raise OutOfMemoryError("a compiler was killed")
        return "done"

    whole = Graph((Step(name="a", kind="build", cores=4),))
    run.run(whole, {"a": work}, options(tmp_path)).require()
    assert jobs == [4, 2, 1]
    said = capsys.readouterr().err
    assert "a compiler was killed; again with 2 compile jobs instead of 4" in said
    assert "again with 1 compile job instead of 2" in said
    retried = [e for e in events.last_run(tmp_path / "events.jsonl") if isinstance(e, events.StepRetried)]
    assert [e.jobs for e in retried] == [2, 1]
    with pytest.raises(OutOfMemoryError):  # with one job, and nothing beside it
        run.run(graph(b=()), {"b": work}, options(tmp_path)).require()


def test_a_step_out_of_memory_beside_others_runs_again_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun = threading.Event()

    def tight(running: Running) -> str:
        assert begun.wait(30)
        if running.attempt == 1:
            raise OutOfMemoryError("a compiler was killed")
        return "done"

    def beside(_running: Running) -> str:
        begun.set()
        log = tmp_path / "events.jsonl"
        while not any(isinstance(event, events.StepRetried) for event in events.last_run(log)):
            time.sleep(0.02)
        return "done"

    run.run(graph(tight=(), beside=()), {"tight": tight, "beside": beside}, options(tmp_path)).require()
    assert "a compiler was killed; again, alone" in capsys.readouterr().err


def test_a_step_is_not_tried_for_ever(tmp_path: Path) -> None:
    jobs: list[int] = []

    def work(running: Running) -> str:
        jobs.append(running.jobs)
        raise OutOfMemoryError("a compiler was killed")

    with pytest.raises(OutOfMemoryError):
        whole = Graph((Step(name="a", kind="build", cores=64),))
        run.run(whole, {"a": work}, options(tmp_path, cores=64)).require()
    assert jobs == [64, 32, 16, 8, 4]


def test_what_came_to_its_end_all_the_same_is_done(tmp_path: Path) -> None:
    def late(_running: Running) -> str:
        while not process.is_ended():  # its time is over
            time.sleep(0.02)
        return "done"

    assert run.run(graph(a=()), {"a": late}, options(tmp_path, time_limit=0.1)).results == {"a": "done"}


def test_what_is_not_a_failure_of_the_step_ends_everything(tmp_path: Path) -> None:
    def full(_running: Running) -> str:
        raise OSError(28, "No space left on device")

    whole = graph(full=(), slow=())
    work = {"full": full, "slow": lambda _running: process.run(SLEEP)}
    with pytest.raises(OSError, match="No space left"):
        run.run(whole, work, options(tmp_path, keep_going=True))
    assert endings(tmp_path)["slow"] == "stopped"
    last = events.last_run(tmp_path / "events.jsonl")[-1]
    assert isinstance(last, events.RunEnded)
    assert last.ending == "stopped"


def test_what_steps_took_is_there_for_the_next_run(tmp_path: Path) -> None:
    def work(_running: Running) -> None:
        process.run([sys.executable, "-c", "sum(range(3_000_000)); b = bytearray(40_000_000)"])

    run.run(graph(a=()), {"a": work}, options(tmp_path)).require()
    record = schedule.read_durations(tmp_path / "durations.json").steps["a"]
    assert record.seconds > 0
    assert record.cpu > 0.01
    assert record.memory > 40_000_000


def test_programs_are_events_and_a_step_that_keeps_what_it_has_starts_none(tmp_path: Path) -> None:
    def busy(_running: Running) -> None:
        process.run([sys.executable, "-m", "this"])

    run.run(
        graph(a=(), b=()), {"a": busy, "b": lambda r: r.keep("nothing changed")}, options(tmp_path)
    ).require()
    found = events.last_run(tmp_path / "events.jsonl")
    programs = [(e.step, e.program) for e in found if isinstance(e, events.ProgramStarted)]
    assert programs == [("a", f"{Path(sys.executable).name} -m this")]
    assert endings(tmp_path) == {"a": "done", "b": "kept"}
    assert "b" not in schedule.read_durations(tmp_path / "durations.json").steps


def test_what_steps_side_by_side_leave_on_the_disk_is_not_counted_for_each(tmp_path: Path) -> None:
    together = threading.Barrier(2)

    def writing(running: Running) -> None:
        together.wait(60)
        (tmp_path / running.step.name).write_bytes(b"x" * 20_000_000)
        together.wait(60)

    whole = Graph(tuple(Step(name=name, kind="build", project=name) for name in ("a", "b")))
    schedule.add_durations(
        tmp_path / "durations.json", {"a": Record(kind="build", project="a", seconds=1, disk=7)}
    )
    run.run(whole, {"a": writing, "b": writing}, options(tmp_path)).require()
    found = schedule.read_durations(tmp_path / "durations.json")
    assert (found.disk("build", "a"), found.disk("build", "b")) == (7, 0)


def test_a_disk_that_is_too_small_is_known_before_the_first_step(tmp_path: Path) -> None:
    steps = (Step(name="a", kind="build"), Step(name="b", kind="build", needs=("a",), disk=10**18))
    ran: list[str] = []
    work = dict.fromkeys(("a", "b"), lambda running: ran.append(running.step.name))
    with pytest.raises(SystemFailureError, match="needs about"):
        run.run(Graph(steps), work, options(tmp_path))
    assert not ran


def test_a_step_that_needs_more_memory_than_there_is_runs_alone_with_one_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs: list[int] = []
    steps = tuple(Step(name=n, kind="build", cores=4, memory=10**12) for n in ("a", "b"))
    given = Options(limits=Limits(cores=4, memory=10**9), place=tmp_path)
    run.run(Graph(steps), dict.fromkeys("ab", lambda r: jobs.append(r.jobs)), given).require()
    assert jobs == [1, 1]
    assert "runs alone, with one job" in capsys.readouterr().err


def test_errors_of_every_kind_reach_the_caller_as_they_are(tmp_path: Path) -> None:
    def odd(_running: Running) -> None:
        raise CairnError("odd", tip="do this")

    with pytest.raises(CairnError, match="odd") as caught:
        run.run(graph(a=()), {"a": odd}, options(tmp_path)).require()
    assert caught.value.tip == "do this"
