"""The audit names each thing that somebody has done to a store, and is silent of a good one."""

from __future__ import annotations

import functools
import hashlib
import html
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from cairn import datafile
from cairn.errors import StoreError, UsageError
from cairn.release.audit.audit import audit
from cairn.release.audit.inventory import AuditReport
from cairn.release.gate.judgement import Demand, GateReport, Outcome
from cairn.release.history.rollback import rollback
from cairn.release.history.yank import yank
from cairn.release.index import generation, keys
from cairn.release.index.generation import FileEntry, Generation, digest_of
from cairn.release.index.snapshot import Index, Snapshot
from cairn.release.provenance.judged import TESTED
from cairn.release.weighing import Bypass
from cairn.store.memory import MemoryStore
from cairn.wheels.wheelset import WheelSet
from helpers.faults import FaultyStore, Plan
from helpers.moments import Meddled
from helpers.release import Breaking, Broken, contents, move

Sets = dict[str, WheelSet]

POINTER = "release/state.json"
TORCH = "torch-2.9.0-py3-none-any.whl"
EVIL = "torch-6.6-py3-none-any.whl"
ZERO = "0" * 64
ODD = f"files/ab/{'ab' * 32}/a-1.0-py3-none-any.whl"
ELSEWHERE = b"https://evil.example/"
LINK = b'<a href="https://evil.example/torch-6.6-py3-none-any.whl">torch-6.6-py3-none-any.whl</a>'
PAGE = Path(__file__).parents[4] / "docs" / "reference" / "audit.md"


