"""Checkouts that an earlier version of Cairn made, which noted in several files what it was doing to them.

It wrote `cairn.placing.json` into each repository before it moved its files. It hipified in the tree itself,
after it had written the commits before as `heads` into `cairn.json`, and the ignored files into
`cairn.ignored`.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from cairn.errors import SourceError
from cairn.sources.checkout.checkout import hipify_checkout
from cairn.sources.checkout.describe import describe
from cairn.stack import Project
from helpers.sources import Bench, Upstream, dropped_ref


def as_it_was(bench: Bench, phase: str, **fields: Any) -> None:
    """The note as that version wrote it."""
    path = bench.path / ".git/cairn.json"
    note = json.loads(path.read_text())
    del note["moves"]
    path.write_text(json.dumps(note | {"phase": phase, "heads": {}} | fields, indent=2))


def half_moved(bench: Bench, upstream: Upstream) -> str:
    """Killed while the root's files were being replaced: one is there, one is gone, one is half."""
    before = bench.git("rev-parse", "HEAD")
    after = upstream.commit("torch", {"version.txt": "2.9.1\n", "src/new.cpp": "new\n"}, "Next")
    (bench.path / "version.txt").write_text("2.9.1\n")
    (bench.path / "src/new.cpp").write_text("n")
    placing = {"schema": "cairn.placing/1", "before": before, "after": after}
    (bench.path / ".git/cairn.placing.json").write_text(json.dumps(placing))
    as_it_was(bench, "moving", commit=after)
    return "version.txt"


def half_hipified(bench: Bench, upstream: Upstream) -> str:
    """Killed while hipify was at work in the tree, and in a submodule."""
    assert upstream
    heads = {}
    for part in (".", "third_party/cudakit", "third_party/plain", "third_party/plain/deps/inner"):
        bench.git("-C", part, "checkout", "--quiet", "THEROCK_UPSTREAM_DIFFBASE")
        bench.git("-C", part, "tag", "-d", "THEROCK_HIPIFY_DIFFBASE")
        heads["" if part == "." else part] = bench.git("-C", part, "rev-parse", "HEAD")
    (bench.path / "src/device.cpp").write_text('#include "hip/driver_types.h"\n')
    (bench.path / "third_party/cudakit/fill.cu").write_text('#include "hip/driver_types.h"\n')
    (bench.path / ".git/cairn.ignored").write_bytes(b"")
    as_it_was(bench, "hipifying", heads=heads)
    return "src/device.cpp"


@pytest.mark.parametrize("leave", [half_moved, half_hipified])
def test_an_unfinished_one_is_refused_in_one_line_and_kept_by_force(
    bench: Bench, upstream: Upstream, torch: Project, leave: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.begin()
    name = leave(bench, upstream)
    (bench.path / "src/cuda/kernel.cu").write_text("mine\n")
    before = {path: path.read_bytes() for path in bench.path.rglob("*") if path.is_file()}
    with pytest.raises(SourceError, match="an earlier version of Cairn did not finish") as refused:
        bench()
    assert name in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "--force" in str(refused.value.tip)
    for look in (describe, hipify_checkout):
        with pytest.raises(SourceError, match="is unfinished"):
            look(torch, bench.path)
    assert {path: path.read_bytes() for path in bench.path.rglob("*") if path.is_file()} == before
    done = bench(force=True)
    line = next(line for line in capsys.readouterr().err.splitlines() if "dropping" in line)
    ref = dropped_ref(line)
    assert bench.git("show", f"{ref}:src/cuda/kernel.cu") == "mine"
    assert bench.git("status", "--porcelain") == ""
    assert bench.git("rev-parse", "HEAD") == done.hipify_commit


def test_one_without_an_edit_is_finished(bench: Bench, upstream: Upstream) -> None:
    """Killed between two repositories: every file is as a commit has it."""
    first = bench.begin()
    as_it_was(bench, "moving")
    assert bench() == first
    newer = upstream.commit("torch", {"version.txt": "2.9.1\n"}, "Next")
    as_it_was(bench, "placed")
    assert bench().commit == newer


def test_a_finished_one_is_left_as_it_is(bench: Bench) -> None:
    first = bench.begin()
    as_it_was(bench, "ready")
    (bench.path / "src/cuda/kernel.cu").write_text("mine\n")
    assert bench().commit == first.commit
    assert (bench.path / "src/cuda/kernel.cu").read_text() == "mine\n"


def test_a_checkout_of_a_newer_version_is_refused_in_one_line(bench: Bench, torch: Project) -> None:
    bench.begin()
    path = bench.path / ".git/cairn.json"
    path.write_text(path.read_text().replace("cairn.checkout/1", "cairn.checkout/2"))
    before = path.read_bytes()
    for run in (bench, lambda: bench(force=True), lambda: hipify_checkout(torch, bench.path)):
        with pytest.raises(SourceError, match=r"cairn\.json is of a newer Cairn") as error:
            run()
        assert "\n" not in str(error.value)
    assert path.read_bytes() == before
