"""The tests that pytest collected, as a file has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cairn.errors import UsageError
from cairn.testing.skips import ids

_MAKE_ONE = "write one with `python -m pytest --collect-only -q test_nn.py … > collection.txt`"


@dataclass(frozen=True, kw_only=True)
class Collection:
    """Tests by their file, in pytest's order."""

    modules: Mapping[str, tuple[str, ...]]

    @property
    def tests(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(test for tests in self.modules.values() for test in tests)


def read(path: Path) -> Collection:
    """Read what `pytest --collect-only -q` printed: an id a line, up to the first empty one.

    Collected from the top of torch's tree, all ids begin with `test/`, which is not part of them here.

    Raises:
        UsageError: there is no id in it.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", tip=_MAKE_ONE) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8", tip=_MAKE_ONE) from error
    # Behind the empty line: warnings, errors of collecting with lines of code in them, the count.
    lines = text.strip().partition("\n\n")[0].splitlines()
    tests = [line for line in lines if ".py::" in line]
    if not tests:
        raise UsageError(f"{path} has no id of a test", tip=_MAKE_ONE)
    above = "test/" if all(test.startswith("test/") for test in tests) else ""
    modules: dict[str, list[str]] = {}
    for test in tests:
        own = test.removeprefix(above)
        modules.setdefault(ids.take_apart(own).module, []).append(own)
    return Collection(modules={module: tuple(found) for module, found in modules.items()})
