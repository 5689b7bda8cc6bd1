"""A pointer that was lost, damaged or set back: what may have counted, and how it counts again."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import msgspec
import pytest

from cairn.cli.main import main
from cairn.errors import StoreError, UsageError
from cairn.release.audit.audit import audit
from cairn.release.index import generation, keys
from cairn.release.index.commit import recover, render_all
from cairn.release.index.generation import Pointer, digest_of
from cairn.release.index.restore import broken, candidates, restore
from cairn.release.index.snapshot import Index
from cairn.store.folder import LocalStore
from cairn.store.memory import MemoryStore
from helpers.moments import dying
from helpers.release import Breaking, contents


def digest_at(store: MemoryStore, number: int) -> str:
    index = Index(store, "release")
    return next(digest for digest, found in index.chain(index.load()) if found.number == number)


def name_of(store: MemoryStore, number: int) -> str:
    """How one asks for a generation."""
    return f"{number}-{digest_at(store, number)[:8]}"


def set_back(store: MemoryStore, number: int) -> None:
    digest = digest_at(store, number)
    pointer = Pointer(generation=number, digest=digest, rendered=number, rendered_digest=digest)
    store.write("release/state.json", generation.encode(pointer))


def loser(store: MemoryStore, number: int, **changes: object) -> str:
    """A generation beside that of the chain; its digest."""
    index = Index(store, "release")
    found = index.generation(number, digest_at(store, number))
    data = generation.encode(msgspec.structs.replace(found, **changes))
    store.write(keys.generation_key("release", number, digest_of(data)), data)
    return digest_of(data)


DAMAGE: dict[str, Callable[[MemoryStore], None]] = {
    "lost": lambda s: s.delete("release/state.json"),
    "damaged": lambda s: s.write("release/state.json", b"{"),
    "cut": lambda s: s.write("release/state.json", s.objects["release/state.json"][:40]),
    "set back": lambda s: set_back(s, 1),
    "set back to nothing": lambda s: s.write(
        "release/state.json",
        generation.encode(Pointer(generation=0, digest="0" * 64, rendered=0, rendered_digest="0" * 64)),
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_the_generation_that_counted_counts_again(released: MemoryStore, damage: str) -> None:
    before, name = contents(released), name_of(released, 3)
    DAMAGE[damage](released)
    assert not audit(released).good
    damaged = contents(released)
    (found,) = candidates(Index(released, "release"))
    assert (found.number, found.problem, found.lost_race) == (3, None, False)
    restore(Index(released, "release"), name, dry_run=True)
    assert contents(released) == damaged
    assert restore(Index(released, "release"), name).generation.number == 3
    assert contents(released) == before
    assert audit(released, hashes=True).good


def test_a_good_pointer_is_not_replaced(released: MemoryStore) -> None:
    for number in (1, 3):
        with pytest.raises(StoreError, match="is not broken: generation 3 is current"):
            restore(Index(released, "release"), name_of(released, number))


def test_a_generation_that_was_not_made_from_the_current_one_is_no_newer_state(released: MemoryStore) -> None:
    """Somebody writes a generation of their own and asks for it: that would pass by the gate."""
    index = Index(released, "release")
    own = msgspec.structs.replace(index.load().generation, number=4, parent=digest_at(released, 2))
    data = generation.encode(own)
    released.write(keys.generation_key("release", 4, digest_of(data)), data)
    with pytest.raises(StoreError):
        restore(Index(released, "release"), f"4-{digest_of(data)[:8]}")


def test_what_lost_its_race_is_said_to_have(released: MemoryStore) -> None:
    second = Index(released, "release").generation(2, digest_at(released, 2))
    loser(released, 3, change_id="someone-else", when="2026-01-01T00:00:00.000000Z", projects=second.projects)
    lost = loser(released, 2, change_id=Index(released, "release").load().generation.change_id)
    true = digest_at(released, 3)
    released.delete("release/state.json")
    found = {one.digest: one for one in candidates(Index(released, "release"))}
    assert found[lost].lost_race
    assert not found[true].lost_race
    assert (found[true].pages, found[true].changed) == (3, 3)
    assert len(found) == 3


@pytest.mark.parametrize(
    "what", ["part of a project", "bin of projects", "bin of sets", "generation before", "generation"]
)
def test_what_is_not_whole_cannot_count(released: MemoryStore, what: str) -> None:
    now = Index(released, "release").load()
    digest = digest_at(released, 3)
    key = {
        "part of a project": keys.part_key("release", now.project_parts["numpy"]),
        "bin of projects": keys.part_key("release", next(filter(None, now.generation.projects))),
        "bin of sets": keys.part_key("release", next(filter(None, now.generation.sets))),
        "generation before": keys.generation_key("release", 1, digest_at(released, 1)),
        "generation": keys.generation_key("release", 3, digest),
    }[what]
    released.delete("release/state.json")
    released.write(key, b"{}")
    before = contents(released)
    with pytest.raises(StoreError, match=r"cannot be current|that is true"):
        restore(Index(released, "release"), f"3-{digest[:8]}")
    assert contents(released) == before


@pytest.mark.parametrize("given", ["3", "3-", "3-ab", "x-abcdef", "", "-abcdef"])
def test_what_names_no_generation_is_refused(released: MemoryStore, given: str) -> None:
    with pytest.raises(UsageError, match="names no generation"):
        restore(Index(released, "release"), given)


def test_pages_of_what_the_restored_generation_does_not_have_say_so(released: MemoryStore) -> None:
    """The newest generation is lost for good: its pages would offer what nothing accounts for."""
    name = name_of(released, 1)
    released.write("release/simple/ghost/index.html", b"<a href='https://evil.example/'>")
    for number in (2, 3):
        beginning = f"release/generations/{number:08}-"
        released.delete(next(key for key in released.objects if key.startswith(beginning)))
    assert broken(Index(released, "release"))
    restore(Index(released, "release"), name)
    page = json.loads(released.read("release/simple/torch/index.json").data)
    assert page["versions"] == ["2.8.0"]
    assert b"evil" not in released.read("release/simple/ghost/index.html").data
    assert audit(released, hashes=True).good


def test_an_interrupted_restoration_is_finished_by_the_next_run(released: MemoryStore) -> None:
    name = name_of(released, 3)
    released.delete("release/state.json")
    released.write("release/simple/torch/index.html", b"old")
    for left, after in dying(released, lambda it: restore(Index(it, "release"), name)):
        if broken(Index(after, "release")):
            restore(Index(after, "release"), name)
        recover(Index(after, "release"))
        assert audit(after, hashes=True).problems == (), left


def test_rendering_puts_right_what_somebody_wrote_and_writes_nothing_else(released: MemoryStore) -> None:
    before = contents(released)
    counted = Breaking(released, left=1000)
    render_all(Index(counted, "release"))
    assert counted.written == []
    for key in ("release/simple/torch/index.json", "release/index.html", "index.html"):
        released.write(key, b"evil")
    released.delete("release/simple/index.html")
    render_all(Index(released, "release"))
    assert contents(released) == before


@pytest.mark.parametrize("left", [None, b"", b"{", b"null"])
def test_the_command_lists_what_may_have_counted_and_has_it_count(
    folder: LocalStore, left: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    at = ["--store", str(folder.path)]
    assert main(["index", "repair", *at]) == 0
    assert "say what is current" in capsys.readouterr().out
    if left is None:
        folder.delete("release/state.json")
    else:
        folder.write("release/state.json", left)
    assert main(["index", "repair", *at, "--index", "staging"]) == 0
    assert main(["release", "log", *at, "--index", "release"]) == 9
    assert "cairn index repair" in capsys.readouterr().err
    assert main(["index", "repair", *at, "--index", "release"]) == 9
    assert "--generation 3-" in capsys.readouterr().err
    assert main(["index", "repair", *at]) == 9
    captured = capsys.readouterr()
    found = re.search(r"cairn index repair --index release --generation (3-[0-9a-f]{12})", captured.err)
    assert found is not None
    assert re.search(rf"{found[1]}  .*promote.* 3 of 3 pages show it", captured.out)
    assert main(["index", "repair", *at, "--json"]) == 9
    assert json.loads(capsys.readouterr().out)["indexes"][-1]["candidates"]
    assert main(["index", "repair", *at, "--generation", found[1]]) == 2
    assert main(["index", "repair", *at, "--index", "release", "--generation", found[1], "--dry-run"]) == 0
    assert folder.exists("release/state.json") is (left is not None)
    assert main(["index", "repair", *at, "--index", "release", "--generation", found[1]]) == 0
    assert "generation 3 of release is current" in capsys.readouterr().out
    assert main(["index", "check", *at, "--hashes"]) == 0
