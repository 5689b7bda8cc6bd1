"""`patches apply` killed while it moves a checkout onto patches beneath hipify's commit."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cairn import isolation
from cairn.errors import SourceError
from helpers.patches import HIPIFY, UPSTREAM, outcomes
from helpers.sources import Bench

KIT = "third_party/cudakit"

# Ends itself before the N-th program that it would start once the checkout has begun to move.
CHILD = """
import os, signal, sys
from pathlib import Path
from cairn.sources.patches import apply
checkout, folder, nth = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
count = 0
def hook(event, args):
    global count
    if event == "subprocess.Popen" and '"hipifying"' in (checkout / ".git/cairn.json").read_text():
        count += 1
        if count == nth:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
request = apply.ApplyRequest(checkout=checkout, folder=folder, kind="build_amd")
apply.apply(request, say=lambda line: None)
"""


@pytest.fixture
def patches(bench: Bench, tmp_path: Path) -> Path:
    """Patches for upstream's files in the root and in a submodule."""
    folder = tmp_path / "patches"
    bench.begin(hipify=False)
    include = '#include "driver_types.h"\n'
    for part, name, place in ((".", "src/device.cpp", "pytorch"), (KIT, "fill.cu", KIT)):
        bench.commit(name, f"{include}// base\n", "Base", part=part)
        bench.git("-C", part, "format-patch", "--quiet", "-1", "-o", str(folder / place / "base"))
        bench.git("-C", part, "reset", "--quiet", "--hard", UPSTREAM)
    bench()
    return folder


def state(bench: Bench) -> list[str]:
    """What the checkout and its submodule are of."""
    names = ("HEAD^{tree}", f"{HIPIFY}^{{tree}}", f"{HIPIFY}~1^{{tree}}", UPSTREAM)
    return [bench.git("-C", part, "rev-parse", *names) for part in (".", KIT)]


@pytest.mark.slow
def test_killed_while_it_moves_it_loses_nothing_and_can_be_done_again(
    bench: Bench, patches: Path, tmp_path: Path
) -> None:
    # A person's own commits: on a branch that HEAD is on, and on one that it is not on.
    bench.git("switch", "--quiet", "-c", "elsewhere")
    mine = bench.commit("mine.txt", "mine\n", "Mine", part=".")
    bench.git("switch", "--quiet", "--detach", HIPIFY)
    bench.git("-C", KIT, "switch", "--quiet", "-c", "here")
    (bench.path / "notes.ignored").write_text("mine\n")
    before = tmp_path / "before"
    shutil.copytree(bench.path, before, symlinks=True)
    outcomes(bench, patches)
    wanted = state(bench)
    nth, killed = random.randint(1, 4), 0  # noqa: S311 - in the course of time every step has its turn
    while True:
        shutil.rmtree(bench.path)
        shutil.copytree(before, bench.path, symlinks=True)
        command = [sys.executable, "-c", CHILD, str(bench.path), str(patches), str(nth)]
        # The child looks at the checkout's notes where it starts git, in a thread that is confined as git is.
        env = {**os.environ, isolation.VARIABLE: str(bench.path)}
        done = subprocess.run(command, env=env, check=False, capture_output=True, text=True)
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        with pytest.raises(SourceError, match="unfinished"):
            outcomes(bench, patches)
        try:
            bench()
        except SourceError as error:
            assert " Base" in str(error)  # noqa: PT017 - the patches that are in already: nobody's but theirs
            bench(force=True)
        assert "applied" in outcomes(bench, patches).values(), nth
        assert state(bench) == wanted, nth
        assert bench.git("rev-parse", "elsewhere") == mine
        assert (bench.path / "notes.ignored").read_text() == "mine\n"
        nth, killed = nth + 4, killed + 1
    assert killed > 1
