"""Commits exported as patch files, and applied elsewhere."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from cairn.cli.main import main
from cairn.errors import SourceError, UsageError
from cairn.sources.patches import apply as patches
from helpers.patches import HIPIFY, apply
from helpers.sources import Bench


def test_export_and_apply_keep_authors_dates_and_messages(bench: Bench, tmp_path: Path) -> None:
    bench.begin()
    bench.commit(
        "a b é.txt", "1\r\n2\r\n", "[ROCm] Fix: ü\n\nWhy: because.\n\nSigned-off-by: Jo <j@x.invalid>"
    )
    (bench.path / "blob.bin").write_bytes(bytes(range(256)))
    (bench.path / "run.sh").write_text("#!/bin/sh\n")
    (bench.path / "run.sh").chmod(0o755)
    (bench.path / "latin.txt").write_bytes(b"J\xf6\n")
    bench.commit("src/device.cpp", "edited\n", "Binary, mode, odd bytes")
    bench.commit("x", "", "Nothing in it")
    bench.commit("deep.h", "deep\n", "Deep", part="third_party/plain/deps/inner")
    folder = tmp_path / "patches ü"
    exported, _ = patches.export(bench.path, folder)
    assert [p.path for p in exported] == ["", "", "", "third_party/plain/deps/inner"]
    first = {p: p.read_bytes() for p in folder.rglob("*.patch")}
    patches.export(bench.path, folder)
    assert {p: p.read_bytes() for p in folder.rglob("*.patch")} == first

    other = dataclasses.replace(
        bench, request=dataclasses.replace(bench.request, checkout_dir=tmp_path / "other")
    )
    other()
    done = apply(other, folder)
    assert all(applied.commit for applied in done)
    form = "--format=%an|%ae|%at|%T|%B"
    assert other.git("log", form, f"{HIPIFY}..") == bench.git("log", form, f"{HIPIFY}..")
    inner = ("-C", "third_party/plain/deps/inner", "log", form, f"{HIPIFY}..")
    assert other.git(*inner) == bench.git(*inner)
    assert other.git("status", "--porcelain") == ""

    heads = other.git("rev-parse", "HEAD")
    again = apply(other, folder)
    assert [applied.commit for applied in again] == [None] * 4
    assert other.git("rev-parse", "HEAD") == heads
    assert patches.export(other.path, tmp_path / "back")[0] != ()
    assert {p.name: p.read_bytes() for p in (tmp_path / "back").rglob("*.patch")} == {
        p.name: data for p, data in first.items()
    }


def test_apply_on_a_branch_moves_the_branch(bench: Bench, tmp_path: Path) -> None:
    bench.begin()
    bench.commit("mine.txt", "1", "Mine")
    patches.export(bench.path, tmp_path / "patches")
    bench.git("checkout", "--quiet", "-B", "topic", HIPIFY)
    apply(bench, tmp_path / "patches")
    assert bench.git("log", "-1", "--format=%s", "topic") == "Mine"
    assert bench.git("symbolic-ref", "--short", "HEAD") == "topic"


def test_a_dry_run_says_what_would_happen(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.begin()
    bench.commit("mine.txt", "1", "Mine")
    patches.export(bench.path, tmp_path / "patches")
    bench.git("reset", "--quiet", "--hard", HIPIFY)
    command = ["patches", "apply", str(bench.path), str(tmp_path / "patches")]
    assert main([*command, "--dry-run"]) == 0
    would = capsys.readouterr().out
    assert bench.git("rev-parse", "HEAD") == bench.git("rev-parse", HIPIFY)
    assert main(command) == 0
    assert capsys.readouterr().out == would == f"0001-Mine.patch: {bench.git('rev-parse', 'HEAD')[:12]}\n"
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["commit"] is None


def test_apply_leaves_edits_alone(bench: Bench, tmp_path: Path) -> None:
    bench.begin()
    bench.commit("mine.txt", "1", "Mine")
    patches.export(bench.path, tmp_path / "patches")
    bench.git("reset", "--quiet", "--hard", HIPIFY)
    (bench.path / "third_party/plain/plain.h").write_text("edited")
    with pytest.raises(SourceError, match=r"third_party/plain/plain\.h.* patches are not put on top of them"):
        apply(bench, tmp_path / "patches")
    assert (bench.path / "third_party/plain/plain.h").read_text() == "edited"


def test_all_or_none(bench: Bench, tmp_path: Path) -> None:
    bench.begin()
    bench.commit("mine.txt", "1", "Mine")
    bench.commit("README", "kit\nmore\n", "More", part="third_party/cudakit")
    patches.export(bench.path, tmp_path / "patches")
    bench(force=True)
    bench.git("reset", "--quiet", "--hard", HIPIFY)
    bench.git("-C", "third_party/cudakit", "reset", "--quiet", "--hard", HIPIFY)
    bench.commit("README", "another\n", "Another", part="third_party/cudakit")
    head = bench.git("rev-parse", "HEAD")
    with pytest.raises(
        SourceError, match=r"0001-More\.patch does not apply to submodule third_party/cudakit"
    ):
        apply(bench, tmp_path / "patches")
    assert bench.git("rev-parse", "HEAD") == head
    assert bench.git("status", "--porcelain") == ""
    assert not (bench.path / ".git/rebase-apply").exists()


def test_patches_of_plain_git_lose_their_bracket(bench: Bench, tmp_path: Path) -> None:
    bench.begin()
    bench.commit("mine.txt", "1", "[ROCm] Mine")
    bench.git("format-patch", "--quiet", "-o", str(tmp_path / "patches"), f"{HIPIFY}..")
    bench.git("reset", "--quiet", "--hard", HIPIFY)
    assert apply(bench, tmp_path / "patches")[0].commit
    assert bench.git("log", "-1", "--format=%s") == "[ROCm] Mine"
    assert apply(bench, tmp_path / "patches")[0].commit is None


def test_what_export_and_apply_refuse(bench: Bench, tmp_path: Path) -> None:
    bench.begin()
    folder = tmp_path / "patches"
    folder.mkdir()
    (folder / "thesis.txt").write_text("precious")
    with pytest.raises(UsageError, match=r"files other than patches .*thesis\.txt"):
        patches.export(bench.path, folder)
    assert (folder / "thesis.txt").exists()
    with pytest.raises(UsageError, match=r"has no \*\.patch"):
        apply(bench, folder)
    (folder / "0001-x.patch").write_text("no mail\n")
    with pytest.raises(UsageError, match="is not a patch of git format-patch"):
        apply(bench, folder)
    (folder / "nowhere").mkdir()
    (folder / "0001-x.patch").rename(folder / "nowhere/0001-x.patch")
    with pytest.raises(SourceError, match="has no submodule nowhere"):
        apply(bench, folder)
    (bench.path / "src/device.cpp").write_text("edited")
    assert patches.export(bench.path, tmp_path / "other")[1] == ("src/device.cpp",)
    bench.git("stash", "--quiet")
    bench.git("switch", "--quiet", "-c", "side")
    bench.commit("side.txt", "1", "Side")
    bench.git("checkout", "--quiet", "--detach", HIPIFY)
    bench.commit("main.txt", "1", "Main")
    bench.git("merge", "--quiet", "-m", "Both", "side")
    with pytest.raises(SourceError, match=r"'Both' .* is a merge"):
        patches.export(bench.path, tmp_path / "other")


def test_a_patch_that_no_export_made_is_left_where_it_is(bench: Bench, tmp_path: Path) -> None:
    bench.begin()
    bench.git("commit", "--quiet", "--allow-empty", "-m", "Mine")
    folder = tmp_path / "patches of mine"
    folder.mkdir()
    (folder / "by-hand.patch").write_text("precious")
    first, _ = patches.export(bench.path, folder)
    (folder / first[0].file).write_text("edited")
    with pytest.raises(UsageError, match=r"0001-Mine\.patch, which Cairn did not make"):
        patches.export(bench.path, folder)
    assert (folder / "by-hand.patch").read_text() == "precious"
    assert (folder / first[0].file).read_text() == "edited"
