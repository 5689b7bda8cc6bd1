"""What a commit signs, a writer that dies on its way, and keys that come and go."""

from __future__ import annotations

import itertools
import os
import shutil
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from cairn.errors import UsageError
from cairn.release import gc
from cairn.release.audit import audit
from cairn.release.index import keys
from cairn.release.index.commit import recover
from cairn.release.index.generation import PUBLISHED, FileEntry, Pointer, digest_of, encode
from cairn.release.index.snapshot import Change, Index, Snapshot
from cairn.release.provenance.chain import Recorder
from cairn.release.trust import anchor, metadata, online, root
from cairn.release.trust.anchor import Anchor
from cairn.release.trust.current import SignedMetadata, vouched
from cairn.release.trust.metadata import TIMESTAMP, MetadataError, key_of, sealed
from cairn.release.trust.online import Promoter
from cairn.store.folder import LocalStore
from cairn.store.memory import MemoryStore
from helpers.moments import dying
from helpers.nights import age
from helpers.provenance import signer
from helpers.release import commit, in_folder
from helpers.trust import (
    BUILDER,
    OFFLINE,
    PROMOTER,
    TIMEKEEPER,
    acting_as,
    again,
    looked_at,
    rooted,
    somebody_new,
    stamp,
)


def entries(count: int, start: int = 0) -> tuple[FileEntry, ...]:
    """So many files of torch, whose bytes are nowhere."""
    return tuple(
        FileEntry(
            filename=f"torch-1.{number}-py3-none-any.whl",
            sha256=f"{number:064x}",
            size=number,
            version=f"1.{number}",
            build=PUBLISHED,
        )
        for number in range(start, start + count)
    )


def publish(store: MemoryStore, files: tuple[FileEntry, ...]) -> None:
    def plan(now: Snapshot) -> Change:
        return Change(projects={"torch": now.project("torch").with_files(files)})

    commit(Index(store, "release"), "promote", plan)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """A store with a root, and nothing in it."""
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "writer"))
    monkeypatch.delenv("CAIRN_SIGN_KEY", raising=False)
    made = MemoryStore()
    rooted(made)
    return made


@pytest.fixture
def trusted(store: MemoryStore) -> Anchor:
    root_of_store = anchor.anchor(store)
    assert root_of_store is not None
    return root_of_store


def test_bins_grow_with_the_index_and_a_client_that_knew_the_small_one_goes_on(
    store: MemoryStore, trusted: Anchor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with acting_as(tmp_path, PROMOTER):
        publish(store, entries(300))
        client = somebody_new(store, trusted, tmp_path / "client", monkeypatch)
        assert client.target("release/torch-1.299-py3-none-any.whl") is not None
        monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "writer"))
        publish(store, entries(4_000, 300))
    later = again(store, client)
    for number in (0, 299, 300, 4_299):
        file = later.target(f"release/torch-1.{number}-py3-none-any.whl")
        assert file is not None
        assert file.hashes["sha256"] == f"{number:064x}"
    watched = Recorder(store)
    fresh = somebody_new(watched, trusted, tmp_path / "fresh", monkeypatch)
    assert fresh.target("release/torch-1.7-py3-none-any.whl") is not None
    assert sum(map(len, watched.objects.values())) < 100_000
    bins = [key for key in store.objects if ".bin-" in key]
    assert len(bins) > 20


