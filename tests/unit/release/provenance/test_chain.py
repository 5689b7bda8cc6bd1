"""The chain from a wheel to its commits: good as it was made, and each link named when it is not."""

import copy
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cairn import datafile
from cairn.errors import NetworkError, StoreError
from cairn.release.index import generation, keys
from cairn.release.index.generation import Generation, IndexSet, Pointer, ProjectState, digest_of
from cairn.release.index.snapshot import Index
from cairn.release.provenance import chain, evidence
from cairn.release.provenance.attest import KeyAttester
from cairn.release.provenance.signers import Trust
from cairn.release.publish import wheel_set as sets
from cairn.store.memory import MemoryStore
from cairn.store.protocol import StoredObject
from helpers.provenance import MANIFEST, RELEASER, STRANGER, TESTER, TRUST, Released, offer, released
from helpers.release import commit_of, statement_of


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Released:
    return released(tmp_path_factory.mktemp("released"))


@pytest.fixture
def there(made: Released) -> Released:
    """A copy to be damaged."""
    return Released(
        store=MemoryStore(made.store.objects), wheels=made.wheels, made=made.made, listed=made.listed
    )


def broken(report: chain.Report) -> list[str]:
    return [link.name for link in report.broken]


def said(report: chain.Report) -> str:
    return "; ".join(link.text for link in report.broken)


def test_every_link_of_what_was_released_is_good(made: Released) -> None:
    report = made.check()
    assert not report.broken
    assert not report.warnings
    assert [link.name for link in report.links] == [
        *("generation", "wheel", "provenance", "set", "manifest", "builder", "statement"),
        *("records", "judgement"),
    ]
    assert [(source.name, source.commit) for source in report.sources] == [
        ("triton", commit_of("triton")),
        ("torch", commit_of("torch")),
    ]
    texts = {link.name: link.text for link in report.links}
    assert RELEASER.key_id[:12] in texts["provenance"]
    assert TESTER.key_id[:12] in texts["records"]
    assert "smoke passed on a CPU" in texts["records"]


def test_so_is_every_other_wheel_of_the_set_and_the_staged_one(made: Released) -> None:
    assert not made.check(made.wheels[0]).broken
    assert not made.check(index="staging").broken


OBJECTS = {
    "release/generations/00000001": "generation",
    "release/state.json": "generation",
    "release/parts": "generation",
    "/set.json": "set",
    "/manifest.json": "manifest",
    "/records/": "records",
    "/judgements/": "judgement",
}


def _keys(store: MemoryStore, what: str) -> list[str]:
    return [key for key in store.objects if what in key and ".dsse." not in key]


