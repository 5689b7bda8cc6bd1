"""The options of `cairn matrix`, apart from the code that makes one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn import converters
from cairn.options import option

if TYPE_CHECKING:
    from cairn.matrix.matrix_toml import TriggerName

_SOME = "{}, joined by commas (default: all, which are those of the trigger)"


def _names(text: str) -> tuple[str, ...]:
    """Names that are joined by commas; none for `all`, which a workflow's input has by default."""
    names = tuple(filter(None, map(str.strip, converters.nonempty(text).split(","))))
    return () if names == ("all",) else names


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What is asked for; an empty list stands for what the trigger has.

    Attributes:
        trigger: the event.
        lines: any lines of the stack.
        families: any families of the matrix.toml.
        pythons: any Pythons of the stack.
        platforms: any platforms of the matrix.toml.
        owner: the account on GitHub whose repository this is; None outside of GitHub Actions.
    """

    trigger: TriggerName = option(
        "the event; a later one also runs the families of those before it (default: %(default)s)",
        choices=("presubmit", "postsubmit", "nightly"),
        default="nightly",
    )
    lines: tuple[str, ...] = option(
        _SOME.format("release lines, any of the stack's"), convert=_names, default=()
    )
    families: tuple[str, ...] = option(
        _SOME.format("families, any of the matrix.toml's"), convert=_names, default=()
    )
    pythons: tuple[str, ...] = option(_SOME.format("Pythons, any of the stack's"), convert=_names, default=())
    platforms: tuple[str, ...] = option(
        _SOME.format("platforms, any of the matrix.toml's"), convert=_names, default=()
    )
    owner: str | None = None
