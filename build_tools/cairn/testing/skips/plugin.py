"""A pytest plugin that excludes the tests of skip-tests, or runs nothing else.

This file is copied beside the tests and imported by the interpreter that is tested, which need not have
Cairn: it imports only the standard library and pytest. `select` decides beforehand which entries apply to the
run; here each collected test costs a few dictionary look-ups, however many entries there are.

`CAIRN_SKIPS` names a JSON file (`select.write_plan` writes it):

    tests       the folder that ids are relative to; null where that is pytest's rootdir
    only        false to leave the tests of the entries out, true to run nothing else
    journal     where to append what was left out: a JSON object a line, one for each process that collects
    entries     for each entry: `tests`, exact ids; `modules`, files that are not even imported; `patterns`,
                each with the `prefix` of the ids it may match and the `regex` that they match in full

An id is `module.py::Class::test`, as pytest writes it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "CAIRN_SKIPS"


@dataclass(frozen=True, kw_only=True)
class Match:
    """The entry that a test belongs to, and the pattern that matched; None if the entry has its id."""

    entry: int
    pattern: int | None = None


class Matcher:
    """Finds the entry of a test by its id, in time independent of the number of entries."""

    def __init__(self, entries: list[dict[str, Any]]) -> None:
        self.modules: dict[str, int] = {}
        self._tests: dict[str, Match] = {}
        self._patterns: dict[str, list[tuple[re.Pattern[str], Match]]] = {}
        for number, entry in enumerate(entries):
            self.modules |= dict.fromkeys(entry["modules"], number)
            self._tests |= dict.fromkeys(entry["tests"], Match(entry=number))
            for at, pattern in enumerate(entry["patterns"]):
                compiled = (re.compile(pattern["regex"]), Match(entry=number, pattern=at))
                self._patterns.setdefault(pattern["prefix"], []).append(compiled)
        # How long the prefixes of patterns are, by the file or class that they end in; empty for a folder.
        self._lengths: dict[str, set[int]] = {}
        for prefix in self._patterns:
            scope = prefix.partition("[")[0].rpartition("::")[0]
            self._lengths.setdefault(scope, set()).add(len(prefix))

    def find(self, test: str) -> Match | None:
        """Return the entry that names a test, or else the first with a matching pattern."""
        if exact := self._tests.get(test):
            return exact
        matches: list[Match] = []
        end = 0 if "/" in test else test.find("::")  # a file at the top is below no folder
        while end != -1:
            for length in self._lengths.get(test[:end], ()):
                prefixed = self._patterns.get(test[:length], ())
                matches += (match for regex, match in prefixed if regex.fullmatch(test))
            end = test.find("::", end + 1)
        return min(matches, key=lambda match: (match.entry, match.pattern or 0), default=None)


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin, if the runner has set `CAIRN_SKIPS`."""
    if path := os.environ.get(VARIABLE):
        plan = json.loads(Path(path).read_text(encoding="utf-8"))
        config.pluginmanager.register(Skips(config, plan), "cairn-skips")


class Skips:
    """Excludes tests from this pytest process."""

    def __init__(self, config: pytest.Config, plan: Mapping[str, Any]) -> None:
        self._matcher = Matcher(plan["entries"])
        self._only: bool = plan["only"]
        self._journal: str = plan["journal"]
        # pytest's ids are relative to its rootdir; `os.path`, since the tests may not lie below that.
        top = os.path.realpath(config.rootpath)
        folder = os.path.relpath(os.path.realpath(plan["tests"]), top) if plan["tests"] else "."
        self._above = "" if folder == "." else folder.replace(os.sep, "/") + "/"
        self._not_imported: list[dict[str, Any]] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makemodule(
        self, module_path: Path, parent: pytest.Collector
    ) -> pytest.Module | None:
        """Collect nothing from a module that must not be imported, since it may hang or end the process."""
        path = Path(os.path.relpath(module_path, parent.config.rootpath)).as_posix()
        module = path.removeprefix(self._above)
        if self._only or module not in self._matcher.modules:
            return None
        self._not_imported.append(_line(module, Match(entry=self._matcher.modules[module])))
        empty: pytest.Module = _NotImported.from_parent(parent, path=module_path)
        return empty

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Deselect the tests of the entries, or all others, before any other plugin sees them."""
        find, modules, above = self._matcher.find, self._matcher.modules, self._above
        matches = list(self._not_imported)
        chosen, others, seen = [], [], set()
        for item in items:
            # Half of a surrogate pair is in no id of a file, and would make the journal unreadable.
            test = item.nodeid.removeprefix(above).encode(errors="backslashreplace").decode()
            module = test.partition("::")[0]
            seen.add(module)
            match = Match(entry=modules[module]) if module in modules else find(test)
            if match is None:
                others.append(item)
            else:
                chosen.append(item)
                matches.append(_line(test, match))
        selected, deselected = (chosen, others) if self._only else (others, chosen)
        if deselected:
            config.hook.pytest_deselected(items=deselected)
            items[:] = selected
        # Where tests were chosen by their ids, an entry that matched none of them says nothing.
        whole = not any("::" in str(argument) for argument in config.args)
        collected = sorted(seen.union(match["test"] for match in self._not_imported)) if whole else []
        line = json.dumps({"modules": collected, "matched": matches}) + "\n"
        # Without a buffer, a line is one write, which the lines of other processes cannot come into.
        with Path(self._journal).open("ab", buffering=0) as file:
            file.write(line.encode())


def _line(test: str, match: Match) -> dict[str, Any]:
    # Not `dataclasses.asdict`: patterns may match thousands of tests.
    return {"test": test, "entry": match.entry, "pattern": match.pattern}


class _NotImported(pytest.Module):
    """A test module that is not imported."""

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        """Return nothing; pytest's own method would import the file."""
        return iter(())
