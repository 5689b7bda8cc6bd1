"""A set that came into an index before anybody signed is vouched for once the gate has judged it again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cairn.errors import CairnError, GateError
from cairn.release import records
from cairn.release.audit import audit
from cairn.release.history import yank
from cairn.release.index import keys, listing
from cairn.release.index.snapshot import Change, Index, Snapshot
from cairn.release.promote import Promotion, Readmission, RefusedError, promote
from cairn.release.provenance import chain, evidence
from cairn.release.provenance.attest import KeyAttester
from cairn.release.trust import root
from cairn.release.trust.client import SignedStore
from cairn.release.trust.metadata import MetadataError
from cairn.release.weighing import Bypass
from cairn.store.memory import MemoryStore
from cairn.wheels.wheelset import WheelSet
from helpers.gate import ON_GPU, data_of, failed_record, given, record_of, stack_of, stage_torch
from helpers.release import commit, stage_set
from helpers.trust import BUILDER, PROMOTER, TESTER, acting_as, rooted

AGAIN = Readmission(who="ann", reason="built and tested by ours")


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "writer"))
    monkeypatch.delenv("CAIRN_SIGN_KEY", raising=False)


class Early:
    """A set in a store that nobody signs, which is then given a root.

    Attributes:
        made: the set.
        passed: the record of its test, which lies beside it.
    """

    def __init__(
        self, folder: Path, *, listed_past_the_gate: bool = False, bypass: Bypass | None = None, **place: Any
    ) -> None:
        self.folder, self.store = folder, MemoryStore()
        self.made: WheelSet = stage_torch(self.store, folder, **place)
        self.passed = record_of(self.made)
        if listed_past_the_gate:
            self.list()
        else:
            tested = [given(self.passed)]
            promote(self.store, self.made.id, stack=stack_of(self.made), records=tested, bypass=bypass)

    def list(self) -> None:
        """List the set in `release` as somebody can who may write to the store."""
        entry = msgspec.structs.replace(listing.index_set(self.made), judgement="0" * 64)
        staging, there = Index(self.store, "staging").load(), Index(self.store, "release")
        commit(there, "promote", lambda now: listing.change_to_promote(staging, now, self.made, entry=entry))

    def sign(self, *, builder: bool = True, tester: bool = True) -> None:
        """Make a root, sign all as it is, and have the machines that build and test say what they did."""
        self.trusted = rooted(self.store)
        with acting_as(self.folder, PROMOTER):
            root.sign_all(self.store, self.trusted, {})
        if builder:
            statement = evidence.of_builder(self.store, self.made)
            evidence.sign_builder(self.store, self.made.id, statement, BUILDER)
        if tester:
            records.add(self.store, data_of(self.passed), signer=TESTER)

    def promote(self, again: Readmission | None = AGAIN, bypass: Bypass | None = None) -> Promotion:
        with acting_as(self.folder, PROMOTER):
            return promote(
                self.store,
                self.made.id,
                stack=stack_of(self.made),
                readmission=again,
                bypass=bypass,
                attester=KeyAttester(PROMOTER),
            )

    def report(self) -> chain.Report:
        """What `cairn index verify` says of the wheel."""
        wheel = self.made.wheels[0]
        return chain.check(
            SignedStore(self.store, self.trusted),
            "release",
            file_name=wheel.file_name,
            sha256=wheel.sha256,
            trust=self.trusted.root.trust(),
        )

    def refused(self, *, bypass: Bypass | None = None) -> str:
        """Why the gate refuses it; what users get is what they got."""
        before = self.store.objects[keys.state_key("release")]
        with pytest.raises(CairnError) as error:
            self.promote(bypass=bypass)
        assert self.store.objects[keys.state_key("release")] == before
        assert "provenance" in [link.name for link in self.report().broken]
        return "; ".join(error.value.reasons if isinstance(error.value, RefusedError) else [str(error.value)])


def test_what_was_released_before_anybody_signed_is_vouched_for_once_it_is_judged_again(
    tmp_path: Path,
) -> None:
    early = Early(tmp_path)
    came = Index(early.store, "release").load().set(early.made.id).added
    early.sign()
    (broken,) = early.report().broken
    line = f"cairn release promote {early.made.id[:12]} --to release --again WHO --reason WHY"
    assert (broken.name, line in broken.text) == ("provenance", True)
    # Nothing signs it by itself: a night promotes what is there already, and that does nothing.
    assert early.promote(again=None).already_present
    assert early.report().broken == (broken,)
    result = early.promote()
    assert (result.already_present, result.added) == (False, ())
    report = early.report()
    assert (report.broken, report.warnings) == ((), [])
    now = Index(early.store, "release").load()
    assert now.generation.why == "let in again by ann: built and tested by ours"
    assert now.set(early.made.id).added == came
    assert early.promote(again=None).report == result.report


def test_an_older_version_is_judged_again_beside_a_newer_one(tmp_path: Path) -> None:
    early = Early(tmp_path)
    newer = stage_torch(early.store, tmp_path, "2.9.1")
    promote(early.store, newer.id, stack=stack_of(newer), records=[given(record_of(newer))])
    early.sign()
    assert early.promote().report
    assert early.report().broken == ()


def _failed(early: Early) -> None:
    records.add(early.store, data_of(failed_record(early.made)))  # which nobody has to sign


def _banned(early: Early) -> None:
    with acting_as(early.folder, PROMOTER):
        yank.yank(early.store, early.made.id, reason="it eats data")


def _exchanged(early: Early) -> None:
    statement = evidence.of_builder(early.store, early.made).replace(b"local", b"other")
    early.store.write(keys.set_key(early.made.id, "builder.json"), statement)


def _changed(early: Early) -> None:
    key = keys.file_key(early.made.wheels[0].sha256, early.made.wheels[0].file_name)
    early.store.write(key, early.store.objects[key] + b"\n")


def _unstaged(early: Early) -> None:
    commit(Index(early.store, "staging"), "retain", lambda now: Change(sets=dict.fromkeys(now.set_ids)))


@pytest.mark.parametrize(
    ("meanwhile", "says"),
    [
        (_unstaged, "staging has no set"),
        (_failed, "failed: boom"),
        (_banned, "was yanked, and may not come into an index"),
        (_exchanged, "the builder's statement is not what"),
        (_changed, "was changed in the store"),
    ],
)
def test_what_became_known_meanwhile_refuses_it(
    tmp_path: Path, meanwhile: Callable[[Early], None], says: str
) -> None:
    early = Early(tmp_path)
    early.sign()
    meanwhile(early)
    assert says in early.refused()


@pytest.mark.parametrize(
    ("signed", "says"),
    [
        ({"builder": False}, "the builder's statement is not signed"),
        ({"tester": False}, "2. tested on hardware of each target: "),
    ],
)
@pytest.mark.parametrize("how", [{}, {"listed_past_the_gate": True}])
def test_a_set_without_the_word_of_builder_and_tester_is_refused(
    tmp_path: Path, how: dict[str, bool], signed: dict[str, bool], says: str
) -> None:
    """Such as one that somebody listed who can write to the store, before the root signed all as it was."""
    early = Early(tmp_path, **how)
    early.sign(**signed)
    assert says in early.refused()


@pytest.mark.parametrize(
    "place",
    [
        ON_GPU,
        {"targets": ("gfx942", "gfx1100"), "family": "gfx942-gfx1100"},
    ],
)
def test_what_was_let_in_by_somebodys_word_verifies_and_says_so(
    tmp_path: Path, place: dict[str, object]
) -> None:
    early = Early(tmp_path, bypass=Bypass(who="bob", reason="no GPU"), **place)
    early.sign()
    early.promote(bypass=Bypass(who="ann", reason="still none"))
    report = early.report()
    assert report.broken == ()
    assert any("bypassed by ann: still none" in one for one in report.warnings)
    # As the job of a night that stages does, whose key is the builder's.
    wheel = tmp_path / early.made.wheels[0].file_name
    stage_set(early.store, "staging", early.made, [wheel], attester=KeyAttester(BUILDER))
    assert audit.audit(early.store, trust=early.trusted.root.trust()).problems == ()


def test_no_bypass_stands_for_the_builder(tmp_path: Path) -> None:
    early = Early(tmp_path, listed_past_the_gate=True, **ON_GPU)
    early.sign(builder=False)
    word = Bypass(who="ann", reason="no GPU here")
    assert "the builder's statement is not signed" in early.refused(bypass=word)


def test_a_set_that_claims_a_test_is_not_let_in_again_as_untested(tmp_path: Path) -> None:
    early = Early(tmp_path)
    early.sign(tester=False)
    assert "which an untested one does not replace" in early.refused(bypass=Bypass(who="ann", reason="none"))


def test_nothing_is_built_on_a_generation_that_nobody_signed(tmp_path: Path) -> None:
    early = Early(tmp_path)
    early.sign()
    with pytest.MonkeyPatch.context() as patch:  # as somebody without the root in sight
        objects = {k: early.store.objects.pop(k) for k in list(early.store.objects) if "metadata/" in k}
        patch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "his"))
        promote(early.store, early.made.id, stack=stack_of(early.made))
        two = stage_torch(early.store, tmp_path, "2.9.1")
        early.made, first = two, early.made
        early.list()
    early.store.objects.update(objects)
    for one in (two, first):
        early.made = one
        with pytest.raises(MetadataError, match="is not signed, and nothing is built on it"):
            early.promote()


def test_an_entry_that_says_something_else_of_a_file_is_refused(tmp_path: Path) -> None:
    """Metadata by which installers resolve: what the promoter vouches for is what the set says."""
    early = Early(tmp_path)

    def forge(now: Snapshot) -> Change:
        project = now.project("torch")
        other = msgspec.structs.replace(project.files[0], metadata_sha256=hashlib.sha256(b"his").hexdigest())
        return Change(projects={"torch": project.with_files((other,))})

    commit(Index(early.store, "release"), "promote", forge)
    early.sign()
    assert "set.json and release say different things of it" in early.refused()


def test_a_mark_that_no_ban_explains_is_no_reason_to_forget_it(tmp_path: Path) -> None:
    """Somebody took the ban out of a ledger that nobody had signed yet."""
    early = Early(tmp_path)

    def mark(now: Snapshot) -> Change:
        entry = msgspec.structs.replace(now.set(early.made.id), yanked="it eats data")
        return Change(sets={early.made.id: entry})

    commit(Index(early.store, "release"), "yank", mark)
    early.sign()
    with pytest.raises(GateError, match="was yanked: it eats data"):
        early.promote()


def test_without_a_root_nobody_is_asked_and_nothing_is_signed(tmp_path: Path) -> None:
    early = Early(tmp_path)
    assert early.promote().already_present
    (file,) = Index(early.store, "release").load().project("torch").files
    assert file.provenance is None
