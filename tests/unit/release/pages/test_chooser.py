"""Every combination of the chooser's options shows one answer: a line that installers take, or why not."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from packaging.requirements import Requirement

from cairn.release.pages import chooser
from cairn.release.pages.chooser import Answer, Chooser
from cairn.release.pages.view import IndexView
from helpers import pages
from helpers.release import make_wheel

VIEWS = (
    pages.channel(
        sets=(pages.one_set(9, "2.10.0+rocm7.11.0", ("gfx942",), platform="win_amd64", python="3.10"),)
    ),
    pages.family(),
    IndexView(
        name="nightly/gfx110X-all",
        sets=(pages.one_set(7, "2.11.0a0", ("gfx1100",), family="gfx110X-all", line="nightly"),),
    ),
    IndexView(name="staging", sets=(pages.one_set(8, "2.12.0", ("gfx942",), line="release/2.12"),)),
)


def shown(made: Chooser, chosen: set[str]) -> list[Answer]:
    """The answers that the page's rules leave visible."""
    hidden = {name for name, ids in made.rules() if chosen.isdisjoint(ids)}
    return [answer for answer in made.answers if hidden.isdisjoint(answer.classes)]


def combinations(made: Chooser) -> Iterator[set[str]]:
    options = ([option.id for option in each] for each in made.choices.values())
    yield from map(set, itertools.product(*options))


def test_every_combination_has_one_answer() -> None:
    made = chooser.make(VIEWS)
    lines = reasons = 0
    for chosen in combinations(made):
        (answer,) = shown(made, chosen)
        lines, reasons = lines + bool(answer.commands), reasons + bool(answer.reason)
        assert bool(answer.commands) != bool(answer.reason)
        for _, before, after in answer.commands:
            words = shlex.split(f"{before}https://x.example/{answer.index}/simple/{after}")
            at = words.index("--index-url")
            names = {Requirement(word).name for word in words[at + 2 :]}
            assert {"torch", "torchvision", "torchaudio"} <= names
    assert lines
    assert reasons


# All lines in one process: starting pip takes longer than resolving one.
PIP = """
import json, sys
from pip._internal.cli.main import main
sys.exit(any([main(words) for words in json.load(sys.stdin)]))
"""


def index_of(view: IndexView, folder: Path) -> None:
    """An index with the wheels of a view's sets, each requiring the torch of its own."""
    for one in view.live:
        tag = f"cp{one.python.replace('.', '')}"
        for name, version in one.projects.items():
            requires = [] if name in ("torch", "triton") else [f"torch=={one.projects['torch']}"]
            place = folder / view.name / "simple" / name
            make_wheel(place, name, version, requires=requires, tag=f"{tag}-{tag}-{one.platform}")
    for place in folder.glob("**/simple/*/"):
        (place / "index.html").write_text(
            "".join(f'<a href="{f.name}">{f.name}</a>' for f in place.glob("*.whl"))
        )


def test_pip_takes_the_line_of_every_combination(tmp_path: Path) -> None:
    made = chooser.make(VIEWS)
    for view in VIEWS:
        index_of(view, tmp_path / "store")
    labels = {option.id: option.label for options in made.choices.values() for option in options}
    lines: dict[tuple[str, ...], str] = {}
    for chosen in combinations(made):
        (answer,) = shown(made, chosen)
        for before, after in [command[1:] for command in answer.commands if command[0] == "pip"]:
            words = shlex.split(f"{before}{(tmp_path / 'store').as_uri()}/{answer.index}/simple/{after}")[1:]
            (python,) = (labels[name] for name in chosen if re.fullmatch(r"p\d+", name))
            windows = any(labels[name].startswith("Windows") for name in chosen)
            words += ["--python-version", python, "--platform", "win_amd64" if windows else pages.PLATFORM]
            lines[tuple(words)] = answer.versions
    how = ["--dry-run", "--quiet", "--isolated", "--no-cache-dir", "--disable-pip-version-check"]
    how += ["--only-binary", ":all:", "--target", str(tmp_path / "target"), "--report"]
    reports = {words: tmp_path / f"{number}.json" for number, words in enumerate(lines)}
    asked = json.dumps([[*words, *how, str(report)] for words, report in reports.items()])
    done = subprocess.run(
        [sys.executable, "-c", PIP], input=asked, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for words, versions in lines.items():
        installs = [one["metadata"] for one in json.loads(reports[words].read_text())["install"]]
        assert versions in [f"{one['name']} {one['version']}" for one in installs], words
    assert len(lines) > 4


def test_what_is_chosen_at_first_is_a_line_for_a_gpu() -> None:
    made = chooser.make(VIEWS)
    begin = {option.id for options in made.choices.values() for option in options if option.chosen}
    assert len(begin) == len(made.choices)
    (answer,) = shown(made, begin)
    assert answer.index == "release"
    assert "gfx942" in answer.tested_on
    assert answer.driver == "6.2"
    assert b"AMD's 6.2 or newer" in chooser.page(VIEWS)
    one = msgspec.structs.replace(VIEWS[0].sets[0], download=1_300_000_000, installed=5_200_000_000)
    assert b"1.3 GB to download, 5.2 GB installed" in chooser.page(
        (msgspec.structs.replace(VIEWS[0], sets=(one,)),)
    )
    assert all(not one.driver for one in made.answers if one.reason or "cpu" in one.versions)


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ({"GPU": "(gfx906)"}, "release has nothing for this GPU: no channel here has any"),
        (
            {"GPU": "No GPU", "Channel": "nightly"},
            "nightly has nothing for machines without a GPU: choose the channel release",
        ),
        (
            {"GPU": "(gfx942)", "Line": "nightly"},
            "release has no nightly for this GPU: choose the line release/2.",
        ),
        ({"GPU": "(gfx1100)", "Line": "release/2.9", "System": "Windows"}, "is not built for Windows"),
        (
            {"GPU": "(gfx942)", "Line": "release/2.9", "Python": "3.10"},
            "is not built for Python 3.10 here: choose Python",
        ),
    ],
)
def test_why_there_is_none_says_what_to_choose(labels: dict[str, str], reason: str) -> None:
    made = chooser.make(VIEWS)
    chosen = {
        next(o.id for o in options if (name not in labels and o.chosen) or labels.get(name, "\0") in o.label)
        for name, options in made.choices.items()
    }
    (answer,) = shown(made, chosen)
    assert reason in answer.reason


def test_staging_is_not_offered_and_an_empty_store_says_so() -> None:
    assert "staging" not in str(chooser.make(VIEWS).choices["Channel"])
    assert b"No set is published here yet" in chooser.page([VIEWS[3]])


def test_the_page_has_a_rule_for_each_class_and_no_script_but_its_own() -> None:
    page = chooser.page(VIEWS).decode()
    classes = {name for answer in chooser.make(VIEWS).answers for name in answer.classes}
    assert classes == set(re.findall(r"\)\) \.(\w+) \{ display: none; \}", page))
    assert page.count("<script>") == 1
    assert "http" not in re.sub(r"https?://www\.w3\.org\S+", "", page.split("<body>")[1].split("<script>")[0])
