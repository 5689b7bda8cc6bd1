"""Virtual environments that builds run in, and the variables they see; the caller's own are never changed."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cairn import owned, pip, process
from cairn.build.log import causes
from cairn.errors import BuildError, NetworkError, ProcessError

# Variables that steer builds or interpreters; what a build sees of these is what the stack says, so that two
# machines build alike. Images set CUDA_*, MPI_* and CMAKE_* and leak them into CMake's detection.
_SCRUBBED = re.compile(
    r"(PYTHON|CUDA|NVCC|CUDNN|NCCL|MPI|OMPI|CMAKE_|ROCM_|HIP_|HCC_|USE_|BUILD_|TORCH_|PYTORCH_|TRITON_|FORCE_"
    r"|TORCHVISION_|CONDA|VIRTUAL_ENV|SETUPTOOLS_|DISTUTILS_|ARCHFLAGS|_PYTHON)"
)
_NETWORK_SIGNS = (
    "Temporary failure in name resolution",
    "Connection refused",
    "NewConnectionError",
    "ConnectTimeout",
    "Read timed out",
    "Max retries exceeded",
)


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A virtual environment.

    Attributes:
        path: its folder.
        python: its interpreter.
        bin: its programs.
        site_packages: where its packages are.
    """

    path: Path
    python: Path
    bin: Path
    site_packages: Path


@dataclass(frozen=True, kw_only=True)
class PipSource:
    """Where pip looks: an index instead of the person's own, folders to look in first, a cache folder."""

    index_url: str | None = None
    find_links: tuple[str, ...] = ()
    cache_dir: Path | None = None
    pre: bool = False

    def without_index(self) -> PipSource:
        """The same, but with the person's own index: build requirements are not on a ROCm index."""
        return dataclasses.replace(self, index_url=None, pre=False)

    def arguments(self) -> tuple[str, ...]:
        """These as pip's options."""
        words: list[str] = []
        if self.index_url:
            words += ["--index-url", self.index_url]
        for link in self.find_links:
            words += ["--find-links", link]
        if self.cache_dir:
            words += ["--cache-dir", str(self.cache_dir)]
        return tuple([*words, "--pre"] if self.pre else words)


def create(path: Path, *, python: Path | None = None) -> Environment:
    """Make a new environment at `path`, without pip, in place of an earlier one of ours.

    Args:
        path: its folder.
        python: the interpreter it is made from; ours by default.

    Raises:
        UsageError: something else is there.
    """
    owned.empty_folder(path)
    process.run([python or Path(sys.executable), "-m", "venv", "--without-pip", path], env=clean_variables())
    return describe(path)


def describe(path: Path) -> Environment:
    """The environment that is at `path`."""
    bin_dir = path / ("Scripts" if os.name == "nt" else "bin")
    python = bin_dir / ("python.exe" if os.name == "nt" else "python")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    scheme = {"base": str(path), "platbase": str(path)}
    purelib = Path(sysconfig.get_path("purelib", "venv", vars=scheme))
    if not purelib.is_dir():
        found = sorted((path / "lib").glob("python3*/site-packages"))
        purelib = found[0] if found else path / "lib" / version / "site-packages"
    return Environment(path=path, python=python, bin=bin_dir, site_packages=purelib)


def share(environment: Environment, other: Environment) -> None:
    """Let `environment` import what `other` has installed, without copying it (an SDK has many gigabytes)."""
    name = f"cairn_{other.path.name}.pth"
    (environment.site_packages / name).write_text(f"{other.site_packages}\n", encoding="utf-8")


def pip_install(
    environment: Environment,
    requirements: Sequence[str],
    source: PipSource,
    *,
    log: Path,
    on_line: Callable[[str], None] | None = None,
) -> None:
    """Install requirements into an environment.

    Raises:
        NetworkError: an index could not be reached.
        BuildError: pip refused; its last lines are in the error.
    """
    if not requirements:
        return
    command = [*pip.install(environment.python), "--no-compile", *source.arguments(), *requirements]
    try:
        process.run(command, env=pip.variables(), log=log, on_line=on_line)
    except ProcessError as error:
        lines = process.tail(error.output)
        if any(sign in error.output for sign in _NETWORK_SIGNS):
            raise NetworkError(
                f"pip could not reach {source.index_url or 'the package index'}",
                tip="check the address and the network, then run the same command again",
            ) from error
        missing = pip.missing_from(error.output)
        if missing is not None and (problem := pip.index_problem(source.index_url, missing)):
            raise NetworkError(problem, tip=pip.INDEX_TIP) from error
        raise BuildError(
            f"pip could not install {', '.join(requirements)}",
            log=log,
            tail=lines[-8:],
            # Where pip has built something itself, the reason is far above its own last words.
            causes=causes.above(log, causes.tail(log, len(lines))),
            tip="see what pip says above",
        ) from error


def clean_variables(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The caller's variables without those that would steer a build or an interpreter."""
    source = os.environ if base is None else base
    return {name: value for name, value in source.items() if not _SCRUBBED.match(name)}


@contextlib.contextmanager
def temporary_files() -> Iterator[dict[str, str]]:
    """Variables that give programs a folder for their temporary files; what they leave goes with it."""
    # Not in the work folder: a socket's name must be short.
    with tempfile.TemporaryDirectory(prefix="cairn-build-", ignore_cleanup_errors=True) as folder:
        yield dict.fromkeys(("TMPDIR", "TEMP", "TMP"), folder)
