"""`cairn bisect --stack`: from a bad set, or a jump of the status page, to one commit, by few builds."""

from __future__ import annotations

import json
import random
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from cairn import datafile
from cairn.release.index import keys
from cairn.release.pages.trends import Point, Trends
from cairn.store.folder import LocalStore
from helpers import tiny_stack
from helpers.trail import cairn, clean_environment

pytestmark = pytest.mark.slow

COMMITS, FAULT, BROKEN = 8, 5, 6  # the commit after the fault gives no wheel
BREAK = {
    "it cannot be built": lambda _project: "[",
    "its wheel has a finding": lambda project: project.replace(
        "[project]", '[project]\ndependencies = ["helper @ https://example.org/helper.zip"]'
    ),
}
KINDS = tuple(BREAK)
TRIED = {4: "good", BROKEN: "skip", FAULT: "bad"}
CHECK = "import sys, tiny; sys.exit(tiny.ANSWER != 42)"


@dataclass(frozen=True, kw_only=True)
class Nights:
    """Two sets of the tiny stack with eight commits between."""

    stack: Path
    store: Path
    sets: tuple[str, str]
    commits: tuple[str, ...]
    env: dict[str, str]

    def bisect(self, output: Path, *words: str) -> subprocess.CompletedProcess[str]:
        place = ("--store", self.store, "--index", "staging", "--stack", self.stack, "--output-dir", output)
        return cairn("bisect", *place, "--json", *words, env=self.env)


@pytest.fixture(
    scope="module", params=[KINDS[0], *(pytest.param(k, marks=pytest.mark.by_hand) for k in KINDS[1:])]
)
def nights(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Nights:
    folder = tmp_path_factory.mktemp("commits")
    stack, env = tiny_stack.write(folder / "stack"), clean_environment(folder / "cache")
    origin, store = stack / "origin", folder / "store"
    good = tiny_stack.stage(stack, folder / "good", store, env=env)
    commits = []
    project = (origin / "pyproject.toml").read_text()
    for number in range(1, COMMITS + 1):
        (origin / "tiny" / f"part{number}.py").write_text(f"PART = {number}\n")
        (origin / "version.txt").write_text("1.1\n")
        broken = BREAK[request.param](project)
        (origin / "pyproject.toml").write_text(broken if number == BROKEN else project)
        if number == FAULT:
            (origin / "tiny" / "__init__.py").write_text("ANSWER = 41\n")
            letters = random.Random(1).choices("abcdefghij", k=60_000)  # noqa: S311 - does not deflate to nothing
            (origin / "tiny" / "table.py").write_text(f"TABLE = {''.join(letters)!r}\n")
        commits.append(tiny_stack.commit(stack, f"Change number {number}"))
    bad = tiny_stack.stage(stack, folder / "bad", store, env=env)
    return Nights(stack=stack, store=store, sets=(good, bad), commits=tuple(commits), env=env)


def test_a_command_leads_to_the_one_commit_and_what_is_not_to_be_built_is_passed_over(
    nights: Nights, tmp_path: Path
) -> None:
    ends = ("--good", nights.sets[0], "--bad", nights.sets[1])
    done = nights.bisect(tmp_path, *ends, "--", "python", "-c", CHECK)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["layers"] == ["sources"]
    assert "builds at most 3 builds for 8 commits" in done.stderr
    tries = {one["commit"]: one["verdict"] for one in said["search"]["tries"] if one["commit"]}
    assert tries == {nights.commits[n - 1]: verdict for n, verdict in TRIED.items()}
    assert [one["commit"]["subject"] for one in said["commits"]] == [f"Change number {FAULT}"]
    again = nights.bisect(tmp_path, *ends, "--", "python", "-c", CHECK)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["search"] == said["search"]


def test_a_jump_leads_to_the_one_commit_that_is_measured(nights: Nights, tmp_path: Path) -> None:
    store = LocalStore(nights.store)
    sizes = (1_600, 1_600, 30_000)
    points = tuple(
        Point(
            night=f"n{n}", started=f"2026-11-0{n + 1}T01:00:00Z", set_id=set_id, values={"wheel_size": size}
        )
        for n, (set_id, size) in enumerate(zip((nights.sets[0], *nights.sets), sizes, strict=True))
    )
    trends = Trends(index="staging", legs={"main cpu 3.11 linux_x86_64": points})
    store.write(keys.trends_key("staging"), datafile.dumps(trends).encode())
    done = nights.bisect(tmp_path, "--jump", "wheel_size")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert [(one["commit"], one["verdict"]) for one in said["search"]["tries"]] == [
        (nights.commits[n - 1], verdict) for n, verdict in TRIED.items()
    ]
    assert [one["commit"]["id"] for one in said["commits"]] == [nights.commits[FAULT - 1]]
