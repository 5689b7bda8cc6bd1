"""The command groups of `cairn`, in the order `--help` shows them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeAlias

# argparse has no public name for what `add_subparsers` gives.
Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001

ALL: tuple[Callable[[Subparsers], None], ...] = ()
