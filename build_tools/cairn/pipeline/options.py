"""How a user may have the trail run: options of `cairn ci run`, and a part of every `TrailRequest`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cairn import converters
from cairn.build.options import CompileOptions
from cairn.options import option
from cairn.sources.checkout.options import force


@dataclass(frozen=True, kw_only=True)
class TrailOptions(CompileOptions):
    """How the trail is run.

    Attributes:
        work_dir: holds checkouts, environments, wheels, the index and the report.
        force: drop local edits in the checkouts.
    """

    work_dir: Path = option(
        "folder of checkouts, environments, wheels, index and report (default: %(default)s)",
        metavar="DIR",
        convert=converters.new_folder,
        default=Path(".cairn"),
    )
    force: bool = force()
