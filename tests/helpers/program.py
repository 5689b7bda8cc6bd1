"""The program, called in this process as a user types it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from cairn.cli.main import main


class Shown(NamedTuple):
    """What a call has shown."""

    out: str
    err: str


@dataclass(frozen=True)
class Cairn:
    """`cairn`, whose exit code and output are looked at."""

    capsys: pytest.CaptureFixture[str]

    def __call__(self, *words: object, code: int = 0) -> Shown:
        """Run it with these words; it must end with this exit code."""
        self.capsys.readouterr()
        try:
            ended: object = main([str(word) for word in words])
        except SystemExit as end:
            ended = end.code
        shown = Shown(*self.capsys.readouterr())
        assert ended == code, shown
        return shown

    def json(self, *words: object, code: int = 0) -> Any:
        """What it answers to programs."""
        return json.loads(self(*words, "--json", code=code).out)
