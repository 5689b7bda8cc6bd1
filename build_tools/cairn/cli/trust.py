"""`cairn trust`: the root of a store, and the keys of those who build, test and promote."""

from __future__ import annotations

import argparse
import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
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
from cairn.options import option, repeated

if TYPE_CHECKING:
    from cairn.release.index.snapshot import Snapshot
    from cairn.release.trust.anchor import Anchor, Seen
    from cairn.release.trust.metadata import Root
    from cairn.store.protocol import Store

_ROLES = ("root", "promoter", "timestamp", "builder", "tester")


def _of_role(text: str) -> tuple[str, str]:
    role, equals, name = text.partition("=")
    if not equals or role not in _ROLES or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not ROLE=KEY, with one of {', '.join(_ROLES)}")
    return role, name


def _of_index(text: str) -> tuple[str, str]:
    index, equals, name = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not INDEX=GENERATION, such as release=12-3fa9…")
    return index, name


def _versions(text: str) -> Seen:
    from cairn.release.trust import anchor

    try:
        return anchor.seen_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no version, such as 41.17") from error


def _adopt() -> Any:
    return repeated(
        "sign what no promoter of today has signed, however it came to be: a generation of an index, or all "
        "decisions (ledger=N-DIGEST), named as whoever looked at it names it; clock=DATE: sign by a clock "
        "that is right, and looks wrong",
        metavar="INDEX=GENERATION",
        convert=_of_index,
    )


def _root_key() -> Any:
    return repeated("private key of the root, to be kept offline", convert=converters.private_key)


