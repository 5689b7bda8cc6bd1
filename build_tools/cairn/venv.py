"""Virtual environments: made, marked as ours, installed into.

It takes a folder and gives a `VirtualEnvironment` without pip; our own pip works in it from outside (`pip
--python`), so that the environment holds nothing but what was asked for. The two calls one needs are
`create` and `install`; `cairn.isolation` says what a program of the environment may see of ours.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import json
import os
import re
import shutil
import sys
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from packaging.utils import canonicalize_name

from cairn import extras, isolation, owned, package_index, platforms, process
from cairn.errors import CairnError, NetworkError, PrerequisiteError, ProcessError
from cairn.isolation import Isolation
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


class VirtualEnvironment(msgspec.Struct, frozen=True, kw_only=True):
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
        """Its folder of packages."""
        return self.sites[0]


@dataclass(frozen=True, kw_only=True)
class PackageSource:
    """The places where pip looks for packages.

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


class InstalledFile(msgspec.Struct, frozen=True, kw_only=True):
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

    @property
    def file_name(self) -> str:
        """Its name at the end of the URL."""
        return urllib.parse.unquote(urllib.parse.urlsplit(self.url).path.rpartition("/")[2])


def create(
    path: Path, *, python: Path | None = None, environ: Mapping[str, str] | None = None
) -> VirtualEnvironment:
    """Make a new environment at `path`, without pip, in place of an earlier one of ours.

    Args:
        path: its folder.
        python: the interpreter it is made from; ours by default.
        environ: what that interpreter sees; by default what a tool sees.

    Raises:
        UsageError: something else is there.
    """
    owned.empty_folder(path)
    env = isolation.variables(Isolation.TOOL) if environ is None else environ
    base = Path(sys.executable) if python is None else python
    process.run(
        [base, "-I", "-m", "venv", "--without-pip", path], env=env, timeout=_CREATE_TIMEOUT, writes=[path]
    )
    return describe(path)


def describe(path: Path) -> VirtualEnvironment:
    """The environment that is, or is to be, at `path`."""
    system = platforms.here
    return VirtualEnvironment(
        path=path,
        python=system.python_of(path),
        bin=system.programs_of(path),
    )


def share(environment: VirtualEnvironment, lender: VirtualEnvironment) -> None:
    """Let `environment` import what `lender` has installed, without a copy (an SDK has many gigabytes)."""
    # The `site` module adds each line of a .pth file to sys.path.
    name = f"cairn_{lender.path.name}.pth"
    (environment.site_packages / name).write_text(f"{lender.site_packages}\n", encoding="utf-8")


def pip_command(python: Path) -> tuple[str, ...]:
    """Our pip, to install for an interpreter (or the folder of its environment), up to its own options.

    Where we have none, as in an environment of `uv tool install`, it is the interpreter's own.

    Raises:
        PrerequisiteError: it has none either.
    """
    try:
        pip = (*extras.pip(), "--python", str(python), "--disable-pip-version-check")
    except PrerequisiteError:
        program = platforms.here.python_of(python) if python.is_dir() else python
        pip = (str(program), "-I", "-m", "pip", "--disable-pip-version-check")
        try:
            process.run([program, "-I", "-m", "pip", "--version"], env=isolation.variables(Isolation.TOOL))
        except CairnError as error:
            raise PrerequisiteError(
                f"there is no pip for {python}", tip=f"install one: {program} -m ensurepip"
            ) from error
    return (*pip, "install", "--no-input", "--no-user")  # a configuration file may say `user = true`


def uv_program() -> str:
    """Return the uv that was installed with us, else the one that started us (`uvx`) or is on PATH.

    Raises:
        PrerequisiteError: it is not there, such as where only its Python module was copied.
    """
    try:
        from uv import find_uv_bin  # noqa: PLC0415 - few commands need it
    except ModuleNotFoundError as error:
        if program := os.environ.get("UV") or shutil.which("uv"):
            return program
        raise PrerequisiteError("uv, which this needs, is not here", tip=extras.line("build")) from error
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
        environ: pip's variables; by default its index is that which the user's pip is set up for.
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
    try:
        with contextlib.nullcontext(environ) if environ else own_pip(source) as env:
            process.run(
                command,
                env=env,
                log=log,
                on_line=on_line,
                timeout=timeout,
                writes=[environment.path],
                network=True,
            )
    except ProcessError as error:
        if any(sign in error.output for sign in _NETWORK_SIGNS):
            raise NetworkError(
                f"pip could not reach {source}",
                tip="check the address and the network, then run the same command again",
            ) from error
        # pip describes an index that is out of reach, or behind a login page, like one that lacks the
        # package.
        missing = missing_from(error.output)
        if missing is not None and (problem := package_index.index_problem(source.index_url, missing)):
            raise NetworkError(problem, tip=package_index.TIP) from error
        raise


def places(python: Path) -> list[Path]:
    """Return the folders that an installer writes to for an interpreter: its environment, or the system's."""
    environment = python.absolute().parent.parent
    return [environment, *([environment / "local"] if environment == Path("/usr") else ())]


@contextlib.contextmanager
def own_pip(source: PackageSource) -> Iterator[dict[str, str]]:
    """The variables of a pip that works for us: the user's index, proxy and certificates hold.

    Other settings of the user, such as a target folder, do not: an sdist's build backend sees them too.
    """
    settings = package_index.read_pip_settings()
    locations = (source.index_url, *source.find_links)
    with isolation.own_home(*settings.addresses(), *filter(None, locations)) as home:
        yield settings.pip_environment(home)


def installed_names(environment: VirtualEnvironment) -> tuple[str, ...]:
    """Return the names of the distributions that an environment has."""
    return tuple(sorted({name for name, _ in installed_versions([environment.site_packages])}))


def installed_versions(sites: Iterable[Path]) -> set[tuple[str, str]]:
    """Return name and version of each distribution in these folders.

    A killed pip leaves folders without METADATA. Python's reader has no name for them, and that of PyPI's
    importlib_metadata, which takes its place once it is imported, raises.
    """
    versions = set()
    for distribution in importlib.metadata.distributions(path=list(map(str, sites))):
        with contextlib.suppress(FileNotFoundError):
            if name := distribution.metadata["Name"]:
                versions.add((str(canonicalize_name(name)), distribution.version))
    return versions


def missing_from(output: str) -> str | None:
    """The requirement that pip found nowhere, according to its output."""
    match = _MISSING.search(output)
    return match[1] if match else None


def installed_files(report: Path) -> tuple[InstalledFile, ...]:
    """The files of an installation, from pip's `--report` ("installation report", version 1)."""
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
