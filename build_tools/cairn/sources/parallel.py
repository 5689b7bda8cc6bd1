"""Work on several things side by side, ended together on a failure or an interrupt."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from cairn import process

A = TypeVar("A")
B = TypeVar("B")


def side_by_side(work: Callable[[A], B], items: Iterable[A], *, jobs: int) -> tuple[B, ...]:
    """What `work` gives for each item, in their order.

    The first failure is raised, when what is under way has ended; what has not begun is dropped. On an
    interrupt the programs under way are ended too: nobody would wait for them.
    """
    pool = ThreadPoolExecutor(max(1, jobs))
    try:
        futures = [pool.submit(work, item) for item in items]
        return tuple(future.result() for future in futures)
    except KeyboardInterrupt:
        process.terminate_all()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
