"""`cairn trust`: the root of a store, and the keys of those who build, test and promote."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn import converters
from cairn.cli import common_options as common
from cairn.cli import signing
from cairn.cli.answer import Answer, Note, Piece, Warn
from cairn.cli.binder import command
from cairn.errors import UsageError
from cairn.options import flag, option, repeated

if TYPE_CHECKING:
    from cairn.release.index.snapshot import Snapshot
    from cairn.release.trust.anchor import Anchor
    from cairn.release.trust.metadata import Root
    from cairn.store.protocol import Store

_ROLES = ("root", "promoter", "timestamp", "builder", "tester")


def _of_role(text: str) -> tuple[str, str]:
    role, equals, name = text.partition("=")
    if not equals or role not in _ROLES or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not ROLE=KEY, with one of {', '.join(_ROLES)}")
    return role, name


def _root_key() -> Any:
    return repeated("private key of the root, to be kept offline", convert=converters.file)


def _promoters_key() -> Any:
    return option(
        "sign with this private key (default: that of CAIRN_SIGN_KEY, else the root's)",
        convert=converters.file,
    )


def _threshold(words: str, *, default: int | None = None) -> Any:
    return option(
        f"how many of the root's keys must sign the next root (default: {words})",
        default=default,
        convert=converters.positive,
    )


@dataclass(frozen=True, kw_only=True)
class Init(common.StoreOptions):
    """Options of `cairn trust init`.

    The root is signed by keys that are kept offline; it names those who build, test and promote. A role that
    is given no key has the first key of the root, so that one person with one key can play all of them. Then
    every index that users install from is signed as it is.

        cairn trust init --store ./store --root-key cairn-sign.key
    """

    root_key: tuple[Path, ...] = _root_key()
    threshold: int = _threshold("1", default=1)
    promoter: tuple[Path, ...] = repeated("public key that may release", convert=converters.file)
    timestamp: tuple[Path, ...] = repeated(
        "public key that may also keep signatures fresh, and nothing else", convert=converters.file
    )
    builder: tuple[Path, ...] = repeated("public key of a machine that builds", convert=converters.file)
    tester: tuple[Path, ...] = repeated("public key of a machine that tests", convert=converters.file)
    sign_key: Path | None = _promoters_key()

    def acting(self) -> AbstractContextManager[None]:
        """Sign as the promoter."""
        return _acting(self.sign_key, self.root_key)


def _init(request: Init) -> Answer:
    from cairn.release.trust import root, signers

    if not request.root_key:
        raise UsageError(
            "no key to sign the root with", tip="make one: cairn release key create, then --root-key"
        )
    store = request.open_store()
    named = {role: [signers.public_key(path) for path in getattr(request, role)] for role in _ROLES[1:]}
    at_hand = [signers.signer(path) for path in request.root_key]
    trusted = root.publish(store, root.first(at_hand, named, request.threshold))
    states = root.sign_all(store, trusted)
    root.sign_late(store, trusted, states, at_hand)
    return _answer(store, trusted, states)


@dataclass(frozen=True, kw_only=True)
class Change(signing.RootOptions, common.StoreOptions):
    """Options of `cairn trust change`.

    The new root is signed by as many keys of the old one as that asks for, and by its own. Where they are not
    on one machine, each signs the same draft in turn. What the keys of promoter and timestamp had signed is
    signed again; what builders, testers and promoters signed of wheels goes on counting.

        cairn trust change --store ./store --root-key offline.key --remove tester=3f2a9c1b
        --add tester=new.pub
    """

    root_key: tuple[Path, ...] = _root_key()
    add: tuple[tuple[str, str], ...] = repeated(
        "public key that gets a role: promoter, timestamp, builder, tester, root",
        metavar="ROLE=FILE",
        convert=_of_role,
    )
    remove: tuple[tuple[str, str], ...] = repeated(
        "key that loses a role: its public half, or the first digits of its id",
        metavar="ROLE=FILE|ID",
        convert=_of_role,
    )
    threshold: int | None = _threshold("as before")
    draft: Path | None = option(
        "where signatures are gathered: written while some are missing, and read if it is there",
        convert=converters.new_file,
    )
    sign_key: Path | None = _promoters_key()

    def acting(self) -> AbstractContextManager[None]:
        """Sign as the promoter."""
        return _acting(self.sign_key, self.root_key, self.root)


def _change(request: Change) -> Answer:
    from cairn import files
    from cairn.release.trust import root, signers

    store = request.open_existing_store()
    trusted = _trusted(store)
    keys = [signers.signer(path) for path in request.root_key]
    if request.draft is not None and request.draft.is_file():
        data = root.with_signatures(request.draft.read_bytes(), keys)
    else:
        new = trusted.root
        for role, name in request.add:
            new = root.with_key(new, role, signers.public_key(converters.file(name)))
        for role, name in request.remove:
            given = signers.public_key(Path(name)).key_id if Path(name).is_file() else name
            new = root.without_key(new, role, root.whole_id(new, role, given))
        if request.threshold is not None:
            new = root.with_threshold(new, request.threshold)
        data = root.following(new, keys)
    if missing := root.missing(trusted.root, data):
        if request.draft is None:
            raise UsageError(f"the new root needs {missing}", tip="gather them: --draft FILE")
        files.write_bytes(request.draft, data)
        return Answer(
            {"draft": request.draft, "missing": missing}, [Note(f"{request.draft} still needs {missing}")]
        )
    before, trusted = trusted.root, root.publish(store, data)
    return _answer(store, trusted, root.sign_again(store, trusted, before))


@dataclass(frozen=True, kw_only=True)
class Show(signing.RootOptions, common.StoreOptions):
    """Options of `cairn trust show`.

    Publish the fingerprint where users know that it is yours.

        cairn trust show --store ./store
    """


def _show(request: Show) -> Answer:
    store = request.open_existing_store()
    return _answer(store, _trusted(store), ())


@dataclass(frozen=True, kw_only=True)
class Refresh(signing.SignOptions, common.StoreOptions):
    """Options of `cairn trust refresh`.

    A timestamp counts for a week, so that nobody can keep an old state before users for longer. Each release
    signs it again; where a week may pass without one, a timer runs this with the timestamp's key. With a
    promoter's key, it also signs what testers and rebuilders have added since: pages say so from then on.

    With --adopt, the promoter vouches for an index that was changed without a promoter's key, by an older
    Cairn or by hand: look at it first (`cairn release log`, `cairn index check --hashes`). With a builder's
    key, so does the builder for the sets that no builder's key of the root has signed.

        cairn trust refresh --store ./store --sign-key timestamp.key
    """

    adopt: bool = flag("sign an index as it is, however it came to be")
    index: str = common.index("release")
    builder_key: tuple[Path, ...] = repeated(
        "with --adopt: private key of a builder, which signs what was built (default: the promoter's, where "
        "it is one)",
        convert=converters.file,
    )


def _refresh(request: Refresh) -> Answer:
    from cairn.release import records
    from cairn.release.trust.online import Promoter

    store = request.open_existing_store()
    if request.adopt:
        return _adopt(request, store)
    promoter = Promoter(store, _trusted(store))
    until = promoter.refresh()
    if promoter.has_key:
        records.finish(store)
    return Answer({"expires": until}, [f"what {store.url} says counts until {until}"])


def _adopt(request: Refresh, store: Store) -> Answer:
    from cairn.release.index import keys
    from cairn.release.trust import root, signers

    name = keys.checked_index(request.index)
    if not keys.is_gated(name):
        raise UsageError(f"{name} is not signed: users do not install from it")
    trusted = _trusted(store)
    states = root.sign_all(store, trusted, [name])
    own = (request.signer(), *map(signers.signer, request.builder_key))
    root.sign_late(store, trusted, states, [one for one in own if one is not None])
    return _answer(store, trusted, states)


def _acting(
    sign_key: Path | None, root_keys: Sequence[Path], root: str | None = None
) -> AbstractContextManager[None]:
    import os

    from cairn.release.trust import anchor

    other = root_keys[0] if root_keys and not os.environ.get("CAIRN_SIGN_KEY") else None
    return anchor.acting(root=root, key=sign_key or other)


def _trusted(store: Store) -> Anchor:
    from cairn.release.trust import anchor

    trusted = anchor.anchor(store)
    if trusted is None:
        raise UsageError(f"{store.url} has no root", tip="make one: cairn trust init")
    return trusted


def _answer(store: Store, trusted: Anchor, states: Sequence[Snapshot]) -> Answer:
    from cairn.release.trust import root

    keys_of = {role: root.key_ids(trusted.root, role) for role in _ROLES}
    plain = {
        "root": trusted.fingerprint,
        "version": trusted.root.version,
        "threshold": trusted.root.roles["root"].threshold,
        "expires": trusted.root.expires,
        "keys": keys_of,
        "signed": [{"index": one.index.name, "generation": one.generation.number} for one in states],
    }
    return Answer(plain, _text(store, trusted, keys_of, states))


def _text(
    store: Store, trusted: Anchor, keys_of: dict[str, tuple[str, ...]], states: Sequence[Snapshot]
) -> Iterator[Piece]:
    root: Root = trusted.root
    yield f"{trusted.fingerprint}"
    yield Note(
        f"the root of {store.url}, by now version {root.version}, which counts until {root.expires[:10]}"
    )
    for role, ids in keys_of.items():
        needs = f", {root.roles['root'].threshold} of which sign the next root" if role == "root" else ""
        yield f"{role:10} {', '.join(one[:16] for one in ids)}{needs}"
    if trusted.is_new:
        yield Warn(
            "this machine has met that root for the first time: compare its fingerprint with the releaser's"
        )
    for state in states:
        made = state.generation
        what = f"generation {made.number}, {made.action} by {made.who}, {made.when[:16]}"
        yield f"signed {state.index.name}: {what}"


COMMANDS = {
    "init": command(Init, _init),
    "change": command(Change, _change),
    "show": command(Show, _show),
    "refresh": command(Refresh, _refresh),
}
