"""Run work in threads that end together on a failure or an interrupt."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from cairn import process

if TYPE_CHECKING:
    from concurrent.futures import Future

A = TypeVar("A")
B = TypeVar("B")

_DEFAULT_JOBS = 4  # of git, which waits for the disk as much as it works
_TURN = 0.25  # seconds until an interrupt is noticed that came just before a wait
_of_thread = threading.local()  # `.group`: the _TaskGroup of a thread that works for one


class _TaskGroup:
    """The threads of one piece of work: they end together, and with the work that it is a part of."""

    def __init__(self, whole: _TaskGroup | None) -> None:
        self.failure: BaseException | None = None
        self.ended = threading.Event()
        self._programs = process.Group()
        self._lock = threading.Lock()
        self._parts: weakref.WeakSet[_TaskGroup] = weakref.WeakSet()
        if whole is not None:
            whole.add(self)

    def join(self) -> None:
        """Make the calling thread one of the group."""
        _of_thread.group = self
        self._programs.join()

    def add(self, part: _TaskGroup) -> None:
        """Have a group end with this one."""
        with self._lock:
            self._parts.add(part)
        if self.failure is not None:
            part.fail(self.failure)

    def fail(self, failure: BaseException) -> None:
        """Remember the first failure, which is the cause of all others, and end every program."""
        with self._lock:
            if self.failure is not None:
                return
            self.failure = failure
            parts = tuple(self._parts)
        self.ended.set()
        self._programs.end()
        for part in parts:
            part.fail(failure)


def side_by_side(work: Callable[[A], B], items: Iterable[A], *, jobs: int = _DEFAULT_JOBS) -> tuple[B, ...]:
    """Call `work` for every item in threads; return the results in the order of the items.

    A failure, or an interrupt, ends the programs that run for other items, at whatever depth such calls are
    within each other, and is raised; what has not begun is dropped.
    """
    every = tuple(items)
    if len(every) < 2 or jobs == 1:  # noqa: PLR2004 - a thread helps nobody
        return tuple(map(work, every))
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - which most commands do without

    # In a thread of a larger piece of work, this is a part of it: that may go on where this has failed.
    group = _TaskGroup(getattr(_of_thread, "group", None))

    def run_item(item: A) -> B:
        try:
            return work(item)
        except BaseException as error:
            group.fail(error)
            raise

    pool = ThreadPoolExecutor(max(1, jobs), initializer=group.join)
    try:
        return _results([pool.submit(run_item, item) for item in every], group)
    except BaseException as error:
        group.fail(error)
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def pause(seconds: float) -> None:
    """Sleep, but stop early if the calling thread's group has ended."""
    group: _TaskGroup | None = getattr(_of_thread, "group", None)
    if group is None:
        time.sleep(seconds)
    else:
        group.ended.wait(seconds)


def go_on() -> None:
    """Raise the failure that ended the calling thread's group, if any; for long computations."""
    group: _TaskGroup | None = getattr(_of_thread, "group", None)
    if group is not None and group.failure is not None:
        raise group.failure


def wait_for(futures: Collection[Future[Any]]) -> None:
    """Wait until all futures have ended or one has failed.

    Python looks for signals before it begins to wait, and again when one wakes it. A signal that comes
    between that look and the system's wait wakes nobody, so the main thread must not wait for long at once.
    """
    ended: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()
    for future in futures:
        future.add_done_callback(ended.put)
    left = len(futures)
    while left:
        with contextlib.suppress(queue.Empty):
            left = 0 if ended.get(timeout=_TURN).exception() else left - 1


def _results(futures: list[Future[B]], group: _TaskGroup) -> tuple[B, ...]:
    wait_for(futures)
    # The first failure of the group, since what this one raised may be the echo of it: its program was ended.
    if group.failure is not None and any(future.done() and future.exception() for future in futures):
        raise group.failure
    return tuple(future.result() for future in futures)
