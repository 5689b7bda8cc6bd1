"""`cairn bisect` on real sets: installed, run, named, and gone on with after an interruption."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cairn import datafile
from cairn.cli.main import main
from cairn.release.index import keys
from cairn.release.pages.trends import Point, Trends
from cairn.store.folder import LocalStore
from helpers.release import make_set, make_wheel, put, stage_set

FOREIGN_DIRS = "notes"


pytestmark = pytest.mark.slow

BAD = 4  # the first bad night of seven
CHECK = f"""
import sys, torch
minor = int(torch.VERSION.split(".")[2])
print("torch", torch.VERSION)
sys.exit(125 if minor == 2 else minor >= {BAD})
"""


@pytest.fixture
def nights(store: LocalStore, tmp_path: Path) -> list[str]:
    """Seven sets, one a night; their ids."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    ids = []
    for n in range(7):
        wheels = [make_wheel(tmp_path / f"night{n}", "torch", f"2.9.{n}")]
        ids.append(stage_set(store, "staging", make_set(wheels, python=python), wheels).id)
    return ids


def test_the_first_bad_night_is_named_and_a_search_goes_on(
    store: LocalStore, nights: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ask = ["bisect", "--store", str(store.path), "--good", nights[0], "--bad", nights[-1]]
    ask += ["--output-dir", str(tmp_path / "bisect"), "--no-commits"]
    assert main([*ask, "--dry-run"]) == 0
    assert "torch 2.9.3" in capsys.readouterr().out
    assert main([*ask, "--", "python", "-c", CHECK]) == 0
    out = capsys.readouterr().out
    assert f"the first bad set is {nights[BAD][:12]} of " in out
    assert f"the last good one is {nights[BAD - 1][:12]} of " in out
    assert "to blame: sources\n  - torch-2.9.3-" in out
    log = json.loads((tmp_path / "bisect" / "bisect.json").read_text())
    assert [(nights.index(one["set_id"]), one["verdict"]) for one in log["tries"]] == [
        *((3, "good"), (4, "bad"))
    ]
    assert "torch 2.9.3" in (tmp_path / "bisect" / log["tries"][0]["log"]).read_text()

    log["tries"] = log["tries"][:1]
    (tmp_path / "bisect" / "bisect.json").write_text(json.dumps(log))
    assert main([*ask, "--json", "--", "python", "-c", CHECK]) == 0
    captured = capsys.readouterr()
    assert "going on after 1 run" in captured.err
    assert json.loads(captured.out)["first_bad"] == [nights[BAD]]
    assert main([*ask, "--", "python", "-c", "pass"]) == 2
    assert "is the log of a different search" in capsys.readouterr().err


def test_a_dependency_that_came_with_a_night_is_to_blame_and_a_good_set_that_fails_is_not(
    store: LocalStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    ids = []
    for n in (1, 2):
        put(store, "staging", [make_wheel(tmp_path / "dependencies", "helper", f"{n}.0")])
        wheels = [make_wheel(tmp_path / f"night{n}", "torch", f"2.9.{n}", requires=["helper"])]
        ids.append(stage_set(store, "staging", make_set(wheels, python=python), wheels).id)
    ask = ["bisect", "--store", str(store.path), "--good", ids[0], "--bad", ids[1], "--no-commits"]
    check = "import sys, torch, helper; sys.exit(helper.VERSION == '2.0')"
    assert main([*ask, "--output-dir", str(tmp_path / "a"), "--", "python", "-c", check]) == 0
    captured = capsys.readouterr()
    assert "at most 1 set, and 2 mixes" in captured.err
    assert (
        "to blame: dependencies\n  - helper-1.0-py3-none-any.whl\n  + helper-2.0-py3-none-any.whl"
        in captured.out
    )
    assert f"{ids[1][:12]}, with the sources of the last good set, bad" in captured.out
    assert main([*ask, "--output-dir", str(tmp_path / "b"), "--", "python", "-c", "import lost"]) == 0
    assert "no set is to blame" in capsys.readouterr().out


def test_what_is_killed_on_its_way_goes_on_where_it_was(
    store: LocalStore, nights: list[str], tmp_path: Path
) -> None:
    ask = [sys.executable, "-m", "cairn", "bisect", "--store", str(store.path), "--good", nights[0]]
    ask += ["--bad", nights[-1], "--output-dir", str(tmp_path / "bisect"), "--no-commits", "--"]
    flag = tmp_path / "flag"
    check = (
        f"import os, pathlib, sys, time, torch\nn = int(torch.VERSION[4:])\n"
        f"if n == {BAD} and not os.path.exists({str(flag)!r}):\n"
        f"    pathlib.Path({str(flag)!r}).touch()\n    time.sleep(60)\n"
        f"sys.exit(n >= {BAD})\n"
    )
    with subprocess.Popen([*ask, "python", "-c", check]) as first:
        while first.poll() is None and not flag.exists():
            time.sleep(0.05)
        first.kill()
    assert first.returncode == -9
    again = subprocess.run([*ask, "python", "-c", check], capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert "going on after 1 run" in again.stderr
    assert f"the first bad set is {nights[BAD][:12]}" in again.stdout


def test_a_jump_of_the_status_page_leads_to_what_came_with_its_night(
    store: LocalStore, nights: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    points = tuple(
        Point(
            night=f"n{n}", started=f"2026-11-{n + 1:02}T01:00:00Z", set_id=set_id, values={"wheel_size": size}
        )
        for n, (set_id, size) in enumerate(zip(nights, (100, 101, 100, 101, 150, 151, 150), strict=True))
    )
    trends = Trends(index="staging", legs={"main cpu 3.11 linux_x86_64": points})
    store.write(keys.trends_key("staging"), datafile.dumps(trends).encode())
    ask = ["bisect", "--store", str(store.path), "--jump", "wheel_size", "--no-commits"]
    ask += ["--output-dir", str(tmp_path / "bisect")]
    assert main(ask) == 0
    captured = capsys.readouterr()
    assert "(+49%) in the night n4, after n3" in captured.err
    assert f"the first bad set is {nights[4][:12]} of " in captured.out
    assert f"the last good one is {nights[3][:12]} of " in captured.out
    assert "  - torch-2.9.3-" in captured.out
    assert "  + torch-2.9.4-" in captured.out
    assert not (tmp_path / "bisect").exists()
