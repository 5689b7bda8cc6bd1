"""`cairn ci night`, as its jobs call it: which night is meant, and what a step is told of it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from cairn import datafile
from cairn.cli.main import main
from cairn.matrix.legs import Matrix
from cairn.pipeline.night import plan
from cairn.store.folder import LocalStore
from helpers.night import FROZEN, leg_of, plan_of
from helpers.trail import SAMPLE

LINE = "release/2.9"
IMAGE = f"ghcr.io/me/build@sha256:{'5e' * 32}"
LEG = leg_of("gfx94X-dcgpu", line=LINE)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with one night, which is a release of one leg that nothing was built of."""
    frozen = msgspec.structs.replace(FROZEN, line=LINE, toolchain={"image": IMAGE})
    night = msgspec.structs.replace(plan_of(LEG), line=LINE, manifest_sha256=frozen.digest())
    plan.create(LocalStore(tmp_path / "store é"), night, frozen)
    return tmp_path / "store é"


def call(store: Path, what: str, *words: str) -> int:
    return main(["ci", "night", what, "--store", str(store), "--stack", str(SAMPLE), *words])


def test_a_release_is_not_the_last_night_to_the_channel_of_nights(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(store, "promote", "--night", "latest", "--to", "nightly") == 9
    assert "has no night to nightly" in capsys.readouterr().err
    assert call(store, "promote", "--night", "7", "--to", "nightly") == 2
    assert "the night 7 goes to release, and not to nightly" in capsys.readouterr().err
    assert main(["ci", "night", "watch", "--store", str(store), "--lines", LINE, "--to", "nightly"]) == 9
    assert f"{LINE}: there was no night yet" in capsys.readouterr().err
    assert call(store, "promote", "--night", "latest", "--to", "release", "--line", LINE) == 0


def test_a_night_that_goes_whole_is_refused_while_a_leg_is_missing(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(store, "promote", "--night", "7", "--whole") == 10
    said = capsys.readouterr().err
    assert "1 of 1 legs are not ready: 7 goes whole or not at all" in said
    assert "no set of it was staged" in said


def test_builds_run_in_the_image_that_the_night_began_with(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "output"))
    datafile.write(tmp_path / "matrix.json", Matrix(legs=(LEG,)))
    words = ("--night", "7", "--line", LINE, "--matrix", str(tmp_path / "matrix.json"), "--to", "release")
    assert call(store, "freeze", *words, "--image", "ghcr.io/me/build:latest") == 0
    assert f"builds run in {IMAGE}, as the manifest says" in capsys.readouterr().err
    told = dict(line.split("=", 1) for line in (tmp_path / "output").read_text().splitlines())
    assert (told["image"], told["to"], told["build_count"]) == (IMAGE, "release", "1")


def test_a_night_whose_line_is_not_that_of_its_matrix_names_the_option(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    matrix = tmp_path / "matrix.json"
    datafile.write(matrix, Matrix(legs=(leg_of("gfx94X-dcgpu", line="release/2.7"),)))
    words = ("--night", "8", "--matrix", str(matrix), "--to", "release")
    assert call(store, "freeze", *words, "--line", LINE) == 2
    said = capsys.readouterr().err
    assert f"{LINE} is asked for, and {matrix} has no leg of it" in said
    assert "what to do: name one that it has: --line release/2.7" in said
    two = (leg_of("gfx94X-dcgpu", line="release/2.7"), leg_of("gfx94X-dcgpu", line="release/2.8"))
    datafile.write(matrix, Matrix(legs=two))
    assert call(store, "freeze", *words) == 2
    said = capsys.readouterr().err
    assert "without --line it is " in said
    assert "--line release/2.7 or --line release/2.8" in said
    # A matrix of one line says which night it is, unless that is asked for by name: the night 7 has LINE.
    datafile.write(matrix, Matrix(legs=(LEG,)))
    assert call(store, "freeze", "--night", "7", "--matrix", str(matrix), "--to", "release") == 0


def test_what_was_fetched_of_a_night_is_all_that_its_builds_read_of_the_store(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fetched = tmp_path / "fetched"
    for _ in range(2):  # a job that is run again
        assert call(store, "fetch", "--night", "latest", "--output-dir", str(fetched)) == 0
    here, there = LocalStore(fetched), LocalStore(store)
    assert [found.key for found in here.list("")] == ["nights/7/manifest.json", "nights/7/night.json"]
    assert all(here.read(found.key).data == there.read(found.key).data for found in here.list(""))
    words = ["--night", "7", "--leg", "none", "--output-dir", str(tmp_path / "wheels")]
    assert call(fetched, "build", *words) == 2
    assert "the night 7 has no leg 'none'" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["'", "/nowhere/at-all", "false"])
def test_whoever_cannot_be_told_changes_nothing_of_the_report(
    store: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(store, "report", "--night", "7", "--notify", command) == 10
    assert "was to be told of it, and failed" in capsys.readouterr().err
