"""pip in a build: its failure becomes a `BuildError` that shows the cause."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cairn import process, venv
from cairn.build.log import causes
from cairn.errors import BuildError, NetworkError, ProcessError
from cairn.output import Progress

_SHOWN_LINES = 8


def pip_install(
    environment: venv.VirtualEnvironment,
    requirements: Sequence[str],
    source: venv.PackageSource,
    *,
    log: Path,
    options: Sequence[str] = (),
    on_line: Progress | None = None,
) -> None:
    """Install requirements into an environment; `options` are further ones of pip's.

    Raises:
        NetworkError: an index could not be reached, or must not be.
        BuildError: pip refused; its last lines are in the error.
    """
    try:
        venv.install(environment, requirements, source, log=log, options=options, on_line=on_line)
    except ProcessError as error:
        if source.offline and (missing := venv.missing_from(error.output)) is not None:
            raise NetworkError(
                f"{missing} is in none of the folders that --find-links names, and --offline fetches nothing",
                tip="leave --offline out once: the environments of builds are kept",
            ) from error
        lines = process.tail(error.output)
        raise BuildError(
            f"pip could not install {', '.join(requirements)}",
            log=log,
            tail=lines[-_SHOWN_LINES:],
            # Where pip has built something itself, the reason is far above its own last words.
            causes=causes.above(log, causes.tail(log, len(lines))),
            tip="see what pip says above",
        ) from error
