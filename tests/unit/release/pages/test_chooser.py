"""Every combination of the chooser's options shows one answer: a line that installers take, or why not."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator

import pytest
from packaging.requirements import Requirement

from cairn.release.pages import chooser
from cairn.release.pages.chooser import Answer, Chooser
from cairn.release.pages.view import IndexView
from helpers import pages

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


def test_what_is_chosen_at_first_is_a_line_for_a_gpu() -> None:
    made = chooser.make(VIEWS)
    begin = {option.id for options in made.choices.values() for option in options if option.chosen}
    assert len(begin) == len(made.choices)
    (answer,) = shown(made, begin)
    assert answer.index == "release"
    assert "gfx942" in answer.tested_on


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
