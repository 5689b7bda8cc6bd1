"""What command groups register themselves with."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from typing import Any, TypeAlias


class Parser(argparse.ArgumentParser):
    """A parser that takes no abbreviation of an option: a new option could give it another meaning.

    argparse makes the parsers of the commands below of the same class.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - whatever argparse takes
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})


# argparse has no public name for what `add_subparsers` gives.
Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001


def later(module: str) -> Callable[[argparse.Namespace], int]:
    """The `run` of a module beside this one, loaded when it runs: other commands do without what it needs."""

    def run(options: argparse.Namespace) -> int:
        return int(importlib.import_module(f"cairn.cli.{module}").run(options))

    return run
