"""Which entries apply to a run, and the file that tells the plugin."""

from __future__ import annotations

import importlib.resources
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from packaging.version import Version

from cairn import files
from cairn.testing.skips import conditions, ids
from cairn.testing.skips.conditions import RunFacts
from cairn.testing.skips.skip_files import Listed

PLUGIN = "cairn_skips"
"""What the plugin is called where it is copied to: `pytest -p cairn_skips`."""

VARIABLE = "CAIRN_SKIPS"
"""The environment variable that names the plan to the plugin (its own `VARIABLE`)."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The entries that apply to a run.

    Attributes:
        entries: those, in the order of their files.
        expired: of those, the ones whose day has passed; they apply all the same.
        remarks: what may be a mistake, a sentence each.
    """

    entries: tuple[Listed, ...]
    expired: tuple[Listed, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def modules(self) -> tuple[str, ...]:
        """The files of tests that are left out whole, unseen: a runner need not start on them."""
        return tuple(test for listed in self.entries for test in listed.entry.tests if "::" not in test)


def select(entries: Sequence[Listed], facts: RunFacts, *, today: date) -> Selection:
    """The entries that apply to a run, as far as is known of it."""
    chosen = tuple(listed for listed in entries if conditions.applies(listed.entry.when, facts))
    return Selection(
        entries=chosen,
        expired=tuple(listed for listed in chosen if listed.entry.expires < today),
        remarks=(*_nothing_chosen(entries, chosen), *_unknown_line(entries, facts)),
    )


def write_plan(
    selection: Selection, path: Path, *, journal: Path, tests: Path | None = None, only: bool = False
) -> dict[str, str]:
    """Write what the plugin reads, copy the plugin beside it, and say which variables lead pytest there.

    Args:
        selection: the entries that apply.
        path: the JSON file; its folder goes on `PYTHONPATH` of a pytest that gets `-p cairn_skips`.
        journal: where each process of pytest appends what it left out; `after_run` reads it.
        tests: the folder that ids are relative to, where it is not pytest's rootdir.
        only: run the tests of the entries and nothing else.
    """
    plan = {
        "tests": str(tests.absolute()) if tests else None,
        "only": only,
        "journal": str(journal.absolute()),
        "entries": [plan_of(listed) for listed in selection.entries],
    }
    files.write_text(path, json.dumps(plan))
    source = importlib.resources.files("cairn.testing.skips").joinpath("plugin.py")
    with importlib.resources.as_file(source) as plugin:
        shutil.copyfile(plugin, path.parent / f"{PLUGIN}.py")
    return {VARIABLE: str(path.absolute())}


def plan_of(listed: Listed) -> dict[str, Any]:
    """What the plugin, and its `Matcher`, know of an entry."""
    tests, patterns = listed.entry.tests, map(ids.compile_pattern, listed.entry.patterns)
    return {
        "tests": [test for test in tests if "::" in test],
        "modules": [test for test in tests if "::" not in test],
        "patterns": [{"prefix": pattern.prefix, "regex": pattern.regex} for pattern in patterns],
    }


def _nothing_chosen(entries: Sequence[Listed], chosen: Sequence[Listed]) -> list[str]:
    if chosen:
        return []
    why = "there is no entry" if not entries else f"none of the {len(entries)} entries applies to this run"
    return [f"nothing is left out: {why}"]


def _unknown_line(entries: Sequence[Listed], facts: RunFacts) -> list[str]:
    """Say where nobody has looked at a version of torch yet: its entries may be missing."""
    conditional = [listed.entry.when.torch for listed in entries if listed.entry.when.torch]
    if facts.torch is None or not conditional:
        return []
    release = conditions.release_of(facts.torch)
    if any(conditions.applies(conditions.When(torch=text), facts) for text in conditional):
        return []
    line = ".".join(map(str, Version(release).release[:2]))
    return [
        f"no entry is for torch {line}: the conditions on torch are {', '.join(dict.fromkeys(conditional))}"
    ]
