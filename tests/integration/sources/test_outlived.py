"""A checkout that is killed takes git and hipify with it: neither writes over what a person does next."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cairn import isolation
from cairn.errors import SourceError
from helpers.sources import Bench, Upstream

SCRIPT = Path(__file__).resolve().parents[3] / "external-builds/pytorch/pytorch_torch_repo.py"
MINE = "only a person has this\n"
# Both write the file again and again for as long as another file is there: much longer than is waited for
# their end, which must not come by itself.
SLOW_HIPIFY = """
import pathlib, time
end = time.monotonic() + 600
while pathlib.Path({slow!r}).exists() and time.monotonic() < end:
    pathlib.Path("src/device.cpp").write_text("hipified")
    pathlib.Path({slow!r}).write_text("at work")
    time.sleep(0.01)
pathlib.Path("src/device.cpp").write_text("hipified")
"""
ITS_CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}], check=True)"
SLOW_GIT = """#!/bin/sh
case " $* " in *" checkout "*)
    n=0
    while [ -e "{slow}" ] && [ $n -lt 30000 ]; do
        echo half > src/device.cpp; echo at work > "{slow}"; sleep 0.02; n=$((n + 1))
    done;;
esac
exec "{git}" "$@"
"""


def hipify(upstream: Upstream, _folder: Path, slow: Path) -> None:
    upstream.commit("torch", {"tools/amd_build/build_amd.py": SLOW_HIPIFY.format(slow=str(slow))}, "Slow")


def child_of_hipify(upstream: Upstream, _folder: Path, slow: Path) -> None:
    code = ITS_CHILD.format(code=SLOW_HIPIFY.format(slow=str(slow)))
    upstream.commit("torch", {"tools/amd_build/build_amd.py": code}, "Slow")


def git_itself(upstream: Upstream, folder: Path, slow: Path) -> None:
    upstream.commit("torch", {"src/device.cpp": "newer\n"}, "Newer")
    (folder / "git").write_text(SLOW_GIT.format(slow=slow, git=shutil.which("git")))
    (folder / "git").chmod(0o755)


def at_work_in(folder: Path) -> list[str]:
    """The processes whose working folder is there."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink() == folder:
                found.append((process / "cmdline").read_text())
        except OSError:
            continue
    return found


@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="it looks for processes in /proc")
@pytest.mark.parametrize(
    ("who", "sign"),
    [
        (child_of_hipify, signal.SIGKILL),
        (git_itself, signal.SIGKILL),
        (hipify, signal.SIGHUP),
        (git_itself, signal.SIGTERM),
        *(
            pytest.param(who, sign, marks=pytest.mark.by_hand)
            for who, sign in (
                (hipify, signal.SIGKILL),
                (child_of_hipify, signal.SIGHUP),
                (git_itself, signal.SIGHUP),
                (hipify, signal.SIGTERM),
                (child_of_hipify, signal.SIGTERM),
            )
        ),
    ],
)
def test_what_a_person_writes_after_the_kill_stays(
    bench: Bench,
    upstream: Upstream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    who: Callable[[Any, Path, Path], None],
    sign: signal.Signals,
) -> None:
    bench.begin(hipify=False)
    programs, notes = tmp_path / "programs", tmp_path / "notes"
    programs.mkdir()
    notes.mkdir()
    slow = notes / "slow"
    who(upstream, programs, slow)
    slow.touch()
    command = [sys.executable, str(SCRIPT), "checkout", "--gitrepo-origin", bench.request.origin]
    more = ["--repo-hashtag", "main", "--checkout-dir", str(bench.path)]
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
        patch.setenv(isolation.VARIABLE, str(notes))  # where both see how long they are to go on
        # These tests may run below nohup(1), and what it ignores would be ignored by the command, too.
        before = signal.signal(sign, signal.SIG_DFL) if sign is signal.SIGHUP else None
        with subprocess.Popen(
            [*command, *more], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as child:
            if before is not None:
                signal.signal(sign, before)
            try:
                wait_for(lambda: bool(slow.read_text()), seconds=300)
            finally:
                child.send_signal(sign)
    device = bench.path / "src/device.cpp"
    try:
        if who is not hipify:  # the guard takes a moment, on a busy machine a long one, and the kernel none
            wait_for(lambda: not at_work_in(bench.path), seconds=120)
    except AssertionError:
        slow.unlink()  # so that they end now
        raise
    device.write_text(MINE)
    time.sleep(0.3)
    assert device.read_text() == MINE
    assert at_work_in(bench.path) == []
    slow.unlink()
    with pytest.raises(SourceError, match=r"1 edited or new file \(src/device\.cpp\)"):
        bench()
    assert device.read_text() == MINE
    bench(force=True)
    assert bench.git("status", "--porcelain") == ""


def wait_for(met: Callable[[], bool], *, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_hipify_that_nobody_has_ended_is_by_the_next_run(bench: Bench, tmp_path: Path) -> None:
    """As where the guard was killed too."""
    bench.begin(hipify=False)
    bench.git("tag", "--delete", "THEROCK_UPSTREAM_DIFFBASE")
    note = bench.path / ".git/cairn.json"
    note.write_text(note.read_text().replace('"ready"', '"moving"'))
    program = tmp_path / "watch_script.py"
    program.write_text("import time; time.sleep(600)")
    with subprocess.Popen([sys.executable, str(program)], cwd=bench.path) as orphan:
        try:
            bench()
            assert orphan.wait(timeout=60) == -signal.SIGKILL
        finally:
            orphan.kill()
