"""Options that the commands on skips share."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn import converters
from cairn.cli import fields
from cairn.options import argument, option

if TYPE_CHECKING:
    from cairn.testing.skips.select import Selection


def skip_files() -> tuple[Path, ...]:
    """`FILE|DIR …`."""
    paths: tuple[Path, ...] = argument(
        "FILE|DIR", "a file of skips, or a folder of them", nargs="+", convert=converters.file_or_folder
    )
    return paths


def _version(of: str) -> Any:
    return option(f"version of {of} (default: any)", metavar="VERSION", convert=converters.nonempty)


@dataclass(frozen=True, kw_only=True)
class SkipsOfRun:
    """Files of skips, and what is known of the run; an entry whose conditions do not fit it is left aside."""

    files: tuple[Path, ...] = skip_files()
    targets: str | None = fields.targets("any")
    platform: str | None = option("operating system (default: any)", choices=("linux", "windows"))
    pytorch_version: str | None = _version("torch, such as 2.13")
    python_version: str | None = _version("Python")
    json: bool = fields.json()

    def select(self, *, today: date) -> Selection:
        """The entries that apply."""
        from cairn.targets import parse_targets
        from cairn.testing.skips import select, skip_files
        from cairn.testing.skips.conditions import RunFacts, release_of

        facts = RunFacts(
            targets=parse_targets(self.targets, unbuilt=True) if self.targets else None,
            platform=self.platform,
            torch=release_of(self.pytorch_version) if self.pytorch_version else None,
            python=release_of(self.python_version) if self.python_version else None,
        )
        return select.select(skip_files.read(self.files), facts, today=today)


def today() -> date:
    """The day that entries expire by."""
    return datetime.now(tz=UTC).date()
