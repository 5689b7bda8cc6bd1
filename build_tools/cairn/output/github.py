"""The environment of a job of GitHub Actions, its outputs, and the summary of its run.

Source: GitHub's reference of workflow commands and of default variables. Elsewhere there is nothing to tell.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType

from cairn.errors import UsageError

SUMMARY_LIMIT = 1024 * 1024
"""Bytes of a step's summary. GitHub refuses a larger one as a whole, and the step seems to have had none."""

_CUT = "\n\n*The rest is left out: GitHub shows 1 MiB of a step's summary.*\n"


_OF_RUN: ContextVar[Mapping[str, str]] = ContextVar("_OF_RUN", default=MappingProxyType({}))


@contextmanager
def running_as(variables: Mapping[str, str]) -> Iterator[None]:
    """Count as another run while a block runs, for the thread that began it: that of its step of a night."""
    token = _OF_RUN.set(variables)
    try:
        yield
    finally:
        _OF_RUN.reset(token)


def _variable(name: str, default: str = "") -> str:
    return _OF_RUN.get().get(name) or os.environ.get(name, default)


def attempt() -> int:
    """Which attempt of the run this is; the first where nobody says."""
    text = _variable("GITHUB_RUN_ATTEMPT", "1")
    return int(text) if text.isdecimal() else 1


def run_id() -> str:
    """Which run this is; `0` where nobody says."""
    text = _variable("GITHUB_RUN_ID")
    return text if text.isdecimal() and text.isascii() else "0"


def is_to_come(number: int) -> bool:
    """Whether this run has not come to that attempt yet; False where nobody says which one it is at."""
    return _variable("GITHUB_RUN_ATTEMPT").isdecimal() and number > attempt()


def run_url() -> str | None:
    """The URL of this run, or None."""
    names = ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID")
    server, repository, run = map(_variable, names)
    return f"{server}/{repository}/actions/runs/{run}" if server and repository and run else None


def matrix(include: Sequence[Mapping[str, object]]) -> str:
    """A value for `matrix: ${{ fromJSON(...) }}`: one job for each of these."""
    return json.dumps({"include": include}, separators=(",", ":"))


def write_outputs(values: Mapping[str, str]) -> None:
    """Set outputs of the step that is running, where there is one.

    Raises:
        UsageError: a value has several lines, of which the second would be an output of its own.
    """
    if several := [name for name, value in values.items() if "\n" in value or "\r" in value]:
        raise UsageError(f"the output {several[0]} has several lines")
    _append("GITHUB_OUTPUT", "".join(f"{name}={value}\n" for name, value in values.items()).encode())


def add_summary(markdown: str) -> None:
    """Add to the summary that GitHub shows of the step, where there is one, as much as it takes."""
    if not (path := os.environ.get("GITHUB_STEP_SUMMARY")):
        return
    room = SUMMARY_LIMIT - (Path(path).stat().st_size if Path(path).is_file() else 0)
    data = f"{markdown}\n".encode(errors="backslashreplace")
    if len(data) > room:
        whole = data[: max(0, room - len(_CUT))]
        data = whole[: whole.rfind(b"\n") + 1] + _CUT.encode()
        if len(data) > room:  # the end of the summary says already that there would have been more
            return
    _append("GITHUB_STEP_SUMMARY", data)


def _append(variable: str, data: bytes) -> None:
    if path := os.environ.get(variable):
        with Path(path).open("ab") as stream:
            stream.write(data)
