"""Virtual environments: made, marked as ours, scrubbed of the caller's settings, installed into.

It takes a folder and gives a `VirtualEnvironment` without pip; our own pip works in it from outside (`pip
--python`), so that the environment holds nothing but what was asked for. The two calls one needs are
`create` and `install`; `variables` says what a program of the environment may see of ours.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import importlib.metadata
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from cairn import index_probe, owned, platforms, process
from cairn.errors import NetworkError, PrerequisiteError, ProcessError
from cairn.output import Progress

_CREATE_TIMEOUT = 600.0  # seconds; it copies little, but the disk of a busy machine is slow
_MISSING = re.compile(r"No matching distribution found for ([^\s;(]+)")
_NETWORK_SIGNS = (  # in what pip, its urllib3 and the resolver of the C library say
    "Temporary failure in name resolution",
    "Connection refused",
    "NewConnectionError",
    "ConnectTimeout",
    "Read timed out",
    "Max retries exceeded",
)


class Isolation(enum.Enum):
    """What a program sees of the caller's variables; each value is for one kind of program."""

    OWN_PIP = "own pip"
    """pip, working for us: the user's index, proxy and certificates hold; not where packages are to go."""
    BUILD = "build"
    """A build: nothing that steers compilers, CMake or setup.py, so that two machines build alike."""
    TEST = "test"
    """A tested wheel, and the pip that installs it for a test: only what is known to be harmless.
    LD_LIBRARY_PATH, ROCM_PATH or a GPU override could make a broken wheel look whole."""
    INSTALLER = "installer"
    """pip or uv as a stranger runs them, in the gate's trial and for resolving: none of the user's
    configuration of pip, uv, Python or conda."""


