"""`cairn ci night run` on a Dask cluster of three workers: the bytes of a local night, whatever is killed.

The stack is a tiny one, whose nights take seconds; by hand the sample is tried as well.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec import structs

from cairn.pipeline.night.driver import ExecutorGoneError
from cairn.pipeline.night.placing import Demand
from cairn.pipeline.night.step_run import StepJob
from cairn.pipeline.night.steps import Command
from cairn.release.index.snapshot import Index, read_set
from cairn.store.folder import LocalStore
from helpers import slurm, tiny_stack
from helpers.dask_cluster import DaskCluster, kill
from helpers.trail import SAMPLE, clean_environment

pytest.importorskip("distributed", reason="pip install 'cairn-wheels[cluster]'")
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("night-on-dask")]


@dataclass(frozen=True)
class Place:
    """A store, a work folder and a cache of their own for one night."""

    folder: Path
    stack: Path
    cluster: Mapping[str, str] = field(default_factory=dict)
    legs: tuple[str, ...] = ()
    index: str = "nightly"

    @property
    def env(self) -> dict[str, str]:
        own = {"PIP_CONFIG_FILE": os.devnull, **self.cluster}
        return clean_environment(self.folder / "cache") | own

    def begin(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a driver; what it says is in `log`."""
        command = [
            sys.executable,
            "-m",
            "cairn",
            "ci",
            "night",
            "run",
            "--stack",
            str(self.stack),
            "--night",
            "1",
            *self.legs,
        ]
        command += ["--store", str(self.folder / "store"), "--work-dir", str(self.folder / "work"), *words]
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            return subprocess.Popen(command, env=self.env, stdout=log, stderr=log, start_new_session=True)

    def run(self, *words: str) -> None:
        assert self.begin(*words).wait(1800) == 0, self.said()

    @property
    def log(self) -> Path:
        return self.folder / "driver.log"

    def said(self) -> str:
        return self.log.read_text("utf-8") if self.log.is_file() else ""

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + 300
        while text not in self.said():
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.05)

    def files(self) -> list[dict[str, str]]:
        """The files of these sets: of the sample, the manifest names where its sources were made into git."""
        return list(self.promoted().values())

    def promoted(self) -> dict[str, dict[str, str]]:
        """The sets that users install, by their id, and the sha256 of each of their files."""
        store = LocalStore(self.folder / "store")
        sets = Index(store, self.index).load().sets()
        return {
            one.set_id: {file.file_name: file.sha256 for file in read_set(store, one.set_id).files}
            for one in sets
        }


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_stack.write(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def local(stack: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """What a night on this machine alone promotes."""
    place = Place(tmp_path_factory.mktemp("local"), stack)
    place.run()
    return place.promoted()


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A night of the sample on this machine alone."""
    legs = ("--families", "gfx94X-dcgpu", "--pythons", tiny_stack.HERE.version)
    place = Place(tmp_path_factory.mktemp("sample"), SAMPLE, legs=legs, index="nightly/gfx94X-dcgpu")
    place.run()
    assert place.promoted()
    return place


@pytest.fixture
def place(stack: Path, tmp_path: Path) -> Place:
    return Place(tmp_path / "night", stack)


def on(cluster: DaskCluster) -> tuple[str, ...]:
    return ("--executor", "dask", "--scheduler", cluster.address, "--workers", "3")


def test_a_night_on_three_workers_has_the_bytes_of_a_local_one(
    place: Place, local: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    with DaskCluster(tmp_path / "dask", place.env) as cluster:
        place.run(*on(cluster))
        assert place.promoted() == local
        begun = place.said().count("→ build")
        place.run(*on(cluster))  # once more, with nothing left
    assert place.said().count("→ build") == begun == 1


@pytest.mark.by_hand
def test_the_samples_night_on_three_workers_has_the_bytes_of_a_local_one(
    sample: Place, tmp_path: Path
) -> None:
    place = dataclasses.replace(sample, folder=tmp_path / "night")
    with DaskCluster(tmp_path / "dask", place.env) as cluster:
        place.run(*on(cluster))
    assert place.files() == sample.files()


def test_a_test_whose_worker_has_no_gpu_that_answers_goes_to_another(tmp_path: Path) -> None:
    dask_executor = pytest.importorskip("cairn.cluster.dask_executor")
    (tmp_path / "cairn").mkdir()
    (tmp_path / "cairn/__init__.py").touch()
    # Stands for a test that finds the first GPU hanging.
    hangs = "import os, sys\nsys.exit(3 if os.environ['ROCR_VISIBLE_DEVICES'] == '0' else 0)\n"
    (tmp_path / "cairn/__main__.py").write_text(hangs)
    job = StepJob(
        name="test leg",
        command=Command(arguments=("test",)),
        folder=tmp_path / "step",
        cores=1,
        variables={"PYTHONPATH": str(tmp_path)},
    )
    demand = Demand(gpu="gfx942", gpus=1)
    with DaskCluster(tmp_path / "dask", clean_environment(tmp_path / "cache"), workers=0) as cluster:
        cluster.start_worker("cores=1 gfx942=1", ROCR_VISIBLE_DEVICES="0")
        where = dask_executor.Where(scheduler=cluster.address, workers=1)
        with dask_executor.connect(where) as executor:
            end = executor.carry_out(job, demand, urgency=1.0, say=print)
            assert end.code == 3  # there is no other
        cluster.start_worker("cores=1 gfx942=1", ROCR_VISIBLE_DEVICES="1")
        with dask_executor.connect(structs.replace(where, workers=2)) as executor:
            ends = [executor.carry_out(job, demand, urgency=1.0, say=print) for _ in range(3)]
    assert [end.code for end in ends] == [0, 0, 0]
    assert len({end.worker for end in ends}) == 1


def test_a_scheduler_that_goes_while_a_result_is_fetched_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Distributed's `sync` does not reckon with the CancelledError that its own coroutine ends with then."""
    dask_executor = pytest.importorskip("cairn.cluster.dask_executor")
    distributed = pytest.importorskip("distributed")

    async def ended() -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(distributed.Future, "result", lambda future: future.client.sync(ended))
    job = StepJob(name="test leg", command=Command(arguments=("version",)), folder=tmp_path / "step", cores=1)
    with DaskCluster(tmp_path / "dask", clean_environment(tmp_path / "cache"), workers=1) as cluster:
        where = dask_executor.Where(scheduler=cluster.address)
        with dask_executor.connect(where) as executor, pytest.raises(ExecutorGoneError):
            executor.carry_out(job, Demand(), urgency=1.0, say=print)


def break_and_go_on(place: Place, folder: Path, victim: str, step: str, after: float) -> None:
    """Kill one part seconds after a step has begun, start it again, and let the night end."""
    with DaskCluster(folder, place.env) as cluster:
        driver = place.begin(*on(cluster))
        place.wait_for(f"→ {step}")
        time.sleep(after)
        if victim == "driver":
            kill(driver)
            place.run(*on(cluster))
            return
        if victim == "worker":
            for each in cluster.workers[:2]:
                kill(each)
            cluster.start_worker()
            cluster.start_worker()
        else:
            kill(cluster.scheduler)
            cluster.start_scheduler()
            for each in cluster.workers:
                kill(each)
            for _ in range(3):
                cluster.start_worker()
        assert driver.wait(600) == 0, place.said()


@pytest.mark.by_hand
@pytest.mark.parametrize(
    ("victim", "step", "after"),
    [
        ("driver", "build", 2.0),
        ("worker", "build", 2.0),
        ("scheduler", "test", 1.0),
        ("driver", "promote", 1.0),
    ],
)
def test_what_is_killed_changes_nothing(
    place: Place, local: dict[str, dict[str, str]], tmp_path: Path, victim: str, step: str, after: float
) -> None:
    break_and_go_on(place, tmp_path / "dask", victim, step, after)
    assert place.promoted() == local


@pytest.mark.by_hand
@pytest.mark.parametrize("point", range(10))
@pytest.mark.parametrize("victim", ["driver", "worker", "scheduler"])
def test_thirty_points(
    place: Place, local: dict[str, dict[str, str]], tmp_path: Path, victim: str, point: int
) -> None:
    step = ("build", "build", "build", "stage", "test")[point % 5]
    break_and_go_on(place, tmp_path / "dask", victim, step, after=0.2 + 0.9 * point)
    assert place.promoted() == local


@pytest.mark.by_hand
@pytest.mark.skipif(not slurm.is_here(), reason="needs root, slurmctld, slurmd, slurm-client and munge")
@pytest.mark.parametrize("victim", ["nothing", "jobs", "driver"])
def test_a_night_on_slurm_has_the_bytes_of_a_local_one(
    stack: Path, local: dict[str, dict[str, str]], tmp_path: Path, victim: str
) -> None:
    with slurm.Slurm(tmp_path / "slurm", os.environ) as slurms:
        place = Place(tmp_path / "night", stack, slurms.env)
        words = ("--executor", "dask", "--cluster", "SLURMCluster", "--workers", "3")
        driver = place.begin(*words)
        place.wait_for("→ build")
        jobs = slurms.jobs()
        assert len(jobs) == 3
        time.sleep(2)
        if victim == "jobs":  # at the end of their time: others are queued in their place
            slurms.cancel()
        elif victim == "driver":
            kill(driver)
            driver = place.begin(*words)
        assert driver.wait(600) == 0, place.said()
        assert place.promoted() == local
        assert victim == "driver" or not slurms.jobs()


@pytest.mark.by_hand
@pytest.mark.skipif(not slurm.is_here(), reason="needs root, slurmctld, slurmd, slurm-client and munge")
def test_the_samples_night_on_slurm_has_the_bytes_of_a_local_one(sample: Place, tmp_path: Path) -> None:
    with slurm.Slurm(tmp_path / "slurm", os.environ) as slurms:
        place = dataclasses.replace(sample, folder=tmp_path / "night", cluster=slurms.env)
        place.run("--executor", "dask", "--cluster", "SLURMCluster", "--workers", "3")
    assert place.files() == sample.files()


def test_jobs_that_cannot_be_submitted_are_one_line(place: Place, tmp_path: Path) -> None:
    programs, config = tmp_path / "bin", tmp_path / "dask"
    programs.mkdir()
    config.mkdir()
    place = Place(place.folder, place.stack, {"DASK_CONFIG": str(config), "PATH": str(programs)})

    def say() -> str:
        place.log.unlink(missing_ok=True)
        assert place.begin("--executor", "dask", "--cluster", "SLURMCluster").wait(60) == 3, place.said()
        return place.said()

    assert "needs sbatch, which is not on PATH" in say()
    sbatch = programs / "sbatch"
    sbatch.write_text("#!/bin/sh\necho 'sbatch: error: invalid partition specified: gpu' >&2\nexit 1\n")
    sbatch.chmod(0o755)
    assert "cores and memory per job" in say()
    (config / "jobqueue.yaml").write_text(
        "jobqueue: {slurm: {queue: gpu, cores: 1, memory: 1GB, interface: lo}}\n"
    )
    refused = say()
    assert "SLURMCluster does not start" in refused
    assert "sbatch: error: invalid partition specified: gpu" in refused
    assert "Traceback" not in refused
