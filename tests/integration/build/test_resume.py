"""What `--clean --resume` does not build again, and what `cairn build log` says of it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import small_builds
from helpers.small_builds import SmallBuilds

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(small_builds.needs() is not None, reason=str(small_builds.needs())),
]


def log(builds: SmallBuilds, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cairn", "build", "log", *arguments, "--output-dir", str(builds.output)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_clean_build_goes_on_where_it_stopped(tmp_path: Path) -> None:
    builds = small_builds.make(tmp_path)
    broken = builds.folder / "trees" / "upper" / "upper1.cpp"
    whole = broken.read_text()
    broken.write_text(f"{whole}\nthis is no C++;\n")
    assert builds.run("--clean").returncode == 6
    assert builds.endings() == {"build base": "done", "build upper": "failed"}
    assert "error: " in log(builds, "upper", "--causes").stdout
    assert "g++" in log(builds, "upper").stdout
    table = log(builds)
    assert "build upper  failed" in table.stdout
    assert "failed; " in table.stderr
    assert log(builds, "uper").returncode == 2
    assert "did you mean upper?" in log(builds, "uper").stderr

    broken.write_text(whole)
    done = builds.run("--clean", "--resume")
    assert done.returncode == 0, done.stderr
    assert builds.endings() == {"build base": "kept", "build upper": "done"}
    events = json.loads(log(builds, "--json").stdout)
    assert events[-1]["event"] == "run-ended"

    done = builds.run("--clean", "--resume")  # that run came to its end: there is nothing to go on with
    assert done.returncode == 0, done.stderr
    assert builds.endings() == {"build base": "done", "build upper": "done"}