@dataclass(frozen=True)
class Tampered:
    """A store with three nights released, and all that somebody who may write it can do to it."""

    store: MemoryStore
    sets: Sets

    @property
    def snapshot(self) -> Snapshot:
        return Index(self.store, "release").load()

    @property
    def now(self) -> Generation:
        """The current generation of the release."""
        return self.snapshot.generation

    def past(self, number: int) -> Generation:
        index = Index(self.store, "release")
        return next(found for _, found in index.chain(index.load()) if found.number == number)

    def with_parts(self, digests: Mapping[str, str | None]) -> tuple[str, ...]:
        """The bins of the current projects, with these parts."""
        return self.snapshot.project_parts.put(digests, self.snapshot.index.put_part)

    def bin_of(self, field: str, number: int = 0) -> str:
        """The key of the first bin that has names, of the current generation or an earlier one."""
        now = self.past(number) if number else self.now
        return self.part(next(filter(None, getattr(now, field))))

    def one(self, beginning: str) -> str:
        """The one key that begins so."""
        (found,) = (key for key in self.store.objects if key.startswith(beginning))
        return found

    def file(self, name: str) -> str:
        """The key of a file."""
        (found,) = (key for key in self.store.objects if key.endswith(f"/{name}"))
        return found

    def part(self, digest: str) -> str:
        return keys.part_key("release", digest)

    def of_set(self, name: str, version: str = "2.9.0") -> str:
        return keys.set_key(self.sets[version].id, name)

    def delete(self, key: str) -> None:
        self.store.delete(key)

    def write(self, key: str, data: bytes = b"") -> None:
        self.store.write(key, data)

    def edit(self, key: str, old: bytes, new: bytes) -> None:
        assert old in self.store.objects[key]
        self.write(key, self.store.objects[key].replace(old, new))

    def flip(self, key: str) -> None:
        """Change the last byte."""
        data = self.store.objects[key]
        self.write(key, data[:-1] + bytes([data[-1] ^ 1]))

    def point(self, **changes: object) -> None:
        """Have the pointer say something else."""
        pointer = Index(self.store, "release").load().pointer
        assert pointer is not None
        self.write(POINTER, generation.encode(msgspec.structs.replace(pointer, **changes)))

    def point_back(self, number: int) -> None:
        """Write an older pointer over a newer one."""
        digest = digest_of(generation.encode(self.past(number))) if number else ZERO
        self.point(generation=number, digest=digest, rendered=number, rendered_digest=digest)

    def write_pages_late(self) -> None:
        """Have the pointer say that all pages since the first generation are yet to be written."""
        self.point(rendered=1, rendered_digest=digest_of(generation.encode(self.past(1))))

    def forge(self, **changes: object) -> None:
        """Have a generation with other words count, under a name that fits its bytes."""
        number, data = self.now.number, generation.encode(msgspec.structs.replace(self.now, **changes))
        self.write(keys.generation_key("release", number, digest_of(data)), data)
        self.point(digest=digest_of(data), rendered_digest=digest_of(data))

    def change_entry(self, **changes: object) -> None:
        """Have the release say something else of a set than it did, in a generation that fits."""
        set_id = self.sets["2.9.0"].id
        entry = msgspec.structs.replace(self.snapshot.set(set_id), **changes)
        self.forge(sets=self.snapshot.set_entries.put({set_id: entry}, self.snapshot.index.put_part))

    def add_to_torch(self, **changes: object) -> None:
        """Have the release offer a file more of torch, in a generation that fits."""
        index = Index(self.store, "release")
        torch = index.load().project("torch")
        found = torch.file(TORCH)
        assert isinstance(found, FileEntry)
        more = msgspec.structs.replace(found, **changes)
        digest = index.put_part(msgspec.structs.replace(torch, files=(*torch.files, more)))
        self.forge(projects=self.with_parts({"torch": digest}))

    def judge(
        self,
        outcome: Outcome = "met",
        *,
        target: str = "release",
        name: str = "anything",
        untested: tuple[str, ...] = (),
        answered: tuple[str, ...] = (),
    ) -> None:
        """Have the release name a judgement of the gate that says this."""
        bypass = Bypass(who="ann", reason="no GPU") if outcome == "bypassed" else None
        demand = Demand(number=1, name=name, outcome=outcome, reason="none", bypass=bypass)
        said = GateReport(
            set_id=self.sets["2.9.0"].id,
            target=target,
            judged="",
            demands=(demand,),
            untested=untested,
            answered=answered,
        )
        data = datafile.dumps(said).encode()
        digest = hashlib.sha256(data).hexdigest()
        self.write(self.of_set(f"judgements/{digest}.json"), data)
        self.change_entry(judgement=digest)

    def hide_yank(self) -> None:
        yank(self.store, self.sets["2.9.0"].id, reason="wrong")
        self.edit("release/simple/torch/index.json", b'"wrong"', b"false")

    def put_page_back(self) -> None:
        key = "release/simple/torch/index.html"
        later = self.store.objects[key]
        rollback(self.store, "release", "1")
        self.write(key, later)

    def write_page_meanwhile(self, key: str) -> None:
        self.write_pages_late()
        self.write(key, LINK)


@pytest.fixture
def tampered(released: MemoryStore, sets: Sets) -> Tampered:
    return Tampered(released, sets)


