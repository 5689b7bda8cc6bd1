"""The audit names each thing that somebody has done to a store, and is silent of a good one."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from cairn import datafile
from cairn.errors import StoreError, UsageError
from cairn.release.audit.audit import audit
from cairn.release.audit.inventory import AuditReport
from cairn.release.gate.evidence import Bypass
from cairn.release.gate.judgement import Demand, GateReport, Outcome
from cairn.release.history.rollback import rollback
from cairn.release.history.yank import yank
from cairn.release.index import generation, keys
from cairn.release.index.generation import FileEntry, Generation, Pointer, digest_of
from cairn.release.index.snapshot import Index
from cairn.release.provenance.evidence import TESTED
from cairn.store.memory import MemoryStore
from cairn.wheels.wheelset import WheelSet
from helpers.release import Breaking, Broken, contents, move

Sets = dict[str, WheelSet]
Tamper = Callable[[MemoryStore, Sets], object]

TORCH = "torch-2.9.0-py3-none-any.whl"
ZERO = "0" * 64
PAGE = Path(__file__).parents[4] / "docs" / "reference" / "audit.md"


EVIL = "torch-6.6-py3-none-any.whl"


def one(store: MemoryStore, beginning: str) -> str:
    """The one key that begins so."""
    (found,) = (key for key in store.objects if key.startswith(beginning))
    return found


def file(store: MemoryStore, name: str) -> str:
    """The key of a file."""
    (found,) = (key for key in store.objects if key.endswith(f"/{name}"))
    return found


def edit(store: MemoryStore, key: str, old: bytes, new: bytes) -> None:
    assert old in store.objects[key]
    store.write(key, store.objects[key].replace(old, new))


def flip(store: MemoryStore, key: str) -> None:
    """Change the last byte."""
    data = store.objects[key]
    store.write(key, data[:-1] + bytes([data[-1] ^ 1]))


def lengthen(store: MemoryStore, key: str) -> None:
    store.write(key, store.objects[key] + b"x")


def of_set(sets: Sets, name: str, version: str = "2.9.0") -> str:
    return keys.set_key(sets[version].id, name)


def now(store: MemoryStore) -> Generation:
    """The current generation of the release."""
    return Index(store, "release").load().generation


def past(store: MemoryStore, number: int) -> Generation:
    index = Index(store, "release")
    return next(found for _, found in index.chain(index.load()) if found.number == number)


def state(store: MemoryStore) -> Pointer:
    pointer = Index(store, "release").load().pointer
    assert pointer is not None
    return pointer


def point(store: MemoryStore, pointer: Pointer) -> None:
    store.write("release/state.json", generation.encode(pointer))


def point_back(store: MemoryStore, number: int) -> None:
    """Somebody writes an older pointer over a newer one."""
    digest = digest_of(generation.encode(past(store, number)))
    point(store, Pointer(generation=number, digest=digest, rendered=number, rendered_digest=digest))


def forge(store: MemoryStore, **changes: object) -> None:
    """Have a generation with other words count, under a name that fits its bytes."""
    data = generation.encode(msgspec.structs.replace(now(store), **changes))
    digest = digest_of(data)
    store.write(keys.generation_key("release", now(store).number, digest), data)
    point(store, msgspec.structs.replace(state(store), digest=digest, rendered_digest=digest))


def change_entry(store: MemoryStore, sets: Sets, **changes: object) -> None:
    """Have the release say something else of a set than it did, in a generation that fits."""
    there = Index(store, "release").load().set(sets["2.9.0"].id)
    digest = Index(store, "release").put_part(msgspec.structs.replace(there, **changes))
    forge(store, sets={**now(store).sets, there.set_id: digest})


def add_to_torch(store: MemoryStore, act: Callable[[FileEntry], FileEntry]) -> None:
    """Have the release offer one file more of torch, in a generation that fits."""
    index = Index(store, "release")
    torch = index.load().project("torch")
    found = torch.file(TORCH)
    assert found is not None
    digest = index.put_part(msgspec.structs.replace(torch, files=(*torch.files, act(found))))
    forge(store, projects={**now(store).projects, "torch": digest})


def judge(
    store: MemoryStore,
    sets: Sets,
    *,
    target: str = "release",
    outcome: Outcome = "met",
    name: str = "anything",
    untested: tuple[str, ...] = (),
    answered: tuple[str, ...] = (),
) -> str:
    """Put the judgement of a gate beside the set; its digest."""
    set_id = sets["2.9.0"].id
    bypass = Bypass(who="ann", reason="no GPU") if outcome == "bypassed" else None
    demand = Demand(number=1, name=name, outcome=outcome, reason="none", bypass=bypass)
    said = GateReport(
        set_id=set_id, target=target, judged="", demands=(demand,), untested=untested, answered=answered
    )
    data = datafile.dumps(said).encode()
    digest = hashlib.sha256(data).hexdigest()
    store.write(keys.set_key(set_id, f"judgements/{digest}.json"), data)
    return digest


def add_record(store: MemoryStore, sets: Sets) -> str:
    key = of_set(sets, f"records/{hashlib.sha256(b'{}').hexdigest()}.json")
    store.write(key, b"{}")
    return key


def hide_yank(store: MemoryStore, sets: Sets) -> None:
    yank(store, sets["2.9.0"].id, reason="wrong")
    edit(store, "release/simple/torch/index.json", b'"wrong"', b"false")


def put_page_back(store: MemoryStore) -> None:
    key = "release/simple/torch/index.html"
    later = store.objects[key]
    rollback(store, "release", "1")
    store.write(key, later)


def half_written(store: MemoryStore, key: str) -> None:
    """Somebody writes a page, and that all pages since the first generation are yet to be written."""
    first = digest_of(generation.encode(past(store, 1)))
    point(store, msgspec.structs.replace(state(store), rendered=1, rendered_digest=first))
    store.write(key, LINK)


LINK = b'<a href="https://evil.example/torch-6.6-py3-none-any.whl">torch-6.6-py3-none-any.whl</a>'
# What somebody plants below the address of an index, beside the pages that it has: key, and what is said.
PLANTED: list[tuple[str, str, str]] = [
    ("a wheel among the pages", f"release/simple/torch/{EVIL}", "is not of a store of Cairn's"),
    ("a page of another name", "release/simple/torch/page.html", "is not of a store of Cairn's"),
    ("a page below a project's", "release/simple/torch/x/index.html", "is not of a store of Cairn's"),
    ("a page of a name in capitals", "release/simple/Torch/index.html", "is not of a store of Cairn's"),
    ("a page of a Cyrillic name", "release/simple/t\u043erch/index.html", "is not of a store of Cairn's"),
    ("a page of no family", "release/evil/simple/torch/index.html", "is not of a store of Cairn's"),
    (
        "a page of a family that was never published",
        "release/gfx110X-all/simple/torch/index.html",
        "is of release/gfx110X-all, into which nothing was published",
    ),
    (
        "the front page of a family that was never published",
        "release/gfx110X-all/index.html",
        "is of release/gfx110X-all, into which nothing was published",
    ),
    (
        "the status of a family that was never published",
        "release/gfx942/status.html",
        "is of release/gfx942, into which nothing was published",
    ),
]


@pytest.mark.parametrize(("key", "said"), [pytest.param(*row[1:], id=row[0]) for row in PLANTED])
def test_what_is_planted_below_an_index_is_named_by_an_audit_of_that_index(
    released: MemoryStore, key: str, said: str
) -> None:
    released.write(key, LINK)
    for names in ([], ["release"]):
        report = audit(released, names, hashes=True)
        assert [p.said for p in report.problems if p.where == key and said in p.said], names
    assert audit(released, ["staging"], hashes=True).good


def test_pages_that_are_yet_to_be_written_are_those_of_some_generation(released: MemoryStore) -> None:
    """Otherwise one word of the pointer would hide whatever stands on a page."""
    old = msgspec.structs.replace(
        state(released), rendered=1, rendered_digest=digest_of(generation.encode(past(released, 1)))
    )
    point(released, old)
    (only,) = audit(released, ["release"]).problems
    assert "the pages of release are of generation 1, and 3 is current" in only.said
    now_there = dict(released.objects)
    half_written(released, "release/simple/torch/index.html")
    assert any("torch/index.html does not say" in p.said for p in audit(released, ["release"]).problems)
    for key in ("release/simple/index.html", "release/simple/numpy/index.json"):
        released.objects.clear()
        released.objects.update(now_there)
        half_written(released, key)
        assert any(f"{key} does not say" in p.said for p in audit(released, ["release"]).problems)


def test_the_pages_of_a_set_of_no_index_are_compared_too(released: MemoryStore) -> None:
    alone = f"sets/{'ab' * 32}/simple/torch/index.html"
    released.write(alone, LINK)
    assert audit(released).good  # its set.json may be on its way
    assert [p.where for p in audit(released, young=timedelta(0)).problems] == ["ab" * 32]
    released.delete(alone)
    rollback(released, "release", "0")
    rollback(released, "staging", "0")
    key = next(key for key in released.objects if re.fullmatch("sets/[^/]+/simple/torch/index.html", key))
    assert audit(released).good
    released.write(key, LINK)
    assert any("torch/index.html does not say what the set says" in p.said for p in audit(released).problems)


def test_a_good_store_is_good_and_every_key_of_it_is_live(released: MemoryStore) -> None:
    before = contents(released)
    report = audit(released, hashes=True)
    assert report.problems == ()
    assert report.good
    assert report.indexes == {"staging": 5, "release": 3}
    assert {name: counted.count for name, counted in report.keys.items()} == {
        "live": len(released.objects),
        "pending": 0,
        "garbage": 0,
        "temporary": 0,
        "foreign": 0,
    }
    assert contents(released) == before


def test_the_history_of_an_index_is_live_too(released: MemoryStore, sets: Sets) -> None:
    rollback(released, "release", "1")
    yank(released, sets["2.8.0"].id, reason="wrong")
    rollback(released, "release", "0")
    report = audit(released, hashes=True)
    assert report.problems == ()
    left = [key for key in released.objects if key.startswith("release/simple/")]
    assert (
        report.keys["live"].count == len(released.objects) - len(left) + 2
    )  # all but pages that say nothing
    assert report.keys["pending"].count == len(left) - 2


# What somebody may do to a store, and what the audit then says.
TAMPERING: list[tuple[str, Tamper, str]] = [
    # the pointer
    ("the pointer is lost", lambda s, _: s.delete("release/state.json"), r"state\.json was lost"),
    ("the pointer is not JSON", lambda s, _: s.write("release/state.json", b"x"), "state.json"),
    (
        "the pointer is of a different schema",
        lambda s, _: edit(s, "release/state.json", b"cairn.pointer/1", b"cairn.pointer/9"),
        "schema 'cairn.pointer/9'",
    ),
    (
        "the pointer names what never was",
        lambda s, _: point(s, msgspec.structs.replace(state(s), generation=9, rendered=9)),
        "generations/00000009-[0-9a-f]+.json is lost",
    ),
    ("the pointer is set back by two", lambda s, _: point_back(s, 1), "was set back: it names generation 1"),
    (
        "the pointer is set back by one, and pages are not",
        lambda s, _: point_back(s, 2),
        "simple/torch/index.html does not say what the generation says",
    ),
    (
        "the pointer is set back to nothing",
        lambda s, _: point(s, Pointer(generation=0, digest=ZERO, rendered=0, rendered_digest=ZERO)),
        "was set back: it names generation 0",
    ),
    (
        "the pointer says that pages are of what never was",
        lambda s, _: point(s, msgspec.structs.replace(state(s), rendered=2, rendered_digest=ZERO)),
        "00000002-0000",
    ),
    # generations and parts
    (
        "the current generation is removed",
        lambda s, _: s.delete(one(s, "release/generations/00000003")),
        "00000003-[0-9a-f]+.json is lost",
    ),
    (
        "an old generation is removed",
        lambda s, _: s.delete(one(s, "release/generations/00000001")),
        "the chain breaks: .*00000001-[0-9a-f]+.json is lost",
    ),
    (
        "an old generation is edited",
        lambda s, _: edit(s, one(s, "release/generations/00000001"), b'"promote"', b'"publish"'),
        "00000001-[0-9a-f]+.json was changed",
    ),
    (
        "a generation is of a different index",
        lambda s, _: forge(s, index="staging"),
        "is generation 3 of stag",
    ),
    ("a generation has a different number", lambda s, _: forge(s, number=7), "is generation 7 of release"),
    ("a generation has a different parent", lambda s, _: forge(s, parent=ZERO), "the chain breaks"),
    (
        "a generation names a part that is not there",
        lambda s, _: forge(s, projects={**now(s).projects, "torch": ZERO}),
        "the state of torch cannot be read: .*parts/0000",
    ),
    (
        "a generation has fewer projects than its pages",
        lambda s, _: forge(s, projects={k: v for k, v in now(s).projects.items() if k != "numpy"}),
        "simple/numpy/index.html is of no project",
    ),
    (
        "the part of a project is removed",
        lambda s, _: s.delete(keys.part_key("release", now(s).projects["torch"])),
        "the state of torch cannot be read: .* is lost",
    ),
    (
        "the part of a project is edited",
        lambda s, _: edit(s, keys.part_key("release", now(s).projects["torch"]), b"2.9.0", b"6.6.6"),
        "the state of torch cannot be read: .* was changed",
    ),
    (
        "the part of a set is edited",
        lambda s, x: edit(s, keys.part_key("release", now(s).sets[x["2.9.0"].id]), b'"main"', b'"evil"'),
        "set [0-9a-f]+: .*parts/.* was changed",
    ),
    (
        "a part of an old generation is edited",
        lambda s, _: edit(s, keys.part_key("release", past(s, 1).projects["torch"]), b"2.8.0", b"6.6.6"),
        "release/parts/[0-9a-f]+.json was changed",
    ),
    # pages
    (
        "a page leads elsewhere",
        lambda s, _: edit(s, "release/simple/torch/index.html", b"../../../files/", b"https://evil.example/"),
        "release/simple/torch/index.html does not say",
    ),
    (
        "a page has a different hash",
        lambda s, _: edit(s, "release/simple/torch/index.json", b'"sha256":"', b'"sha256":"0'),
        "release/simple/torch/index.json does not say",
    ),
    ("a page hides a yank", hide_yank, "release/simple/torch/index.json does not say"),
    (
        "a page is removed",
        lambda s, _: s.delete("release/simple/torch/index.html"),
        "simple/torch/index.html is missing",
    ),
    ("the root page is removed", lambda s, _: s.delete("release/simple/index.json"), "index.json is missing"),
    (
        "the root page lists something else",
        lambda s, _: edit(s, "release/simple/index.json", b'"torch"', b'"t0rch"'),
        "release/simple/index.json does not say",
    ),
    (
        "the page of an older generation is put back",
        lambda s, _: put_page_back(s),
        "release/simple/torch/index.html does not say",
    ),
    (
        "the page of no project offers something",
        lambda s, _: s.write("release/simple/ghost/index.html", b'<a href="https://evil.example/">x</a>'),
        "ghost/index.html is of no project",
    ),
    (
        "the page for people says something else",
        lambda s, _: edit(s, "release/index.html", b"--index-url", b"--evil-url"),
        "release/index.html does not say",
    ),
    ("the front page is removed", lambda s, _: s.delete("index.html"), "index.html is missing"),
    (
        "the status page has a word more",
        lambda s, _: edit(s, "release/status.html", b"</html>", b"<b>x</b></html>"),
        "release/status.html does not say",
    ),
    (
        "targets.json offers something else",
        lambda s, _: edit(s, "release/targets.json", b"release", b"dev"),
        "release/targets.json does not say",
    ),
    (
        "the lock of an index is edited",
        lambda s, _: edit(s, one(s, "release/locks/constraints"), b"torch==", b"torch-evil=="),
        "release/locks/constraints.* does not say",
    ),
    # files
    ("a wheel is removed", lambda s, _: s.delete(file(s, TORCH)), "torch-2.9.0.*whl is missing"),
    ("a wheel is changed", lambda s, _: flip(s, file(s, TORCH)), "torch-2.9.0.*whl was changed"),
    ("a wheel is longer", lambda s, _: lengthen(s, file(s, TORCH)), "torch-2.9.0.*whl has [0-9]+ bytes"),
    (
        "a file of the closure is swapped",
        lambda s, _: flip(s, file(s, "numpy-2.0-py3-none-any.whl")),
        "numpy-2.0.*whl was changed",
    ),
    (
        "metadata is removed",
        lambda s, _: s.delete(file(s, f"{TORCH}.metadata")),
        "torch-2.9.0.*metadata is missing",
    ),
    (
        "metadata needs something else",
        lambda s, _: edit(s, file(s, f"{TORCH}.metadata"), b"triton==3.5", b"triton-evil"),
        "torch-2.9.0.*metadata was changed",
    ),
    (
        "a file that no index offers is not what it is called",
        lambda s, _: s.write(f"files/ab/{'ab' * 32}/a-1.0-py3-none-any.whl", b"x"),
        "files/ab/(ab)+/a-1.0-py3-none-any.whl was changed",
    ),
    # sets
    ("set.json is removed", lambda s, x: s.delete(of_set(x, "set.json")), "its set.json is missing"),
    (
        "set.json is edited",
        lambda s, x: edit(s, of_set(x, "set.json"), b'"cpu"', b'"gfx942"'),
        "set.json was changed",
    ),
    (
        "set.json is that of a different set",
        lambda s, x: s.write(of_set(x, "set.json"), s.objects[of_set(x, "set.json", "2.8.0")]),
        "set.json is a different set",
    ),
    (
        "the manifest is removed",
        lambda s, x: s.delete(of_set(x, "manifest.json")),
        "manifest.json is missing",
    ),
    (
        "the manifest is edited",
        lambda s, x: edit(s, of_set(x, "manifest.json"), b"sample", b"simple"),
        "manifest.json was changed",
    ),
    (
        "the builder's statement is removed",
        lambda s, x: s.delete(of_set(x, "builder.json")),
        "there is no builder's statement",
    ),
    (
        "the builder's statement is of other wheels",
        lambda s, x: edit(s, of_set(x, "builder.json"), b"torch-", b"tarch-"),
        "the builder says that it did not make it",
    ),
    (
        "a page of a set leads elsewhere",
        lambda s, x: edit(s, of_set(x, "simple/torch/index.html"), b"../../files/", b"https://evil.example/"),
        "simple/torch/index.html does not say what the set says",
    ),
    (
        "the index of a set has a project more",
        lambda s, x: s.write(of_set(x, "simple/evil/index.html"), b"<a href='https://evil.example/'>"),
        "simple/evil/index.html is not of the index of the set",
    ),
    (
        "a page of a set is removed",
        lambda s, x: s.delete(of_set(x, "simple/index.html")),
        "sets/.*/simple/index.html is missing",
    ),
    (
        "the lock of a set is edited",
        lambda s, x: edit(s, of_set(x, "locks/constraints.txt"), b"torch==2.9.0", b"torch==2.8.0"),
        "locks/constraints.txt is not the lock of the set",
    ),
    (
        "the lock of a set is removed",
        lambda s, x: s.delete(of_set(x, "locks/pylock.toml")),
        "locks/pylock.toml is missing",
    ),
    (
        "a project has two files of one name",
        lambda s, _: add_to_torch(s, lambda f: msgspec.structs.replace(f, sha256="1" * 64)),
        "release offers two files called torch-2.9.0-py3-none-any.whl",
    ),
    (
        "a project has a file of another one",
        lambda s, _: add_to_torch(
            s, lambda f: msgspec.structs.replace(f, filename="evil-2.9.0-py3-none-any.whl")
        ),
        "release offers evil-2.9.0-py3-none-any.whl as torch",
    ),
    # what was said of sets
    ("a record is edited", lambda s, x: edit(s, add_record(s, x), b"{}", b"[]"), "records/.* was changed"),
    (
        "a judgement is not what it is called",
        lambda s, x: s.write(of_set(x, f"judgements/{ZERO}.json"), b"{}"),
        "judgements/0+.json was changed",
    ),
    (
        "an answer is not what it is called",
        lambda s, x: s.write(of_set(x, f"answers/{ZERO}.json"), b"{}"),
        "answers/0+.json was changed",
    ),
    (
        "a record that the gate read is removed",
        lambda s, x: change_entry(s, x, records=("1" * 64,)),
        "records/1+.json is missing",
    ),
    (
        "the judgement is removed",
        lambda s, x: change_entry(s, x, judgement="2" * 64),
        "judgements/2+.json is missing",
    ),
    (
        "a set is put past the gate",
        lambda s, x: change_entry(s, x, judgement=None),
        "release has it without a judgement of the gate",
    ),
    (
        "a set is let in by the judgement of a different index",
        lambda s, x: change_entry(s, x, judgement=judge(s, x, target="staging")),
        "is of the set [0-9a-f]{12} for staging, not for release",
    ),
    (
        "a set is let in by a judgement that refused it",
        lambda s, x: change_entry(s, x, judgement=judge(s, x, outcome="not met")),
        "refused it: anything",
    ),
    (
        "an index clears what a judgement says of targets",
        lambda s, x: change_entry(s, x, judgement=judge(s, x, untested=("gfx942",))),
        "the judgement says that it is untested on gfx942, and the index does not",
    ),
    (
        "an index clears a bypass",
        lambda s, x: change_entry(s, x, judgement=judge(s, x, outcome="bypassed")),
        "the judgement let it in on somebody's word, and the index does not say so",
    ),
    (
        "an index clears an answer to a failure",
        lambda s, x: change_entry(s, x, judgement=judge(s, x, answered=("it failed; bo says fine",))),
        "the judgement let it in on somebody's word, and the index does not say so",
    ),
    (
        "a judgement calls tested what no record tested",
        lambda s, x: change_entry(s, x, judgement=judge(s, x, name=TESTED)),
        "the judgement says that it was tested on cpu, and no record beside it does",
    ),
    (
        "a set has a lock more",
        lambda s, x: s.write(of_set(x, "locks/evil.txt"), b"torch==6.6"),
        "locks/evil.txt is no lock of the set",
    ),
    (
        "a page is changed while others are yet to be written",
        lambda s, _: half_written(s, "release/simple/torch/index.html"),
        "release/simple/torch/index.html does not say",
    ),
    (
        "a file is put past the gate",
        lambda s, _: add_to_torch(
            s, lambda f: msgspec.structs.replace(f, filename=EVIL, version="6.6", sets=())
        ),
        "torch-6.6-py3-none-any.whl is of no set that the gate let into release",
    ),
    (
        "a record is removed, and its signature is not",
        lambda s, x: s.write(of_set(x, f"records/{'3' * 64}.dsse.json"), b"{}"),
        "is the signature of something that is missing",
    ),
    (
        "an entry has a different family",
        lambda s, x: change_entry(s, x, family="gfx110X-all"),
        "release says 'gfx110X-all' of its family, set.json does not",
    ),
    (
        "an entry has other targets",
        lambda s, x: change_entry(s, x, targets=("gfx942",)),
        "of its targets, set.json does not",
    ),
    (
        "an entry lists other versions",
        lambda s, x: change_entry(s, x, projects={"torch": "6.6"}),
        "lists other projects of it",
    ),
    # what is not ours
    (
        "a folder of somebody's",
        lambda s, _: s.write("notes/todo.txt", b""),
        "todo.txt is not of a store",
    ),
    (
        "a file beside the pages",
        lambda s, _: s.write("release/simple/torch/evil.txt", b""),
        "torch/evil.txt is not of a store",
    ),
    (
        "an index of no family",
        lambda s, _: s.write("release/gfx9999/state.json", b"{}"),
        "release/gfx9999/state.json is not of a store",
    ),
    (
        "a file under a different beginning",
        lambda s, _: s.write(f"files/cd/{'ab' * 32}/a-1.whl", b"x"),
        "files/cd/.*/a-1.whl is not of a store",
    ),
    (
        "a key that differs in capitals alone",
        lambda s, _: s.write(file(s, f"{TORCH}.metadata").replace("torch", "Torch"), b"x"),
        "torch-2.9.0.* is .* where capital letters do not count",
    ),
]


def rows() -> Iterator[str]:
    """The table of the page on the audit."""
    yield "| somebody has done this | the audit says (a regular expression) |"
    yield "| --- | --- |"
    for what, _, said in TAMPERING:
        yield f"| {what} | `{said.replace('|', '&#124;')}` |"


def test_the_page_on_the_audit_has_every_row() -> None:
    shown = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    assert shown[-len(TAMPERING) - 2 :] == list(rows()), "put `rows()` into docs/reference/audit.md"


@pytest.mark.parametrize(("act", "said"), [pytest.param(*row[1:], id=row[0]) for row in TAMPERING])
def test_what_was_done_to_a_store_is_named(released: MemoryStore, sets: Sets, act: Tamper, said: str) -> None:
    act(released, sets)
    report = audit(released, hashes=True)
    assert not report.good
    assert re.search(said, "\n".join(problem.said for problem in report.problems))


def test_what_is_wrong_with_one_index_is_said_of_that_one(released: MemoryStore) -> None:
    released.delete("release/simple/torch/index.html")
    assert {problem.index for problem in audit(released).problems} == {"release"}
    assert audit(released, ("staging",)).problems == ()
    assert audit(released, ("staging",)).keys == {}


def test_a_file_that_two_indexes_offer_is_said_of_both_and_read_once(released: MemoryStore) -> None:
    flip(released, file(released, TORCH))

    class Counting(MemoryStore):
        opened: list[str] = []  # noqa: RUF012 - one store, one test

        def open(self, key: str, *, start: int = 0, count: int | None = None):  # type: ignore[no-untyped-def]  # noqa: ANN202
            self.opened.append(key)
            return super().open(key, start=start, count=count)

    store = Counting(released.objects)
    assert {problem.index for problem in audit(store, hashes=True).problems} == {"release", "staging"}
    assert len(store.opened) == len(set(store.opened))


def test_bytes_are_read_when_asked_alone(released: MemoryStore) -> None:
    flip(released, file(released, TORCH))
    assert audit(released).good
    assert not audit(released, hashes=True).good


def test_what_nobody_names_is_pending_while_it_is_young(released: MemoryStore) -> None:
    data = b"a wheel"
    digest = hashlib.sha256(data).hexdigest()
    key = keys.file_key(digest, "a-1.0-py3-none-any.whl")
    released.write(key, data)
    report = audit(released, hashes=True)
    assert report.good
    assert report.keys["pending"].names == (key,)
    released.modified[key] = datetime.now(UTC) - timedelta(days=2)
    report = audit(released, hashes=True)
    assert report.good
    assert (report.keys["garbage"].names, report.keys["garbage"].size) == ((key,), 7)


def test_a_writer_that_died_is_said_to_have_left_pages(nights: MemoryStore, sets: Sets) -> None:
    counted = Breaking(nights, left=1000)
    move(counted, sets["2.8.0"])
    first = next(n for n, key in enumerate(counted.written) if "/simple/" in key)
    store = Breaking(nights, left=first + 1)
    with pytest.raises(Broken):
        move(store, sets["2.8.0"])
    report = audit(MemoryStore(store.objects))
    assert [problem.code for problem in report.problems] == ["unfinished"]
    assert "cairn index recover writes them" in report.problems[0].said


def test_a_generation_that_lost_its_race_is_no_problem(released: MemoryStore) -> None:
    lost = msgspec.structs.replace(now(released), change_id="lost")
    data = generation.encode(lost)
    released.write(keys.generation_key("release", 3, digest_of(data)), data)
    parent = state(released).digest
    next_one = msgspec.structs.replace(now(released), number=4, parent=parent, change_id="died")
    data = generation.encode(next_one)
    released.write(keys.generation_key("release", 4, digest_of(data)), data)
    report = audit(released, hashes=True)
    assert report.good
    assert report.keys["live"].count == len(released.objects)


def test_what_a_writer_does_meanwhile_is_no_problem(released: MemoryStore, sets: Sets) -> None:
    class Busy(MemoryStore):
        left = 1

        def read(self, key: str):  # type: ignore[no-untyped-def]  # noqa: ANN202
            if key == "release/simple/torch/index.json" and self.left:
                self.left = 0
                yank(self, sets["2.9.0"].id, reason="wrong")
            return super().read(key)

    store = Busy(released.objects)
    assert audit(store, hashes=True).problems == ()
    assert audit(store, hashes=True).indexes["release"] == 4


def test_an_index_that_is_not_there_is_not_good(released: MemoryStore) -> None:
    with pytest.raises(StoreError, match="no index nightly"):
        audit(released, ("nightly",))
    with pytest.raises(UsageError, match="not a channel"):
        audit(released, ("nope",))


def test_a_store_of_which_nothing_is_left_is_not_good() -> None:
    (problem,) = audit(MemoryStore()).problems
    assert "has no index" in problem.said


def test_the_report_is_for_programs_too(released: MemoryStore) -> None:
    released.delete("release/simple/torch/index.html")
    plain = json.loads(msgspec.json.encode(audit(released)))
    assert plain["schema"] == "cairn.audit/1"
    assert plain["problems"][0]["code"] == "page"
    assert msgspec.convert(plain, AuditReport).problems[0].where.endswith("torch/index.html")
