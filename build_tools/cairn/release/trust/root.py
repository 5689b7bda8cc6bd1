"""The root of a store: made once, changed by as many of its keys as it asks for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from msgspec import structs

from cairn.errors import StoreError, UsageError
from cairn.release import wholes
from cairn.release.index import keys
from cairn.release.index.snapshot import Index, Snapshot, existing, read_set
from cairn.release.provenance import evidence
from cairn.release.provenance.dsse import SignatureError
from cairn.release.trust import anchor, clock, metadata
from cairn.release.trust.anchor import Anchor
from cairn.release.trust.current import LEDGER
from cairn.release.trust.metadata import (
    YEAR,
    Key,
    Keyed,
    MetadataError,
    Root,
    expiry,
    key_of,
    opened,
    sealed,
)
from cairn.release.trust.online import Promoter
from cairn.release.trust.signers import PublicKey, Signer
from cairn.store.protocol import Store, read_or_none

_Change = Callable[[tuple[str, ...]], tuple[str, ...]]

ROLES = ("root", "promoter", "timestamp", "builder", "tester")
"""Who can have keys: TUF's `targets` and `snapshot` are the promoter's."""

_TUF: Mapping[str, tuple[str, ...]] = {
    "root": ("root",),
    "promoter": ("targets", "snapshot", "timestamp"),
    "timestamp": ("timestamp",),
}


def first(
    root_signers: Sequence[Signer], role_keys: Mapping[str, Sequence[PublicKey]], threshold: int
) -> bytes:
    """Make and sign the first root.

    Args:
        root_signers: the offline keys, at least as many as `threshold`.
        role_keys: the keys of the other roles; where a role has none, the first offline key is it.
        threshold: how many of the offline keys must sign the next root.
    """
    roots = {signer.key_id: signer.public for signer in root_signers}
    everyone = {role: tuple(role_keys.get(role) or (root_signers[0].public,)) for role in ROLES[1:]}
    root = Root(
        version=1,
        expires=expiry(YEAR),
        consistent_snapshot=True,
        keys={},
        roles={role: Keyed(keyids=()) for role in ("root", "targets", "snapshot", "timestamp")},
        cairn={role: Keyed(keyids=()) for role in ("builder", "tester")},
    )
    for role, named_keys in {"root": tuple(roots.values()), **everyone}.items():
        for public in named_keys:
            root = with_key(root, role, public)
    return sealed(with_threshold(root, threshold), *root_signers)


def begun(store: Store, data: bytes) -> bytes:
    """Return the first root that the same command has put into a store, perhaps to die after it; else `data`.

    It is the same but for when it expires, and was signed by the same keys. It counts as long as no other
    root follows it.
    """
    blob = read_or_none(store, key_of("root", 1))
    if blob is None or store.exists(key_of("root", 2)):
        return data
    old, new = (opened(each, Root, {}, name="the root", threshold=0) for each in (blob.data, data))
    by = metadata.signers_of(blob.data, new.of("root"))
    is_same = structs.replace(old, expires=new.expires) == new and len(by) >= new.roles["root"].threshold
    return blob.data if is_same else data


def following(new: Root, root_signers: Sequence[Signer]) -> bytes:
    """Sign the root that comes after the one that `new` was made of."""
    return sealed(structs.replace(new, version=new.version + 1, expires=expiry(YEAR)), *root_signers)


def before_newest(trusted: Anchor) -> Anchor | None:
    """Return the root before the newest one; None where trust begins with that."""
    version = trusted.root.version - 1
    first = anchor.version_of(trusted.first)
    if version < first:
        return None
    data = trusted.first if version == first else trusted.history(version).read_bytes()
    before = opened(data, Root, {}, name=f"version {version} of the root", threshold=0)
    return structs.replace(trusted, root=before)


def missing(old: Root, draft: bytes) -> str | None:
    """The signatures that a draft still needs, in words; None if it needs none.

    Raises:
        MetadataError: it does not follow the root that there is.
    """
    new = opened(draft, Root, {}, name="the draft", threshold=0)
    if new.version != old.version + 1:
        raise MetadataError(f"the draft is version {new.version}, and the root is {old.version} by now")
    for text, each_root in (("the root that there is", old), ("the new root", new)):
        opened(draft, Root, each_root.of("root"), name="the draft", threshold=0)  # all of it can be read
        keyed, by = each_root.roles["root"], metadata.signers_of(draft, each_root.of("root"))
        if (count := keyed.threshold - len(by)) > 0:
            left = ", ".join(i[:16] for i in keyed.keyids if i not in by)
            return f"{count} more of the keys of {text}: {left}"
    return None


def require_asked(old: Root, new: Root, draft: bytes) -> None:
    """Refuse to sign a draft that is not what was asked for: it may have changed on its way.

    Args:
        old: the root that there is.
        new: the root as the change that was asked for makes it.
        draft: the file.

    Raises:
        UsageError: it says something else.
    """
    drafted = opened(draft, Root, {}, name="the draft", threshold=0)
    if structs.replace(drafted, version=new.version, expires=new.expires) == new:
        return
    texts = []
    for role in (*_TUF, "root", "builder", "tester"):
        before, after = key_ids(old, role), key_ids(drafted, role)
        texts += [f"--add {role}={key_id[:16]}" for key_id in after if key_id not in before]
        texts += [f"--remove {role}={key_id[:16]}" for key_id in before if key_id not in after]
    if (threshold := drafted.roles["root"].threshold) != old.roles["root"].threshold:
        texts.append(f"--threshold {threshold}")
    raise UsageError(
        f"the draft is not the change that was asked for; it is: {' '.join(texts) or 'another one'}",
        tip="look whose keys these are; to sign it, give the same change: --add ROLE=FILE, --remove ROLE=ID",
    )


def whole_id(root: Root, role: str, prefix: str) -> str:
    """The id of the only key of a role that begins so.

    Raises:
        UsageError: there is none, or several.
    """
    ids = [key_id for key_id in key_ids(root, role) if key_id.startswith(prefix.lower())]
    if len(ids) != 1:
        have = ", ".join(key_id[:16] for key_id in key_ids(root, role))
        raise UsageError(f"{prefix} is {len(ids)} of the keys of {role}", tip=f"it has {have}")
    return ids[0]


def with_key(root: Root, role: str, public: PublicKey) -> Root:
    """The root with one more key in a role."""
    key = Key(keytype="ed25519", scheme="ed25519", keyval={"public": public.raw})
    return _changed(
        structs.replace(root, keys={**root.keys, public.key_id: key}),
        role,
        lambda old: tuple(dict.fromkeys((*old, public.key_id))),
    )


def without_key(root: Root, role: str, key_id: str) -> Root:
    """The root without a key in a role, which it had: what was signed with it before goes on counting.

    Raises:
        UsageError: the role would be left without a key, or with fewer than must sign.
    """
    new = _changed(root, role, lambda old: tuple(old_id for old_id in old if old_id != key_id))
    for name, keyed in {**new.roles, **new.cairn}.items():
        if len(keyed.keyids) < keyed.threshold:
            raise UsageError(
                f"{name} would have {len(keyed.keyids)} keys, and needs {keyed.threshold}",
                tip=f"give the new key in the same command: --add {role}=FILE",
            )
    if role != "root":
        old = new.cairn.get(f"former {role}", Keyed(keyids=()))
        former = Keyed(keyids=tuple(dict.fromkeys((*old.keyids, key_id))), threshold=0)
        new = structs.replace(new, cairn={**new.cairn, f"former {role}": former})
    used = {key_id for keyed in (*new.roles.values(), *new.cairn.values()) for key_id in keyed.keyids}
    return structs.replace(new, keys={i: key for i, key in new.keys.items() if i in used})


def with_threshold(root: Root, threshold: int) -> Root:
    """The root with so many signatures of its own keys needed.

    Raises:
        UsageError: it does not have so many keys.
    """
    root_role = root.roles["root"]
    if not 1 <= threshold <= len(root_role.keyids):
        raise UsageError(
            f"{threshold} of {len(root_role.keyids)} offline keys cannot sign", tip="name more of them"
        )
    return structs.replace(
        root, roles={**root.roles, "root": structs.replace(root_role, threshold=threshold)}
    )


def key_ids(root: Root, role: str) -> tuple[str, ...]:
    """The ids of the keys of one of `ROLES`."""
    keyed = root.cairn.get(role) or root.roles[_TUF.get(role, (role,))[0]]
    return keyed.keyids


def publish(store: Store, data: bytes) -> Anchor:
    """Put a root into a store, and sign every index by it.

    Raises:
        StoreError: there is another root of that version, or the clock is wrong.
        MetadataError: it does not follow from the one that is trusted here.
    """
    new = opened(data, Root, {}, name="the root", threshold=0)
    version, before = new.version, anchor.anchor(store) if new.version > 1 else None
    clock.require(store, before.root if before else new, new)
    key = key_of("root", version)
    if version == 1 and not store.exists(key):
        # Nothing was signed before: if this dies after its first write, this machine may go on.
        anchor.beginning(data, new).remember(anchor.Seen(0, 0))
    if not store.write_if(key, data, etag=None) and store.read(key).data != data:
        raise StoreError(
            f"{store.url} has another root of version {version}", tip="look at it: cairn trust show"
        )
    with anchor.acting(root=anchor.fingerprint(data) if version == 1 else None):
        trusted = anchor.anchor(store)
    assert trusted is not None  # noqa: S101 - it has one now
    # A copy that was put back may lack some that clients follow.
    for number in range(2, trusted.root.version):
        store.write_if(key_of("root", number), trusted.history(number).read_bytes(), etag=None)
    store.write("metadata/root.json", store.read(key_of("root", trusted.root.version)).data)
    if version == 1:  # with a later one, nothing counts that is not yet signed by its keys
        wholes.begin(store, wholes.METADATA)
    return trusted


def sign_all(
    store: Store, trusted: Anchor, confirmed: Mapping[str, str], *, whole: bool = True
) -> tuple[Snapshot, ...]:
    """Vouch for the current state of indexes that users install from, as they are; return these states.

    Args:
        store: the store.
        trusted: its root.
        confirmed: what somebody has looked at: see `Promoter.require_named`.
        whole: vouch for all indexes; else for those that are named, and for all decisions.
    """
    states = gated(store, None if whole else confirmed)
    if unsigned := () if whole else confirmed.keys() - {LEDGER, *(state.index.name for state in states)}:
        raise UsageError(f"users install from no index {', '.join(sorted(unsigned))} of {store.url}")
    Promoter(store, trusted, former=True).adopt(states, confirmed)
    return states


def gated(store: Store, only: Collection[str] | None = None) -> tuple[Snapshot, ...]:
    """The states of the indexes that users install from, all or those that are named."""
    names = [name for name in existing(store) if keys.is_gated(name) and (only is None or name in only)]
    return tuple(Index(store, name).load() for name in names)


def sign_again(
    store: Store, trusted: Anchor, before: Root, confirmed: Mapping[str, str]
) -> tuple[Snapshot, ...]:
    """Sign anew what keys signed that the root has just lost; return the states of the indexes that were."""
    if key_ids(before, "promoter") != key_ids(trusted.root, "promoter"):
        return sign_all(store, trusted, confirmed)
    if key_ids(before, "timestamp") != key_ids(trusted.root, "timestamp"):
        Promoter(store, trusted, former=True).refresh()
    return ()


def require_ready(store: Store, trusted: Anchor, new: Root, confirmed: Mapping[str, str]) -> None:
    """Refuse a root after which nobody could sign anew what lost its keys: see `sign_again`.

    Raises:
        MetadataError: what is signed now cannot be read.
        UsageError: a key is not here, the machine has not seen the store, or something is not named.
    """
    changed = [key_ids(trusted.root, role) != key_ids(new, role) for role in ("promoter", "timestamp")]
    promoter = Promoter(store, structs.replace(trusted, root=new), former=True)
    promoter.current(late=True)
    if any(changed):
        promoter.require_key("targets" if changed[0] else "timestamp")
    if changed[0]:
        promoter.require_named(gated(store), confirmed)


def sign_late(
    store: Store, trusted: Anchor, states: Iterable[Snapshot], at_hand: Iterable[Signer]
) -> list[str]:
    """Sign the builders' statements of the sets of these states that no builder of the root has signed.

    Whoever does that vouches for them: what was built before there was a root, or with a key that it names
    no more. Nobody vouches for a set that was yanked. The ids of the others are returned.

    Args:
        store: the store.
        trusted: its root.
        states: of its indexes.
        at_hand: keys, of which a builder's signs.
    """
    trust = trusted.root.trust()
    signer = next((set_signer for set_signer in at_hand if set_signer.key_id in (trust.builders or {})), None)
    late: list[str] = []
    if signer is None:
        return late
    sets = {set_id: state.set(set_id) for state in states for set_id in state.set_ids}
    for set_id in (wheel_set.set_id for wheel_set in sets.values() if wheel_set.yanked is None):
        wheel_set = read_set(store, set_id)
        evidence.require_builder(store, wheel_set, ())
        try:
            evidence.builder_signers(store, wheel_set, trust)
        except SignatureError:
            evidence.sign_builder(store, set_id, evidence.of_builder(store, wheel_set), signer)
            late.append(set_id)
    return late


def _changed(root: Root, role: str, change: _Change) -> Root:
    if role in root.cairn:
        keyed = root.cairn[role]
        new = structs.replace(keyed, keyids=change(keyed.keyids))
        return structs.replace(root, cairn={**root.cairn, role: new})
    roles = dict(root.roles)
    for name in _TUF[role]:
        roles[name] = structs.replace(roles[name], keyids=change(roles[name].keyids))
    return structs.replace(root, roles=roles)