# What somebody may do to a store; docs/reference/audit.md has what the audit says then.
TAMPERING: dict[str, Callable[[Tampered], object]] = {
    # the pointer
    "the pointer is lost": lambda t: t.delete(POINTER),
    "the pointer is not JSON": lambda t: t.write(POINTER, b"x"),
    "the pointer is of a different schema": lambda t: t.edit(POINTER, b"cairn.pointer/1", b"cairn.pointer/9"),
    "the pointer names what never was": lambda t: t.point(generation=9, rendered=9),
    "the pointer is set back by two": lambda t: t.point_back(1),
    "the pointer is set back by one, and pages are not": lambda t: t.point_back(2),
    "the pointer is set back to nothing": lambda t: t.point_back(0),
    "the pointer says that pages are of what never was": lambda t: t.point(rendered=2, rendered_digest=ZERO),
    # generations and parts
    "the current generation is removed": lambda t: t.delete(t.one("release/generations/00000003")),
    "an old generation is removed": lambda t: t.delete(t.one("release/generations/00000001")),
    "an old generation is edited": lambda t: t.edit(
        t.one("release/generations/00000001"), b'"promote"', b'"publish"'
    ),
    "a generation is of a different index": lambda t: t.forge(index="staging"),
    "a generation has a different number": lambda t: t.forge(number=7),
    "a generation has a different parent": lambda t: t.forge(parent=ZERO),
    "a generation names a part that is not there": lambda t: t.forge(projects=t.with_parts({"torch": ZERO})),
    "a generation has fewer projects than its pages": lambda t: t.forge(
        projects=t.with_parts({"numpy": None})
    ),
    "the part of a project is removed": lambda t: t.delete(t.part(t.snapshot.project_parts["torch"])),
    "the part of a project is edited": lambda t: t.edit(
        t.part(t.snapshot.project_parts["torch"]), b"2.9.0", b"6.6.6"
    ),
    "the bin of projects is removed": lambda t: t.delete(t.bin_of("projects")),
    "the bin of projects is of an earlier generation": lambda t: t.write(
        t.bin_of("projects"), t.store.objects[t.bin_of("projects", 1)]
    ),
    "the bin of sets is removed": lambda t: t.delete(t.bin_of("sets")),
    "the bin of sets is edited": lambda t: t.edit(t.bin_of("sets"), b'"main"', b'"evil"'),
    "the bin of sets is cut": lambda t: t.write(t.bin_of("sets"), t.store.objects[t.bin_of("sets")][:100]),
    "a generation has no power of two of bins": lambda t: t.forge(sets=(*t.now.sets, "", "")),
    "a generation has its bins in another order": lambda t: t.forge(sets=("", *t.now.sets)),
    "a bin of an old generation is edited": lambda t: t.edit(t.bin_of("sets", 1), b'"main"', b'"evil"'),
    "a part of an old generation is edited": lambda t: t.edit(
        t.part(t.snapshot.index.at(t.past(1), "").project_parts["torch"]), b"2.8.0", b"6.6.6"
    ),
    # pages
    "a page leads elsewhere": lambda t: t.edit(
        "release/simple/torch/index.html", b"../../../files/", ELSEWHERE
    ),
    "a page has a different hash": lambda t: t.edit(
        "release/simple/torch/index.json", b'"sha256":"', b'"sha256":"0'
    ),
    "a page hides a yank": lambda t: t.hide_yank(),
    "a page is removed": lambda t: t.delete("release/simple/torch/index.html"),
    "the root page is removed": lambda t: t.delete("release/simple/index.json"),
    "the root page lists something else": lambda t: t.edit(
        "release/simple/index.json", b'"torch"', b'"t0rch"'
    ),
    "the page of an older generation is put back": lambda t: t.put_page_back(),
    "the page of no project offers something": lambda t: t.write("release/simple/ghost/index.html", LINK),
    "the page for people says something else": lambda t: t.edit(
        "release/index.html", b"--index-url", b"--evil-url"
    ),
    "the front page is removed": lambda t: t.delete("index.html"),
    "the status page has a word more": lambda t: t.edit(
        "release/status.html", b"</html>", b"<b>x</b></html>"
    ),
    "targets.json offers something else": lambda t: t.edit("release/targets.json", b"release", b"dev"),
    "the lock of an index is edited": lambda t: t.edit(
        t.one("release/locks/constraints"), b"torch==", b"torch-evil=="
    ),
    # files
    "a wheel is removed": lambda t: t.delete(t.file(TORCH)),
    "a wheel is changed": lambda t: t.flip(t.file(TORCH)),
    "a wheel is longer": lambda t: t.edit(t.file(TORCH), b"PK\5\6", b"xPK\5\6"),
    "a file of the closure is swapped": lambda t: t.flip(t.file("numpy-2.0-py3-none-any.whl")),
    "metadata is removed": lambda t: t.delete(t.file(f"{TORCH}.metadata")),
    "metadata needs something else": lambda t: t.edit(
        t.file(f"{TORCH}.metadata"), b"triton==3.5", b"triton-evil"
    ),
    "a file that no index offers is not what it is called": lambda t: t.write(ODD, b"x"),
    # sets
    "set.json is removed": lambda t: t.delete(t.of_set("set.json")),
    "set.json is edited": lambda t: t.edit(t.of_set("set.json"), b'"cpu"', b'"gfx942"'),
    "set.json is that of a different set": lambda t: t.write(
        t.of_set("set.json"), t.store.objects[t.of_set("set.json", "2.8.0")]
    ),
    "the manifest is removed": lambda t: t.delete(t.of_set("manifest.json")),
    "the manifest is edited": lambda t: t.edit(t.of_set("manifest.json"), b"sample", b"simple"),
    "the builder's statement is removed": lambda t: t.delete(t.of_set("builder.json")),
    "the builder's statement is of other wheels": lambda t: t.edit(
        t.of_set("builder.json"), b"torch-", b"tarch-"
    ),
    "a page of a set leads elsewhere": lambda t: t.edit(
        t.of_set("simple/torch/index.html"), b"../../files/", ELSEWHERE
    ),
    "the index of a set has a project more": lambda t: t.write(t.of_set("simple/evil/index.html"), LINK),
    "a page of a set is removed": lambda t: t.delete(t.of_set("simple/index.html")),
    "the lock of a set is edited": lambda t: t.edit(
        t.of_set("locks/constraints.txt"), b"torch==2.9.0", b"torch==2.8.0"
    ),
    "the lock of a set is removed": lambda t: t.delete(t.of_set("locks/pylock.toml")),
    "a project has two files of one name": lambda t: t.add_to_torch(sha256="1" * 64),
    "a project has a file of another one": lambda t: t.add_to_torch(filename=f"evil{TORCH[5:]}"),
    # what was said of sets
    "a record is edited": lambda t: t.write(
        t.of_set(f"records/{hashlib.sha256(b'{}').hexdigest()}.json"), b"[]"
    ),
    "a judgement is not what it is called": lambda t: t.write(t.of_set(f"judgements/{ZERO}.json"), b"{}"),
    "an answer is not what it is called": lambda t: t.write(t.of_set(f"answers/{ZERO}.json"), b"{}"),
    "a record that the gate read is removed": lambda t: t.change_entry(records=("1" * 64,)),
    "the judgement is removed": lambda t: t.change_entry(judgement="2" * 64),
    "a set is put past the gate": lambda t: t.change_entry(judgement=None),
    "a set is let in by the judgement of a different index": lambda t: t.judge(target="staging"),
    "a set is let in by a judgement that refused it": lambda t: t.judge("not met"),
    "an index clears what a judgement says of targets": lambda t: t.judge(untested=("gfx942",)),
    "an index clears a bypass": lambda t: t.judge("bypassed"),
    "an index clears an answer to a failure": lambda t: t.judge(answered=("it failed; bo says fine",)),
    "a judgement calls tested what no record tested": lambda t: t.judge(name=TESTED),
    "a set has a lock more": lambda t: t.write(t.of_set("locks/evil.txt"), b"torch==6.6"),
    "a page is changed while others are yet to be written": lambda t: t.write_page_meanwhile(
        "release/simple/torch/index.html"
    ),
    "a file is put past the gate": lambda t: t.add_to_torch(filename=EVIL, version="6.6", sets=()),
    "a record is removed, and its signature is not": lambda t: t.write(
        t.of_set(f"records/{'3' * 64}.dsse.json"), b"{}"
    ),
    "an entry has a different family": lambda t: t.change_entry(family="gfx110X-all"),
    "an entry has other targets": lambda t: t.change_entry(targets=("gfx942",)),
    "an entry lists other versions": lambda t: t.change_entry(projects={"torch": "6.6"}),
    # what is not ours
    "a folder of somebody's": lambda t: t.write("notes/todo.txt"),
    "a file beside the pages": lambda t: t.write("release/simple/torch/evil.txt"),
    "an index of no family": lambda t: t.write("release/gfx9999/state.json", b"{}"),
    "a file under a different beginning": lambda t: t.write(f"files/cd/{'ab' * 32}/a-1.whl"),
    "a key that differs in capitals alone": lambda t: t.write(
        t.file(f"{TORCH}.metadata").replace("torch", "Torch")
    ),
}