_DROPPED = {
    Isolation.OWN_PIP: re.compile(r"PIP_(USER|TARGET|PREFIX|ROOT|REQUIRE_VIRTUALENV)$"),
    # Images set CUDA_*, MPI_* and CMAKE_* and so leak them into CMake's detection; what a build is to see
    # of these, stack.toml says.
    Isolation.BUILD: re.compile(
        r"PYTHON|CUDA|NVCC|CUDNN|NCCL|MPI|OMPI|CMAKE_|ROCM_|HIP_|HCC_|USE_|BUILD_|TORCH_|PYTORCH_|TRITON_|FORCE_"
        r"|TORCHVISION_|CONDA|VIRTUAL_ENV|SETUPTOOLS_|DISTUTILS_|ARCHFLAGS|_PYTHON"
    ),
    Isolation.INSTALLER: re.compile(r"PIP_|UV_|PYTHON|VIRTUAL_ENV|CONDA_"),
}
_TEST_KEEPS = re.compile(
    r"(PATH|HOME|USER|LOGNAME|SHELL|TERM|LANG|LC_\w+|TZ|TMPDIR|TEMP|TMP|SYSTEMROOT|COMSPEC|PATHEXT"
    r"|(https?|no|all)_proxy|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE"
    r"|PIP_(CERT|CLIENT_CERT|PROXY|DEFAULT_TIMEOUT|TRUSTED_HOST)|(ROCR|HIP|CUDA)_VISIBLE_DEVICES)",
    re.IGNORECASE,
)
_PROXY = re.compile(r"(https?|ftp|all|no)_proxy", re.IGNORECASE)
_NO_PIP_CONFIG = {"PIP_CONFIG_FILE": os.devnull}  # pip's documentation: this disables all configuration files
_ADDED: Mapping[Isolation, Mapping[str, str]] = {
    Isolation.TEST: {**_NO_PIP_CONFIG, "PYTHONUTF8": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    Isolation.INSTALLER: _NO_PIP_CONFIG,
}


@dataclass(frozen=True, kw_only=True)
class VirtualEnvironment:
    """A virtual environment (PEP 405), without pip.

    Attributes:
        path: its folder.
        python: its interpreter.
        bin: its programs.
    """

    path: Path
    python: Path
    bin: Path

    @property
    def sites(self) -> tuple[Path, ...]:
        """Its site-packages folders, the one for pure packages first.

        Where distributions keep 64-bit libraries apart, the second is a link to the first. Their names hold
        the version of the Python that it was made from: they are looked up each time, since before it is made
        there are none.
        """
        return platforms.here.packages_of(self.path)

    @property
    def site_packages(self) -> Path:
        """Where its packages are."""
        return self.sites[0]


@dataclass(frozen=True, kw_only=True)
class PackageSource:
    """Where pip looks for packages.

    Attributes:
        index_url: this index instead of the user's own.
        find_links: folders or pages looked into as well.
        no_index: look into `find_links` only.
        offline: fetch nothing; what was resolved or installed before is there.
        cache_dir: pip's cache; None is the user's.
        pre: accept pre-releases, such as nightlies.
    """

    index_url: str | None = None
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    offline: bool = False
    cache_dir: Path | None = None
    pre: bool = False

    def without_index(self) -> PackageSource:
        """The same, but with the user's own index: build requirements are not on a ROCm index."""
        return dataclasses.replace(self, index_url=None, pre=False)

    def arguments(self) -> tuple[str, ...]:
        """These as pip's options."""
        words = ["--no-index"] if self.no_index or self.offline else []
        if self.index_url and not self.offline:
            words += ["--index-url", self.index_url]
        for link in self.find_links:
            words += ["--find-links", link]
        if self.cache_dir:
            words += ["--cache-dir", str(self.cache_dir)]
        return tuple([*words, "--pre"] if self.pre else words)

    def __str__(self) -> str:
        if self.index_url is None and not self.no_index:
            return "the package index"
        return self.index_url or " and ".join(self.find_links)


@dataclass(frozen=True, kw_only=True)
class InstalledFile:
    """A file that pip installed.

    Attributes:
        distribution: name as its metadata writes it.
        version: version as its metadata writes it.
        url: where the file came from.
        sha256: of the file, or None where pip gives none (a folder).
    """

    distribution: str
    version: str
    url: str
    sha256: str | None


def variables(isolation: Isolation, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The caller's variables, or `base`, as a program of this kind may see them; nothing is changed."""
    given = os.environ if base is None else base
    if isolation is Isolation.TEST:
        passed = {name: value for name, value in given.items() if _TEST_KEEPS.fullmatch(name)}
    else:
        passed = {name: value for name, value in given.items() if not _DROPPED[isolation].match(name)}
    proxies = {name for name in passed if _PROXY.fullmatch(name)}
    if isolation is not Isolation.BUILD and proxies:
        no_proxy = (passed.get("no_proxy") or passed.get("NO_PROXY") or "").strip()
        if no_proxy == "*":  # no proxy at all; uv does not know it, and others only where it stands alone
            passed = {name: value for name, value in passed.items() if name not in proxies}
        else:
            # We serve indexes on this machine, where a proxy cannot reach them. Programs read the name in
            # lower case first, and some no other: curl(1).
            direct = ",".join(filter(None, (no_proxy, "127.0.0.1", "localhost")))
            passed |= {"no_proxy": direct, "NO_PROXY": direct}
    return passed | dict(_ADDED.get(isolation, {}))


@contextlib.contextmanager
def temporary_files() -> Iterator[dict[str, str]]:
    """Variables that give programs a folder for their temporary files; what they leave goes with it."""
    # Not in the work folder: the path of a Unix socket has at most 107 bytes (unix(7)).
    with tempfile.TemporaryDirectory(prefix="cairn-build-", ignore_cleanup_errors=True) as folder:
        yield dict.fromkeys(("TMPDIR", "TEMP", "TMP"), folder)


def create(
    path: Path, *, python: Path | None = None, environ: Mapping[str, str] | None = None
) -> VirtualEnvironment:
    """Make a new environment at `path`, without pip, in place of an earlier one of ours.

    Args:
        path: its folder.
        python: the interpreter it is made from; ours by default.
        environ: what that interpreter sees; by default what a build sees.

    Raises:
        UsageError: something else is there.
    """
    owned.empty_folder(path)
    env = variables(Isolation.BUILD) if environ is None else environ
    base = Path(sys.executable) if python is None else python
    process.run([base, "-m", "venv", "--without-pip", path], env=env, timeout=_CREATE_TIMEOUT)
    return describe(path)


def describe(path: Path) -> VirtualEnvironment:
    """The environment that is, or is to be, at `path`."""
    system = platforms.here
    return VirtualEnvironment(
        path=path,
        python=system.python_of(path),
        bin=system.programs_of(path),
    )


def share(environment: VirtualEnvironment, other: VirtualEnvironment) -> None:
    """Let `environment` import what `other` has installed, without copying it (an SDK has many gigabytes)."""
    # The `site` module adds each line of a .pth file to sys.path.
    name = f"cairn_{other.path.name}.pth"
    (environment.site_packages / name).write_text(f"{other.site_packages}\n", encoding="utf-8")


def pip_command(python: Path) -> tuple[str, ...]:
    """Our pip, to install for an interpreter (or the folder of its environment), up to its own options."""
    pip = (sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check")
    return (*pip, "install", "--no-input", "--no-user")  # a configuration file may say `user = true`


def uv_program() -> str:
    """The uv that was installed with us.

    Raises:
        PrerequisiteError: it is not there, such as where only its Python module was copied.
    """
    from uv import find_uv_bin  # noqa: PLC0415 - few commands need it

    try:
        return find_uv_bin()
    except FileNotFoundError as error:
        tip = "install it again: python3 -m pip install --force-reinstall uv"
        raise PrerequisiteError("uv, which Cairn needs, has no program", tip=tip) from error


def install(  # noqa: PLR0913 - each is one independent property of the run
    environment: VirtualEnvironment,
    requirements: Sequence[str],
    source: PackageSource,
    *,
    log: Path,
    environ: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
    on_line: Progress | None = None,
    timeout: float | None = None,
) -> None:
    """Install requirements into an environment.

    Args:
        environment: where to.
        requirements: what; with none, nothing is run.
        source: where pip looks.
        log: receives what pip says.
        environ: pip's variables; by default those of `Isolation.OWN_PIP`.
        options: further ones of pip's.
        on_line: called with each line of pip's output.
        timeout: in seconds.

    Raises:
        NetworkError: an index could not be reached, or is not an index.
        ProcessError: pip refused; its last lines are in the error.
    """
    if not requirements:
        return
    command = [*pip_command(environment.python), "--no-compile", *options, *source.arguments(), *requirements]
    env = variables(Isolation.OWN_PIP) if environ is None else environ
    try:
        process.run(command, env=env, log=log, on_line=on_line, timeout=timeout)
    except ProcessError as error:
        if any(sign in error.output for sign in _NETWORK_SIGNS):
            raise NetworkError(
                f"pip could not reach {source}",
                tip="check the address and the network, then run the same command again",
            ) from error
        # pip describes an index that is out of reach, or behind a login page, like one that lacks the
        # package.
        missing = missing_from(error.output)
        if missing is not None and (problem := index_probe.index_problem(source.index_url, missing)):
            raise NetworkError(problem, tip=index_probe.TIP) from error
        raise


def installed_names(environment: VirtualEnvironment) -> tuple[str, ...]:
    """The names of the distributions that an environment has."""
    found = importlib.metadata.distributions(path=[str(environment.site_packages)])
    return tuple(sorted({canonicalize_name(distribution.metadata["Name"]) for distribution in found}))


def missing_from(output: str) -> str | None:
    """The requirement that pip found nowhere, according to its output."""
    match = _MISSING.search(output)
    return match[1] if match else None


def installed_files(report: Path) -> tuple[InstalledFile, ...]:
    """What an installation took, from what pip's `--report` wrote (its "installation report", version 1)."""
    return tuple(
        InstalledFile(
            distribution=item["metadata"]["name"],
            version=item["metadata"]["version"],
            url=item["download_info"]["url"],
            # PEP 610's archive_info; a folder has dir_info instead.
            sha256=item["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256"),
        )
        for item in json.loads(report.read_text(encoding="utf-8"))["install"]
    )
