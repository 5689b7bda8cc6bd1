"""The type that command groups register themselves with."""

from __future__ import annotations

import argparse
from typing import TypeAlias

# argparse has no public name for what `add_subparsers` gives.
Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001
