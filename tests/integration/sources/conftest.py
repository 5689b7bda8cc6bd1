"""Small real upstream repositories: a torch with submodules, and a hipify that must not run twice."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from cairn.files import cache_dir
from cairn.retry import RetryPolicy
from cairn.sources.checkout.checkout import CheckoutRequest
from cairn.sources.checkout.describe import Checkout
from cairn.stack import Origin, Project
from helpers.sources import Bench, Saved, Upstream, git

BUILD_AMD = '''\
"""Not idempotent, relative to the current folder, and edits a submodule: as upstream's is."""
import os, pathlib, sys
for name in ("CALLER_SECRET", "PYTHONPATH", "ROCM_HOME", "GIT_DIR"):
    if name in os.environ:
        sys.exit(f"{name} leaked into hipify")
for path in [pathlib.Path("src/device.cpp"), pathlib.Path("third_party/cudakit/fill.cu")]:
    if path.exists():
        path.write_text(path.read_text().replace("driver_types.h", "hip/driver_types.h"))
out = pathlib.Path("src/hip/kernel.hip")
out.parent.mkdir(exist_ok=True)
out.write_text(pathlib.Path("src/cuda/kernel.cu").read_text().replace("cuda", "hip"))
pathlib.Path("generated.ignored").write_text("x")
print("hipified")
'''


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where every test works, one after the other: what is copied to it finds its files where they were."""
    return tmp_path_factory.mktemp("place")


@pytest.fixture
def home(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's home, and a cache of their own; names that need quoting. Nothing else is in the place."""
    for left in place.iterdir():
        shutil.rmtree(left)
    folder = place / "Hüme dir"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith(("GIT_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(folder / "cache of möne"))
    return folder


@pytest.fixture(scope="session")
def pristine(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The upstream repositories, made once; each test gets a copy."""
    folder = place / "up stream é"
    folder.mkdir()
    up = Upstream(folder)
    up.create("inner", {"inner.h": "// inner\n"})
    up.create("cudakit", {"fill.cu": '#include "driver_types.h"\n', "README": "kit\n"})
    up.create("plain", {"plain.h": "// plain\n"})
    up.add_submodule("plain", "inner", "deps/inner")
    up.commit("plain", {}, "Add inner")
    up.create(
        "torch",
        {
            "version.txt": "2.9.0a0\n",
            ".gitignore": "*.ignored\nbuild/\n",
            "src/device.cpp": '#include "driver_types.h"\n',
            "src/cuda/kernel.cu": "cudaMalloc();\n",
            "tools/amd_build/build_amd.py": BUILD_AMD,
        },
    )
    up.add_submodule("torch", "cudakit", "third_party/cudakit")
    up.add_submodule("torch", "plain", "third_party/plain")
    git(up.work("torch"), "submodule", "--quiet", "update", "--init", "--recursive")
    up.commit("torch", {}, "Add submodules")
    git(up.work("torch"), "tag", "-m", "Two nine", "v2.9.0")
    git(up.work("torch"), "push", "--quiet", "origin", "v2.9.0")
    for objects in [*folder.rglob("objects")]:
        git(objects.parent, "repack", "-a", "-d", "--quiet")  # else each copy has a folder for each object
    for unneeded in [path for name in ("logs", "info") for path in folder.rglob(name)]:
        shutil.rmtree(unneeded)  # a third of what every test copies
    return folder.rename(tmp_path_factory.mktemp("pristine") / folder.name)


@pytest.fixture
def upstream(home: Path, pristine: Path) -> Upstream:
    folder = home.with_name(pristine.name)
    shutil.copytree(pristine, folder, symlinks=True)
    return Upstream(folder)


@pytest.fixture(scope="session")
def saved(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Saved:
    return Saved(place, tmp_path_factory.mktemp("saved"))


@pytest.fixture
def torch() -> Project:
    return Project(
        name="torch",
        distribution="torch",
        checkout_dir="pytorch",
        origin=Origin(url="unused"),
        hashtag="main",
        hipify="build_amd",
    )


@pytest.fixture
def bench(upstream: Upstream, torch: Project, saved: Saved) -> Bench:
    return Bench(
        CheckoutRequest(
            project=torch,
            checkout_dir=saved.place / "check outs ü" / "pytorch",
            origin=upstream.origin("torch"),
            hashtag="main",
            retry=RetryPolicy(attempts=2, wait=0.01),
        ),
        saved,
    )


@pytest.fixture
def reference(bench: Bench) -> Checkout:
    """What an undisturbed checkout gives; nothing of it is left."""
    done = bench.begin()
    for folder in (bench.path, cache_dir()):
        shutil.rmtree(folder)
    return done
