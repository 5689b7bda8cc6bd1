"""Each thing that may end a build, and the next run, which must be right."""

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers import small_builds
from helpers.small_builds import SmallBuilds, kill, wait_for

pytestmark = pytest.mark.skipif(small_builds.needs() is not None, reason=str(small_builds.needs()))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The wheels of a build that nothing disturbs; the second one finds nothing to do."""
    builds = small_builds.make(tmp_path_factory.mktemp("undisturbed"))
    done = builds.run()
    assert done.returncode == 0, done.stderr
    assert builds.programs()
    again = builds.run()
    assert again.returncode == 0, again.stderr
    assert builds.programs() == []
    assert set(builds.endings().values()) == {"kept"}
    wheels = builds.wheels()
    assert set(wheels) == {"base-1.0-py3-none-any.whl", "upper-1.0-py3-none-any.whl"}
    return wheels


@pytest.fixture
def builds(tmp_path: Path) -> SmallBuilds:
    return small_builds.make(tmp_path / "with a space, ü")


def assert_right(builds: SmallBuilds, undisturbed: dict[str, bytes], *arguments: str) -> str:
    """The next run builds what an undisturbed one does, and the one after that has nothing to do."""
    done = builds.run(*arguments)
    assert done.returncode == 0, done.stderr
    assert contents(builds.wheels()) == contents(undisturbed)
    assert not list(builds.folder.rglob("wheel-*"))
    said = done.stderr
    done = builds.run()
    assert done.returncode == 0, done.stderr
    assert builds.programs() == []
    return said


def contents(wheels: dict[str, bytes]) -> dict[str, bytes]:
    # What the bill of materials says of the tree (its commit) is of the time when the test made it.
    import io  # noqa: PLC0415
    import zipfile  # noqa: PLC0415

    found = {}
    for name, data in wheels.items():
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            found[name] = archive.read(f"{name.partition('-')[0]}/__init__.py")
    return found


@pytest.mark.slow
def test_the_runner_is_killed(builds: SmallBuilds, undisturbed: dict[str, bytes]) -> None:
    with builds.holding(), builds.started() as program:
        wait_for(lambda: builds.processes("cc1plus"))
        program.kill()
        program.wait()
        wait_for(lambda: not builds.processes("cc1plus") + builds.processes("make"), seconds=5)
    assert builds.endings() == {}
    assert_right(builds, undisturbed)


@pytest.mark.slow
def test_a_compiler_is_killed(builds: SmallBuilds, undisturbed: dict[str, bytes]) -> None:
    with builds.holding(), builds.started("--jobs", "2") as program:
        wait_for(lambda: len(builds.processes("cc1plus")) >= 2)
        victims = builds.processes("cc1plus")
        builds.hold.unlink()
        kill(victims)
        said, _ = program.communicate(timeout=120)
    assert program.returncode == 0, said
    assert "a program was killed, or had no memory left; again with 1 compile job instead of 2" in said
    assert (builds.output / "logs" / "base.1.log").read_text().count("Killed")
    assert contents(builds.wheels()) == contents(undisturbed)
    assert_right(builds, undisturbed)


@pytest.mark.by_hand
def test_pip_is_killed(builds: SmallBuilds, undisturbed: dict[str, bytes]) -> None:
    def pip() -> list[int]:
        return builds.processes("-m pip")

    with builds.started() as program:
        wait_for(pip)
        kill(pip())
        said, _ = program.communicate(timeout=120)
    assert program.returncode == 6, said
    assert builds.endings()["build upper"] == "failed"
    assert_right(builds, undisturbed)


@pytest.mark.slow
def test_a_step_hangs(builds: SmallBuilds, undisturbed: dict[str, bytes]) -> None:
    with builds.holding():
        started = time.monotonic()
        done = builds.run("--time-limit", "4", "--keep-going")
        assert time.monotonic() - started < 30
    assert done.returncode == 6, done.stderr
    assert "build base was ended: it had not come to its end within 4.0 s" in done.stderr
    assert "build upper  skipped: because build base failed" in done.stderr
    assert builds.endings() == {"build base": "failed", "build upper": "skipped"}
    assert not builds.processes("cc1plus")
    assert_right(builds, undisturbed)


@pytest.mark.by_hand
def test_an_interrupt_ends_all_that_runs_within_five_seconds(
    builds: SmallBuilds, undisturbed: dict[str, bytes]
) -> None:
    with builds.holding(), builds.started() as program:
        wait_for(lambda: builds.processes("cc1plus"))
        started = time.monotonic()
        program.send_signal(signal.SIGINT)
        said, _ = program.communicate(timeout=30)
        assert time.monotonic() - started < 5
        assert program.returncode == 130, said
        assert not builds.processes("cc1plus")
    assert builds.endings()["build base"] == "stopped"
    assert_right(builds, undisturbed)


@pytest.mark.by_hand
def test_memory_is_short(tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    # Each compiler may have its share of 120 MB of address space, which is too little for two of them.
    limit = "ulimit -v $$((120000 / MAX_JOBS)); "
    builds = small_builds.make(tmp_path / "short", before=limit, include="#include <vector>")
    done = builds.run("--jobs", "2")
    assert done.returncode == 0, done.stderr
    assert re.search(r"no memory left; again with 1 compile job instead of 2", done.stderr), done.stderr
    assert contents(builds.wheels()) == contents(undisturbed)


@contextlib.contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[None]:
    """A disk of its own for a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.by_hand
def test_the_disk_of_a_tree_is_full(builds: SmallBuilds, undisturbed: dict[str, bytes]) -> None:
    with small_disk(builds.folder / "trees" / "base" / "build", 4):
        done = builds.run()
    assert done.returncode == 6, done.stderr
    assert "No space left on device" in done.stderr
    assert_right(builds, undisturbed)


@pytest.mark.by_hand
def test_the_disk_of_the_output_is_full(builds: SmallBuilds, undisturbed: dict[str, bytes]) -> None:
    with small_disk(builds.output, 8):
        done = builds.run()
        assert done.returncode == 11, done.stderr
        assert "No space left on device" in done.stderr
    assert_right(builds, undisturbed)
