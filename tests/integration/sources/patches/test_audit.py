"""What a checkout has beyond upstream is explained, or named as a problem."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
from pathlib import Path

import msgspec
import pytest

from cairn import isolation
from cairn.cli.main import main
from cairn.errors import SourceError
from cairn.files import cache_dir, locked
from cairn.sources.checkout.checkout import hipify_checkout
from cairn.sources.patches import audit as patches_audit
from cairn.stack import Project
from helpers.patches import HIPIFY, TODAY, UPSTREAM, allowed, audit
from helpers.sources import Bench, Upstream


def said(found: patches_audit.Audit) -> list[tuple[str, str]]:
    return [(problem.kind, problem.path) for problem in found.problems]


def test_a_fresh_checkout_is_explained_and_untouched(bench: Bench) -> None:
    bench.begin()
    before = bench.git("status", "--porcelain", "--ignored"), bench.git("show-ref")
    found = audit(bench)
    assert (said(found), found.parts) == ([], 4)
    assert (bench.git("status", "--porcelain", "--ignored"), bench.git("show-ref")) == before


def test_a_checkout_without_submodules_or_at_build(bench: Bench, torch: Project) -> None:
    bench.begin(submodules=False)
    assert audit(bench).parts == 1
    bench(project=msgspec.structs.replace(torch, hipify="at-build"))
    assert said(audit(bench, kind="at-build")) == []


def test_an_edit_that_hipify_does_not_make_is_named(bench: Bench) -> None:
    """The mistake of tagging after a local patch, and of amending hipify's commit."""
    bench.begin()
    (bench.path / "src/device.cpp").write_text("smuggled")
    (bench.path / "src/extra é.cpp").write_text("smuggled")
    bench.git("add", "--all")
    bench.git("commit", "--quiet", "--amend", "--no-edit")
    bench.git("tag", "-f", HIPIFY)
    bench.git("-C", "third_party/plain", "commit", "--quiet", "--allow-empty", "-m", "Nothing")
    (bench.path / "third_party/plain/plain.h").write_text("smuggled")
    bench.git("-C", "third_party/plain", "commit", "--quiet", "-a", "-m", "Smuggled")
    bench.git("-C", "third_party/plain", "tag", "-f", HIPIFY)
    found = audit(bench)
    assert said(found) == [("hipify", ""), ("commit", "third_party/plain"), ("commit", "third_party/plain")]
    assert found.problems[0].files == ("src/device.cpp", "src/extra é.cpp")
    # Nothing says that hipify was run before them: they may be patches for upstream's own files.
    assert ["Smuggled" in problem.text for problem in found.problems] == [False, False, True]


def test_every_commit_must_be_allowed(bench: Bench) -> None:
    bench.begin()
    mine = bench.commit("mine.txt", "1", "Mine")
    theirs = bench.commit("fill.cu", "2", "In a submodule", part="third_party/cudakit")
    found = audit(bench)
    assert [p.commit for p in found.problems] == [mine, theirs]
    entries = [allowed(mine), allowed(theirs, path="third_party/cudakit")]
    assert said(audit(bench, *entries)) == []
    assert len(audit(bench, *entries).explained) == 2
    assert said(audit(bench, entries[0], allowed(theirs))) == [("commit", "third_party/cudakit")]
    assert said(audit(bench, *entries, project="audio")) == [
        ("commit", ""),
        ("commit", "third_party/cudakit"),
    ]


def test_a_patch_is_known_on_another_base_by_what_it_changes(bench: Bench) -> None:
    bench.begin()
    bench.commit("src/mine.py", "if x:\n    y()\nz()\n", "Mine")
    (problem,) = audit(bench).problems
    bench.git("commit", "--quiet", "--amend", "-m", "Mine, on another day")
    assert problem.patch is not None
    entry = allowed("0" * 40, patch=problem.patch)
    assert said(audit(bench, entry)) == []
    # The old commit is still among the objects here: its id says what it changes.
    assert problem.commit is not None
    assert said(audit(bench, allowed(problem.commit))) == []
    (bench.path / "src/mine.py").write_text("if x:\n    y()\n    z()\n")
    bench.git("commit", "--quiet", "--amend", "-a", "--no-edit")
    assert said(audit(bench, entry)) == [("commit", "")]


def test_an_expired_entry_fails_even_unused(bench: Bench) -> None:
    bench.begin()
    mine = bench.commit("mine.txt", "1", "Mine")
    old = TODAY - dt.timedelta(days=1)
    assert said(audit(bench, allowed(mine, expires=old))) == [("expired", "")]
    assert said(audit(bench, allowed(mine), allowed("0" * 40, expires=old))) == [("expired", "")]
    assert said(audit(bench, allowed(mine), allowed("0" * 40, expires=old, project="audio"))) == []


def test_edits_in_no_commit_are_named(bench: Bench) -> None:
    bench.begin()
    (bench.path / "src/device.cpp").write_text("edited")
    (bench.path / "third_party/plain/deps/inner/new.h").write_text("new")
    found = audit(bench)
    assert [p.files for p in found.problems] == [("src/device.cpp",), ("third_party/plain/deps/inner/new.h",)]


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_edits_cannot_be_hidden(bench: Bench, flag: str) -> None:
    bench.begin()
    bench.git("-C", "third_party/plain", "update-index", flag, "plain.h")
    (bench.path / "third_party/plain/plain.h").write_text("hidden")
    found = audit(bench)
    assert said(found) == [("edits", "third_party/plain")]
    assert found.problems[0].files == ("third_party/plain/plain.h",)