@functools.cache
def documented() -> dict[str, str]:
    """What the page on the audit says is reported, as regular expressions, by what was done."""
    text = PAGE.read_text(encoding="utf-8").partition("## Tampering")[2]
    return {
        what: html.unescape(said) for what, said in re.findall(r"^\| (.+?) \| `(.+)` \|$", text, re.MULTILINE)
    }


def test_the_page_on_the_audit_has_what_is_tried_here() -> None:
    assert list(documented()) == list(TAMPERING)


@pytest.mark.parametrize("what", TAMPERING)
def test_what_was_done_to_a_store_is_named(tampered: Tampered, what: str) -> None:
    TAMPERING[what](tampered)
    report = audit(tampered.store, hashes=True)
    assert not report.good
    assert re.search(documented()[what], "\n".join(problem.said for problem in report.problems))


NOT_OURS = "is not of a store of Cairn's"
NO_INDEX = "into which nothing was published"


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (f"release/simple/torch/{EVIL}", NOT_OURS),
        ("release/simple/torch/page.html", NOT_OURS),
        ("release/simple/torch/x/index.html", NOT_OURS),
        ("release/simple/Torch/index.html", NOT_OURS),
        ("release/simple/t\u043erch/index.html", NOT_OURS),  # a Cyrillic letter
        ("release/evil/simple/torch/index.html", NOT_OURS),
        ("release/gfx110X-all/simple/torch/index.html", f"is of release/gfx110X-all, {NO_INDEX}"),
        ("release/gfx110X-all/index.html", f"is of release/gfx110X-all, {NO_INDEX}"),
        ("release/gfx942/status.html", f"is of release/gfx942, {NO_INDEX}"),
    ],
)
def test_what_is_planted_below_an_index_is_named_by_an_audit_of_that_index(
    released: MemoryStore, key: str, said: str
) -> None:
    released.write(key, LINK)
    for names in ([], ["release"]):
        report = audit(released, names, hashes=True)
        assert [p.said for p in report.problems if p.where == key and said in p.said], names
    assert audit(released, ["staging"], hashes=True).good


