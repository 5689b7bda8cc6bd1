"""Which set to try next, and what is known when a search ends."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import msgspec
import pytest

from cairn import datafile
from cairn.errors import StoreError, UsageError
from cairn.pipeline import commit_search
from cairn.pipeline.bisect import (
    LAYERS,
    LOG,
    Differing,
    Halving,
    Layer,
    Search,
    Try,
    Verdict,
    jump_of,
    prepare,
    resume,
)
from cairn.release.index import keys, people
from cairn.release.index.generation import IndexSet
from cairn.release.index.snapshot import Change, Index
from cairn.release.pages.trends import Point, Trends
from cairn.sources.manifest.changelog import Changelog, Commit, ProjectChange
from cairn.store.memory import MemoryStore
from helpers.release import commit

IDS = tuple(f"{n:064x}" for n in range(1, 65))


def search(count: int) -> Search:
    return Search(store="memory:", index="staging", sets=IDS[:count], command=("true",), python="python")


def tried(found: Search, set_id: str, verdict: Verdict) -> Search:
    one = Try(set_id=set_id, verdict=verdict, exit_code=0, when="", seconds=0, log="")
    return msgspec.structs.replace(found, tries=(*found.tries, one))


@pytest.mark.parametrize("count", [2, 3, 4, 7, 33, 64])
def test_every_first_bad_set_is_found_in_as_few_runs_as_can_be(count: int) -> None:
    for first_bad in range(1, count):
        found = search(count)
        while (place := found.halving.next) is not None:
            set_id = found.sets[place]
            found = tried(found, set_id, "bad" if place >= first_bad else "good")
        assert found.suspects == (IDS[first_bad],)
        assert found.last_good == IDS[first_bad - 1]
        assert len(found.tries) <= math.ceil(math.log2(max(count - 1, 1)))


def test_what_cannot_be_told_is_gone_around() -> None:
    """The first bad set is number 5 of 9, and 4 and 5 cannot be told."""
    found = search(9)
    while (place := found.halving.next) is not None:
        set_id = found.sets[place]
        found = tried(found, set_id, "skip" if place in (4, 5) else "bad" if place > 5 else "good")
    assert found.suspects == IDS[4:7]
    assert found.halving.good == 3


def tried_mix(found: Search, set_id: str, of_good: tuple[Layer, ...], verdict: Verdict) -> Search:
    one = Try(set_id=set_id, verdict=verdict, exit_code=0, when="", seconds=0, log="", of_good=of_good)
    return msgspec.structs.replace(found, tries=(*found.tries, one))


def hunted(found: Search, fault: tuple[int, Layer], changed: Differing) -> Search:
    """The search, where the fault came into a layer in the night of that number."""
    night, layer = fault
    while (step := found.next_try(changed)) is not None:
        set_id, of_good = step
        place = found.sets.index(set_id)
        is_bad = layer == "tests" or (place >= night and layer not in of_good)
        found = tried_mix(found, set_id, of_good, "bad" if is_bad else "good")
    return found


def test_twenty_faults_in_sixty_nights_are_traced_to_their_layers_in_eight_installs_each() -> None:
    random = Random(30)  # noqa: S311 - the same nights each time
    nights = IDS[:60]
    changes: list[set[Layer]] = [set(random.sample(LAYERS, random.randint(1, 3))) for _ in nights]
    faults: list[tuple[int, Layer]] = [(n, random.choice(sorted(changes[n]))) for n in range(1, 60, 3)]
    faults[-1] = (59, "tests")
    assert len(faults) == 20

    def differing(good: str, bad: str) -> list[Layer]:
        span = changes[nights.index(good) + 1 : nights.index(bad) + 1]
        return [name for name in LAYERS if any(name in one for one in span)]

    builds = 0
    for night, layer in faults:
        found = hunted(search(60), (night, layer), differing)
        assert found.blamed(differing) == (layer,)
        assert layer == "tests" or found.suspects == (nights[night],)
        assert len(found.tries) <= 8
        if layer == "sources":
            builds += 1
            culprit, count = random.randint(1, 8), len(found.tries)
            steps = commit_search.steps_of(changes_of(*(f"{night:02}{n}" for n in range(9))))
            while (place := (states := commit_search.halving(found, nights[night], steps)).next) is not None:
                one = Try(
                    set_id=nights[night],
                    commit=steps[place - 1].commit.id,
                    verdict="bad" if place >= culprit else "good",
                )
                found = msgspec.structs.replace(found, tries=(*found.tries, one))
            assert [one.commit.id for one in steps[states.good : states.bad]] == [f"{night:02}{culprit}"]
            assert len(found.tries) - count <= 3
    assert builds > 2


def changes_of(before: str, *ids: str, merged: str = "") -> Changelog:
    """The commits of a project, with the first of them above `before`; one of a merged branch is between."""
    parents = dict(zip(ids, (before, *ids), strict=False))
    commits = [Commit(id=one, author="", date="", subject=one, parent=parents[one]) for one in reversed(ids)]
    if merged:
        commits.insert(1, Commit(id=merged, author="", date="", subject=merged, parent=before))
    project = ProjectChange(
        name="torch", origin="", before=before, after=ids[-1] if ids else before, commits=tuple(commits)
    )
    return Changelog(stack="s", line="main", before="", after="", values=(), projects=(project,))


def test_commits_are_tried_in_the_order_of_the_main_line() -> None:
    steps = commit_search.steps_of(changes_of("a", "b", "c", "d", merged="side"))
    assert [one.commit.id for one in steps] == ["b", "c", "d"]
    assert commit_search.cost(steps) == "at most 2 builds for 3 commits"
    with pytest.raises(UsageError, match="no commit came with the first bad set"):
        commit_search.steps_of(changes_of("a"))
    rewritten = changes_of("a", "b")
    (project,) = rewritten.projects
    lost = msgspec.structs.replace(project, dropped=project.commits)
    with pytest.raises(UsageError, match="its branch was rewritten"):
        commit_search.steps_of(msgspec.structs.replace(rewritten, projects=(lost,)))


@pytest.mark.parametrize("culprit", range(1, 9))
def test_one_of_eight_commits_is_found_in_three_builds(culprit: int) -> None:
    builds: dict[int, Verdict] = {}
    while (place := Halving(last=8, verdicts=builds).next) is not None:
        builds[place] = "bad" if place >= culprit else "good"
    assert Halving(last=8, verdicts=builds).bad == culprit
    assert len(builds) <= 3


def test_mixes_that_do_not_load_leave_several_layers() -> None:
    found = search(2)
    found = tried(found, IDS[0], "good")
    steps: list[tuple[tuple[Layer, ...], Verdict]] = [(("SDK", "sources"), "skip"), (("sources",), "bad")]
    for of_good, verdict in steps:
        assert found.next_try(lambda *_: LAYERS) == (IDS[1], of_good)
        found = tried_mix(found, IDS[1], of_good, verdict)
    assert found.next_try(lambda *_: LAYERS) is None
    assert found.blamed(lambda *_: LAYERS) == ("dependencies", "SDK")


def listed(number: int, **changes: object) -> IndexSet:
    one = IndexSet(
        set_id=IDS[number], stack="sample", line="main", python="3.11", platform="linux_x86_64",
        family="cpu", targets=("cpu",), manifest_sha256="0" * 64, projects={"torch": f"2.9.{number}"},
        added=(datetime(2026, 11, 1 + number, 3, tzinfo=UTC)).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    )  # fmt: skip
    return msgspec.structs.replace(one, **changes)


@pytest.fixture
def store() -> MemoryStore:
    """Ten nights of one kind."""
    store = MemoryStore()
    sets = {IDS[n]: listed(n) for n in range(10)}
    commit(Index(store, "dev"), "stage", lambda _: Change(sets=sets))
    return store


def asked(store: MemoryStore, good: str, bad: str) -> tuple[str, ...]:
    found, sets = prepare(store, "dev", good=good, bad=bad, command=["true"], python=Path("python"))
    assert found.sets == tuple(one.set_id for one in sets)
    return found.sets


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (IDS[2], IDS[6]),
        ("2026-11-03", "2026-11-07"),
        ("2026-11-03T12:00:00Z", "2026-11-07T03:00:00+00:00"),
        (IDS[2], "2026-11-07"),
    ],
)
def test_nights_are_named_by_id_or_date(store: MemoryStore, good: str, bad: str) -> None:
    assert asked(store, good, bad) == IDS[2:7]


@pytest.mark.parametrize(
    ("good", "bad", "kind", "said"),
    [
        (IDS[6], IDS[2], UsageError, "must have come before"),
        (IDS[2], IDS[2], UsageError, "must have come before"),
        ("2026-10-01", IDS[2], StoreError, "no set of 2026-10-01 or before"),
        ("2026-99-01", IDS[2], UsageError, "is not a date"),
        ("ffff", IDS[2], StoreError, "has no set ffff"),
        ("yesterday", IDS[2], UsageError, "neither a set.json nor the id of a set"),
    ],
)
def test_what_names_no_nights_is_refused(
    store: MemoryStore, good: str, bad: str, kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said):
        asked(store, good, bad)


def test_sets_of_a_different_kind_are_not_between(store: MemoryStore) -> None:
    other = listed(4, python="3.12")
    commit(Index(store, "dev"), "stage", lambda _: Change(sets={other.set_id: other}))
    assert asked(store, IDS[2], IDS[6]) == (IDS[2], IDS[3], IDS[5], IDS[6])
    with pytest.raises(UsageError, match="different lines, families, Pythons or platforms"):
        asked(store, "2026-11-02", "2026-11-09")
    with pytest.raises(UsageError, match="different lines"):
        asked(store, IDS[2], IDS[4])


def test_an_interrupted_search_goes_on_and_a_different_one_is_not_taken_for_it(tmp_path: Path) -> None:
    begun = tried(search(9), IDS[4], "good")
    datafile.write(tmp_path / LOG, begun)
    assert resume(search(9), tmp_path) == begun
    assert resume(search(9), tmp_path / "none") == search(9)
    for changes in ({"command": ("false",)}, {"index": "dev"}, {"sets": IDS[1:9]}, {"python": "other"}):
        with pytest.raises(UsageError, match="log of a different search"):
            resume(msgspec.structs.replace(search(9), **changes), tmp_path)


def measured(store: MemoryStore, *values: float, leg: str = "main cpu 3.11 linux_x86_64") -> None:
    points = tuple(
        Point(night=f"n{n}", started=listed(n).added, set_id=IDS[n], values={"wheel_size": value})
        for n, value in enumerate(values)
    )
    old = people.trends_of(store, "dev") or Trends(index="dev")
    made = msgspec.structs.replace(old, legs={**old.legs, leg: points})
    store.write(keys.trends_key("dev"), datafile.dumps(made).encode())


def test_a_jump_names_both_ends(store: MemoryStore) -> None:
    with pytest.raises(StoreError, match="no night of dev has measured anything"):
        jump_of(store, "dev", "wheel_size", None)
    measured(store, 100, 101, 100, 140, 141, 139, 90, 91)
    newest = jump_of(store, "dev", "wheel_size", None)
    assert (newest.last.set_id, newest.first.set_id) == (IDS[5], IDS[6])
    first = jump_of(store, "dev", "wheel_size@n3", None)
    assert asked(store, first.last.set_id, first.first.set_id) == (IDS[2], IDS[3])


@pytest.mark.parametrize(
    ("text", "leg", "message"),
    [
        ("wheel_sise", None, "no night measures 'wheel_sise'"),
        ("wheel_size", "main gfx942", "has measured nothing of 'main gfx942'"),
        ("kernels", None, "kernels of dev does not jump"),
        ("wheel_size@n2", None, "wheel_size of dev does not jump in n2"),
        ("wheel_size", None, "wheel_size jumps in several legs of dev"),
    ],
)
def test_jumps_that_are_none(store: MemoryStore, text: str, leg: str | None, message: str) -> None:
    measured(store, 100, 101, 100, 140)
    measured(store, 100, 101, 100, 140, leg="main other 3.11 linux_x86_64")
    with pytest.raises(UsageError, match=message):
        jump_of(store, "dev", text, leg)