@pytest.mark.parametrize("what", OBJECTS)
def test_each_byte_of_each_object_counts(there: Released, what: str) -> None:
    """Every byte of what the chain reads, one after the other."""
    keys_read = _read_by(there)
    for key in [key for key in _keys(there.store, what) if key in keys_read]:
        whole = there.store.objects[key]
        for at in range(0, len(whole), max(1, len(whole) // 30)):
            there.store.objects[key] = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
            report = there.check()
            if what == "release/state.json" and not report.broken:
                # The rest of the pointer says up to where pages were written, which nothing here rests on.
                pointer = json.loads(there.store.objects[key])
                before = json.loads(whole)
                assert [pointer[n] == before[n] for n in ("generation", "digest")] == [True, True]
            else:
                assert broken(report)[:1] == [OBJECTS[what]], (key, at, said(report))
        there.store.objects[key] = whole
    assert not there.check().broken


def _read_by(there: Released) -> set[str]:
    read = set()

    class Watching(MemoryStore):
        def read(self, key: str) -> StoredObject:
            read.add(key)
            return super().read(key)

    wheel = there.wheels[-1]
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    store = Watching(there.store.objects)
    chain.check(store, "release", file_name=wheel.name, sha256=sha256, trust=TRUST)
    return read


def test_each_byte_of_the_wheel_counts(there: Released, tmp_path: Path) -> None:
    whole = there.wheels[-1].read_bytes()
    for at in range(0, len(whole), 40):
        other = tmp_path / there.wheels[-1].name
        other.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        report = there.check(other)
        assert broken(report) == ["wheel"]
        assert "this file has sha256" in said(report)


def test_each_byte_of_the_provenance_counts(there: Released) -> None:
    key = there.key(_provenance_of(there))
    whole = there.store.objects[key]
    for at in range(0, len(whole), 9):
        there.store.objects[key] = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        assert broken(there.check()) == ["provenance"], at


@pytest.mark.parametrize("what", [*OBJECTS, ".provenance"])
def test_what_is_missing_is_named(there: Released, what: str) -> None:
    for key in _keys(there.store, what):
        del there.store.objects[key]
    report = there.check()
    name = OBJECTS.get(what, "provenance")
    assert broken(report)[:1] == [name]
    assert "is missing from memory:" in said(report)


# From here on the attacker may write the store, and makes every digest up to the pointer fit.


def rewrite(
    there: Released,
    *,
    file: Callable[[dict[str, Any]], object] | None = None,
    listed: Callable[[dict[str, Any]], object] | None = None,
    state: Callable[[dict[str, Any]], object] | None = None,
) -> None:
    """Change what `release` says, with every digest above made to fit."""
    store, index = there.store, Index(there.store, "release")
    snapshot = index.load()
    projects, sets = dict(snapshot.generation.projects), dict(snapshot.generation.sets)

    def put(value: ProjectState | IndexSet) -> str:
        data = generation.encode(value)
        store.objects[keys.part_key("release", digest_of(data))] = data
        return digest_of(data)

    if file:
        plain = datafile.to_plain(snapshot.project("torch"))
        file(next(entry for entry in plain["files"] if entry["filename"] == there.wheels[-1].name))
        projects["torch"] = put(datafile.from_plain(plain, ProjectState, name="it"))
    if listed:
        plain = datafile.to_plain(snapshot.set(there.made.id))
        listed(plain)
        sets[there.made.id] = put(datafile.from_plain(plain, IndexSet, name="it"))
    plain = datafile.to_plain(
        msgspec.structs.replace(snapshot.generation, projects=projects, sets=sets, number=7)
    )
    if state:
        state(plain)
    data = generation.encode(datafile.from_plain(plain, Generation, name="it"))
    digest = digest_of(data)
    store.objects[keys.generation_key("release", 7, digest)] = data
    pointer = Pointer(generation=7, digest=digest, rendered=7, rendered_digest=digest)
    store.objects["release/state.json"] = generation.encode(pointer)


def _provenance_of(there: Released, index: str = "release") -> str:
    entry = Index(there.store, index).load().project("torch").file(there.wheels[-1].name)
    assert entry is not None
    return f"{entry.provenance}.provenance"


def replace_provenance(there: Released, data: bytes, kind: str = "local-key") -> None:
    wheel = there.made.wheels[0] if there.made.wheels[0].distribution == "torch" else there.made.wheels[1]
    digest = hashlib.sha256(data).hexdigest()
    there.store.objects[keys.provenance_key(wheel.sha256, wheel.file_name, digest)] = data
    rewrite(there, file=lambda plain: plain.update(provenance=digest, provenance_kind=kind))


def test_rewriting_everything_as_it_was_is_no_attack(there: Released) -> None:
    rewrite(there)
    assert not there.check().broken


def test_a_wheel_with_other_bytes_needs_a_signature(there: Released, tmp_path: Path) -> None:
    evil = tmp_path / there.wheels[-1].name
    evil.write_bytes(there.wheels[-1].read_bytes() + b"evil")
    sha256 = hashlib.sha256(evil.read_bytes()).hexdigest()
    before = there.key(_provenance_of(there))
    digest = before.split(".")[-2]
    there.store.objects[keys.provenance_key(sha256, evil.name, digest)] = there.store.objects[before]
    rewrite(there, file=lambda plain: plain.update(sha256=sha256, size=evil.stat().st_size))
    report = there.check(evil)
    assert broken(report) == ["provenance", "set"]
    assert "not about this file" in said(report)


def test_so_does_a_set_that_was_made_around_it(there: Released, tmp_path: Path) -> None:
    """The attacker releases a set of their own in the same way, and signs it with their own key."""
    theirs = released(tmp_path, version="2.9.1", store=there.store, attester=KeyAttester(STRANGER))
    report = theirs.check()
    assert broken(report) == ["provenance"]
    assert f"signed by {STRANGER.key_id[:16]}, which is not trusted" in said(report)
    assert not there.check().broken


@pytest.mark.parametrize(
    ("change", "link", "words"),
    [
        ({"provenance": None, "provenance_kind": None}, "provenance", "nobody has signed"),
        ({"provenance_kind": "pep740"}, "provenance", "is of kind local-key"),
        ({"sets": ["0" * 64]}, "wheel", "has no set"),
        ({"sets": []}, "wheel", "has no set"),
        ({"build": "mirrored"}, "wheel", "came into release as mirrored, not by a build of ours"),
        ({"build": "0" * 64}, "set", "different things of the metadata"),
        ({"metadata_sha256": "0" * 64}, "set", "different things of the metadata"),
        ({"metadata_sha256": ""}, "set", "different things of the metadata"),
        ({"requires_python": ">=2"}, "set", "different things of the metadata"),
        ({"version": "2.9.1"}, "set", "different things of the metadata"),
        ({"size": 1}, "set", "does not have torch"),
        ({"filename": "torch-2.9.9-py3-none-any.whl"}, "wheel", "does not offer"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_an_index_says_of_a_file_is_held_against_what_was_signed(
    there: Released, change: dict[str, Any], link: str, words: str
) -> None:
    rewrite(there, file=lambda plain: plain.update(change))
    report = there.check()
    assert broken(report) == [link]
    assert words in said(report)


@pytest.mark.parametrize(
    ("change", "link", "words"),
    [
        ({"records": []}, "records", "without a test record"),
        ({"judgement": None}, "judgement", "without a judgement"),
        ({"untested": "bypassed by nobody: x"}, "statement", "untested"),
        ({"family": "gfx94X-dcgpu"}, "set", "family"),
        ({"projects": {"torch": "2.9.1"}}, "set", "projects"),
        ({"targets": ["gfx942"]}, "set", "targets"),
        ({"manifest_sha256": "0" * 64}, "set", "manifest_sha256"),
        ({"set_id": "0" * 64}, "generation", "gives the set 000000000000"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_so_is_what_it_says_of_a_set(there: Released, change: dict[str, Any], link: str, words: str) -> None:
    rewrite(there, listed=lambda plain: plain.update(change))
    report = there.check()
    assert link in broken(report)
    assert words in said(report)


def test_an_edited_record_shows_even_where_every_digest_fits(there: Released) -> None:
    (digest,) = there.listed.records
    key = keys.set_key(there.made.id, f"records/{digest}.json")
    edited = there.store.objects[key].replace(b'"passed": 3', b'"passed": 9')
    new = hashlib.sha256(edited).hexdigest()
    there.store.objects[keys.set_key(there.made.id, f"records/{new}.json")] = edited
    signature = there.store.objects[evidence.signature_key(there.made.id, digest)]
    there.store.objects[evidence.signature_key(there.made.id, new)] = signature
    rewrite(there, listed=lambda plain: plain.update(records=[new]))
    report = there.check()
    assert broken(report) == ["statement", "records"]
    assert "differs from what release has: records" in said(report)
    assert "is not what its signature is over" in said(report)


def test_a_record_of_another_set_does_not_count(there: Released, tmp_path: Path) -> None:
    other = released(tmp_path, version="2.9.1", store=there.store)
    (digest,) = other.listed.records
    for suffix in (".json", ".dsse.json"):
        data = there.store.objects[keys.set_key(other.made.id, f"records/{digest}{suffix}")]
        there.store.objects[keys.set_key(there.made.id, f"records/{digest}{suffix}")] = data
    rewrite(there, listed=lambda plain: plain.update(records=[digest]))
    report = there.check()
    assert broken(report) == ["statement", "records"]
    assert "is of another set" in said(report)


def test_a_judgement_that_was_a_no_shows(there: Released) -> None:
    assert there.listed.judgement is not None
    key = keys.set_key(there.made.id, f"judgements/{there.listed.judgement}.json")
    refused = there.store.objects[key].replace(b'"met"', b'"not met"')
    digest = hashlib.sha256(refused).hexdigest()
    there.store.objects[keys.set_key(there.made.id, f"judgements/{digest}.json")] = refused
    rewrite(there, listed=lambda plain: plain.update(judgement=digest))
    report = there.check()
    assert broken(report) == ["statement", "judgement"]
    assert "is a no: whole" in said(report)


def test_a_statement_about_another_wheel_does_not_count(there: Released) -> None:
    triton = next(key for key in there.store.objects if "triton" in key and ".provenance" in key)
    replace_provenance(there, there.store.objects[triton])
    report = there.check()
    assert broken(report) == ["provenance"]
    assert "is about triton-3.5.0" in said(report)


def test_nor_does_one_for_another_index(there: Released) -> None:
    """What was signed for staging was neither tested nor judged."""
    staged = there.store.objects[there.key(_provenance_of(there, "staging"))]
    replace_provenance(there, staged)
    report = there.check()
    assert broken(report) == ["statement"]
    assert "index, records, judgement" in said(report)


def test_nor_one_from_another_set(there: Released, tmp_path: Path) -> None:
    other = released(tmp_path, version="2.9.1", store=there.store)
    data = there.store.objects[there.key(_provenance_of(other))]
    replace_provenance(there, data)
    assert "is about torch-2.9.1" in said(there.check())


def test_nor_one_about_the_same_wheel_in_another_set(there: Released) -> None:
    second = _second_set(there)
    rewrite(there, file=lambda plain: plain.update(sets=[there.made.id]))
    report = there.check()
    assert broken(report) == ["provenance"]
    assert f"about the set {second.made.id[:12]}, with which the file never came" in said(report)


def test_a_set_is_not_listed_under_the_id_of_another(there: Released) -> None:
    rewrite(
        there,
        file=lambda plain: plain.update(sets=["0" * 64]),
        state=lambda plain: plain["sets"].update({"0" * 64: plain["sets"][there.made.id]}),
    )
    report = there.check()
    assert broken(report) == ["generation"]
    assert "for 000000000000" in said(report)


def envelope(there: Released) -> dict[str, Any]:
    return json.loads(there.store.objects[there.key(_provenance_of(there))])


DOCUMENTS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "no envelope": (lambda d: d.update(envelopes=[]), "holds no statement"),
    "two statements about one set": (lambda d: d["envelopes"].append(d["envelopes"][0]), "two statements"),
    "no signature": (lambda d: d["envelopes"][0].update(signatures=[]), "has no signature"),
    "another payload type": (lambda d: d["envelopes"][0].update(payloadType="text/plain"), "is signed as"),
    "payload type of a record": (
        lambda d: d["envelopes"][0].update(payloadType="application/vnd.cairn.record+json"),
        "is signed as",
    ),
    "key id of the tester": (
        lambda d: d["envelopes"][0]["signatures"][0].update(keyid=TESTER.key_id),
        "which is not trusted",
    ),
    "unknown field": (lambda d: d.update(publisher="PyPI"), "unknown field"),
    "schema of another version": (
        lambda d: d.update(schema="cairn.provenance/9"),
        "neither an object of PEP 740",
    ),
    "dressed up as PEP 740": (
        lambda d: (d.pop("schema"), d.update(version=1, attestation_bundles=[])),
        "is of kind pep740",
    ),
    "both kinds at once": (lambda d: d.update(version=1, attestation_bundles=[]), "unknown field"),
}


@pytest.mark.parametrize(("change", "words"), DOCUMENTS.values(), ids=DOCUMENTS)
def test_a_provenance_object_that_was_touched_shows(
    there: Released, change: Callable[[dict[str, Any]], object], words: str
) -> None:
    document = copy.deepcopy(envelope(there))
    change(document)
    replace_provenance(there, json.dumps(document).encode())
    report = there.check()
    assert broken(report) == ["provenance"]
    assert words in said(report)


@pytest.mark.parametrize(
    "data",
    [b"", b"null", b"[]", b"{}", b"\xff", b'{"schema":"cairn.provenance/1"}'],
)
def test_what_is_no_provenance_object_shows(there: Released, data: bytes) -> None:
    replace_provenance(there, data)
    assert broken(there.check()) == ["provenance"]


def test_trailing_and_doubled_json_shows(there: Released) -> None:
    whole = there.store.objects[there.key(_provenance_of(there))]
    for data in (whole + b"{}", whole.replace(b'"envelopes"', b'"envelopes": [], "envelopes"')):
        replace_provenance(there, data)
        assert broken(there.check()) == ["provenance"]


def test_a_generation_of_another_index_does_not_count(there: Released) -> None:
    rewrite(there, state=lambda plain: plain.update(index="staging"))
    assert "finds that to be generation 7 of staging" in said(there.check())


def test_a_file_is_not_offered_twice(there: Released) -> None:
    snapshot = Index(there.store, "release").load()
    project = snapshot.project("torch")
    data = generation.encode(msgspec.structs.replace(project, files=project.files * 2))
    there.store.objects[keys.part_key("release", digest_of(data))] = data
    rewrite(there, state=lambda plain: plain["projects"].update(torch=digest_of(data)))
    assert "has torch-2.9.0-py3-none-any.whl twice" in said(there.check())


# What is no attack.


def test_nobody_is_trusted_by_default(made: Released) -> None:
    report = made.check(trust=Trust())
    assert broken(report) == ["provenance"]
    assert "which is not trusted" in said(report)


def test_without_signatures_the_digests_are_checked(there: Released) -> None:
    report = there.check(trust=None)
    assert not report.broken
    assert {link.name: link.state for link in report.links}["provenance"] == "unsigned"
    rewrite(there, file=lambda plain: plain.update(provenance=None, provenance_kind=None))
    report = there.check(trust=None)
    assert not report.broken
    assert {link.name: link.state for link in report.links}["provenance"] == "unsigned"
    assert [source.name for source in report.sources] == ["triton", "torch"]


def test_a_tester_whom_the_user_does_not_know_is_told(made: Released) -> None:
    report = made.check(trust=Trust(keys={RELEASER.key_id: RELEASER.public}))
    assert not report.broken
    assert [TESTER.key_id[:16] in warning for warning in report.warnings] == [True]


def test_a_machine_that_tests_does_not_vouch_for_wheels(tmp_path: Path) -> None:
    report = released(tmp_path, attester=KeyAttester(TESTER)).check()
    assert broken(report) == ["provenance"]
    assert f"signed by {TESTER.key_id[:16]}, which is not trusted" in said(report)


def test_a_record_that_nobody_signed_is_told(tmp_path: Path) -> None:
    report = released(tmp_path, tested_by=None).check()
    assert not report.broken
    assert ["did not sign the record" in warning for warning in report.warnings] == [True]


def test_a_yanked_and_untested_file_is_told(there: Released) -> None:
    rewrite(there, file=lambda plain: plain.update(yanked="it crashes"))
    assert there.check().warnings == ["it was yanked: it crashes"]


def test_a_project_in_quarantine_is_told(there: Released) -> None:
    project = Index(there.store, "release").load().project("torch")
    data = generation.encode(msgspec.structs.replace(project, status="quarantined", status_reason="odd"))
    there.store.objects[keys.part_key("release", digest_of(data))] = data
    rewrite(there, state=lambda plain: plain["projects"].update(torch=digest_of(data)))
    assert there.check().warnings == ["the project torch is quarantined: odd"]


def test_a_wheel_of_two_sets_has_a_statement_for_each(tmp_path: Path) -> None:
    """A wheel that several sets share: what the second adds leaves the first as it was."""
    first = released(tmp_path / "first")
    other = msgspec.structs.replace(first.listed, added="2026-11-23T00:00:00.000000Z")
    again = Released(store=first.store, wheels=first.wheels, made=first.made, listed=other)
    offer(first.store, first.made, other, KeyAttester(RELEASER))
    assert len(envelope(again)["envelopes"]) == 1  # the same set again
    second = _second_set(first)
    assert len(envelope(second)["envelopes"]) == 2
    report = second.check()
    assert not report.broken
    assert {link.set_id for link in report.links if link.name == "statement"} == {
        first.made.id,
        second.made.id,
    }


def test_a_statement_of_others_is_not_dropped_unseen(tmp_path: Path) -> None:
    first = released(tmp_path)
    key = first.key(_provenance_of(first))
    first.store.objects[key] = b'{"schema": "cairn.provenance/1", "envelopes": []}'
    with pytest.raises(StoreError, match="was changed"):
        _second_set(first)


def test_a_statement_of_another_kind_is_not_dropped_unseen(tmp_path: Path) -> None:
    first = released(tmp_path)
    rewrite(first, file=lambda plain: plain.update(provenance_kind="pep740"))
    with pytest.raises(StoreError, match="signed in another way"):
        _second_set(first)
    offer(first.store, first.made, first.listed, KeyAttester(RELEASER))  # of the same set alone
    assert not first.check().broken


def _second_set(first: Released, attester: KeyAttester | None = None) -> Released:
    """The same wheels, sealed as a set for another Python."""
    opened = msgspec.structs.replace(first.made, closure=(), set_id=None, python="3.12")
    statement = statement_of(opened, first.wheels, MANIFEST)
    made = sets.stage_set(
        first.store, "staging", opened, first.wheels, manifest=MANIFEST, statement=statement
    )
    assert made.id != first.made.id
    listed = msgspec.structs.replace(sets.index_set(made), untested="bypassed by me: a test")
    judged = first.store.objects[
        keys.set_key(first.made.id, f"judgements/{first.listed.judgement}.json")
    ].replace(first.made.id.encode(), made.id.encode())
    digest = hashlib.sha256(judged).hexdigest()
    first.store.objects[keys.set_key(made.id, f"judgements/{digest}.json")] = judged
    listed = msgspec.structs.replace(listed, judgement=digest)
    offer(first.store, made, listed, attester or KeyAttester(RELEASER))
    return Released(store=first.store, wheels=first.wheels, made=made, listed=listed)


def test_a_set_for_which_nobody_signed_is_told_beside_one_that_is_signed(tmp_path: Path) -> None:
    first = released(tmp_path)
    second = _second_set(first)
    # The attacker adds the file's name to a set, and takes the statement about it away.
    document = envelope(second)
    document["envelopes"] = document["envelopes"][:1]
    data = json.dumps(document).encode()
    replace_provenance(second, data)
    report = second.check()
    assert not report.broken
    assert report.warnings[-1] == f"nobody has signed for the set {second.made.id[:12]}, which has it too"
    assert second.made.id not in {link.set_id for link in report.links}


def test_who_signs_for_another_set_need_not_be_known(tmp_path: Path) -> None:
    """Two people release sets that share a wheel; a user trusts one of them."""
    first = released(tmp_path)
    second = _second_set(first, KeyAttester(STRANGER))
    assert len(envelope(second)["envelopes"]) == 2
    report = second.check()
    assert not report.broken
    assert report.warnings[-1] == f"nobody has signed for the set {second.made.id[:12]}, which has it too"
    report = second.check(trust=Trust(keys={STRANGER.key_id: STRANGER.public}))
    assert not report.broken
    assert {link.set_id for link in report.links if link.name == "statement"} == {second.made.id}


def test_a_judgement_for_another_index_does_not_count(there: Released) -> None:
    key = keys.set_key(there.made.id, f"judgements/{there.listed.judgement}.json")
    data = json.dumps(json.loads(there.store.objects[key]) | {"target": "nightly"}).encode()
    digest = hashlib.sha256(data).hexdigest()
    there.store.objects[keys.set_key(there.made.id, f"judgements/{digest}.json")] = data
    rewrite(there, listed=lambda plain: plain.update(judgement=digest))
    assert "is of another index: nightly" in said(there.check())


def test_a_server_that_fails_is_no_finding(there: Released, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(key: str) -> StoredObject:
        raise NetworkError(f"no answer for {key}")

    monkeypatch.setattr(there.store, "read", fail)
    with pytest.raises(NetworkError):
        there.check()
