"""Verdicts of rebuilders: kept beside their set, and worth nothing for other bytes, or under another key."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cairn import datafile
from cairn.errors import StoreError, UsageError
from cairn.release import rebuilds
from cairn.release.index import keys
from cairn.release.index.snapshot import Index
from cairn.release.provenance import dsse
from cairn.release.provenance.dsse import SignatureError
from cairn.release.rebuilds import Rebuild, RebuiltWheel
from cairn.release.trust.signers import Signer
from cairn.store.memory import MemoryStore
from cairn.wheels.build_statement import Builder
from cairn.wheels.contents.reproducibility import MemberDifference
from cairn.wheels.wheelset import WheelSet
from helpers.gate import demand, judge, stack_of, stage_torch
from helpers.provenance import signer
from helpers.release import keys_of

ANN, BOB, EVE = signer(11), signer(12), signer(13)
DIFFERENCE = MemberDifference(member="torch/_C.so", causes=("time", "path"), example="'a' and 'b'")
OTHER = "torch-2.9.0-py3-none-any.whl differs"
HERE = Builder(id="https://example.org/a-builder")


@pytest.fixture
def made(store: MemoryStore, tmp_path: Path) -> WheelSet:
    return stage_torch(store, tmp_path)


def verdict(made: WheelSet, *, differs: bool = False, minute: int = 0, **changes: Any) -> Rebuild:
    """The verdict of a rebuilder, with `changes` in place of some of its fields."""
    wheels = tuple(
        RebuiltWheel(
            file_name=wheel.file_name,
            sha256=wheel.sha256,
            rebuilt="f" * 64 if differs else wheel.sha256,
            same_inputs=True,
            differences=(DIFFERENCE,) if differs else (),
        )
        for wheel in made.wheels
    )
    values: dict[str, Any] = {
        "set_id": made.id,
        "manifest_sha256": made.manifest_sha256,
        "wheels": wheels,
        "rebuilder": "Ann Müller",
        "finished": f"2026-11-26T10:{minute:02}:00Z",
    }
    return Rebuild(**(values | changes))


def put(store: MemoryStore, made: WheelSet, payload: bytes, by: Signer, key: str | None = None) -> str:
    """Put an envelope beside a set as somebody does who may write there, whatever is in it."""
    data = datafile.dumps(dsse.sign(payload, dsse.IN_TOTO, by)).encode()
    digest = hashlib.sha256(data).hexdigest()
    store.write(key or keys.set_key(made.id, f"rebuilds/{digest}.dsse.json"), data)
    return digest


def test_a_verdict_comes_back_as_it_was_given_and_every_page_of_its_set_says_so(
    store: MemoryStore, made: WheelSet
) -> None:
    given = verdict(made, differs=True, machine={"python": "3.11", "c++": "g++ (Debian 12)"})
    kept, late = rebuilds.keep(store, made, given, ANN)
    assert late is None
    (read,), problems = rebuilds.read(store, made)
    assert (read, problems) == (kept, ())
    assert (read.rebuild, read.key_id) == (given, ANN.key_id)
    name = made.wheels[0].file_name
    by = f"Ann Müller (key {ANN.key_id[:12]})"
    listed = Index(store, "staging").load().set(made.id)
    assert listed.rebuilds == (f"rebuilt by {by} with other bytes: {name} differs (time, path)",)
    rebuilds.keep(store, made, verdict(made, minute=5), ANN)
    assert Index(store, "staging").load().set(made.id).rebuilds == (f"rebuilt identically by {by}",)
    page = store.read("staging/status.html").data.decode()
    assert f"rebuilt identically by {by}" in page
    assert all(keys.kind_of(key) == "evidence" for key in keys_of(store, f"sets/{made.id}/rebuilds/"))


def test_the_statement_is_in_toto_s_own_test_result(made: WheelSet) -> None:
    plain = json.loads(rebuilds.encode(verdict(made, differs=True), HERE, ANN.public))
    assert plain["_type"] == "https://in-toto.io/Statement/v1"
    assert plain["predicateType"] == "https://in-toto.io/attestation/test-result/v0.1"
    assert plain["predicate"]["result"] == "FAILED"
    assert plain["predicate"]["failedTests"] == [made.wheels[0].file_name]
    assert plain["subject"][0]["digest"] == {"sha256": made.wheels[0].sha256}


def test_a_verdict_for_other_bytes_or_of_another_set_does_not_count(
    store: MemoryStore, made: WheelSet, tmp_path: Path
) -> None:
    other = stage_torch(store, tmp_path, "2.9.1")
    rebuilds.keep(store, other, verdict(other), ANN)
    (key,) = keys_of(store, f"sets/{other.id}/rebuilds/")
    # Replayed beside another set; and of this set with other bytes, of which the rebuilder says all is well.
    store.write(key.replace(other.id, made.id), store.read(key).data)
    lie = verdict(made, wheels=(RebuiltWheel(file_name="torch.whl", sha256="a" * 64, rebuilt="a" * 64),))
    put(store, made, rebuilds.encode(lie, HERE, ANN.public), ANN)
    twice = verdict(made, wheels=verdict(made).wheels * 2)
    put(store, made, rebuilds.encode(twice, HERE, ANN.public), ANN)
    none = verdict(made, wheels=())
    put(store, made, rebuilds.encode(none, HERE, ANN.public), ANN)
    kept, problems = rebuilds.read(store, made)
    assert kept == ()
    assert sorted(text.partition(" is ")[2] for text in problems) == [
        "about other wheels than the set has",
        "about other wheels than the set has",
        "about other wheels than the set has",
        f"of another set: {other.id[:12]}",
    ]
    with pytest.raises(StoreError, match="other wheels"):
        rebuilds.keep(store, made, lie, ANN)
    assert rebuilds.agreeing(store, made, {"ann": ANN.key_id}) == ()


def test_nobody_speaks_under_the_key_of_another(store: MemoryStore, made: WheelSet) -> None:
    put(
        store, made, rebuilds.encode(verdict(made), HERE, ANN.public), EVE
    )  # names Ann's key, signs with Eve's
    forged = dsse.sign(rebuilds.encode(verdict(made), HERE, ANN.public), dsse.IN_TOTO, EVE)
    forged = msgspec.structs.replace(
        forged, signatures=(msgspec.structs.replace(forged.signatures[0], keyid=ANN.key_id),)
    )
    data = datafile.dumps(forged).encode()
    store.write(keys.set_key(made.id, f"rebuilds/{hashlib.sha256(data).hexdigest()}.dsse.json"), data)
    put(store, made, rebuilds.encode(verdict(made), HERE), EVE)  # names no key
    put(store, made, b'{"_type": "https://in-toto.io/Statement/v1"}', EVE)
    put(store, made, b"\xff", EVE)
    digest = put(store, made, rebuilds.encode(verdict(made), HERE, EVE.public), EVE)
    key = keys.set_key(made.id, f"rebuilds/{digest}.dsse.json")
    store.write(key.replace(digest, "0" * 64), store.read(key).data)
    kept, problems = rebuilds.read(store, made)
    assert [one.key_id for one in kept] == [EVE.key_id]
    assert len(problems) == 6
    assert rebuilds.agreeing(store, made, {"ann": ANN.key_id}) == ()


def test_a_result_that_contradicts_its_digests_is_refused(made: WheelSet) -> None:
    plain = json.loads(rebuilds.encode(verdict(made, differs=True), HERE, ANN.public))
    plain["predicate"]["result"] = "PASSED"
    with pytest.raises(SignatureError, match="contradicts itself"):
        rebuilds.decode(json.dumps(plain).encode(), name="it")
    for name in ("", "two\nlines", " "):
        with pytest.raises(UsageError, match="a name"):
            verdict(made, rebuilder=name)
    with pytest.raises(ValueError, match="tomorrow"):
        verdict(made, finished="tomorrow")


@pytest.mark.parametrize(
    ("given", "same", "other"),
    [
        ([], (), []),
        ([(ANN, False)], ("ann",), []),
        ([(ANN, False), (ANN, False)], ("ann",), []),
        ([(ANN, False), (EVE, False)], ("ann",), []),
        ([(ANN, False), (BOB, False)], ("ann", "bob"), []),
        (
            [(ANN, False), (BOB, True)],
            ("ann",),
            [f"bob got other wheels: {OTHER}"],
        ),
        ([(ANN, True), (ANN, False)], ("ann",), []),
        ([(ANN, False), (ANN, True)], (), [f"ann got other wheels: {OTHER}"]),
        ([(EVE, True)], (), []),
    ],
)
def test_of_each_rebuilder_that_is_named_the_last_verdict_counts(
    store: MemoryStore,
    made: WheelSet,
    given: Sequence[tuple[Signer, bool]],
    same: tuple[str, ...],
    other: list[str],
) -> None:
    for minute, (by, differs) in enumerate(given):
        rebuilds.keep(store, made, verdict(made, differs=differs, minute=minute), by)
    named = {"ann": ANN.key_id, "bob": BOB.key_id}
    assert rebuilds.agreeing(store, made, named) == same
    assert [t.partition(" (")[0] for t in rebuilds.disagreeing(store, made, named)] == other


def test_the_gate_asks_as_many_rebuilders_as_the_stack_does(store: MemoryStore, made: WheelSet) -> None:
    assert all(one.number != 7 for one in judge(store, made).demands)
    # A key under two names is one rebuilder.
    named = {"ann": ANN.key_id, "anna": ANN.key_id, "bob": BOB.key_id}
    stack = stack_of(made, rebuilds=2, rebuilders=named)
    rebuilds.keep(store, made, verdict(made), ANN)
    rebuilds.keep(store, made, verdict(made), EVE)
    short = demand(judge(store, made, stack=stack), 7)
    assert short.outcome == "not met"
    assert short.reason == (
        "1 of the 2 that are asked for, among ann, anna, bob: rebuilt identically by ann, anna"
    )
    rebuilds.keep(store, made, verdict(made), BOB)
    assert demand(judge(store, made, stack=stack), 7).outcome == "met"


def test_two_at_once_are_both_kept(store: MemoryStore, made: WheelSet) -> None:
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(rebuilds.keep, store, made, verdict(made), by) for by in (ANN, BOB, ANN, BOB)]
        digests = {job.result()[0].digest for job in jobs}
    assert len(digests) == 2
    assert len(rebuilds.read(store, made)[0]) == 2
    assert len(Index(store, "staging").load().set(made.id).rebuilds) == 2


def test_the_public_key_in_a_verdict_has_the_id_that_a_policy_names(made: WheelSet) -> None:
    plain = json.loads(rebuilds.encode(verdict(made), HERE, ANN.public))
    pem = plain["predicate"]["configuration"][0]["annotations"]["key"].splitlines()
    assert hashlib.sha256(base64.b64decode("".join(pem[1:-1]))).hexdigest() == ANN.key_id
