"""Records beside their set: what is taken, what is kept, and what the commands say of it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from cairn.cli.main import main
from cairn.errors import StoreError, UsageError
from cairn.release import records
from cairn.release.audit.audit import audit
from cairn.release.index import keys
from cairn.release.trust import signers
from cairn.store.folder import LocalStore
from cairn.store.memory import MemoryStore
from cairn.store.protocol import Store
from cairn.testing.record import TestedWheel
from cairn.wheels.wheelset import WheelSet
from helpers.gate import at, data_of, record_of, stage_torch, write_stack
from helpers.release import contents, keys_of

GPU: dict[str, Any] = {"platform": "linux_x86_64", "family": "gfx94X-dcgpu", "targets": ("gfx942",)}


@pytest.fixture
def made(store: MemoryStore, tmp_path: Path) -> WheelSet:
    """A staged set for a GPU."""
    return stage_torch(store, tmp_path, **GPU)


def test_a_record_is_kept_as_its_bytes_and_twice_is_once(store: MemoryStore, made: WheelSet) -> None:
    data, before = data_of(record_of(made)) + b"\n", contents(store)
    planned = records.add(store, data, dry_run=True)
    assert contents(store) == before
    assert records.read(store, made.id).having([planned]).records == (planned,)
    for _ in range(2):
        kept = records.add(store, data)
    (key,) = keys_of(store, keys.set_key(made.id, "records/"))
    assert store.read(key).data == data
    assert key.endswith(f"{kept.digest}.json")
    assert records.read(store, made.id).records == (kept,)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"set_id": None}, "was not sealed"),
        ({"started": at(600)}, "which is yet to come"),
        ({"wheels": (TestedWheel(file_name="a-1-py3-none-any.whl", sha256="0" * 64),)}, "does not have: a-1"),
        ({"duration_seconds": -1.0}, "less than no time"),
        ({"started": "yesterday"}, "does not say when"),
        ({"started": "0001-01-01T00:00:00Z", "duration_seconds": 1e300}, "does not say when"),
    ],
)
def test_what_can_never_count_is_not_kept(
    store: MemoryStore, made: WheelSet, changes: dict[str, object], said: str
) -> None:
    before = contents(store)
    with pytest.raises(UsageError, match=said):
        records.add(store, data_of(record_of(made, **changes)))
    assert contents(store) == before


def test_what_is_kept_is_of_a_set_that_is_there_and_a_failure_whatever_its_clock_says(
    store: MemoryStore, made: WheelSet
) -> None:
    elsewhere = data_of(record_of(made, set_id="b" * 64))
    with pytest.raises(StoreError, match="has no set bbbb"):
        records.add(store, elsewhere)
    with pytest.raises(UsageError, match=f"is not of the set {made.id[:12]}: it is of the set bbbb"):
        records.add(store, elsewhere, set_id=made.id)
    records.add(store, data_of(record_of(made, verdict="failed", started=at(600))))
    assert len(records.read(store, made.id).records) == 1


def test_what_was_changed_or_is_no_record_is_told_and_not_left_out(
    store: MemoryStore, made: WheelSet
) -> None:
    good = records.add(store, data_of(record_of(made)))
    bad = records.add(store, data_of(record_of(made, verdict="failed", started=at(-1))))
    key = keys.set_key(made.id, f"records/{bad.digest}.json")
    store.write(key, b"{}")
    store.write(keys.set_key(made.id, f"answers/{'a' * 64}.json"), b"{}")
    found = records.read(store, made.id)
    assert found.records == (good,)
    assert [problem for _, problem in found.unusable] == [
        f"the record {bad.digest[:12]} was changed",
        "the answer aaaaaaaaaaaa was changed",
    ]
    assert found.digests == {good.digest, bad.digest, "a" * 64}


def test_only_what_failed_is_answered(store: MemoryStore, made: WheelSet) -> None:
    good = records.add(store, data_of(record_of(made)))
    bad = records.add(store, data_of(record_of(made, verdict="failed", started=at(-1))))
    with pytest.raises(UsageError, match="is passed: only what failed is answered"):
        records.answer(store, made.id, good.digest, who="ann", reason="why")
    with pytest.raises(StoreError, match="has no record cccc"):
        records.answer(store, made.id, "c" * 64, who="ann", reason="why")
    for who, reason in (("", "why"), ("ann", " "), ("ann", "two\nlines"), ("\x1b[2J", "why")):
        with pytest.raises(UsageError, match="needs a name and a reason"):
            records.answer(store, made.id, bad.digest, who=who, reason=reason)
    assert records.read(store, made.id).answers == ()
    said = records.answer(store, made.id, bad.digest, who="ann", reason="a full disk")
    assert [answer for _, answer in records.read(store, made.id).answers] == [said]


def test_a_record_is_found_by_its_file_or_the_beginning_of_its_digest(
    store: MemoryStore, made: WheelSet, tmp_path: Path
) -> None:
    data = data_of(record_of(made))
    kept = records.add(store, data)
    (tmp_path / "record.json").write_bytes(data)
    wanted = (made.id, kept.digest)
    assert records.find(store, str(tmp_path / "record.json")) == wanted
    assert records.find(store, kept.digest[:6].upper()) == wanted
    with pytest.raises(UsageError, match="neither a record nor the digest of one"):
        records.find(store, "abc")
    with pytest.raises(StoreError, match="has no record"):
        records.find(store, "f" * 64)
    for n in range(20):
        records.add(store, data_of(record_of(made, started=at(-n))))
    store.write(keys.set_key(made.id, f"records/{kept.digest[:8]}{'0' * 56}.json"), b"{}")
    with pytest.raises(UsageError, match="is the beginning of 2 digests"):
        records.find(store, kept.digest[:8])


def test_only_what_somebody_trusted_has_signed_counts_where_that_is_asked(
    store: MemoryStore, made: WheelSet, tmp_path: Path
) -> None:
    signers.create(tmp_path / "keys")
    signer = signers.signer(tmp_path / "keys" / signers.PRIVATE_NAME)
    trust = signers.trust_of([str(tmp_path / "keys" / signers.PUBLIC_NAME)])
    signed = records.add(store, data_of(record_of(made)), signer=signer)
    plain = records.add(store, data_of(record_of(made, started=at(-1))))
    doubts = {kept.digest: kept.doubt for kept in records.read(store, made.id, trust=trust).records}
    assert doubts[signed.digest] is None
    assert "is not signed" in str(doubts[plain.digest])
    assert all(kept.doubt is None for kept in records.read(store, made.id).records)
    # The signature of one record does not make another one signed.
    key = keys.set_key(made.id, "records/{}.dsse.json")
    store.write(key.format(plain.digest), store.read(key.format(signed.digest)).data)
    doubts = {kept.digest: kept.doubt for kept in records.read(store, made.id, trust=trust).records}
    assert "not what its signature is over" in str(doubts[plain.digest])


def test_the_commands_add_list_and_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder_store = LocalStore(tmp_path / "store")
    made = stage_torch(folder_store, tmp_path, **GPU)
    at_store = ["--store", str(folder_store.path)]
    failed = record_of(made, verdict="failed", reason="1 failed", hardware=("gfx942",), started=at(-1))
    (tmp_path / "failed.json").write_bytes(data_of(failed))
    (tmp_path / "cpu.json").write_bytes(data_of(record_of(made)))
    add = ["release", "record", "add", str(tmp_path / "failed.json"), str(tmp_path / "cpu.json"), *at_store]
    assert main([*add, "--dry-run", "--json"]) == 0
    added = json.loads(capsys.readouterr().out)["added"]
    assert [item["verdict"] for item in added] == ["failed", "passed"]
    assert not keys_of(folder_store, keys.set_key(made.id, "records/"))
    assert main(add) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"+ {added[0]['record']} smoke, failed"
    show = ["release", "record", "list", made.id[:8], *at_store, "--stack", str(write_stack(tmp_path, made))]
    assert main([*show, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["records"]) == 2
    assert found["weighed"]["untested"] == ["gfx942"]
    assert len(found["weighed"]["standing"]) == 1
    said = ["release", "record", "answer", added[0]["record"][:8], "--who", "ann", "--reason", "a full disk"]
    assert main([*said, *at_store]) == 0
    assert main([*show, "--json"]) == 0
    found = json.loads(capsys.readouterr().out.partition("\n")[2])
    assert found["weighed"]["standing"] == []
    assert found["weighed"]["answered"][0].endswith("failed: 1 failed; answered by ann: a full disk")
    assert main(show) == 0
    out = capsys.readouterr().out
    assert "answered by ann: a full disk" in " ".join(out.split())
    assert "does not count: it was made without any hardware" in " ".join(out.split())
    assert main(["release", "record", "answer", "abc", "--who", "a", "--reason", "b", *at_store]) == 2


def test_the_list_names_gpus_and_what_they_leave_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = LocalStore(tmp_path / "store")
    made = stage_torch(store, tmp_path, **{**GPU, "targets": ("gfx942", "gfx950")})
    for hardware in (("gfx942",) * 8, ()):
        records.add(store, data_of(record_of(made, hardware=hardware)))
    capsys.readouterr()
    show = ["release", "record", "list", made.id[:8], "--store", str(store.path)]
    assert main([*show, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["records"]
    assert {len(one["gpus"]): one["covered"] for one in found} == {
        8: {"gfx942": 2, "gfx950": 0},
        0: {"gfx942": 0, "gfx950": 0},
    }
    assert main(show) == 0
    out = "".join(capsys.readouterr().out.split())
    assert "8xgfx942;nothingongfx950" in out
    assert "noGPU" in out


RESULTS = {"junit.xml": b"<testsuites/>", "compat.json": b"{}"}


def evidence_problems(store: Store) -> list[str]:
    return [problem.said for problem in audit(store).problems if problem.code in ("evidence", "key")]


def run_of(made: WheelSet, folder: Path) -> Path:
    """A folder as a test run leaves it; its record."""
    for name, data in RESULTS.items():
        (folder / name).write_bytes(data)
    junit, compat = (hashlib.sha256(data).hexdigest() for data in RESULTS.values())
    path = folder / "record.json"
    path.write_bytes(data_of(record_of(made, kind="compat", junit_sha256=junit, compat_sha256=compat)))
    return path


def test_what_a_record_was_judged_by_is_kept_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = LocalStore(tmp_path / "store")
    made = stage_torch(store, tmp_path, **GPU)
    path = run_of(made, tmp_path)
    before = contents(store)
    command = ["release", "record", "add", str(path), "--store", str(store.path)]
    assert main([*command, "--dry-run"]) == 0
    assert contents(store) == before
    assert main(command) == 0
    found = contents(store, keys.set_key(made.id, "results/"))
    assert {key.rpartition(".")[2]: data for key, data in found.items()} == {
        "xml": RESULTS["junit.xml"],
        "json": RESULTS["compat.json"],
    }
    (kept,) = records.read(store, made.id).records
    assert records.junit_of(store, kept) == RESULTS["junit.xml"]
    assert not evidence_problems(store)
    key = next(key for key in found if key.endswith(".xml"))
    store.write(key, b"<testsuites></testsuites>")
    assert evidence_problems(store) == [f"set {made.id[:12]}: {key} was changed"]
    with pytest.raises(StoreError, match="was changed"):
        records.junit_of(store, kept)
    (path.parent / "junit.xml").write_bytes(b"<testsuite/>")
    assert main(command) == 2
    assert "junit.xml is not what record.json was made of" in capsys.readouterr().err


def test_a_record_has_no_results_but_its_own(store: MemoryStore, made: WheelSet, tmp_path: Path) -> None:
    path = run_of(made, tmp_path)
    data, before = path.read_bytes(), contents(store)
    with pytest.raises(UsageError, match="the record does not name a result with the digest"):
        records.add(store, data, results=(b"other",))
    assert contents(store) == before
    for name in RESULTS:
        (path.parent / name).unlink()
    assert records.read_given(path).results == ()
    kept = records.add(store, data)
    assert records.junit_of(store, kept) is None