@pytest.mark.parametrize(
    "key", [f"release/simple/{name}" for name in ("torch/index.html", "index.html", "numpy/index.json")]
)
def test_pages_that_are_yet_to_be_written_are_those_of_some_generation(tampered: Tampered, key: str) -> None:
    """Otherwise one word of the pointer would hide whatever stands on a page."""
    tampered.write_pages_late()
    (only,) = audit(tampered.store, ["release"]).problems
    assert "the pages of release are of generation 1, and 3 is current" in only.said
    tampered.write(key, LINK)
    assert any(f"{key} does not say" in p.said for p in audit(tampered.store, ["release"]).problems)


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
    assert (report.problems, report.good) == ((), True)
    assert report.indexes == {"staging": 5, "release": 3}
    counts = {name: counted.count for name, counted in report.keys.items()}
    nothing = dict.fromkeys(("pending", "garbage", "temporary", "foreign"), 0)
    assert counts == {"live": len(before), **nothing}
    assert contents(released) == before


def test_the_history_of_an_index_is_live_too(released: MemoryStore, sets: Sets) -> None:
    rollback(released, "release", "1")
    yank(released, sets["2.8.0"].id, reason="wrong")
    rollback(released, "release", "0")
    report = audit(released, hashes=True)
    assert report.problems == ()
    # All is live but pages that say nothing; those of the root say that nothing is there.
    empty = len([key for key in released.objects if key.startswith("release/simple/")]) - 2
    assert report.keys["live"].count == len(released.objects) - empty
    assert report.keys["pending"].count == empty


