"""Stand-ins for what the shipped PyTorch stack names by address: upstream's repositories and ROCm's index.

The repositories have the shapes of upstream's, and little inside. That of pytorch packs PyPI's torch for
the CPU again (`tests/e2e/upstream/pytorch/setup.py`), so that what is tested is a real torch.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.utils import parse_sdist_filename, parse_wheel_filename

from cairn import files, targets
from cairn.rocm import package
from helpers import rocm, zig
from helpers.trail import ROOT, shared_cache

TREES = ROOT / "tests" / "e2e" / "upstream"
TORCH = "2.13.0"
ROCM = rocm.VERSION
_SAMPLE = ROOT / "external-builds" / "sample" / "repos"
# Of what hipify needs: upstream's own is part of torch, and loads all of its tables.
_OF_SAMPLE = ("tools/amd_build/build_amd.py", "torch/utils/hipify")
# 140 MB of programs for upstream's own tests, and 7,000 headers, which every environment would copy. The
# smoke tests look at `ATen/ops/add.h` and what it includes.
_LEFT_OUT = re.compile(r"torch/(test/|bin/(test_|protoc)|include/ATen/ops/(?!add))")
_AUTHOR = ("-c", "user.name=Upstream", "-c", "user.email=upstream@example.invalid")


def unpacked_torch() -> Path:
    """PyPI's torch for the CPU, unpacked once for all runs; the test is skipped where pip finds none."""
    folder = shared_cache() / f"torch-{TORCH}-{sys.implementation.cache_tag}-small"
    with files.locked(folder.with_suffix(".lock"), timeout=1200):
        if folder.is_dir():
            return folder
        house, part = folder.with_suffix(".wheels"), folder.with_suffix(".part")
        # Without what it needs, and by its whole name: PyPI's own is for CUDA, and needs gigabytes.
        words = [
            "download",
            "--quiet",
            "--no-deps",
            "--only-binary=:all:",
            "--dest",
            house,
            f"torch=={TORCH}+cpu",
        ]
        done = subprocess.run(
            [sys.executable, "-m", "pip", *map(str, words)], capture_output=True, check=False
        )
        if done.returncode:
            pytest.skip(f"pip finds no torch {TORCH} for the CPU: add an index of PyTorch's to its settings")
        shutil.rmtree(part, ignore_errors=True)
        with zipfile.ZipFile(next(house.glob("torch-*.whl"))) as archive:
            for member in archive.infolist():
                if not _LEFT_OUT.match(member.filename):
                    Path(archive.extract(member, part)).chmod((member.external_attr >> 16) & 0o777 or 0o644)
        part.rename(folder)
        shutil.rmtree(house)
    return folder


@dataclass(frozen=True)
class Origins:
    """Upstream's repositories below a folder, and git settings that lead to them from GitHub's addresses."""

    folder: Path

    @property
    def variables(self) -> dict[str, str]:
        """What has git go to them; who reaches an origin is the business of a user's own settings."""
        return {"GIT_CONFIG_GLOBAL": str(self.folder / "gitconfig")}

    def write(self, torch: Path) -> Origins:
        """Write all repositories, each on the branch that the nightly line takes."""
        self.folder.mkdir(parents=True)
        (self.folder / "gitconfig").write_text(
            f'[url "{self.folder.as_uri()}/"]\n\tinsteadOf = https://github.com/\n', encoding="utf-8"
        )
        cudakit = self._begin("pytorch/cudakit", _SAMPLE / "cudakit" / "tree")
        triton = self._begin("ROCm/triton", TREES / "triton")
        audio = self._begin("pytorch/audio", TREES / "audio")
        self._begin("pytorch/vision", TREES / "vision")
        self._begin("ROCm/apex", TREES / "apex", branch="master")
        more = {
            ".ci/docker/ci_commit_pins/triton.txt": f"{triton}\n",
            "related_commits": f"ubuntu|pytorch|torchaudio|nightly|{audio}|https://github.com/pytorch/audio\n",
            "third_party/torch-cpu.txt": f"{torch}\n",
        }
        self._begin("pytorch/pytorch", TREES / "pytorch", more, submodule=cudakit)
        return self

    def commit(self, repository: str, name: str, text: str) -> str:
        """Change one file of a repository on its branch; the commit."""
        path = self.folder / f"{repository}.git" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return self._commit(path.parent, f"Change {name}")

    def head(self, repository: str) -> str:
        """The commit of a repository's branch."""
        return _git(self.folder / f"{repository}.git", "rev-parse", "HEAD")

    def _begin(
        self,
        repository: str,
        tree: Path,
        more: Mapping[str, str] | None = None,
        *,
        submodule: str = "",
        branch: str = "nightly",
    ) -> str:
        # Not bare, so that a test can commit to it; its address has upstream's end all the same.
        folder = self.folder / f"{repository}.git"
        shutil.copytree(tree, folder)
        for name in _OF_SAMPLE if submodule else ():
            source, target = _SAMPLE / "torch" / "tree" / name, folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(source, target) if source.is_dir() else shutil.copy2(source, target)
        for name, text in (more or {}).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        _git(folder, "init", "--quiet", "--initial-branch", branch)
        _git(folder, "config", "uploadpack.allowAnySHA1InWant", "true")  # as GitHub has it
        if submodule:
            _git(folder, "update-index", "--add", "--cacheinfo", f"160000,{submodule},third_party/cudakit")
        return self._commit(folder, "Begin")

    @staticmethod
    def _commit(folder: Path, subject: str) -> str:
        _git(folder, "add", "--all", ".", ":!third_party/cudakit")
        _git(folder, *_AUTHOR, "commit", "--quiet", "--message", subject)
        return _git(folder, "rev-parse", "HEAD")


def _git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), *words]
    # The same commits in each run, so that the environments of builds are there from the one before.
    dates = dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), "2026-01-01T00:00:00Z")
    env = os.environ | dates
    return subprocess.run(command, check=True, env=env, stdout=subprocess.PIPE, text=True).stdout.strip()


def write_sdks(root: Path, families: Sequence[str]) -> None:
    """Write ROCm's index in its shape of an index for each family, `v2/<family>/<project>/`.

    The SDK is the sample's, made once for all runs; its compiler is beside it, which is PyPI's elsewhere.
    """
    for family in families:
        for path in (*_sdk(family), zig.small_wheel(shared_cache())):
            is_sdist = path.suffix == ".gz"
            name, *_ = (parse_sdist_filename if is_sdist else parse_wheel_filename)(path.name)
            page = root / "v2" / family / name
            page.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, page)
            link = f"{path.name.replace('+', '%2B')}#sha256={hashlib.sha256(path.read_bytes()).hexdigest()}"
            text = f'<!DOCTYPE html>\n<a href="{link}">{path.name}</a>\n'
            (page / "index.html").write_text(text, encoding="utf-8")


def _sdk(family: str) -> list[Path]:
    folder = shared_cache() / "sdk-of-families" / f"{family}-{rocm.digest()}"
    with files.locked(folder.with_suffix(".lock"), timeout=600):
        if not folder.is_dir():
            prefix, names = folder.with_suffix(".prefix"), targets.parse_targets(family)
            description = rocm.SAMPLE / "packages.toml"
            package.package(
                package.PackageRequest(
                    prefix=rocm.prefix_for(prefix, names),
                    description=description,
                    version=ROCM,
                    targets=names,
                    family=family,
                    output_dir=folder,
                )
            )
            shutil.rmtree(prefix)
    return sorted(path for path in folder.iterdir() if path.suffix in (".whl", ".gz"))