def test_a_writer_that_dies_anywhere_leaves_the_old_state_or_the_new_one(
    store: MemoryStore, trusted: Anchor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with acting_as(tmp_path, PROMOTER):
        publish(store, entries(1))
        machines = itertools.count()

        def another() -> Path:  # which remembers the state before, and not the run that has died
            folder = tmp_path / f"writer{next(machines)}"
            shutil.copytree(tmp_path / "writer", folder)
            return folder

        def elsewhere(one: MemoryStore) -> None:
            monkeypatch.setenv("CAIRN_CACHE_DIR", str(another()))
            publish(one, entries(1, 1))

        for moment, dead in dying(store, elsewhere):
            client = somebody_new(dead, trusted, tmp_path / f"client{moment}", monkeypatch)
            number = client.target("release/torch-1.1-py3-none-any.whl")
            pointer = client.read("release/state.json").data
            assert (number is not None) == (b'"generation":2' in pointer)
            monkeypatch.setenv("CAIRN_CACHE_DIR", str(another()))
            recover(Index(dead, "release"))
            state = again(dead, client).read("release/state.json").data
            current = Index(dead, "release").load().generation.number
            assert f'"generation":{current}' in state.decode()


def test_a_promoters_key_is_revoked_and_wheels_signed_before_still_verify(
    store: MemoryStore, trusted: Anchor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = signer(31)
    with acting_as(tmp_path, PROMOTER):
        publish(store, entries(2))
    client = somebody_new(store, trusted, tmp_path / "client", monkeypatch)
    assert client.target("release/torch-1.1-py3-none-any.whl") is not None
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "writer"))
    before = trusted.root
    changed = root.without_key(root.with_key(before, "promoter", new.public), "promoter", PROMOTER.key_id)
    with acting_as(tmp_path, new):
        trusted = root.publish(store, root.following(changed, OFFLINE[1:]))
        root.sign_all(store, trusted, looked_at(store, trusted))
        publish(store, entries(1, 2))
    later = again(store, client)
    assert later.target("release/torch-1.1-py3-none-any.whl") is not None
    assert later.target("release/torch-1.2-py3-none-any.whl") is not None
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "writer"))
    with acting_as(tmp_path, PROMOTER), pytest.raises(UsageError, match="not the promoter's"):
        publish(store, entries(1, 3))


def test_two_offline_keys_of_three_are_lost_and_replaced_one_after_the_other(store: MemoryStore) -> None:
    """With a threshold of two, one lost key is replaced by the other two; then the second."""
    for place in (0, 1):
        trusted = anchor.anchor(store)
        assert trusted is not None
        fresh, lost = signer(40 + place), OFFLINE[place]
        changed = root.without_key(root.with_key(trusted.root, "root", fresh.public), "root", lost.key_id)
        signers = [OFFLINE[2], OFFLINE[1] if place == 0 else signer(40), fresh]
        draft = root.following(changed, signers[:1])
        assert "more of the keys" in str(root.missing(trusted.root, draft))
        draft = metadata.more_signed(draft, signers[1:])
        assert root.missing(trusted.root, draft) is None
        root.publish(store, draft)
    trusted = anchor.anchor(store)
    assert trusted is not None
    assert trusted.root.version == 3
    assert set(root.key_ids(trusted.root, "root")) == {
        one.key_id for one in (OFFLINE[2], signer(40), signer(41))
    }


def test_a_next_root_brings_back_those_before_it_that_a_copy_lacks(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        store.objects.pop(key_of("root", 2), None)
        trusted = anchor.anchor(store)
        assert trusted is not None
        root.publish(store, root.following(trusted.root, OFFLINE[:2]))
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "fresh"))
    seen = anchor.anchor(store)
    assert seen is not None
    assert seen.root.version == 3


def test_a_timestamps_key_keeps_an_index_fresh_and_can_do_nothing_else(
    store: MemoryStore, trusted: Anchor, tmp_path: Path
) -> None:
    with acting_as(tmp_path, PROMOTER):
        publish(store, entries(1))
    with acting_as(tmp_path, TIMEKEEPER):
        Promoter(store, trusted).refresh()
        with pytest.raises(UsageError):
            publish(store, entries(1, 1))
    stamp = metadata.opened(
        store.read(metadata.TIMESTAMP).data, metadata.Timestamp, {}, name="it", threshold=0
    )
    assert stamp.version == 2


def test_an_entry_of_the_ledger_that_was_signed_for_and_is_gone_shows(
    store: MemoryStore, tmp_path: Path
) -> None:
    with acting_as(tmp_path, PROMOTER):
        publish(store, entries(1))
    assert key_of("release", 1) in store.objects
    role = metadata.opened(
        store.read(key_of("release", 1)).data, metadata.Targets, {}, name="it", threshold=0
    )
    assert role.targets["release/generation.json"].custom["ledger"][0] >= 0


