"""Whatever reads what others wrote takes a time in proportion to its length."""

import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


def _benchmark() -> ModuleType:
    path = Path(__file__).parents[3] / "benchmarks" / "foreign_text.py"
    spec = importlib.util.spec_from_file_location("foreign_text", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["foreign_text"] = module
    spec.loader.exec_module(module)
    return module


table = _benchmark()
NAMES = tuple(table.cases(Path("unused")))


@pytest.mark.parametrize("name", NAMES)
def test_eight_times_the_text_takes_less_than_three_times_as_long_as_that(name: str, tmp_path: Path) -> None:
    case = table.cases(tmp_path)[name]
    # CPU time of one thread, the best of several: a busy machine makes it larger, never smaller, and what
    # grows with the square of its input takes 64 times as long.
    grown = [table.ratio(case, runs=1)[2]]
    while grown[-1] >= 3 * table.FACTOR and len(grown) < 4:
        grown.append(table.ratio(case)[2])
    assert min(grown) < 3 * table.FACTOR


def test_the_measure_tells_time_that_grows_with_the_square() -> None:
    scheme = re.compile(r"\b[a-z][a-z0-9+.-]*://")  # which could begin at every `a`

    def make(count: int) -> Callable[[], object]:
        text = "a." * count
        return lambda: scheme.search(text)

    assert table.ratio((500, make))[2] > 3 * table.FACTOR
