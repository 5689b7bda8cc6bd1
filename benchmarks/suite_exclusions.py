"""Time collecting a suite of torch's size: with no exclusions, with skip-tests, with `-k "not a and …"`.

    python benchmarks/suite_exclusions.py --tests 40000 --exclusions 300 --rounds 6

Six modules are written with classes whose tests are generated, as torch's are, and named like them. Half of
the exclusions of skip-tests are exact ids, the rest patterns and ids of no test in equal parts.
The three are collected in turns, by the pytest of this interpreter; what counts is the processor time of the
whole process, the least of all rounds. Fails where skip-tests takes more than 5 % longer than no exclusions.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path

from cairn.testing.skips import select
from cairn.testing.skips.select import Selection
from cairn.testing.skips.skip_files import Entry, Listed

MODULES = ("test_nn", "test_torch", "test_cuda", "test_unary_ufuncs", "test_binary_ufuncs", "test_autograd")
BAR = 1.05  # times the processor time without exclusions
_SOURCE = """\
import unittest

def instantiate(name, first, last):
    def make(number):
        def test(self):
            pass
        return test
    names = {{n: f"test_reference_numerics_op{{n % 97}}_{{n}}_cuda_float32" for n in range(first, last)}}
    tests = {{names[n]: make(n) for n in names}}
    globals()[name] = type(name, (unittest.TestCase,), tests | {{"__module__": __name__}})

for start in range({first}, {last}, 500):
    instantiate(f"Test{{start}}DeviceTypeCUDA", start, min(start + 500, {last}))
"""


def main() -> None:
    """Write the suite, collect it in turns, and print the times."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tests", type=int, default=40_000)
    parser.add_argument("--exclusions", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=6)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        times = measure(Path(folder), options.tests, options.exclusions, options.rounds)
    none = min(times["none"])
    for name, found in times.items():
        rounds = ", ".join(f"{seconds:.2f}" for seconds in found)
        print(f"{name:10} {min(found):6.2f} s of processor time, {min(found) / none:.3f} of none ({rounds})")
    if min(times["skip-tests"]) > BAR * none:
        raise SystemExit(f"skip-tests takes more than {BAR:.0%} of the time without exclusions")


def measure(folder: Path, tests: int, exclusions: int, rounds: int) -> Mapping[str, list[float]]:
    """Seconds of processor time of each way, in each round."""
    ids = write_suite(folder, tests)
    chosen = ids[:: max(1, tests // exclusions)][:exclusions]
    variables = select.write_plan(
        Selection(entries=entries_for(chosen)),
        folder / "plan" / "plan.json",
        journal=folder / "journal",
    )
    names = " and ".join(f"not {test.rpartition('::')[2]}" for test in chosen)
    ways: dict[str, tuple[Sequence[str], Mapping[str, str]]] = {
        "none": ((), {}),
        "skip-tests": (("-p", select.PLUGIN), {**variables, "PYTHONPATH": str(folder / "plan")}),
        "-k": (("-k", names), {}),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds):
        # In turns, since a machine with other work is now slower, now faster.
        for name in (*ways,) if number % 2 else (*reversed(ways),):
            if number == 0 or name != "-k":  # it takes many times as long: once tells enough
                times[name].append(collect(folder, *ways[name]))
    return times


def write_suite(folder: Path, tests: int) -> list[str]:
    """Write the modules; the ids of their tests."""
    share, ids = -(-tests // len(MODULES)), []
    for number, module in enumerate(MODULES):
        first, last = number * share, min((number + 1) * share, tests)
        (folder / f"{module}.py").write_text(_SOURCE.format(first=first, last=last), encoding="utf-8")
        ids += [
            f"{module}.py::Test{first + (n - first) // 500 * 500}DeviceTypeCUDA::"
            f"test_reference_numerics_op{n % 97}_{n}_cuda_float32"
            for n in range(first, last)
        ]
    return ids


def entries_for(chosen: Sequence[str]) -> tuple[Listed, ...]:
    """Entries as people write them, for about as many tests."""
    half = len(chosen) // 2
    exact, rest = chosen[:half], chosen[half:]
    patterns = [test.replace("_cuda_float32", "_cuda_*") for test in rest[::2]]
    gone = [f"{test}_gone" for test in rest[1::2]]
    entries = (
        *(Entry(tests=(test,), reason="x", owner="x", expires=date.max) for test in (*exact, *gone)),
        *(Entry(patterns=(pattern,), reason="x", owner="x", expires=date.max) for pattern in patterns),
    )
    return tuple(
        Listed(file=Path("generic.toml"), number=number, entry=entry) for number, entry in enumerate(entries)
    )


def collect(folder: Path, arguments: Sequence[str], variables: Mapping[str, str]) -> float:
    """Collect once; seconds of processor time."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "-qq"]
    command += [f"--rootdir={folder}", "-c", os.devnull, *arguments]
    command += [str(folder / f"{module}.py") for module in MODULES]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONHASHSEED": "0", **variables}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=env)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
