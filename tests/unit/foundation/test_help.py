import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest

from cairn.cli import build_prod_wheels, main


def leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    groups = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not groups:
        yield parser
    for group in groups:
        for child in group.choices.values():
            yield from leaves(child)


PARSERS = (main.make_parser(), build_prod_wheels._parser(Path("build_prod_wheels.py")))


@pytest.mark.parametrize("command", [c for p in PARSERS for c in leaves(p)], ids=lambda c: c.prog)
def test_every_command_has_an_example(command: argparse.ArgumentParser) -> None:
    assert command.epilog is not None
    assert "example: " in command.epilog