def test_nothing_is_built_on_a_state_that_no_promoter_meant(store: MemoryStore, tmp_path: Path) -> None:
    """Write access: a forged generation is signed by no honest hand that comes after it."""
    with acting_as(tmp_path, PROMOTER):
        publish(store, entries(1))
        current = Index(store, "release").load()
        forged = msgspec.structs.replace(current.generation, number=2, parent=current.digest, who="mallory")
        digest = digest_of(encode(forged))
        store.write(keys.generation_key("release", 2, digest), encode(forged))
        pointer = Pointer(generation=2, digest=digest, rendered=2, rendered_digest=digest)
        store.write("release/state.json", encode(pointer))
        with pytest.raises(MetadataError, match="is not signed") as error:
            publish(store, entries(1, 1))
        assert f"--adopt release=2-{digest[:32]}" in str(error.value.tip)


def test_a_generation_of_cairn_0_1_is_adopted_as_its_bytes_are(
    store: MemoryStore, trusted: Anchor, tmp_path: Path
) -> None:
    """It has fewer fields than a generation has today: encoded again, it is another one."""
    with acting_as(tmp_path, PROMOTER):
        publish(store, entries(1))
        current = Index(store, "release").load()
        fields = (
            "index",
            "number",
            "parent",
            "action",
            "who",
            "when",
            "change_id",
            "why",
            "serial",
            "ledger",
        )
        plain = {field: getattr(current.generation, field) for field in fields}
        plain |= {"projects": dict(current.project_parts), "sets": {}, "recent": []}
        data = msgspec.json.encode({"schema": "cairn.generation/1", **plain}) + b"\n"
        digest = digest_of(data)
        store.write(keys.generation_key("release", 1, digest), data)
        assert current.pointer is not None
        pointer = msgspec.structs.replace(current.pointer, digest=digest, rendered_digest=digest)
        store.write("release/state.json", encode(pointer))
        state = Index(store, "release").load()
        Promoter(store, trusted).adopt([state], {"release": f"1-{digest}"})
    signed = SignedMetadata(store, trusted)
    role = signed.role(signed.current(), "release")
    assert role is not None
    assert vouched(role.targets, "release").digest == digest
    assert [one.said for one in audit.audit(store).problems if one.code == "signature"] == []


@pytest.mark.parametrize(
    ("left", "says"), [("metadata/1.", "is lost"), ("expired", "counts no more"), ("nothing", "is lost")]
)
def test_a_promoter_signs_nothing_where_what_was_signed_is_lost_or_old(
    store: MemoryStore, tmp_path: Path, left: str, says: str
) -> None:
    with acting_as(tmp_path, PROMOTER):
        publish(store, entries(1))
        if left == "expired":
            stamp(store, [TIMEKEEPER], snapshot=1, expires="2026-01-01T00:00:00Z")
        else:
            for key in [k for k in store.objects if k.startswith("metadata/") and not k.startswith(left)]:
                store.delete(key)
        before = dict(store.objects)
        with pytest.raises(MetadataError, match=says):
            publish(store, entries(1, 1))
    assert store.objects == before


def test_nothing_is_built_on_a_timestamp_that_is_older_by_one_than_the_writers_own(
    store: MemoryStore, tmp_path: Path
) -> None:
    with acting_as(tmp_path, PROMOTER):
        publish(store, entries(1))
        data = store.read(TIMESTAMP).data
        last = metadata.opened(data, metadata.Timestamp, {}, name="it", threshold=0)
        older = msgspec.structs.replace(last, version=last.version - 1)
        store.write(TIMESTAMP, sealed(older, TIMEKEEPER))
        with pytest.raises(MetadataError, match="was set back"):
            publish(store, entries(1, 1))


