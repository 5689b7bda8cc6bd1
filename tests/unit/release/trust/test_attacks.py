"""The attacks of TUF's specification (section 1.5.2), on a store of ours; by whom, and what a client sees.

https://theupdateframework.github.io/specification/latest/#goals-to-protect-against-specific-attacks
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from cairn.errors import StoreError, UsageError
from cairn.release.history.yank import yank
from cairn.release.index import keys
from cairn.release.index.generation import Pointer, digest_of, encode
from cairn.release.index.snapshot import Index
from cairn.release.ledger import Ledger
from cairn.release.trust import metadata, root
from cairn.release.trust.anchor import Anchor
from cairn.release.trust.client import SignedStore
from cairn.release.trust.current import SignedMetadata
from cairn.release.trust.metadata import TIMESTAMP, MetadataError, key_of, sealed
from cairn.store.memory import MemoryStore
from helpers.provenance import Released, released
from helpers.trust import (
    BUILDER,
    OFFLINE,
    PROMOTER,
    TESTER,
    TIMEKEEPER,
    acting_as,
    again,
    rooted,
    somebody_new,
    stamp,
)

WHEEL = "torch-2.9.0-py3-none-any.whl"


class Scene:
    """A signed release, a client that has seen it, and the copy that an attacker kept of it."""

    def __init__(self, made: Released, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch = folder, patch
        patch.setenv("CAIRN_CACHE_DIR", str(folder / "writer"))
        self.store = MemoryStore(made.store.objects)
        self.made: Released = made.over(self.store)
        self.trusted: Anchor = rooted(self.store)
        with acting_as(folder, PROMOTER):
            root.sign_all(self.store, self.trusted)
        self.before = dict(self.store.objects)

    def new_client(self) -> SignedStore:
        return somebody_new(
            self.store, self.trusted, self.folder / f"client{id(self)}{len(self.store.objects)}", self.patch
        )

    def yank(self) -> None:
        self.patch.setenv("CAIRN_CACHE_DIR", str(self.folder / "writer"))
        with acting_as(self.folder, PROMOTER):
            yank(self.store, self.made.made.id, reason="it eats data")

    def put_back(self, *keys: str) -> None:
        """Write what these keys, or all, had before."""
        for key, data in self.before.items():
            if not keys or key in keys:
                self.store.write(key, data)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Released:
    return released(tmp_path_factory.mktemp("released"))


@pytest.fixture
def scene(made: Released, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(made, tmp_path, monkeypatch)


def torch(client: SignedStore) -> dict[str, str]:
    file = client.file("release", WHEEL)
    assert file is not None
    return dict(file.marks)


def test_a_client_sees_what_the_promoter_signed_and_a_yank_at_once(scene: Scene) -> None:
    client = scene.new_client()
    file = client.file("release", WHEEL)
    assert file is not None
    assert file.sha256 == Index(scene.store, "release").load().project("torch").files[0].sha256
    assert client.file("release", "torch-9-py3-none-any.whl") is None
    assert client.file("staging", WHEEL) is None
    scene.yank()
    assert torch(again(scene.store, client)) == {"yanked": "it eats data"}


def test_rollback_a_store_that_is_set_back_is_refused_by_whoever_saw_it_later(scene: Scene) -> None:
    scene.yank()
    client = scene.new_client()
    assert torch(client)
    scene.put_back()
    with pytest.raises(MetadataError, match="set back"):
        torch(again(scene.store, client))


def test_freeze_an_old_copy_counts_for_a_week_and_no_longer(scene: Scene) -> None:
    with_expired = metadata.opened(
        scene.store.read(TIMESTAMP).data, metadata.Timestamp, {}, name="it", threshold=0
    )
    old = msgspec.structs.replace(with_expired, expires="2026-01-01T00:00:00Z")
    scene.store.write(TIMESTAMP, sealed(old, TIMEKEEPER))
    with pytest.raises(MetadataError, match=r"expired.*old copy"):
        torch(scene.new_client())
    with acting_as(scene.folder, PROMOTER), pytest.raises(StoreError, match="counts no more"):
        yank(scene.store, scene.made.made.id, reason="x")


@pytest.mark.parametrize("part", ["3.snapshot.json", "2.release.json", "2.release.bin-0.json"])
def test_mix_and_match_parts_of_different_states_do_not_pass_for_one(scene: Scene, part: str) -> None:
    scene.yank()
    old = f"1{part[1:]}"
    scene.store.write(f"metadata/{part}", scene.before[f"metadata/{old}"])
    with pytest.raises(MetadataError):
        torch(scene.new_client())


def test_write_access_alone_shows_nobody_another_file(scene: Scene) -> None:
    """Arbitrary installation, wrong targets: what is not signed by the promoter does not count."""
    for name in ("1.release.bin-0.json", "1.release.bin-1.json"):
        data = scene.store.read(f"metadata/{name}").data
        scene.store.write(f"metadata/{name}", data.replace(b'"length":1', b'"length":2'))
    with pytest.raises(MetadataError):
        torch(scene.new_client())


@pytest.mark.parametrize("by", [BUILDER, TESTER, TIMEKEEPER])
def test_the_keys_of_others_sign_no_state(scene: Scene, by: object) -> None:
    role = metadata.opened(
        scene.store.read(key_of("release", 1)).data, metadata.Targets, {}, name="it", threshold=0
    )
    scene.store.write(key_of("release", 1), sealed(role, by))  # type: ignore[arg-type]
    with pytest.raises(MetadataError):
        scene.new_client().read("release/state.json")
    with acting_as(scene.folder, by), pytest.raises(UsageError, match="not the promoter's"):  # type: ignore[arg-type]
        scene.put_back()
        yank(scene.store, scene.made.made.id, reason="x")


def test_the_timestamps_key_hides_a_yank_from_newcomers_alone(scene: Scene) -> None:
    """By the specification: the timestamp's key can freeze, for as long as an old snapshot counts."""
    client = scene.new_client()
    assert torch(client) == {}
    scene.yank()
    assert torch(again(scene.store, client))
    stamp(scene.store, [TIMEKEEPER], snapshot=1)
    with pytest.raises(MetadataError, match="set back"):
        torch(again(scene.store, client))
    assert torch(scene.new_client()) == {}


