"""Build requirements resolved to exact files by uv, before anything is installed or compiled.

uv needs metadata alone, and a fraction of a second where pip needs several. It asks the indexes that the
user's pip is set up for (`cairn.pip_settings`); what it finds, with hashes, is what pip then installs.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

from cairn import isolation, pip_settings, process, venv
from cairn.errors import BuildError, NetworkError
from cairn.venv import PackageSource

_TIMEOUT = 900.0  # seconds; an sdist without metadata has to be built to be asked
_SHOWN_LINES = 12
_FILE = "-r "  # begins a line that names a requirements file
_NETWORK_SIGNS = re.compile(
    r"error sending request|[Ff]ailed to fetch|client error \(Connect\)|dns error"
    r"|[Nn]etwork (?:connectivity is|was) disabled"
)


def lock(
    requirements: Sequence[str],
    source: PackageSource,
    *,
    python: Path,
    provided: Collection[str] = (),
    what: str,
) -> str:
    """Exact requirements with hashes, as the text of a requirements file; empty where there are none.

    Args:
        requirements: lines of a requirements file; a wheel is `name @ file:///…`.
        source: where files are looked for, besides the user's own index.
        python: the interpreter they are for.
        provided: names of distributions that are there already, elsewhere: nothing of them is resolved.
        what: they are for, in an error.

    Raises:
        BuildError: they contradict each other, or no index has one of them.
        NetworkError: an index is out of reach.
    """
    if not requirements:
        return ""
    settings = pip_settings.read()
    command = [venv.uv_program(), "pip", "compile", "-", "--no-config", "--quiet", "--no-header"]
    command += ["--no-annotate", "--generate-hashes", "--python", str(python), "--no-python-downloads"]
    command += [*settings.uv_options(), *_options(source)]
    # As arguments: within a requirements file ` #` ends a path, and `${HOME}` is replaced.
    lines = [line for line in requirements if not line.startswith(_FILE)]
    command += [line.removeprefix(_FILE) for line in requirements if line.startswith(_FILE)]
    hosts = (*settings.addresses(), *filter(None, (source.index_url, *source.find_links)))
    with (
        tempfile.TemporaryDirectory(prefix="cairn-resolve-") as folder,
        isolation.own_home(*hosts) as home,
    ):
        excluded = Path(folder, "excluded.txt")
        excluded.write_text("".join(f"{name}\n" for name in provided), encoding="utf-8")
        result = process.run(
            [*command, "--excludes", str(excluded)],
            env=settings.uv_environment(home),
            stdin="\n".join(lines).encode(),
            timeout=_TIMEOUT,
            check=False,
            separate_stderr=True,
            hidden=isolation.credential_files(),
        )
    if result.returncode == 0:
        return result.output
    message = process.tail(result.stderr)[-_SHOWN_LINES:]
    if _NETWORK_SIGNS.search(result.stderr):
        check = "leave --offline out once, so that they are found" if source.offline else "check the network"
        raise NetworkError(
            f"the build requirements of {what} cannot be looked up: {' '.join(message)[-400:]}",
            tip=f"{check}; --find-links names a folder that has them",
        )
    raise BuildError(
        f"the build requirements of {what} cannot be met: {' '.join(requirements)}",
        tail=message,
        tip="see what uv says above; nothing was compiled",
    )


def _options(source: PackageSource) -> list[str]:
    words = ["--no-index"] if source.no_index else []
    words += ["--offline"] if source.offline else []  # uv then goes by the pages of indexes in its cache
    if source.index_url:
        words += ["--default-index", source.index_url]
    for link in source.find_links:
        # uv refuses a folder that does not exist, which pip only warns of, and splits a path at its commas.
        if "://" in link:
            words += ["--find-links", link]
        elif Path(link).is_dir():
            words += ["--find-links", Path(link).absolute().as_uri()]
    return [*words, "--prerelease", "allow"] if source.pre else words
