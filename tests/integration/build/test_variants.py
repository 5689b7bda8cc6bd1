"""Several real Pythons in one run: what does not know Python is compiled once."""

import resource
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from cairn.build import job, variants
from cairn.build.build_options import CompilerCache
from cairn.build.model import BuiltWheel, Job
from cairn.build.variants import Axes
from cairn.interpreters import Interpreter
from helpers import build, compiler_bound, pythons

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("g++"), reason="g++ is not installed"),
]
MOST = 1.4  # times one build, for three Pythons


def build_for(
    folder: Path,
    found: tuple[Interpreter, ...],
    *,
    count: int,
    heavy: bool,
    patch: pytest.MonkeyPatch,
    cache: CompilerCache = "ccache",
) -> tuple[list[BuiltWheel], float]:
    """The wheels for some Pythons, from nothing; and the seconds of CPU that it took."""
    patch.setenv("CAIRN_CACHE_DIR", str(folder / "cache"))
    patch.setenv("CCACHE_DIR", str(folder / "ccache"))
    patch.setenv("SCCACHE_DIR", str(folder / "sccache"))
    tree = build.repository(folder / "demo", compiler_bound.sources(count, heavy=heavy))
    wanted = Job(
        stack=compiler_bound.stack(folder),
        checkouts={"demo": tree},
        output_dir=folder / "out",
        compiler_cache=cache,
    )
    jobs = variants.expand(wanted, Axes(pythons=found), root=folder)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    wheels = [wheel for wheels in job.run(jobs) for wheel in wheels]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wheels, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("cache", ["ccache", pytest.param("sccache", marks=pytest.mark.by_hand)])
def test_a_second_python_compiles_what_knows_python_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: CompilerCache
) -> None:
    found = pythons.several(2)
    wheels, _ = build_for(tmp_path, found, count=3, heavy=False, patch=monkeypatch, cache=cache)
    first, second = (wheel.compiler_cache for wheel in wheels)
    assert first is not None
    assert second is not None
    assert (first.hits, first.misses) == (0, 4)
    assert (second.hits, second.misses) == (3, 1)
    for python, wheel in zip(found, wheels, strict=True):
        site = tmp_path / python.tag
        with zipfile.ZipFile(wheel.wheel) as archive:
            archive.extractall(site)
            products = [name for name in archive.namelist() if name.endswith(".so")]
        assert [python.tag.removeprefix("cp") in name for name in products] == [True]
        code = f"import sys; sys.path.insert(0, {str(site)!r}); import _demo; print(_demo.call())"
        said = subprocess.run([python.path, "-I", "-c", code], capture_output=True, text=True, check=True)
        assert said.stdout.strip() == python.version.removeprefix("3.")


@pytest.mark.by_hand
def test_three_pythons_cost_little_more_than_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = pythons.several(3)
    _, one = build_for(tmp_path / "one", found[:1], count=12, heavy=True, patch=monkeypatch)
    _, three = build_for(tmp_path / "three", found, count=12, heavy=True, patch=monkeypatch)
    with capsys.disabled():
        names = ", ".join(python.release.split()[0] for python in found)
        print(f"\none Python {one:.1f} s CPU, three ({names}) {three:.1f} s: {three / one:.2f}x")  # noqa: T201
    assert three <= MOST * one
