"""The results of a probe, written check by check, so that a crash loses none of the earlier ones.

The file has a JSON object a line: `{"begin": …}` before a check, `{"end": …}` after it, and what is said of
the probe as a whole (`no_gpu`, `not_measurable`, `device`, `found`, `complete`).
`cairn.testing.compat.measure` reads it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any, Literal, TextIO

Where = Literal["gpu", "gpu or cpu", "host"]
"""Where a probe means something: on a GPU only; on the CPU too, which says nothing of a GPU; anywhere."""

_KEPT = 300  # characters of a reason


class NotMeasurableError(Exception):
    """What is asked cannot be found out here; the message says why."""


class Answer:
    """What one probe says.

    Attributes:
        device: where to compute: the first GPU, or the CPU.
        on_gpu: a tensor on a GPU was seen (`used`), where torch does not count what it allocates.
    """

    def __init__(self, file: TextIO) -> None:
        """`file` receives the lines."""
        self._file = file
        self.device: Any = None
        self.on_gpu = False

    def say(self, **facts: object) -> None:
        """Write a line; it is in the file when this returns."""
        self._file.write(json.dumps(facts, ensure_ascii=False) + "\n")
        self._file.flush()

    def fact(self, text: str) -> None:
        """Tell a version, or a similar fact, that belongs to the row."""
        self.say(found=text)

    def used(self, tensor: Any) -> None:
        """Note that the probe computed on a GPU, where the allocator's figures cannot tell."""
        self.on_gpu = self.on_gpu or bool(tensor.is_cuda)

    @contextlib.contextmanager
    def check(self, what: str, *, essential: bool = True) -> Iterator[None]:
        """One thing that the row stands for: it holds unless the block raises.

        Args:
            what: in a few words.
            essential: without it the feature is not there; without one that is not, it is there in part.
        """
        self.say(begin=what, essential=essential)
        try:
            yield
        except NotMeasurableError as error:
            self.say(end="not measured", reason=str(error))
        except Exception as error:  # noqa: BLE001 - what is tested may raise anything
            self.say(end="failed", reason=reason(error))
        else:
            self.say(end="passed", reason="")

    def optional(self, what: str) -> contextlib.AbstractContextManager[None]:
        """A check without which the feature is there in part."""
        return self.check(what, essential=False)


def runs(where: Where) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Mark a function as a probe."""

    def mark(function: Callable[..., None]) -> Callable[..., None]:
        function.where = where  # type: ignore[attr-defined]
        return function

    return mark


def require(holds: object, message: str) -> None:
    """Fail the check with a message that a user can read."""
    if not holds:
        raise AssertionError(message)


def reason(error: BaseException) -> str:
    """An exception in one line."""
    name, text = type(error).__name__, " ".join(str(error).split())
    line = text if isinstance(error, AssertionError) and text else f"{name}: {text}".removesuffix(": ")
    return line if len(line) <= _KEPT else f"{line[:_KEPT]}…"
