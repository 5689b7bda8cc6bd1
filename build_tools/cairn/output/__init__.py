"""What is said to people and programs: the only room that writes to the screen.

`console.current` gives the console of this run; `redact.mask` keeps secrets and `escaping` control characters
of others out of what is shown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[str], None]
"""Called with one line about what is being done now, such as `console.Stage.update`."""
