"""The fresh environment that a set is installed into: nothing of the caller's reaches it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cairn import owned, pip, process
from cairn.errors import NetworkError, ProcessError, TestsFailedError

# What a tested program may see of the caller's variables. Anything else (LD_LIBRARY_PATH, PYTHONPATH,
# ROCM_PATH, a GPU override) could make a broken wheel look whole.
_KEPT = re.compile(
    r"(PATH|HOME|USER|LOGNAME|SHELL|TERM|LANG|LC_\w+|TZ|TMPDIR|TEMP|TMP|SYSTEMROOT|COMSPEC|PATHEXT"
    r"|(https?|no|all)_proxy|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE"
    r"|PIP_(CERT|CLIENT_CERT|PROXY|DEFAULT_TIMEOUT|TRUSTED_HOST)|(ROCR|HIP|CUDA)_VISIBLE_DEVICES)",
    re.IGNORECASE,
)
_DESCRIBE = (
    "import json, sysconfig; print(json.dumps([sysconfig.get_path(n) for n in ('purelib', 'platlib')]))"
)
_INSTALL_TIMEOUT = 3600.0  # seconds; a real set with its ROCm libraries is several gigabytes
_NO_NETWORK = (
    "NewConnectionError",
    "ConnectTimeout",
    "Connection refused",
    "Temporary failure in name resolution",
)


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A virtual environment without pip.

    Attributes:
        path: its folder.
        python: its interpreter.
        site_packages: where its packages are.
    """

    path: Path
    python: Path
    site_packages: tuple[Path, ...]


@dataclass(frozen=True, kw_only=True)
class Where:
    """Where packages come from, and from nowhere else.

    Attributes:
        index_url: the only index; None is no index at all.
        find_links: folders or pages looked into as well.
    """

    index_url: str | None
    find_links: tuple[str, ...] = ()

    def arguments(self) -> tuple[str, ...]:
        """These as pip's options."""
        index = ("--index-url", self.index_url) if self.index_url else ("--no-index",)
        return (*index, *(word for link in self.find_links for word in ("--find-links", link)))

    def __str__(self) -> str:
        return self.index_url or " and ".join(self.find_links)


@dataclass(frozen=True, kw_only=True)
class Installed:
    """A file that pip installed.

    Attributes:
        distribution: name as its metadata writes it.
        version: version as its metadata writes it.
        url: where the file came from.
        sha256: of the file, or None where pip says none (a folder).
    """

    distribution: str
    version: str
    url: str
    sha256: str | None


def create(path: Path, *, python: Path, variables: Mapping[str, str]) -> Environment:
    """Make a new environment at `path`, in place of an earlier one of ours.

    Raises:
        UsageError: something else is there.
    """
    owned.empty_folder(path)
    process.run([python, "-m", "venv", "--without-pip", path], env=variables, timeout=300)
    own = path / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    found = process.run([own, "-I", "-c", _DESCRIBE], env=variables, timeout=60)
    sites = tuple(dict.fromkeys(Path(text) for text in json.loads(found.output)))
    return Environment(path=path, python=own, site_packages=sites)


def variables(base: Mapping[str, str], added: Mapping[str, str]) -> dict[str, str]:
    """The variables of everything that is run for a test: what is harmless of `base`, and `added`."""
    kept = {name: value for name, value in base.items() if _KEPT.fullmatch(name)}
    fixed = {"PIP_CONFIG_FILE": os.devnull, "PYTHONUTF8": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return {**kept, **fixed, **added}


def install(
    environment: Environment,
    requirements: Sequence[str],
    where: Where,
    *,
    variables: Mapping[str, str],
    log: Path,
    on_line: Callable[[str], None] | None = None,
) -> tuple[Installed, ...]:
    """Install requirements and say exactly which files that took.

    pip's cache is not used: it would hand out a wheel that an earlier run made of an sdist whose dependencies
    depend on the machine, as `rocm`'s do.

    Raises:
        NetworkError: the index could not be reached.
        TestsFailedError: pip found no way to install them from there.
    """
    report = environment.path / "pip-report.json"
    options = ["--report", str(report), "--no-cache-dir", "--no-compile", "--progress-bar=off"]
    whole = [*pip.install(environment.python), *options, *where.arguments(), *requirements]
    try:
        process.run(whole, env=variables, log=log, on_line=on_line, timeout=_INSTALL_TIMEOUT)
    except ProcessError as error:
        raise _translated(error, where, log) from error
    return _read_report(report)


def _translated(error: ProcessError, where: Where, log: Path) -> NetworkError | TestsFailedError:
    lines = [line.strip() for line in error.output.splitlines()]
    if any(sign in error.output for sign in _NO_NETWORK):
        return NetworkError(f"pip could not reach {where}", tip="check the address and that it is served")
    missing = pip.missing_from(error.output)
    if missing is not None and (problem := pip.index_problem(where.index_url, missing)):
        return NetworkError(problem, tip=pip.INDEX_TIP)
    reason = next((line for line in reversed(lines) if line.startswith("ERROR:")), str(error))
    return TestsFailedError(
        f"the set cannot be installed from {where} alone: {reason.removeprefix('ERROR: ')}",
        tip=f"read the whole log: {log}",
    )


def _read_report(path: Path) -> tuple[Installed, ...]:
    # The format is pip's "installation report", version 1.
    data = json.loads(path.read_text(encoding="utf-8"))
    return tuple(
        Installed(
            distribution=item["metadata"]["name"],
            version=item["metadata"]["version"],
            url=item["download_info"]["url"],
            sha256=item["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256"),
        )
        for item in data["install"]
    )
