"""A yanked set: its wheels say so on their pages, and it goes nowhere else."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cairn.errors import GateError, StoreError, UsageError
from cairn.release.history.rollback import rollback
from cairn.release.history.yank import lift, set_of, yank
from cairn.release.index import keys
from cairn.release.index.generation import ProjectState
from cairn.release.index.listing import index_set
from cairn.release.index.marks import refuse_stepping_back
from cairn.release.index.snapshot import Change, Index, Snapshot
from cairn.release.ledger import Ledger
from cairn.release.ledger_entries import with_wheels
from cairn.release.promote import promote
from cairn.release.weighing import Bypass
from cairn.store.memory import MemoryStore
from cairn.wheels.wheelset import WheelSet
from helpers.gate import stack_of
from helpers.moments import Meddled, dying
from helpers.nights import stage_night
from helpers.pages import one_set
from helpers.release import Breaking, audit, commit, contents, make_set, make_wheel, move, stage_set

Sets = dict[str, WheelSet]
Act = Callable[[MemoryStore, WheelSet], None]
Moment = dict[str, Any]
WHY = 'wrong <b>results</b> of "matmul" & more'


def marks(store: MemoryStore, index: str = "release") -> dict[str, str | None]:
    """What the pages say of each file."""
    found = {}
    for project in Index(store, index).load().projects():
        page = json.loads(store.read(f"{index}/simple/{project.name}/index.json").data)
        found |= {
            file["filename"].removesuffix("-py3-none-any.whl"): file["yanked"] for file in page["files"]
        }
    return found


def test_the_wheels_of_a_yanked_set_say_why_and_what_it_shares_does_not(
    released: MemoryStore, sets: Sets
) -> None:
    done = yank(released, sets["2.9.0"].id[:10], reason=WHY)
    assert [place.index for place in done.indexes] == ["release", "staging"]
    for place in done.indexes:
        assert [name.partition("-py3")[0] for name in place.files] == ["torch-2.9.0", "torchvision-2.9.0"]
        assert place.shared == ("triton-3.5-py3-none-any.whl",)
    assert {name for name, mark in marks(released).items() if mark} == {"torch-2.9.0", "torchvision-2.9.0"}
    assert marks(released)["torch-2.9.0"] == WHY
    html = released.read("release/simple/torch/index.html").data.decode()
    assert "<b>results" not in html
    assert "wrong &lt;b&gt;results&lt;/b&gt; of &quot;matmul&quot; &amp; more" in html
    entry = Index(released, "release").load().set(sets["2.9.0"].id)
    assert entry.yanked == WHY
    assert Index(released, "release").load().generation.recent[0].action == "yank"
    assert audit(released, "release", hashes=True) == ()
    assert marks(released, "staging") == marks(released)


def test_what_two_yanked_sets_share_is_yanked_until_one_is_not(released: MemoryStore, sets: Sets) -> None:
    before = marks(released)
    yank(released, sets["2.9.0"].id, reason="a")
    yank(released, sets["2.10.0"].id, reason="b")
    assert marks(released)["triton-3.5"] == "a"
    assert not marks(released)["numpy-2.0"]
    done = lift(released, sets["2.9.0"].id, by="ann", reason="fixed")
    assert done.changed
    assert not marks(released)["triton-3.5"]
    assert all("triton-3.5-py3-none-any.whl" in place.files for place in done.indexes)
    assert [name for name, mark in marks(released).items() if mark] == ["torch-2.10.0", "torchvision-2.10.0"]
    lift(released, sets["2.10.0"].id, by="ann", reason="fixed")
    assert marks(released) == before
    assert Index(released, "release").load().generation.action == "unyank"


def test_yanking_writes_what_changes_alone_and_in_a_dry_run_or_again_nothing(
    released: MemoryStore, sets: Sets
) -> None:
    made, before = sets["2.9.0"], contents(released)
    planned = yank(released, made.id, reason="a", dry_run=True)
    assert contents(released) == before
    store = Breaking(released, left=1000)
    assert yank(store, made.id, reason="a") == planned
    pages = [key for key in store.written if key.startswith("release/simple/")]
    assert [key.split("/")[2] for key in pages] == ["torchvision", "torchvision", "torch", "torch"]
    before = contents(store)
    again = yank(store, made.id, reason="a")
    assert not again.changed
    assert not any(place.changed for place in again.indexes)
    assert contents(store) == before


@pytest.mark.parametrize("reason", ["", "  ", "two\nlines", "\x1b]0;x\x07", "\u200b\u202e"])
def test_a_reason_that_cannot_be_shown_is_refused(released: MemoryStore, sets: Sets, reason: str) -> None:
    with pytest.raises(UsageError, match="a reason is needed, each on one line"):
        yank(released, sets["2.9.0"].id, reason=reason)


@pytest.mark.parametrize("given", ["ffff", "12", "f" * 64])
def test_a_set_that_the_store_does_not_have_cannot_be_yanked(
    nights: MemoryStore, sets: Sets, given: str
) -> None:
    """Not by a whole digest either, such as that of a wheel; the ban of one that has gone can be lifted."""
    with pytest.raises(StoreError, match=f"has no set '{given}'"):
        set_of(nights, given)
    made = sets["2.9.0"].id
    yank(nights, made, reason="a")
    nights.delete(f"sets/{made}/set.json")
    assert set_of(nights, made) == made


def test_a_set_that_is_yanked_is_not_promoted(nights: MemoryStore, sets: Sets) -> None:
    made = sets["2.9.0"]
    yank(nights, made.id, reason="wrong results")
    before = contents(nights)
    with pytest.raises(GateError, match="was yanked") as caught:
        promote(
            nights, made.id, stack=stack_of(made), target="release", bypass=Bypass(who="ann", reason="hurry")
        )
    assert re.fullmatch(r"yanked by .* on ....-..-..: wrong results", *caught.value.reasons)
    assert contents(nights) == before
    lift(nights, made.id, by="ann", reason="fixed")
    assert Ledger(nights).ban(made.id) is None
    assert [(e.kind, e.who, e.why) for e in Ledger(nights).history(made.id)][1:] == [("lift", "ann", "fixed")]


def test_what_is_yanked_in_the_source_stays_so_in_the_target(nights: MemoryStore, sets: Sets) -> None:
    def plan(now: Snapshot) -> Change:
        project = now.project("numpy")
        files = tuple(msgspec.structs.replace(file, yanked="upstream did") for file in project.files)
        return Change(projects={"numpy": msgspec.structs.replace(project, files=files)})

    commit(Index(nights, "staging"), "mirror", plan)
    move(nights, sets["2.9.0"])
    assert marks(nights)["numpy-2.0"] == "upstream did"


def test_a_set_that_comes_later_takes_the_mark_off_what_it_shares(
    nights: MemoryStore, sets: Sets, tmp_path: Path
) -> None:
    move(nights, sets["2.9.0"])
    yank(nights, sets["2.9.0"].id, reason="a")
    assert marks(nights)["triton-3.5"] == "a"
    move(nights, sets["2.10.0"])
    assert not marks(nights)["triton-3.5"]
    assert marks(nights)["torch-2.9.0"] == "a"
    yank(nights, sets["2.10.0"].id, reason="a")
    assert marks(nights, "staging")["triton-3.5"] == "a"
    stage_night(nights, tmp_path, "2.11.0")
    assert not marks(nights, "staging")["triton-3.5"]
    assert audit(nights, "staging", hashes=False) == ()


def test_a_yank_waits_for_no_one_and_loses_nothing(released: MemoryStore, sets: Sets) -> None:
    store = Meddled(released, lambda it: yank(it, sets["2.8.0"].id, reason="first"))
    done = yank(store, sets["2.9.0"].id, reason="second")
    assert [place.generation for place in done.indexes if place.index == "release"] == [5]
    now = Index(store, "release").load()
    assert [s.yanked for s in sorted(now.sets(), key=lambda s: s.added)] == ["first", "second", None]


WRONG = "wrong results"
READ = {"kind": "read"}


def ban(store: MemoryStore, made: WheelSet) -> None:
    yank(store, made.id, reason=WRONG)


def unban(store: MemoryStore, made: WheelSet) -> None:
    lift(store, made.id, by="ann", reason="fixed")


@pytest.mark.parametrize(
    ("first", "act", "meanwhile", "moment", "yanked"),
    [
        (ban, unban, ban, {"at": "^release/state.json"}, WRONG),
        # The set is read, then what is known of it, and then its projects.
        (ban, unban, ban, {**READ, "at": "^release/parts/", "after": "^ledger/entries/", "first": 2}, WRONG),
        # The ban is read, then the set, and then why else it is yanked.
        (None, unban, ban, {**READ, "at": "^sets/"}, None),
        (None, ban, unban, {"at": "^release/state.json"}, None),
    ],
    ids=["yank in a lift", "yank just before the commit of a lift", "yank before a lift", "lift in a yank"],
)
def test_what_was_decided_last_holds(
    released: MemoryStore,
    sets: Sets,
    *,
    first: Act | None,
    act: Act,
    meanwhile: Act,
    moment: Moment,
    yanked: str | None,
) -> None:
    made = sets["2.9.0"]
    if first:
        first(released, made)
    store = Meddled(released, lambda it: meanwhile(it, made), **moment)
    act(store, made)
    assert not store.left
    for index in ("release", "staging"):
        assert Index(store, index).load().set(made.id).yanked == yanked
        assert marks(store, index)["torch-2.9.0"] == (yanked or False)
    assert audit(store, "release", hashes=False) == ()


def test_a_yank_in_the_moment_of_a_rollback_holds(released: MemoryStore, sets: Sets) -> None:
    made = sets["2.8.0"]
    ban(released, made)
    before = Ledger(released).ban(made.id)
    assert before is not None
    # Whoever lifted it died before any index said so.
    Ledger(released).add(events=with_wheels(msgspec.structs.replace(before, kind="lift"), [made]))
    store = Meddled(released, lambda it: ban(it, made))
    rollback(store, "release", "1", reason="to begin with")
    assert Index(store, "release").load().set(made.id).yanked == WRONG
    assert audit(store, "release", hashes=False) == ()


def test_an_interrupted_yank_is_finished_by_the_next_command(released: MemoryStore, sets: Sets) -> None:
    made = sets["2.8.0"]
    for left, after in dying(released, lambda it: yank(it, made.id, reason="a")):
        assert {p.generation for p in yank(after, made.id, reason="a").indexes} == {4, 6}
        assert marks(after)["torch-2.8.0"] == "a", left
        assert audit(after, "release", hashes=False) == (), left


def test_one_wheel_of_no_set_keeps_its_mark(nights: MemoryStore, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "alone", "1.0")
    made = stage_set(nights, "staging", make_set([wheel]), [wheel])
    yank(nights, made.id, reason="a")
    assert marks(nights, "staging")["alone-1.0"] == "a"


@pytest.mark.parametrize("number", [1, 9])
def test_an_untested_set_takes_no_tested_ones_place_whatever_their_ids_are(number: int) -> None:
    tested = one_set(5, "2.9.0", ["gfx942"], added="2026-11-20T00:00:00.000000Z")
    tested = msgspec.structs.replace(tested, records=("a" * 64,))
    newer, older = (
        one_set(
            number, "2.9.1", ["gfx942"], added=f"2026-11-{day}T00:00:00.000000Z", untested_targets=["gfx942"]
        )
        for day in (21, 19)
    )
    with pytest.raises(GateError, match=f"would offer the set {newer.set_id[:12]}, not tested on gfx942"):
        refuse_stepping_back("release", [newer, tested], {tested.set_id})
    refuse_stepping_back("release", [older, tested], {tested.set_id})
    elsewhere = msgspec.structs.replace(newer, platform="win_amd64")
    refuse_stepping_back("release", [elsewhere, tested], {tested.set_id})


def test_no_change_of_an_index_offers_a_yanked_set_or_its_wheels(nights: MemoryStore, sets: Sets) -> None:
    bad = sets["2.8.0"]
    yank(nights, bad.id, reason="wrong")
    (file,) = (f for f in Index(nights, "staging").load().project("torch").files if bad.id in f.sets)
    by_itself = msgspec.structs.replace(file, yanked=None, sets=())
    offers = (
        Change(sets={bad.id: index_set(bad)}),
        Change(projects={"torch": ProjectState(name="torch", files=(by_itself,))}),
    )
    for change in offers:
        with pytest.raises(GateError, match="may not come into an index"):
            commit(Index(nights, "release"), "promote", lambda _now, change=change: change)


def test_a_yank_of_a_night_names_the_sets_that_cannot_be_read(nights: MemoryStore, sets: Sets) -> None:
    """Also those that no index has: their wheels would not be banned."""
    one = sets["2.9.0"]
    key = keys.set_key("f" * 64, "set.json")
    nights.write(key, b'{"schema"')
    with pytest.raises(StoreError, match=r"1 set cannot be read.*ffffffffffff"):
        yank(nights, one.manifest_sha256, reason="wrong")
    assert Index(nights, "staging").load().set(one.id).yanked == "wrong"
    nights.delete(key)  # what was collected has nothing to be told of
    yank(nights, one.manifest_sha256, reason="wrong")
