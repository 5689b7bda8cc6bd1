"""`cairn ci night`, as its jobs call it: which night is meant, and what a step is told of it."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from cairn import datafile
from cairn.matrix.legs import Matrix
from cairn.pipeline.night import plan
from cairn.stack import load, recipe
from cairn.store.folder import LocalStore
from helpers.night import FROZEN, leg_of, plan_of
from helpers.program import Cairn, Shown
from helpers.trail import ROOT, SAMPLE

LINE = "release/2.9"
IMAGE = f"ghcr.io/me/build@sha256:{'5e' * 32}"
LEG = leg_of("gfx94X-dcgpu", line=LINE)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with one night, which is a release of one leg that nothing was built of."""
    frozen = msgspec.structs.replace(
        FROZEN, line=LINE, toolchain={"image": IMAGE}, recipe=recipe.digest_of(load(SAMPLE))
    )
    night = msgspec.structs.replace(plan_of(LEG), line=LINE, manifest_sha256=frozen.digest())
    plan.create(LocalStore(tmp_path / "store é"), night, frozen)
    return tmp_path / "store é"


Call = Callable[..., Shown]


@pytest.fixture
def call(cairn: Cairn) -> Call:
    def run(store: Path, what: str, *words: object, code: int = 0) -> Shown:
        return cairn("ci", "night", what, "--store", store, "--stack", SAMPLE, *words, code=code)

    return run


def test_a_release_is_not_the_last_night_to_the_channel_of_nights(
    store: Path, call: Call, cairn: Cairn
) -> None:
    _, err = call(store, "promote", "--night", "latest", "--to", "nightly", code=9)
    assert "has no night to nightly" in err
    _, err = call(store, "promote", "--night", "7", "--to", "nightly", code=2)
    assert "the night 7 goes to release, and not to nightly" in err
    _, err = cairn(
        "ci", "night", "list", "--overdue", "--store", store, "--lines", LINE, "--to", "nightly", code=9
    )
    assert f"{LINE}: there was no night yet" in err
    listing = ("ci", "night", "list", "--store", store, "--json")
    assert [one["night"] for one in cairn.json(*listing, "--lines", f"{LINE},nightly,")] == ["7"]
    assert cairn.json(*listing, "--lines", "nightly") == cairn.json(*listing, "--to", "nightly") == []
    call(store, "promote", "--night", "latest", "--to", "release", "--line", LINE)


def test_a_night_of_another_stack_is_refused(store: Path, cairn: Cairn) -> None:
    words = ("--store", store, "--stack", ROOT / "external-builds" / "pytorch", "--night", "7")
    _, err = cairn("ci", "night", "promote", *words, code=2)
    assert "the night 7 is of the stack sample, and not of pytorch" in err


def test_a_night_that_goes_whole_is_refused_while_a_leg_is_missing(store: Path, call: Call) -> None:
    _, said = call(store, "promote", "--night", "7", "--whole", code=10)
    assert "1 of 1 legs are not ready: 7 goes whole or not at all" in said
    assert "no set of it was staged" in said


def test_builds_run_in_the_image_that_the_night_began_with(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "output"))
    datafile.write(tmp_path / "matrix.json", Matrix(legs=(LEG,)))
    words = ("--night", "7", "--line", LINE, "--matrix", tmp_path / "matrix.json", "--to", "release")
    _, err = call(store, "freeze", *words, "--image", "ghcr.io/me/build:latest")
    assert f"builds run in {IMAGE}, as the manifest says" in err
    told = dict(line.split("=", 1) for line in (tmp_path / "output").read_text().splitlines())
    assert (told["image"], told["to"], told["build_count"]) == (IMAGE, "release", "1")


def test_a_night_whose_line_is_not_that_of_its_matrix_names_the_option(
    store: Path, tmp_path: Path, call: Call
) -> None:
    matrix = tmp_path / "matrix.json"
    datafile.write(matrix, Matrix(legs=(leg_of("gfx94X-dcgpu", line="release/2.7"),)))
    words = ("--night", "8", "--matrix", matrix, "--to", "release")
    _, said = call(store, "freeze", *words, "--line", LINE, code=2)
    assert f"{LINE} is asked for, and {matrix} has no leg of it" in said
    assert "what to do: name one that it has: --line release/2.7" in said
    two = (leg_of("gfx94X-dcgpu", line="release/2.7"), leg_of("gfx94X-dcgpu", line="release/2.8"))
    datafile.write(matrix, Matrix(legs=two))
    _, said = call(store, "freeze", *words, code=2)
    assert "without --line it is " in said
    assert "--line release/2.7 or --line release/2.8" in said
    # A matrix of one line says which night it is, unless that is asked for by name: the night 7 has LINE.
    datafile.write(matrix, Matrix(legs=(LEG,)))
    call(store, "freeze", "--night", "7", "--matrix", matrix, "--to", "release")


