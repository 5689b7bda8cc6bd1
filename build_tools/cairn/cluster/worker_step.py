"""What a worker of Dask runs: one step of a night, for as long as somebody waits for it."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from distributed import Status, get_worker
from msgspec import structs

import cairn
from cairn import interpreters, platforms, process
from cairn.errors import CairnError
from cairn.pipeline.night import step_run
from cairn.pipeline.night.step_run import StepEnd, StepJob

_LOOK = 0.5  # seconds between two looks at whether the step is still wanted


def describe() -> tuple[str, str]:
    """Return the version of Cairn on this worker, and its platform."""
    return cairn.__version__, interpreters.current().platform


def carry_out(job: StepJob) -> StepEnd:
    """Run a step; end its programs once its driver, or the scheduler, is gone or wants it no more."""
    worker = get_worker()
    key, over, group = worker.get_current_task(), threading.Event(), process.Group()

    def is_wanted() -> bool:
        # A task that runs and was released by the scheduler stays in this state until it ends; without a
        # scheduler, the worker closes (distributed/worker_state_machine.py).
        task = worker.state.tasks.get(key)
        return (
            task is not None
            and task.state == "executing"
            and worker.status in (Status.running, Status.paused)
        )

    def watch() -> None:
        while not over.wait(_LOOK):
            if not is_wanted():
                group.end()
                return

    threading.Thread(target=watch, daemon=True).start()
    began = time.monotonic()
    try:
        # In a thread of its own: that of the worker has later steps to run, which a group that was ended
        # would let start nothing.
        with platforms.here.guarding(), ThreadPoolExecutor(1, initializer=group.join) as pool:
            end = pool.submit(step_run.run_step, job, is_ended=lambda: group.ended).result()
        return structs.replace(end, worker=worker.address)
    except CairnError as error:  # of many of our errors, a pickle cannot be read again
        return StepEnd(
            code=error.exit_code, seconds=time.monotonic() - began, tail=(str(error),), worker=worker.address
        )
    finally:
        over.set()
