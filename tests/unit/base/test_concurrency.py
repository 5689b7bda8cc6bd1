"""Work side by side: in order, and ended together."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cairn import process
from cairn.concurrency import pause, side_by_side
from cairn.errors import ProcessError, SourceError

FOREVER = "import time; print('up', flush=True); time.sleep(600)"


def test_results_are_in_the_order_of_the_items() -> None:
    last = threading.Event()

    def work(item: int) -> int:
        if item == 0:
            last.wait(30)
        if item == 3:
            last.set()
        return item * item

    assert side_by_side(work, range(4), jobs=4) == (0, 1, 4, 9)
    assert side_by_side(work, [], jobs=4) == ()


def run_forever(up: threading.Event) -> None:
    process.run([sys.executable, "-c", FOREVER], on_line=lambda _line: up.set())


def fail_when(up: threading.Event) -> None:
    assert up.wait(60)
    raise SourceError("the cause")


@pytest.mark.parametrize("failing_first", [True, False])
def test_a_failure_ends_the_programs_of_the_others_and_is_the_one_that_is_raised(
    *, failing_first: bool
) -> None:
    up = threading.Event()
    works: list[Callable[[threading.Event], None]] = [run_forever, fail_when]
    if failing_first:
        works.reverse()
    with pytest.raises(SourceError, match="the cause"):
        side_by_side(lambda work: work(up), works, jobs=2)


def test_a_failure_in_a_part_ends_the_whole(tmp_path: Path) -> None:
    up, marker = threading.Event(), tmp_path / "started later"

    def goes_on(_item: int) -> None:
        with pytest.raises(ProcessError):
            run_forever(up)
        process.run([sys.executable, "-c", f"open({str(marker)!r}, 'w')"])

    def fails(_item: int) -> None:
        side_by_side(fail_when, [up], jobs=1)

    with pytest.raises(SourceError, match="the cause"):
        side_by_side(lambda work: work(0), [lambda _item: side_by_side(goes_on, [1], jobs=1), fails], jobs=2)
    assert not marker.exists()
    assert process.run([sys.executable, "-c", "print('a later call may')"]).output


def test_who_waits_to_try_again_stops_waiting() -> None:
    waiting = threading.Event()

    def waits(_item: object) -> None:
        waiting.set()
        pause(600)

    with pytest.raises(SourceError, match="the cause"):
        side_by_side(lambda work: work(waiting), [waits, fail_when], jobs=2)


def test_an_interrupt_that_comes_just_before_the_wait_is_noticed() -> None:
    def work(_item: int) -> None:
        time.sleep(0.2)
        # The handler runs in this thread: it leaves a note for the main thread, and does not wake it.
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        pause(20)

    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        side_by_side(work, [1], jobs=1)
    assert time.monotonic() - begun < 5


def test_an_interrupt_ends_all(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    code = f"""
import os, signal, sys, threading
from pathlib import Path
from cairn import process
from cairn.concurrency import side_by_side
ready = threading.Barrier(3)
child = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
def work(item):
    pid = []
    def on_line(line):
        with open({str(pids)!r}, "a") as file:
            file.write(line + "\\n")
        ready.wait()
    process.run([sys.executable, "-c", child], on_line=on_line)
def interrupt():
    ready.wait()
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
try:
    side_by_side(work, [1, 2], jobs=2)
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "interrupted\n"
    assert [Path("/proc", pid).exists() for pid in pids.read_text().split()] == [False, False]


def test_work_goes_on_after_a_failure_of_a_part_that_it_makes_good() -> None:
    def fail(number: int) -> None:
        raise ValueError(number)

    failed = threading.Event()

    def work(number: int) -> str:
        if number == 1:
            failed.wait(20)
            return process.run([sys.executable, "-c", "print('well')"]).output.strip()
        with pytest.raises(ValueError, match="1"):
            side_by_side(fail, (1, 1))
        failed.set()
        return "made good"

    assert side_by_side(work, range(2)) == ("made good", "well")
