"""Small real upstream repositories: a torch with submodules, and a hipify that must not run twice."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cairn.sources.checkout.checkout import Checkout, CheckoutRequest, checkout
from cairn.sources.git.command import RetryPolicy
from cairn.stack import Origin, Project

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


def clean_environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    return kept | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C.UTF-8"}


def git(folder: Path, *args: str) -> str:
    """Plain git, as a person without configuration would run it."""
    identity = ("-c", "user.name=Up Stream", "-c", "user.email=up@example.invalid")
    done = subprocess.run(
        ["git", *identity, "-c", "protocol.file.allow=always", *args],
        cwd=folder,
        env=clean_environment(),
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"git {args}: {done.stderr}"
    return done.stdout.strip()


@dataclass(frozen=True)
class Upstream:
    """A folder of bare upstream repositories, and work trees to commit to them from."""

    folder: Path

    def origin(self, name: str) -> str:
        return str(self.folder / f"{name}.git")

    def work(self, name: str) -> Path:
        return self.folder / "work" / name

    def create(self, name: str, files: Mapping[str, str]) -> str:
        work = self.work(name)
        work.mkdir(parents=True)
        git(work, "init", "--quiet", "--initial-branch=main")
        git(self.folder, "init", "--quiet", "--bare", "--initial-branch=main", f"{name}.git")
        git(work, "remote", "add", "origin", self.origin(name))
        return self.commit(name, files, f"Begin {name}")

    def commit(self, name: str, files: Mapping[str, str], message: str, *, branch: str = "main") -> str:
        work = self.work(name)
        for path, text in files.items():
            target = work / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        git(work, "add", "--all", "--force")
        git(work, "commit", "--quiet", "--allow-empty", "-m", message)
        git(work, "push", "--quiet", "--force", "origin", f"HEAD:refs/heads/{branch}")
        return git(work, "rev-parse", "HEAD")

    def add_submodule(self, name: str, module: str, path: str) -> None:
        git(self.work(name), "submodule", "--quiet", "add", f"../{module}.git", path)

    def bump_submodule(self, name: str, path: str, commit: str) -> None:
        git(self.work(name) / path, "fetch", "--quiet", "origin")
        git(self.work(name) / path, "checkout", "--quiet", commit)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's home, and a cache of their own; names that need quoting."""
    folder = tmp_path / "Hüme dir"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith(("GIT_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(folder / "cache of möne"))
    return folder


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The upstream repositories, made once; each test gets a copy."""
    folder = tmp_path_factory.mktemp("pristine") / "up stream é"
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
    return folder


@pytest.fixture
def upstream(tmp_path: Path, home: Path, pristine: Path) -> Upstream:
    assert home.is_dir()
    folder = tmp_path / pristine.name
    shutil.copytree(pristine, folder, symlinks=True)
    for config in folder.rglob("config"):
        config.write_text(config.read_text().replace(str(pristine), str(folder)))
    return Upstream(folder)


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


@dataclass(frozen=True)
class Bench:
    """Checks torch out with few words."""

    request: CheckoutRequest

    def __call__(self, hashtag: str = "main", **changes: object) -> Checkout:
        return checkout(replace(self.request, hashtag=hashtag, **changes))  # type: ignore[arg-type]

    @property
    def path(self) -> Path:
        return self.request.checkout_dir

    def git(self, *args: str) -> str:
        return git(self.path, *args)


@pytest.fixture
def bench(tmp_path: Path, upstream: Upstream, torch: Project) -> Bench:
    return Bench(
        CheckoutRequest(
            project=torch,
            checkout_dir=tmp_path / "check outs ü" / "pytorch",
            origin=upstream.origin("torch"),
            hashtag="main",
            retry=RetryPolicy(attempts=2, wait=0.01),
        )
    )


@pytest.fixture
def run_git() -> Callable[..., str]:
    return git
