"""A Dask scheduler and its workers, as processes on this machine that can be killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Self


class DaskCluster:
    """A scheduler and its workers, each of which takes one step at a time."""

    def __init__(self, folder: Path, env: Mapping[str, str], workers: int = 3) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{self._port}"
        self._folder, self._env, self._count = folder, env, workers
        self.scheduler: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        self.start_scheduler()
        for _ in range(self._count):
            self.start_worker()
        return self

    def __exit__(self, *_ended: object) -> None:
        for process in (*self.workers, self.scheduler):
            kill(process)

    def start_scheduler(self) -> None:
        """Start a scheduler, at the address of the one that was there."""
        self.scheduler = self._start(
            "scheduler", "--host", "127.0.0.1", "--port", str(self._port), "--no-show"
        )

    def start_worker(self, resources: str = "cores=1", **env: str) -> None:
        """Start one more worker, with variables of its own."""
        one = (self.address, "--nthreads", "2", "--resources", resources, "--no-nanny")
        self.workers.append(self._start("worker", *one, "--local-directory", str(self._folder), **env))

    def _start(self, kind: str, *words: str, **env: str) -> subprocess.Popen[bytes]:
        with (self._folder / f"{kind}.log").open("ab") as log:
            return subprocess.Popen(
                [str(Path(sys.executable).with_name("dask")), kind, *words, "--no-dashboard"],
                env={**self._env, **env}, cwd=self._folder, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip


def kill(process: subprocess.Popen[bytes] | None) -> None:
    """Kill -9 a process, not its children."""
    if process is not None:
        os.kill(process.pid, signal.SIGKILL) if process.poll() is None else None
        process.wait()
