"""Headers outside of a tree: a wheel that was compiled with others is not the one that was asked for."""

import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from helpers import small_builds
from helpers.small_builds import SmallBuilds

pytestmark = pytest.mark.skipif(small_builds.needs() is not None, reason=str(small_builds.needs()))


@pytest.fixture
def builds(tmp_path: Path) -> SmallBuilds:
    """Builds whose `base` includes a header that is not in its tree."""
    made = small_builds.make(tmp_path)
    tree = tmp_path / "trees" / "base"
    with (tree / "base0.cpp").open("a") as source:
        source.write("#include <outside.h>\nint outside = OUTSIDE;\n")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tree), "commit", "-qam", "outside"]
    subprocess.run(git, check=True)
    (tmp_path / "headers").mkdir()
    return made


def build(builds: SmallBuilds, *more: str, value: int | None = None, old: bool = False) -> bool:
    """Build; whether anything was compiled.

    Args:
        builds: the stack.
        more: arguments.
        value: what the header is to say; None leaves it.
        old: the header is older than what was compiled, as that of an upgraded package may be.
    """
    header = builds.folder / "headers" / "outside.h"
    if value is not None:
        header.write_text(f"#define OUTSIDE {value}\n")
        if old:
            os.utime(header, (1_000_000_000, 1_000_000_000))
    done = builds.run("--build-env", f"CPATH={header.parent}", *more)
    assert done.returncode == 0, done.stderr
    return bool(builds.programs())


def digest(builds: SmallBuilds) -> str:
    """Of the objects in the wheel of `base`."""
    with zipfile.ZipFile(builds.output / "base-1.0-py3-none-any.whl") as archive:
        return archive.read("base/__init__.py").decode()


def test_a_changed_header_is_compiled_and_an_unchanged_one_is_not(builds: SmallBuilds) -> None:
    assert build(builds, value=1)
    first = digest(builds)
    assert not build(builds)
    assert build(builds, value=2, old=True)
    assert digest(builds) != first
    assert not build(builds, value=1)
    assert digest(builds) == first


def test_another_machine_takes_the_wheel_only_where_its_headers_are_the_same(
    builds: SmallBuilds, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ("--cache-store", str(builds.folder / "store"))
    assert build(builds, *store, value=1)
    first = digest(builds)
    for machine, value, compiled in (("same", 1, False), ("other", 2, True)):
        other = SmallBuilds(folder=builds.folder, output=builds.folder / f"out-{machine}", hold=builds.hold)
        monkeypatch.setattr(
            SmallBuilds,
            "environment",
            {**os.environ, "CXX": "g++", "CAIRN_CACHE_DIR": str(builds.folder / f"cache-{machine}")},
        )
        subprocess.run(["git", "-C", str(builds.folder / "trees" / "base"), "clean", "-qfdx"], check=True)
        assert build(other, *store, value=value) is compiled
        assert (digest(other) == first) is not compiled