def test_what_was_fetched_of_a_night_is_all_that_its_builds_read_of_the_store(
    store: Path, tmp_path: Path, call: Call
) -> None:
    folder = tmp_path / "step"
    of_leg = ("--night", "latest", "--leg", LEG.id, "--output-dir", folder)
    for _ in range(2):  # a job that is run again
        call(store, "step", "build", "--phase", "fetch", *of_leg)
    here, there = LocalStore(folder / "night"), LocalStore(store)
    assert [found.key for found in here.list("")] == ["nights/7/manifest.json", "nights/7/night.json"]
    assert all(here.read(found.key).data == there.read(found.key).data for found in here.list(""))
    words = ("--night", "7", "--leg", "none", "--output-dir", folder, "--phase", "run")
    assert "the night 7 has no build 'none'" in call(store, "step", "build", *words, code=2).err


def test_a_night_that_was_never_frozen_has_a_report_too(tmp_path: Path, call: Call) -> None:
    told = tmp_path / "told.json"
    words = ("--night", "12", "--notify", f"tee {told}")
    for store in (tmp_path / "none yet", tmp_path / "store"):
        _, err = call(store, "report", *words, code=10)
        assert "the night 12 was not frozen, and nothing of it was built" in err
        store.mkdir(exist_ok=True)
    assert json.loads(told.read_text())["night"] == "12"
    history = store / "nightly/nights.json"
    history.parent.mkdir()
    history.write_text('{"schema": "cairn.nights/9"}')  # of a newer Cairn
    err = call(store, "report", *words, "--line", LINE, "--to", "nightly", code=10).err
    assert "the page of the last nights of nightly was not written" in err
    assert history.read_text() == '{"schema": "cairn.nights/9"}'


def test_whoever_cannot_be_told_changes_nothing_of_the_report(store: Path, call: Call) -> None:
    for command in ("'", "/nowhere/at-all", "false"):
        _, err = call(store, "report", "--night", "7", "--notify", command, code=10)
        assert "was to be told of it, and failed" in err


def test_a_run_says_what_a_cluster_needs(tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = ("--scheduler", "tcp://head:8786")
    assert "add --executor dask" in call(tmp_path, "run", *scheduler, code=2)[1]
    assert "--scheduler or --cluster" in call(tmp_path, "run", "--executor", "dask", code=2)[1]
    # As where the extra is not installed.
    monkeypatch.setitem(sys.modules, "distributed", None)
    for name in ("cairn.cluster.dask_executor", "cairn.cluster.worker_step"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delattr("cairn.cluster.dask_executor", raising=False)
    _, err = call(tmp_path, "run", "--executor", "dask", *scheduler, code=3)
    assert f"pip install --editable '{ROOT}[cluster]'" in err


def test_ctrl_c_stays_what_it_was_where_jobs_are_submitted(tmp_path: Path, call: Call) -> None:
    before = signal.getsignal(signal.SIGINT)
    _, err = call(tmp_path, "run", "--executor", "dask", "--cluster", "Nothing", code=2)
    assert "such as SLURMCluster" in err
    assert signal.getsignal(signal.SIGINT) is before


def test_a_run_has_one_line_and_no_image(tmp_path: Path, call: Call) -> None:
    for option in ("--image", "--lines"):
        assert f"unknown option {option}" in call(tmp_path, "run", option, IMAGE, code=2)[1]


def test_a_dry_run_of_a_night_begins_nothing(tmp_path: Path, call: Call) -> None:
    words = ("--pythons", "3.12", "--families", "gfx94X-dcgpu", "--night", "new", "--dry-run", "--json")
    shown, _ = call(tmp_path / "store", "run", *words)
    steps = json.loads(shown)["steps"]
    assert [one["step"].partition(" ")[0] for one in steps] == [
        "build", "stage", "test", "suite", "suite", "merge", "promote",
    ]  # fmt: skip
    assert not (tmp_path / "store").exists()
