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
from cairn.release.index import generation, keys, listing
from cairn.release.index.generation import Generation, IndexSet, Pointer, ProjectState, digest_of
from cairn.release.index.names import Bin
from cairn.release.index.snapshot import Index
from cairn.release.provenance import chain, evidence, judged
from cairn.release.provenance.attest import KeyAttester
from cairn.release.provenance.chain import Recorder
from cairn.release.publish import stage
from cairn.release.trust.signers import Trust
from cairn.store.memory import MemoryStore
from cairn.store.protocol import Store
from helpers.faults import Fault, FaultyStore, Plan
from helpers.provenance import MANIFEST, RELEASER, STRANGER, TESTER, Released, offer, released
from helpers.release import commit_of, statement_of

Plain = dict[str, Any]
Change = Callable[[Plain], object]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Released:
    return released(tmp_path_factory.mktemp("released"))


@pytest.fixture
def there(made: Released) -> Released:
    """A copy to be damaged."""
    return made.over(MemoryStore(made.store.objects))


def broken(report: chain.Report) -> list[str]:
    return [link.name for link in report.broken]


def said(report: chain.Report) -> str:
    return "; ".join(link.text for link in report.broken)


def test_every_link_of_what_was_released_is_good(made: Released) -> None:
    report = made.check()
    assert (report.broken, report.warnings) == ((), [])
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


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("what", OBJECTS)
def test_each_byte_of_each_object_counts(there: Released, what: str) -> None:
    """Every byte of what the chain reads, one after the other."""
    watched = Recorder(there.store)
    assert not there.over(watched).check().broken
    for key in [key for key in _keys(there.store, what) if key in watched.objects]:
        whole = there.store.objects[key]
        for at in range(0, len(whole), max(1, len(whole) // 30)):
            there.store.objects[key] = _flipped(whole, at)
            report = there.check()
            if what == "release/state.json" and not report.broken:
                # The rest of the pointer says up to where pages were written, which nothing here rests on.
                pointer, before = json.loads(there.store.objects[key]), json.loads(whole)
                assert [pointer[n] == before[n] for n in ("generation", "digest")] == [True, True]
            else:
                assert broken(report)[:1] == [OBJECTS[what]], (key, at, said(report))
        there.store.objects[key] = whole
    assert not there.check().broken


def test_each_byte_of_the_wheel_and_of_its_provenance_counts(there: Released, tmp_path: Path) -> None:
    other, whole = tmp_path / there.wheels[-1].name, there.wheels[-1].read_bytes()
    for at in range(0, len(whole), 40):
        other.write_bytes(_flipped(whole, at))
        report = there.check(other)
        assert broken(report) == ["wheel"]
        assert "this file has sha256" in said(report)
    key = there.provenance_key()
    whole = there.store.objects[key]
    for at in range(0, len(whole), 9):
        there.store.objects[key] = _flipped(whole, at)
        assert broken(there.check()) == ["provenance"], at


@pytest.mark.parametrize("what", [*OBJECTS, ".provenance"])
def test_what_is_missing_is_named(there: Released, what: str) -> None:
    for key in _keys(there.store, what):
        del there.store.objects[key]
    report = there.check()
    assert broken(report)[:1] == [OBJECTS.get(what, "provenance")]
    text = "is lost" if what in ("release/generations/00000001", "release/parts") else "holds no"
    assert text in said(report)


# From here on the attacker may write the store, and makes every digest up to the pointer fit.


def put_part(there: Released, value: datafile.Value) -> str:
    data = generation.encode(value)
    there.store.objects[keys.part_key("release", digest_of(data))] = data
    return digest_of(data)


def rewrite(
    there: Released,
    *,
    file: Change | None = None,
    project: Change | None = None,
    listed: Change | None = None,
    listing: Change | None = None,
    state: Change | None = None,
) -> None:
    """Change what `release` says, with every digest above made to fit."""
    snapshot = Index(there.store, "release").load()
    whole: Plain = datafile.to_plain(snapshot.generation) | {"number": 7}
    projects, sets = dict(snapshot.project_parts), dict(snapshot.set_entries)
    if file or project:
        plain = datafile.to_plain(snapshot.project("torch"))
        if file:
            file(next(entry for entry in plain["files"] if entry["filename"] == there.wheels[-1].name))
        if project:
            project(plain)
        projects["torch"] = put_part(there, datafile.from_plain(plain, ProjectState, name="it"))
    if listed:
        plain = datafile.to_plain(snapshot.set(there.made.id))
        listed(plain)
        sets[there.made.id] = datafile.from_plain(plain, IndexSet, name="it")
    if listing:
        listing(sets)
    # An index as small as this has one bin of each.
    whole["projects"] = [put_part(there, Bin(projects=projects))]
    whole["sets"] = [put_part(there, Bin(sets=sets))]
    if state:
        state(whole)
    data = generation.encode(datafile.from_plain(whole, Generation, name="it"))
    digest = digest_of(data)
    there.store.objects[keys.generation_key("release", 7, digest)] = data
    pointer = Pointer(generation=7, digest=digest, rendered=7, rendered_digest=digest)
    there.store.objects["release/state.json"] = generation.encode(pointer)


def put_beside(there: Released, kind: str, data: bytes) -> str:
    """Put a record or a judgement beside the set; its digest."""
    digest = hashlib.sha256(data).hexdigest()
    there.store.objects[keys.set_key(there.made.id, f"{kind}/{digest}.json")] = data
    return digest


def judgement_of(there: Released) -> bytes:
    return there.store.objects[keys.set_key(there.made.id, f"judgements/{there.listed.judgement}.json")]


def replace_provenance(there: Released, data: bytes) -> None:
    torch = next(wheel for wheel in there.made.wheels if wheel.distribution == "torch")
    digest = hashlib.sha256(data).hexdigest()
    there.store.objects[keys.provenance_key(torch.sha256, torch.file_name, digest)] = data
    rewrite(there, file=lambda plain: plain.update(provenance=digest, provenance_kind="local-key"))


def test_rewriting_everything_as_it_was_is_no_attack(there: Released) -> None:
    rewrite(there)
    assert not there.check().broken


def test_a_wheel_with_other_bytes_needs_a_signature(there: Released, tmp_path: Path) -> None:
    evil = tmp_path / there.wheels[-1].name
    evil.write_bytes(there.wheels[-1].read_bytes() + b"evil")
    sha256 = hashlib.sha256(evil.read_bytes()).hexdigest()
    before = there.provenance_key()
    digest = before.split(".")[-2]
    there.store.objects[keys.provenance_key(sha256, evil.name, digest)] = there.store.objects[before]
    rewrite(there, file=lambda plain: plain.update(sha256=sha256, size=evil.stat().st_size))
    report = there.check(evil)
    assert broken(report) == ["provenance", "set"]
    assert "not about this file" in said(report)


@pytest.mark.parametrize("signer", [STRANGER, TESTER], ids=["a stranger", "a machine that tests"])
def test_a_set_that_somebody_else_signs_is_not_trusted(there: Released, tmp_path: Path, signer: Any) -> None:
    """They release a set of their own in the same way."""
    theirs = released(tmp_path, version="2.9.1", store=there.store, attester=KeyAttester(signer))
    report = theirs.check()
    assert broken(report) == ["provenance"]
    assert f"signed by {signer.key_id[:16]}, which is not trusted" in said(report)
    assert not there.check().broken


METADATA = "different things of the metadata"


@pytest.mark.parametrize(
    ("change", "link", "words"),
    [
        ({"provenance": None, "provenance_kind": None}, "provenance", "nobody has signed"),
        (
            {"provenance_kind": "pep740"},
            "provenance",
            "is not an object of PEP 740",
        ),
        ({"sets": ["0" * 64]}, "wheel", "has no set"),
        ({"sets": []}, "wheel", "has no set"),
        ({"build": "mirrored"}, "wheel", "came into release as mirrored, not by a build of ours"),
        ({"build": "0" * 64}, "set", METADATA),
        ({"metadata_sha256": "0" * 64}, "set", METADATA),
        ({"metadata_sha256": ""}, "set", METADATA),
        ({"requires_python": ">=2"}, "set", METADATA),
        ({"version": "2.9.1"}, "set", METADATA),
        ({"size": 1}, "set", "does not have torch"),
        ({"filename": "torch-2.9.9-py3-none-any.whl"}, "wheel", "does not offer"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_an_index_says_of_a_file_is_held_against_what_was_signed(
    there: Released, change: Plain, link: str, words: str
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
def test_so_is_what_it_says_of_a_set(there: Released, change: Plain, link: str, words: str) -> None:
    rewrite(there, listed=lambda plain: plain.update(change))
    report = there.check()
    assert link in broken(report)
    assert words in said(report)


def test_an_edited_record_shows_even_where_every_digest_fits(there: Released) -> None:
    (digest,) = there.listed.records
    data = there.store.objects[keys.set_key(there.made.id, f"records/{digest}.json")]
    edited = put_beside(there, "records", data.replace(b'"passed": 3', b'"passed": 9'))
    signature = there.store.objects[evidence.signature_key(there.made.id, digest)]
    there.store.objects[evidence.signature_key(there.made.id, edited)] = signature
    rewrite(there, listed=lambda plain: plain.update(records=[edited]))
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


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (b'"met"', b'"not met"', "is a no: whole"),
        (b'"target": "release"', b'"target": "nightly"', "is of another index: nightly"),
    ],
)
def test_a_judgement_that_let_nothing_in_here_shows(
    there: Released, old: bytes, new: bytes, words: str
) -> None:
    data = judgement_of(there)
    assert old in data
    digest = put_beside(there, "judgements", data.replace(old, new))
    rewrite(there, listed=lambda plain: plain.update(judgement=digest))
    report = there.check()
    assert broken(report) == ["statement", "judgement"]
    assert words in said(report)


def test_a_statement_about_another_wheel_or_for_another_index_does_not_count(
    there: Released, tmp_path: Path
) -> None:
    """What was signed for staging was neither tested nor judged."""
    staged = there.store.objects[there.provenance_key("staging")]
    triton = next(key for key in there.store.objects if "triton" in key and ".provenance" in key)
    other = released(tmp_path, version="2.9.1", store=MemoryStore())
    for data, link, words in (
        (there.store.objects[triton], "provenance", "is about triton-3.5.0"),
        (other.store.objects[other.provenance_key()], "provenance", "is about torch-2.9.1"),
        (staged, "statement", "index, records, judgement"),
    ):
        replace_provenance(there, data)
        report = there.check()
        assert broken(report) == [link]
        assert words in said(report)


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
        listing=lambda sets: sets.update({"0" * 64: sets[there.made.id]}),
    )
    report = there.check()
    assert broken(report) == ["generation"]
    assert "for 000000000000" in said(report)


def envelope(there: Released) -> Plain:
    return json.loads(there.store.objects[there.provenance_key()])


def _first(change: Change) -> Change:
    return lambda document: change(document["envelopes"][0])


DOCUMENTS: dict[str, tuple[Change, str]] = {
    "no envelope": (lambda d: d.update(envelopes=[]), "holds no statement"),
    "two statements about one set": (lambda d: d["envelopes"].append(d["envelopes"][0]), "two statements"),
    "no signature": (_first(lambda e: e.update(signatures=[])), "has no signature"),
    "another payload type": (_first(lambda e: e.update(payloadType="text/plain")), "is signed as"),
    "payload type of a record": (
        _first(lambda e: e.update(payloadType="application/vnd.cairn.record+json")),
        "is signed as",
    ),
    "key id of the tester": (
        _first(lambda e: e["signatures"][0].update(keyid=TESTER.key_id)),
        "which is not trusted",
    ),
    "unknown field": (lambda d: d.update(publisher="PyPI"), "unknown field"),
    "schema of another version": (
        lambda d: d.update(schema="cairn.provenance/9"),
        "expected 'cairn.provenance/1'",
    ),
    "dressed up as PEP 740": (
        lambda d: (d.pop("schema"), d.update(version=1, attestation_bundles=[])),
        "is an object of PEP 740, and the index calls it local-key",
    ),
    "both kinds at once": (lambda d: d.update(version=1, attestation_bundles=[]), "unknown field"),
}


@pytest.mark.parametrize(("change", "words"), DOCUMENTS.values(), ids=DOCUMENTS)
def test_a_provenance_object_that_was_touched_shows(there: Released, change: Change, words: str) -> None:
    document = copy.deepcopy(envelope(there))
    change(document)
    replace_provenance(there, json.dumps(document).encode())
    report = there.check()
    assert broken(report) == ["provenance"]
    assert words in said(report)


def test_what_is_no_provenance_object_shows(there: Released) -> None:
    whole = there.store.objects[there.provenance_key()]
    doubled = whole.replace(b'"envelopes"', b'"envelopes": [], "envelopes"')
    nothing = (b"", b"null", b"[]", b"{}", b"\xff", b'{"schema":"cairn.provenance/1"}')
    for data in (*nothing, whole + b"{}", doubled):
        replace_provenance(there, data)
        assert broken(there.check()) == ["provenance"], data


def test_a_generation_of_another_index_or_a_file_offered_twice_does_not_count(there: Released) -> None:
    rewrite(there, project=lambda plain: plain.update(files=plain["files"] * 2))
    assert "has torch-2.9.0-py3-none-any.whl twice" in said(there.check())
    rewrite(there, state=lambda plain: plain.update(index="staging"))
    assert "is generation 7 of staging" in said(there.check())


def put_spelled(there: Released, what: str, old: bytes, new: bytes) -> None:
    """Spell the project or the set in `release` otherwise, with every digest above made to fit."""
    snapshot = Index(there.store, "release").load()
    (bin_digest,) = getattr(snapshot.generation, what)
    digest = snapshot.project_parts["torch"] if what == "projects" else bin_digest
    data = there.store.objects[keys.part_key("release", digest)]
    at = data.rindex(old)  # the schema of the set comes after that of its bin
    again = data[:at] + new + data[at + len(old) :]
    there.store.objects[keys.part_key("release", digest_of(again))] = again
    if what == "sets":
        rewrite(there, state=lambda plain: plain.update(sets=[digest_of(again)]))
        return
    of_bin = put_part(there, Bin(projects={**snapshot.project_parts, "torch": digest_of(again)}))
    rewrite(there, state=lambda plain: plain.update(projects=[of_bin]))


@pytest.mark.parametrize(
    ("what", "old", "new", "words"),
    [
        ("sets", b'{"schema"', b'{"yanked":"a stolen key","schema"', "has the name 'yanked' twice"),
        ("sets", b'"schema":"cairn.index-set/', b'"schem":"cairn.index-set/', "unknown field `schem`"),
        ("projects", b'{"schema"', b'{"serial":1,"schema"', "has the name 'serial' twice"),
        (
            "projects",
            b'{"schema"',
            b'{"x":' + b"[" * 9_999 + b"]" * 9_999 + b',"schema"',
            "nested too deep",
        ),
    ],
    ids=["a yank that another reader sees", "no schema", "a serial that another reader sees", "deep"],
)
def test_a_part_that_two_readers_take_for_different_things_counts_for_neither(
    there: Released, what: str, old: bytes, new: bytes, words: str
) -> None:
    put_spelled(there, what, old, new)
    report = there.check()
    assert broken(report) == ["generation"]
    assert words in said(report)


# What is no attack.


def test_what_is_not_trusted_or_not_signed_is_told(made: Released, tmp_path: Path) -> None:
    report = made.check(trust=Trust())
    assert broken(report) == ["provenance"]
    assert "which is not trusted" in said(report)
    # A tester whom the user does not know, and a record that nobody signed.
    report = made.check(trust=Trust(keys={RELEASER.key_id: RELEASER.public}))
    assert not report.broken
    assert [TESTER.key_id[:16] in warning for warning in report.warnings] == [True]
    report = released(tmp_path, tested_by=None).check()
    assert not report.broken
    assert ["is not signed" in warning for warning in report.warnings] == [True]


def test_without_signatures_the_digests_are_checked(there: Released) -> None:
    for change in ({}, {"provenance": None, "provenance_kind": None}):
        rewrite(there, file=lambda plain, change=change: plain.update(change))
        report = there.check(trust=None)
        assert not report.broken
        assert {link.name: link.state for link in report.links}["provenance"] == "unsigned"
        assert [source.name for source in report.sources] == ["triton", "torch"]


def test_what_was_yanked_or_is_in_quarantine_is_told(there: Released) -> None:
    rewrite(
        there,
        file=lambda plain: plain.update(yanked="it crashes"),
        project=lambda plain: plain.update(status="quarantined", status_reason="odd"),
    )
    report = there.check()
    assert not report.broken
    assert sorted(report.warnings) == ["it was yanked: it crashes", "the project torch is quarantined: odd"]


def _second_set(first: Released, attester: KeyAttester | None = None) -> Released:
    """The same wheels, sealed as a set for another Python."""
    opened = msgspec.structs.replace(first.made, closure=(), set_id=None, python="3.12")
    statement = statement_of(opened, first.wheels, MANIFEST)
    made = stage.stage_set(
        first.store, "staging", opened, first.wheels, manifest=MANIFEST, statement=statement
    )
    assert made.id != first.made.id
    second = Released(store=first.store, wheels=first.wheels, made=made, listed=first.listed)
    digest = put_beside(
        second, "judgements", judgement_of(first).replace(first.made.id.encode(), made.id.encode())
    )
    listed = msgspec.structs.replace(
        listing.index_set(made), untested="bypassed by me: a test", judgement=digest
    )
    offer(first.store, made, listed, attester or KeyAttester(RELEASER))
    return Released(store=first.store, wheels=first.wheels, made=made, listed=listed)


def statements(report: chain.Report) -> set[str | None]:
    """The sets for which somebody trusted has signed."""
    return {link.set_id for link in report.links if link.name == "statement"}


def test_a_wheel_of_two_sets_has_a_statement_for_each(there: Released) -> None:
    """A wheel that several sets share: what the second adds leaves the first as it was."""
    again = msgspec.structs.replace(there.listed, added="2026-11-23T00:00:00.000000Z")
    offer(there.store, there.made, again, KeyAttester(RELEASER))
    assert len(envelope(there)["envelopes"]) == 1  # the same set again
    second = _second_set(there)
    document = envelope(second)
    assert len(document["envelopes"]) == 2
    report = second.check()
    assert not report.broken
    assert statements(report) == {there.made.id, second.made.id}
    # The attacker adds the file's name to a set, and takes the statement about it away.
    document["envelopes"] = document["envelopes"][:1]
    replace_provenance(second, json.dumps(document).encode())
    report = second.check()
    assert not report.broken
    assert report.warnings[-1] == f"nobody has signed for the set {second.made.id[:12]}, which has it too"
    assert second.made.id not in statements(report)


def test_who_signs_for_another_set_need_not_be_known(there: Released) -> None:
    """Two people release sets that share a wheel; a user trusts one of them."""
    second = _second_set(there, KeyAttester(STRANGER))
    assert len(envelope(second)["envelopes"]) == 2
    report = second.check()
    assert not report.broken
    assert report.warnings[-1] == f"nobody has signed for the set {second.made.id[:12]}, which has it too"
    report = second.check(trust=Trust(keys={STRANGER.key_id: STRANGER.public}))
    assert not report.broken
    assert statements(report) == {second.made.id}


def test_a_statement_of_others_or_of_another_kind_is_not_dropped_unseen(there: Released) -> None:
    damaged = there.over(MemoryStore(there.store.objects))
    damaged.store.objects[there.provenance_key()] = b'{"schema": "cairn.provenance/1", "envelopes": []}'
    with pytest.raises(StoreError, match="was changed"):
        _second_set(damaged)
    rewrite(there, file=lambda plain: plain.update(provenance_kind="pep740"))
    with pytest.raises(StoreError, match="signed in another way"):
        _second_set(there)
    offer(there.store, there.made, there.listed, KeyAttester(RELEASER))  # of the same set alone
    assert not there.check().broken


def test_a_server_that_fails_is_no_finding(made: Released) -> None:
    failing: Store = FaultyStore(made.store, Plan(Fault.FAILED, 1))
    with pytest.raises(NetworkError):
        made.over(failing).check()


def test_a_server_that_fails_while_a_judgement_is_compared_is_no_finding(there: Released) -> None:
    """It was read that the set was tested; that its record cannot be read just now says nothing of that."""
    (record,) = there.listed.records
    plain = json.loads(judgement_of(there)) | {"records": [record]}
    plain["demands"].append({"number": 2, "name": judged.TESTED, "outcome": "met", "reason": "it was"})
    digest = put_beside(there, "judgements", json.dumps(plain).encode())
    rewrite(there, listed=lambda plain: plain.update(judgement=digest))
    counted = FaultyStore(there.store, Plan())
    assert broken(there.over(counted).check()) == ["statement"]  # that one names the judgement of before
    places = [at for at, (_, key) in enumerate(counted.plan.requests, 1) if key.endswith(f"{record}.json")]
    assert len(places) == 2
    for at in places:
        with pytest.raises(NetworkError):
            there.over(FaultyStore(there.store, Plan(Fault.FAILED, at))).check()