def test_what_counts_no_more_soon_is_named_and_a_promoters_refresh_signs_it_again(
    store: MemoryStore, trusted: Anchor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with acting_as(tmp_path, PROMOTER), monkeypatch.context() as patch:
        for life in ("SLOW", "BINS"):
            patch.setattr(online, life, timedelta(days=20))
        publish(store, entries(300))

    def ending() -> set[str]:
        signed = SignedMetadata(store, trusted)
        return set(signed.ending(signed.current()))

    every = {"snapshot.json", "targets.json", "release.json", *(f"release.bin-{n}.json" for n in range(4))}
    assert ending() == every
    assert any("7 lists of metadata/ count until" in one.said for one in audit.audit(store).problems)
    with acting_as(tmp_path, TIMEKEEPER):
        Promoter(store, trusted).refresh()
    assert ending() == every
    with acting_as(tmp_path, PROMOTER):
        Promoter(store, trusted).refresh()
        before = dict(store.objects)
        assert not ending()
        Promoter(store, trusted).refresh()
    assert store.objects.keys() == before.keys()  # nothing is signed twice
    fresh = somebody_new(store, trusted, tmp_path / "fresh", monkeypatch)
    assert fresh.target("release/torch-1.7-py3-none-any.whl") is not None


def test_whoever_signs_is_told_a_month_before_the_root_counts_no_more(
    store: MemoryStore, trusted: Anchor, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert anchor.warning(store) is None
    assert anchor.warning(MemoryStore()) is None
    with monkeypatch.context() as patch:
        patch.setattr(root, "YEAR", timedelta(days=29))
        root.publish(store, root.following(trusted.root, OFFLINE[:2]))
    text = anchor.warning(store) or ""
    assert "2 of its keys sign the next one, by cairn trust change --store" in text
    assert text in [one.said for one in audit.audit(store).problems]
    newest = anchor.anchor(store)
    assert newest is not None
    root.publish(store, root.following(newest.root, OFFLINE[:2]))
    assert anchor.warning(store) is None


def test_a_version_of_a_role_is_not_taken_for_an_earlier_one(
    store: MemoryStore, trusted: Anchor, tmp_path: Path
) -> None:
    with acting_as(tmp_path, PROMOTER):
        publish(store, entries(1))
        publish(store, entries(1, 1))
    store.write(key_of("release", 1), store.read(key_of("release", 2)).data)
    with pytest.raises(MetadataError, match="is version 2 of release"):
        SignedMetadata(store, trusted).read("release", 1, metadata.Targets)


def test_a_root_that_one_key_signs_twice_is_signed_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = MemoryStore()
    trusted = rooted(own)
    once = root.following(root.with_key(trusted.root, "promoter", BUILDER.public), OFFLINE[:1])
    signature = once[once.index(b"[") + 1 : once.index(b"]")]
    own.write(key_of("root", 2), once.replace(signature, signature + b"," + signature, 1))
    with pytest.raises(MetadataError, match="signed by 1"):
        somebody_new(own, trusted, tmp_path / "new", monkeypatch)


def test_without_a_key_nothing_that_users_install_is_changed(store: MemoryStore, tmp_path: Path) -> None:
    with acting_as(tmp_path, PROMOTER):
        publish(store, entries(1))
    with pytest.raises(UsageError, match="only a promoter's key"):
        publish(store, entries(1, 1))
    assert Index(store, "release").load().generation.number == 1


def test_a_job_has_its_key_in_a_variable(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAIRN_SIGN_PRIVATE_KEY", PROMOTER.pem().decode())
    publish(store, entries(1))
    monkeypatch.setenv("CAIRN_SIGN_PRIVATE_KEY", "no key")
    with pytest.raises(UsageError, match="CAIRN_SIGN_PRIVATE_KEY is not an Ed25519 private key"):
        publish(store, entries(1, 1))


def test_a_fresh_runner_signs_with_what_the_machines_that_sign_remember_together(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a cache of its own, and a bucket that nobody else writes to; a tester's needs neither."""
    with acting_as(tmp_path, PROMOTER):
        publish(store, entries(1))
        known = anchor.anchor(store)
        assert known is not None
        shutil.copytree(tmp_path / "writer" / "trust", tmp_path / "memory")
        for number in (1, 2, 3):
            old = MemoryStore(store.objects)
            monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / f"runner{number}"))
            monkeypatch.delenv(anchor.MEMORY, raising=False)
            with anchor.acting(root=known.fingerprint), pytest.raises(UsageError, match="has not seen"):
                publish(store, entries(1, number))
            assert store.objects == old.objects
            monkeypatch.setenv(anchor.MEMORY, str(tmp_path / "memory"))
            publish(store, entries(1, number))
            with pytest.raises(MetadataError, match="set back"):
                publish(old, entries(1, number + 10))
    assert Index(store, "release").load().generation.number == 4


def test_a_remembered_root_is_missed_however_its_store_is_spelled(store: MemoryStore, tmp_path: Path) -> None:
    folder = in_folder(store, tmp_path / "store")
    (tmp_path / "link").symlink_to(folder.path)
    hosts = ("https://h.example", "https://H.example", "https://me:word@h.example", "https://h.example:443")
    sites = [MemoryStore(store.objects, url=f"{host}/a") for host in hosts]
    paths = (folder.path, tmp_path / "link", tmp_path / "store" / ".." / "store")
    for spellings in ([LocalStore(path) for path in paths], sites):
        for place in spellings:
            known = anchor.anchor(place)
            assert known is not None
            assert known.is_new == (place is spellings[0])
    shutil.rmtree(folder.path / "metadata")
    for path in paths:  # an index that lies there is not believed
        assert anchor.anchor(LocalStore(path)) is not None


def test_what_was_replaced_long_ago_is_collected_and_clients_old_and_new_go_on(
    store: MemoryStore, trusted: Anchor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with acting_as(tmp_path, PROMOTER):
        publish(store, entries(1))
        old = somebody_new(store, trusted, tmp_path / "client", monkeypatch)
        assert old.target("release/torch-1.0-py3-none-any.whl") is not None
        monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "writer"))
        for number in (1, 2):
            publish(store, entries(1, number))
        age(store, 40)
        publish(store, entries(1, 3))
        publish(store, entries(1, 4))
    signed = {key for key in store.objects if key.startswith("metadata/")}
    plan = gc.collect(store, older_than=timedelta(days=30), dry_run=True)
    assert {key for key in store.objects if key.startswith("metadata/")} == signed
    done = gc.collect(store, older_than=timedelta(days=30))
    assert done.keys == plan.keys
    gone = signed - store.objects.keys()
    # The third was current until a moment ago: somebody may be reading it.
    assert {one for one in gone if "snapshot" in one} == {
        "metadata/1.snapshot.json",
        "metadata/2.snapshot.json",
    }
    assert {one for one in gone if ".release.json" in one} == {key_of("release", 1), key_of("release", 2)}
    assert not [one for one in gone if "root" in one]
    for client in (again(store, old), somebody_new(store, trusted, tmp_path / "new", monkeypatch)):
        for number in range(5):
            assert client.target(f"release/torch-1.{number}-py3-none-any.whl") is not None
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "writer"))
    with acting_as(tmp_path, PROMOTER):
        publish(store, entries(1, 5))


def test_another_root_under_a_known_address_is_refused(store: MemoryStore) -> None:
    del store.objects[key_of("root", 1)]
    store.write(key_of("root", 1), root.first([signer(50)], {}, 1))
    assert anchor.anchor(store) is not None  # what this machine has kept counts
    with pytest.raises(MetadataError, match="has the root"), anchor.acting(root="0" * 64):
        anchor.anchor(store)


def test_a_mark_with_control_characters_is_signed_as_others_encode_it(
    store: MemoryStore, trusted: Anchor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = msgspec.structs.replace(entries(1)[0], yanked='it "eats"\n\tdata \\ é \x7f')
    with acting_as(tmp_path, PROMOTER):
        publish(store, (odd,))
    file = somebody_new(store, trusted, tmp_path / "client", monkeypatch).target(f"release/{odd.filename}")
    assert file is not None
    assert file.custom == {"yanked": 'it "eats"  data \\ é \x7f'}


def test_a_store_may_lie_in_a_folder_whose_name_is_not_utf_8(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "cache"))
    store = LocalStore(tmp_path / os.fsdecode(b"caf\xe9"))
    assert anchor.anchor(store) is None
    rooted(store)
    assert anchor.anchor(store) is not None