def _promoters_key() -> Any:
    return option(
        "sign with this private key (default: that of CAIRN_SIGN_KEY, else the root's)",
        convert=converters.private_key,
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
    every index that users install from is signed as it is, and its pages are rendered anew.

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
    from cairn.release.trust import anchor, root, signers

    if not request.root_key:
        raise UsageError(
            "no key to sign the root with", tip="make one: cairn release key create, then --root-key"
        )
    store = request.open_store()
    keys = {role: [signers.public_key(path) for path in getattr(request, role)] for role in _ROLES[1:]}
    at_hand = [signers.signer(path) for path in request.root_key]
    # What an interrupted command like this has begun is finished.
    trusted = root.publish(store, root.begun(store, root.first(at_hand, keys, request.threshold)))
    states = root.sign_all(store, trusted, {})
    with anchor.acting(root=trusted.fingerprint):
        _render(states)  # the pages so far are of whoever could write to the store
    return _answer(store, trusted, states, root.sign_late(store, trusted, states, at_hand))


@dataclass(frozen=True, kw_only=True)
class Change(signing.RootOptions, common.StoreOptions):
    """Options of `cairn trust change`.

    The new root is signed by as many keys of the old one as that asks for, and by its own. Where they are not
    on one machine, each gives the same change, and signs the same draft in turn. What the keys of promoter
    and timestamp had signed is signed again: --adopt names the states that a promoter who goes has left, and
    their pages are rendered anew. What builders, testers and promoters signed of wheels goes on counting.

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
    adopt: tuple[tuple[str, str], ...] = _adopt()
    draft: Path | None = option(
        "where signatures are gathered: written while some are missing, and read if it is there",
        convert=converters.new_file,
    )
    sign_key: Path | None = _promoters_key()

    @contextlib.contextmanager
    def acting(self) -> Iterator[None]:
        """Sign as the promoter."""
        with _acting(self.sign_key, self.root_key, self.root), _clock(self.adopt):
            yield


def _change(request: Change) -> Answer:
    from cairn import files
    from cairn.release.trust import metadata, root, signers

    store, adopted = request.open_existing_store(), _looked_at(request.adopt)
    trusted = _trusted(store)
    keys = [signers.signer(path) for path in request.root_key]
    previous = root.before_newest(trusted)
    if previous is not None and _is_made(request, previous.root, trusted.root):
        # It was interrupted after the root: what is left is done.
        trusted, data = previous, trusted.history(trusted.root.version).read_bytes()
    elif request.draft is not None and request.draft.is_file():
        data = request.draft.read_bytes()
        root.require_asked(trusted.root, _requested(request, trusted.root), data)
        data = metadata.more_signed(data, keys)
    else:
        data = root.following(_requested(request, trusted.root), keys)
    if missing := root.missing(trusted.root, data):
        if request.draft is None:
            raise UsageError(f"the new root needs {missing}", tip="gather them: --draft FILE")
        files.write_bytes(request.draft, data)
        return Answer(
            {"draft": request.draft, "missing": missing}, [Note(f"{request.draft} still needs {missing}")]
        )
    root.require_ready(
        store, trusted, metadata.opened(data, metadata.Root, {}, name="it", threshold=0), adopted
    )
    before, trusted = trusted.root, root.publish(store, data)
    states = root.sign_again(store, trusted, before, adopted)
    _render(state for state in states if state.index.name in adopted)
    return _answer(store, trusted, states)


def _requested(request: Change, before: Root) -> Root:
    """Return a root with the keys and the threshold that a command asks for."""
    from cairn.release.trust import root, signers

    new = before
    for role, name in request.add:
        new = root.with_key(new, role, signers.public_key(converters.file(name)))
    for role, name in request.remove:
        key_id = signers.public_key(Path(name)).key_id if Path(name).is_file() else name
        new = root.without_key(new, role, root.whole_id(new, role, key_id))
    return new if request.threshold is None else root.with_threshold(new, request.threshold)


def _is_made(request: Change, before: Root, newest: Root) -> bool:
    """Whether this very command made the newest root; a renewal asks for no change, and makes another."""
    from msgspec import structs

    if not (request.add or request.remove or request.threshold):
        return False
    try:
        new = _requested(request, before)
    except UsageError:  # the root before has no such key to remove
        return False
    return structs.replace(new, version=newest.version, expires=newest.expires) == newest


@dataclass(frozen=True, kw_only=True)
class Show(signing.RootOptions, common.StoreOptions):
    """Options of `cairn trust show`.

    Publish the fingerprint where users know that it is yours. The version is that of what was signed last: a
    machine that has not seen the store signs nothing until --seen tells it.

        cairn trust show --store ./store
    """

    seen: Seen | None = option(
        "the version that another machine shows, from which on this one signs; refused if the store is older",
        metavar="VERSION",
        convert=_versions,
    )


def _show(request: Show) -> Answer:
    from cairn.release.trust.current import SignedMetadata

    store = request.open_existing_store()
    trusted = _trusted(store)
    if request.seen is not None:
        SignedMetadata(store, trusted, former=True).meet(request.seen)
    return _answer(store, trusted, ())


@dataclass(frozen=True, kw_only=True)
class Refresh(signing.SignOptions, common.StoreOptions):
    """Options of `cairn trust refresh`.

    A timestamp counts for a week, so that nobody can keep an old state before users for longer. Each release
    signs it again; where a week may pass without one, a timer runs this with the timestamp's key. With a
    promoter's key, it also signs what ends within a month, and what testers and rebuilders have added since:
    pages say so from then on.

    With --adopt, the promoter vouches for an index that was changed without a promoter's key, by an older
    Cairn or by hand: look at it first (`cairn release log`, `cairn index check --hashes`). Its pages are
    rendered anew. With a builder's key, so does the builder for the sets that no builder's key of the root
    has signed.

        cairn trust refresh --store ./store --sign-key timestamp.key
    """

    adopt: tuple[tuple[str, str], ...] = _adopt()
    builder_key: tuple[Path, ...] = repeated(
        "with --adopt: private key of a builder, which signs what was built (default: the promoter's, where "
        "it is one)",
        convert=converters.private_key,
    )

    @contextlib.contextmanager
    def acting(self) -> Iterator[None]:
        """Sign by this key and clock."""
        with super().acting(), _clock(self.adopt):
            yield


def _refresh(request: Refresh) -> Answer:
    from cairn.release import records
    from cairn.release.trust import anchor, root, signers
    from cairn.release.trust.online import Promoter

    store = request.open_existing_store()
    trusted = _trusted(store)
    if adopted := _looked_at(request.adopt):
        states = root.sign_all(store, trusted, adopted, whole=False)
        _render(states)
        local_signers = (request.signer(), *map(signers.signer, request.builder_key))
        late = root.sign_late(
            store, trusted, states, [set_signer for set_signer in local_signers if set_signer is not None]
        )
        return _answer(store, trusted, states, late)
    promoter = Promoter(store, trusted)
    until = promoter.refresh()
    if promoter.can_sign:
        records.publish_late(store)
    text = anchor.warning(store)
    shown = (f"what {store.url} says counts until {until}", *((Warn(text),) if text else ()))
    return Answer({"expires": until, "warning": text}, shown)


def _render(states: Iterable[Snapshot]) -> None:
    """Render the pages of states that were adopted anew."""
    from cairn.release.index.commit import render_adopted

    for state in states:
        render_adopted(state.index)


def _acting(
    sign_key: Path | None, root_keys: Sequence[Path], root: str | None = None
) -> AbstractContextManager[None]:
    import os

    from cairn.release.trust import anchor, signers

    has_signer = os.environ.get(signers.VARIABLE) or os.environ.get(signers.TEXT_VARIABLE)
    first_key = root_keys[0] if root_keys and not has_signer else None
    return anchor.acting(root=root, key=sign_key or first_key)


def _clock(adopted: Sequence[tuple[str, str]]) -> AbstractContextManager[None]:
    from cairn.release.trust import clock

    return clock.confirmed(dict(adopted).get("clock"))


def _looked_at(adopted: Sequence[tuple[str, str]]) -> dict[str, str]:
    return {name: label for name, label in adopted if name != "clock"}


def _trusted(store: Store) -> Anchor:
    from cairn.release.trust import anchor

    trusted = anchor.anchor(store)
    if trusted is None:
        raise UsageError(f"{store.url} has no root", tip="make one: cairn trust init")
    return trusted


def _answer(store: Store, trusted: Anchor, states: Sequence[Snapshot], late: Sequence[str] = ()) -> Answer:
    from cairn.release.trust import root
    from cairn.release.trust.current import SignedMetadata

    keys_of = {role: root.key_ids(trusted.root, role) for role in _ROLES}
    version = SignedMetadata(store, trusted, former=True).current(late=True).version
    plain = {
        "root": trusted.fingerprint,
        "version": trusted.root.version,
        "threshold": trusted.root.roles["root"].threshold,
        "expires": trusted.root.expires,
        "metadata": str(version),
        "keys": keys_of,
        "signed": [{"index": state.index.name, "generation": state.generation.number} for state in states],
        "signed_as_builder": late,
    }
    text = itertools.chain(
        _text(store, trusted, keys_of, states, version),
        (f"signed as its builder: set {set_id}" for set_id in late),
    )
    return Answer(plain, text)


def _text(
    store: Store,
    trusted: Anchor,
    keys_of: dict[str, tuple[str, ...]],
    states: Sequence[Snapshot],
    version: Seen,
) -> Iterator[Piece]:
    from cairn.release.trust import anchor

    root: Root = trusted.root
    yield f"{trusted.fingerprint}"
    yield Note(
        f"the root of {store.url}, by now version {root.version}, which counts until {root.expires[:10]}"
    )
    yield f"{'version':10} {version}"
    for role, ids in keys_of.items():
        needs = f", {root.roles['root'].threshold} of which sign the next root" if role == "root" else ""
        yield f"{role:10} {', '.join(key_id[:16] for key_id in ids)}{needs}"
    if text := anchor.warning(store):
        yield Warn(text)
    if trusted.is_new:
        yield Warn(
            "this machine has met that root for the first time: compare its fingerprint with the releaser's"
        )
    for state in states:
        made = state.generation
        change = f"generation {made.number}, {made.action} by {made.who}, {made.when[:16]}"
        yield f"signed {state.index.name}: {change}"


COMMANDS = {
    "init": command(Init, _init),
    "change": command(Change, _change),
    "show": command(Show, _show),
    "refresh": command(Refresh, _refresh),
}