def test_endless_data_is_read_up_to_a_limit(scene: Scene) -> None:
    scene.store.write(TIMESTAMP, b'{"signatures":[' + b" " * 100_000)
    with pytest.raises(MetadataError, match="exceeding"):
        torch(scene.new_client())


def test_one_of_three_offline_keys_makes_no_root(scene: Scene) -> None:
    """Key compromise within the threshold."""
    stolen = root.with_key(scene.trusted.root, "promoter", BUILDER.public)
    once = root.following(stolen, OFFLINE[:1])
    signature = once[once.index(b"[") + 1 : once.index(b"]")]
    for data in (once, once.replace(signature, signature + b"," + signature, 1)):
        scene.store.write(key_of("root", 2), data)
        with pytest.raises(MetadataError, match="signed by 1"):
            scene.new_client()
    scene.store.write(key_of("root", 2), root.following(stolen, OFFLINE[:2]))
    assert BUILDER.key_id in scene.new_client().anchor.root.of("targets")


def test_nothing_is_built_on_a_state_that_no_promoter_meant(scene: Scene) -> None:
    """Write access: a forged generation is signed by no honest hand that comes after it."""
    current = Index(scene.store, "release").load()
    forged = msgspec.structs.replace(current.generation, number=2, parent=current.digest, who="mallory")
    digest = digest_of(encode(forged))
    scene.store.write(keys.generation_key("release", 2, digest), encode(forged))
    pointer = Pointer(generation=2, digest=digest, rendered=2, rendered_digest=digest)
    scene.store.write("release/state.json", encode(pointer))
    scene.patch.setenv("CAIRN_CACHE_DIR", str(scene.folder / "writer"))
    with acting_as(scene.folder, PROMOTER), pytest.raises(StoreError, match="is not signed"):
        yank(scene.store, scene.made.made.id, reason="x")
    assert b'"generation":1' in scene.new_client().read("release/state.json").data


def test_nothing_is_built_on_a_timestamp_that_is_older_by_one_than_the_writers_own(scene: Scene) -> None:
    scene.yank()
    last = metadata.opened(scene.store.read(TIMESTAMP).data, metadata.Timestamp, {}, name="it", threshold=0)
    older = msgspec.structs.replace(last, version=last.version - 1)
    scene.store.write(TIMESTAMP, sealed(older, TIMEKEEPER))
    with pytest.raises(MetadataError, match="was set back"):
        scene.yank()


def test_a_version_of_a_role_is_not_taken_for_an_earlier_one(scene: Scene) -> None:
    scene.yank()
    scene.store.write(key_of("release", 1), scene.store.read(key_of("release", 2)).data)
    with pytest.raises(MetadataError, match="is version 2 of release"):
        SignedMetadata(scene.store, scene.trusted).read("release", 1, metadata.Targets)


def test_a_root_that_is_taken_away_is_missed_by_whoever_knew_it(scene: Scene) -> None:
    for key in [key for key in scene.store.objects if key.startswith("metadata/")]:
        scene.store.delete(key)
    scene.patch.setenv("CAIRN_CACHE_DIR", str(scene.folder / "writer"))
    with acting_as(scene.folder, PROMOTER), pytest.raises(StoreError, match="lost"):
        yank(scene.store, scene.made.made.id, reason="x")


def test_without_a_key_nothing_that_users_install_is_changed(scene: Scene) -> None:
    scene.patch.delenv("CAIRN_SIGN_KEY", raising=False)
    with pytest.raises(UsageError, match="only a promoter's key"):
        yank(scene.store, scene.made.made.id, reason="x")
    assert Ledger(scene.store).ban(scene.made.made.id) is None
    assert Index(scene.store, "release").load().generation.number == 1
