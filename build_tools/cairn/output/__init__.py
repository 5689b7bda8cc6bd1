"""Output for users and programs; no other package writes to the screen.

It takes lines, tables and stages from the commands, and gives them to a terminal, a log of CI, or a file.
`console.current` is the console of this run; `safe_text.mask` takes the secrets out of a text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[str], None]
"""Called with one line about what is being done now, such as `console.Stage.update`."""


def silent(_line: str) -> None:
    """A `Progress` for callers that show none."""
