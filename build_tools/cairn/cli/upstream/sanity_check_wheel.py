"""What `sanity_check_wheel.py` does: verify the wheels of a folder, as `cairn wheel verify` does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cairn import converters
from cairn.cli import binder
from cairn.cli.answer import Answer
from cairn.cli.guard import guarded
from cairn.cli.parser import Parser
from cairn.cli.wheel import verify
from cairn.errors import UsageError
from cairn.options import argument


@dataclass(frozen=True, kw_only=True)
class SanityCheck:
    """What the script is asked for.

    Check the wheels of a folder for everything that a published wheel must satisfy.

        python sanity_check_wheel.py out
    """

    wheel_dir: Path = argument("DIR", "folder of the wheels", convert=converters.folder)


def main(*, script: str) -> int:
    """Run the script; returns the exit code."""
    return guarded(_parser(Path(script)).parse_args())


def _parser(script: Path) -> Parser:
    return binder.script(script, SanityCheck, _run)


def _run(request: SanityCheck) -> Answer:
    wheels = tuple(sorted(request.wheel_dir.glob("*.whl")))
    if not wheels:
        raise UsageError(f"{request.wheel_dir} has no wheels", tip="name the folder that has them")
    return verify.run(verify.Verify(wheels=wheels))
