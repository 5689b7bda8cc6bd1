"""Slurm of one node on this machine, as root: Debian's slurmctld, slurmd and munge, all below one folder."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from helpers.dask_cluster import kill

# slurm.conf(5). Neither cgroups nor a database are needed, and the node has as many cores as it is told.
_CONF = """\
ClusterName=cairn
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
SlurmctldPort={controller}
SlurmdPort={daemon}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1
KillWait=1
ReturnToService=2
NodeName=localhost NodeAddr=127.0.0.1 CPUs=4 RealMemory=8000
PartitionName=all Nodes=ALL Default=YES State=UP
"""
# Of dask-jobqueue: a worker a job, which takes one step at a time.
_JOBQUEUE = """\
jobqueue:
  slurm:
    queue: all
    cores: 1
    memory: 1GB
    processes: 1
    walltime: "00:30:00"
    interface: lo
    log-directory: "{folder}/jobs"
    local-directory: "{folder}/jobs"
    worker-extra-args: ["--resources", "cores=1"]
    scheduler-options: {{dashboard: false}}
"""


def is_here() -> bool:
    """Whether this machine can run it."""
    programs = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel")
    return os.name == "posix" and os.geteuid() == 0 and all(map(shutil.which, programs))


class Slurm:
    """Slurm, while the block runs.

    Attributes:
        env: the variables with which its programs and dask-jobqueue find it.
    """

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self._folder = folder
        self.env = {**env, "SLURM_CONF": str(folder / "slurm.conf"), "DASK_CONFIG": str(folder / "dask")}
        self._daemons: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        folder = self._folder
        for name in ("state", "spool", "dask", "jobs"):
            (folder / name).mkdir(parents=True)
        with socket.socket() as one, socket.socket() as two:
            one.bind(("127.0.0.1", 0))
            two.bind(("127.0.0.1", 0))
            ports = {"controller": one.getsockname()[1], "daemon": two.getsockname()[1]}
        (folder / "slurm.conf").write_text(_CONF.format(folder=folder, **ports))
        (folder / "dask/jobqueue.yaml").write_text(_JOBQUEUE.format(folder=folder))
        key = folder / "munge.key"
        key.touch(mode=0o400)
        key.write_bytes(os.urandom(1024))
        files = {"key-file": key, "socket": folder / "munge.sock", "pid-file": folder / "munged.pid"}
        files |= {"log-file": folder / "munged.log", "seed-file": folder / "munge.seed"}
        options = (f"--{name}={file}" for name, file in files.items())
        self._start("munged", "--foreground", "--force", *options)
        self._wait((folder / "munge.sock").exists)
        self._start("slurmctld", "-D", "-c")
        self._start("slurmd", "-D", "-N", "localhost")
        self._wait(lambda: self._ask("sinfo", "-h", "-o", "%T").split() == ["idle"])
        return self

    def __exit__(self, *_ended: object) -> None:
        self.cancel()
        self._wait(lambda: not self._ask("squeue", "-h"))
        for daemon in reversed(self._daemons):
            kill(daemon)

    def jobs(self) -> list[str]:
        """Return the ids of the jobs that run."""
        return self._ask("squeue", "-h", "-o", "%i", "-t", "running").split()

    def cancel(self) -> None:
        """End all jobs, as at the end of their time."""
        for job in self._ask("squeue", "-h", "-o", "%i").split():
            subprocess.run(["scancel", job], env=self.env, check=False)

    def _ask(self, *command: str) -> str:
        return subprocess.run(command, env=self.env, capture_output=True, text=True, check=False).stdout

    def _start(self, *command: str) -> None:
        with (self._folder / f"{command[0]}.log").open("ab") as log:
            self._daemons.append(
                subprocess.Popen(command, env=self.env, stdout=log, stderr=log, start_new_session=True)
            )

    def _wait(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not holds():
            assert time.monotonic() < deadline, [log.read_text() for log in self._folder.glob("*.log")]
            time.sleep(0.2)
