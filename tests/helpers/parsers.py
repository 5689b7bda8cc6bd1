"""The parsers of `cairn` and of every script, with all of their commands."""

import argparse
from collections.abc import Iterator

from cairn.cli import main, upstream


def below(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser, and those of all commands in it."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from below(child)


def leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Those of its commands that have none in them."""
    return (child for child in below(parser) if len([*below(child)]) == 1)


def all_parsers() -> tuple[argparse.ArgumentParser, ...]:
    """Make them anew."""
    return (main.make_parser(whole=True), *upstream.parsers())
