"""How long the tests of a suite took: upstream's test-times.json and test-class-times.json, or our outcomes.

Upstream's (pytorch/test-infra, branch generated-stats, `stats/`) are `{build environment: {test config:
{module: seconds}}}`, and for classes one level deeper; modules are named without `.py`. An environment or a
config that they do not know is read as their `default`.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cairn import datafile, files
from cairn.errors import UsageError
from cairn.testing.junit import LONGEST, TestOutcome
from cairn.testing.suite import outcomes

DEFAULT = "default"


class Times(datafile.Value, tag_field="schema", tag="cairn.test-times/1"):
    """Seconds, all of them as measured.

    Attributes:
        modules: of whole modules, by their path below the folder of tests (`inductor/test_x.py`).
        classes: module to class to seconds, where no tests are known.
        tests: module to the rest of the node id (`TestA::test_b`) to seconds.
    """

    modules: Mapping[str, float] = {}
    classes: Mapping[str, Mapping[str, float]] = {}
    tests: Mapping[str, Mapping[str, float]] = {}

    def of(self, module: str) -> float | None:
        """Seconds of a module; None where nothing is known of it."""
        # Added exactly: in a different order, a machine would plan differently from the others.
        if known := self.tests.get(module):
            return math.fsum(known.values())
        if (seconds := self.modules.get(module)) is not None:
            return seconds
        known = self.classes.get(module)
        return math.fsum(known.values()) if known else None


def read(paths: Sequence[Path], *, environment: str = DEFAULT, config: str = DEFAULT) -> Times:
    """The times of several files; of two that know a module, the later one counts.

    Args:
        paths: `outcomes.jsonl` of earlier shards, files that `write` wrote, or upstream's.
        environment: the key in upstream's files, such as `linux-noble-rocm-py3.12-mi300`.
        config: likewise, such as `inductor`.

    Raises:
        UsageError: one of them is none of these, or has a time that is not one.
    """
    modules: dict[str, float] = {}
    classes: dict[str, Mapping[str, float]] = {}
    tests: dict[str, Mapping[str, float]] = {}
    for path in paths:
        times = _read_one(path, environment, config)
        if bad := [name for name, seconds in _all(times) if not 0 <= seconds < LONGEST]:
            raise UsageError(f"{path}: the time of {bad[0]} is not one")
        modules |= times.modules
        classes |= times.classes
        tests |= times.tests
    return Times(modules=modules, classes=classes, tests=tests)


def from_outcomes(results: Iterable[TestOutcome]) -> Times:
    """The times of tests that ran; of those that were skipped as well, since that takes time too."""
    tests: dict[str, dict[str, float]] = defaultdict(dict)
    for outcome in results:
        module, _, rest = outcome.test.partition("::")
        if rest:  # not of a module that never came to its tests
            tests[module][rest] = round(outcome.seconds / outcome.attempts, 3)
    return Times(tests=tests)


def write(path: Path, times: Times) -> None:
    """Write times, without the indentation that would double so long a file."""
    files.write_text(path, json.dumps(datafile.to_plain(times), sort_keys=True) + "\n")


def _read_one(path: Path, environment: str, config: str) -> Times:
    if path.suffix == ".jsonl":
        return from_outcomes(outcomes.read(path))
    plain = datafile.read_json(path)
    if isinstance(plain, dict) and "schema" in plain:
        return datafile.from_plain(plain, Times, name=str(path))
    entries = _chosen(_chosen(plain, environment, path), config, path)
    flat = {f"{name}.py": value for name, value in entries.items() if isinstance(value, int | float)}
    deep = {f"{name}.py": value for name, value in entries.items() if isinstance(value, dict)}
    return datafile.from_plain(
        {"schema": "cairn.test-times/1", "modules": flat, "classes": deep}, Times, name=str(path)
    )


def _chosen(plain: Any, key: str, path: Path) -> dict[str, Any]:  # noqa: ANN401 - JSON
    below = plain.get(key, plain.get(DEFAULT)) if isinstance(plain, dict) else None
    if not isinstance(below, dict):
        raise UsageError(
            f"{path} has no test times for {key}, and none by {DEFAULT!r}",
            tip="give upstream's test-times.json, or outcomes.jsonl of an earlier run",
        )
    return below


def _all(times: Times) -> Iterable[tuple[str, float]]:
    yield from times.modules.items()
    for table in (*times.classes.values(), *times.tests.values()):
        yield from table.items()