def test_a_replaced_commit_is_seen_as_it_is(bench: Bench) -> None:
    bench.begin()
    mine = bench.commit("mine.txt", "1", "Mine")
    bench.git("replace", mine, HIPIFY)
    assert [problem.commit for problem in audit(bench).problems] == [mine]


def test_a_killed_audit_leaves_nothing_after_the_next(bench: Bench) -> None:
    bench.begin()
    killed, alive = cache_dir() / "scratch/killed", cache_dir() / "scratch/alive"
    for folder in (killed, alive):
        (folder / "tree").mkdir(parents=True)
        folder.with_suffix(".lock").touch()
    with locked(alive.with_suffix(".lock")):
        audit(bench)
        assert not killed.exists()
        assert (alive / "tree").exists()
    audit(bench)
    assert list((cache_dir() / "scratch").iterdir()) == []


def test_a_shallow_checkout(bench: Bench) -> None:
    bench.begin(depth=1)
    assert said(audit(bench)) == []


@pytest.mark.parametrize(
    "move",
    [
        ("tag", "-f", UPSTREAM, "HEAD"),
        ("tag", "-d", HIPIFY),
        ("-C", "third_party/plain", "tag", "-d", HIPIFY),
        ("-C", "third_party/cudakit", "tag", "-f", UPSTREAM, "HEAD"),
        ("reset", "--quiet", "--hard", "HEAD~1"),
    ],
)
def test_a_moved_tag_is_a_problem(bench: Bench, move: tuple[str, ...]) -> None:
    bench.begin()
    bench.git(*move)
    assert {kind for kind, _ in said(audit(bench))} == {"tags"}


def test_what_cannot_be_audited(bench: Bench, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="not a git checkout"):
        audit(bench, checkout=tmp_path)
    bench.begin(hipify=False)
    assert said(audit(bench))[0] == ("tags", "")
    bench.git("tag", "-d", UPSTREAM)
    with pytest.raises(SourceError, match=f"no tag {UPSTREAM}"):
        audit(bench)


def test_the_command(bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench.begin()
    mine = bench.commit("mine.txt", "1", "Mine")
    path = tmp_path / "allowlist.toml"
    path.write_text('schema = "cairn.patches/1"\n')
    command = ["patches", "audit", str(bench.path), "--allowlist", str(path)]
    assert main(command) == 4
    out = capsys.readouterr()
    assert f'commit = "{mine}"' in out.out
    assert "1 thing that nothing explains" in out.err
    patch = next(line for line in out.out.splitlines() if "patch =" in line)
    entry = f'commit = "{mine}"\n{patch}\nwhy = "It is a test."\nowner = "Jo"\nexpires = 9999-01-01\n'
    url = 'upstream = "https://example.invalid/pull/1"\n'
    path.write_text(f'schema = "cairn.patches/1"\n[[patch]]\nproject = "torch"\n{entry}{url}')
    assert main([*command, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["ok"], answer["parts"], answer["allowed"][0]["commit"]) == (True, 4, mine)
    path.write_text("schema = ")
    assert main(command) == 2
    assert "allowlist.toml:1: " in capsys.readouterr().err


def test_a_checkout_that_upstreams_scripts_made(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.begin()
    for name in ("cairn.json", "cairn.hipify.json", "cairn.config"):
        (bench.path / ".git" / name).unlink()
    command = ["patches", "audit", str(bench.path)]
    assert main(command) == 2
    assert "--project" in capsys.readouterr().err
    assert main([*command, "--project", "torch"]) == 0
    assert "hipify: build_amd" in capsys.readouterr().out
    stack = str(Path(__file__).parents[4] / "external-builds/pytorch")
    assert main([*command, "--project", "vision", "--stack", stack]) == 4
    assert "edits that hipify does not make" in capsys.readouterr().out


def test_the_report_command(bench: Bench, torch: Project, capsys: pytest.CaptureFixture[str]) -> None:
    bench.begin(hipify=False)
    assert main(["patches", "report", str(bench.path)]) == 4
    capsys.readouterr()
    hipify_checkout(torch, bench.path)
    assert main(["patches", "report", str(bench.path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["schema"] == "cairn.hipify/1"
    assert report["read"] == ["src/cuda/kernel.cu", "src/device.cpp", "third_party/cudakit/fill.cu"]
    assert main(["patches", "report", str(bench.path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "hipify: 3 files read, 2 changed, 2 generated, 1 GPU source unchanged"
    assert "generated: src/hip/kernel.hip" in lines


COUNTING = """#!/bin/sh
echo "$*" >> '{log}'
exec '{git}' "$@"
"""


def test_an_audit_asks_little_about_a_submodule_that_nobody_touched(
    bench: Bench, upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of torch has forty of them, and starting git forty times for each was most of its time."""
    log, git = tmp_path / "log", shutil.which("git")
    (tmp_path / "bin").mkdir()
    wrapper = tmp_path / "bin/git"
    wrapper.write_text(COUNTING.format(log=log, git=git))
    wrapper.chmod(0o755)

    bench.begin()

    def runs() -> int:
        bench()
        log.write_text("")
        with monkeypatch.context() as patch:
            patch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
            patch.setenv(isolation.VARIABLE, str(tmp_path))  # where this git counts
            assert said(audit(bench)) == []
        return len(log.read_text().splitlines())

    before = runs()
    for number in range(8):
        upstream.add_submodule("torch", "inner", f"third_party/more{number}")
    upstream.commit("torch", {}, "Add more")
    assert (runs() - before) / 8 <= 21