def test_what_is_wrong_with_one_index_is_said_of_that_one_to_programs_too(released: MemoryStore) -> None:
    released.delete("release/simple/torch/index.html")
    assert audit(released, ("staging",)).problems == ()
    assert audit(released, ("staging",)).keys == {}
    plain = json.loads(msgspec.json.encode(audit(released)))
    assert plain["schema"] == "cairn.audit/1"
    assert {problem["index"] for problem in plain["problems"]} == {"release"}
    assert plain["problems"][0]["code"] == "page"
    assert msgspec.convert(plain, AuditReport).problems[0].where.endswith("torch/index.html")


def test_a_file_that_two_indexes_offer_is_said_of_both_and_read_once_where_that_is_asked(
    tampered: Tampered,
) -> None:
    tampered.flip(tampered.file(TORCH))
    assert audit(tampered.store).good
    store = FaultyStore(tampered.store, Plan())
    assert {problem.index for problem in audit(store, hashes=True).problems} == {"release", "staging"}
    opened = [key for kind, key in store.plan.requests if kind == "open"]
    assert len(opened) == len(set(opened)) > 0


def test_a_part_is_read_once_for_its_keys_and_once_for_what_it_offers(released: MemoryStore) -> None:
    store = FaultyStore(released, Plan())
    assert audit(store).good
    current = Index(released, "release").load()
    reads = [key for kind, key in store.plan.requests if kind == "read"]
    parts = [keys.part_key("release", digest) for digest in current.project_parts.values()]
    assert {reads.count(key) for key in parts} == {2}  # it was 5


def test_what_nobody_names_is_pending_while_it_is_young(released: MemoryStore) -> None:
    data = b"a wheel"
    key = keys.file_key(hashlib.sha256(data).hexdigest(), "a-1.0-py3-none-any.whl")
    released.write(key, data)
    report = audit(released, hashes=True)
    assert (report.good, report.keys["pending"].names) == (True, (key,))
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
    (problem,) = audit(MemoryStore(store.objects)).problems
    assert problem.code == "unfinished"
    assert "cairn index repair writes them" in problem.said


def test_a_generation_that_lost_its_race_is_no_problem(released: MemoryStore) -> None:
    now = Index(released, "release").load()
    for number, parent in ((3, now.generation.parent), (4, now.digest)):
        lost = msgspec.structs.replace(now.generation, number=number, parent=parent, change_id="lost")
        data = generation.encode(lost)
        released.write(keys.generation_key("release", number, digest_of(data)), data)
    report = audit(released, hashes=True)
    assert report.good
    assert report.keys["live"].count == len(released.objects)


def test_what_a_writer_does_meanwhile_is_no_problem(released: MemoryStore, sets: Sets) -> None:
    store = Meddled(
        released,
        lambda it: yank(it, sets["2.9.0"].id, reason="wrong"),
        kind="read",
        at="release/simple/torch/index.json",
    )
    assert audit(store, hashes=True).problems == ()
    assert audit(store, hashes=True).indexes["release"] == 4


def test_an_index_that_is_not_there_is_not_good(released: MemoryStore) -> None:
    with pytest.raises(StoreError, match="no index nightly"):
        audit(released, ("nightly",))
    with pytest.raises(UsageError, match="not a channel"):
        audit(released, ("nope",))
    (problem,) = audit(MemoryStore()).problems
    assert "has no index" in problem.said
