"""A clock that is wrong signs nothing: neither what is over at once, nor what would last too long."""

from __future__ import annotations

import datetime as dt
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tuf.ngclient._internal import trusted_metadata_set

from cairn.errors import CairnError
from cairn.release.index.snapshot import Change, Index
from cairn.release.trust import clock, metadata, root
from cairn.release.trust.anchor import Anchor
from cairn.release.trust.metadata import TIMESTAMP
from cairn.release.trust.online import Promoter
from cairn.store.folder import LocalStore
from cairn.store.memory import MemoryStore
from helpers.program import Cairn
from helpers.provenance import RELEASER, released
from helpers.release import commit, in_folder
from helpers.trust import OFFLINE, PROMOTER, TESTER, acting_as, key_file, rooted

DAY = dt.timedelta(days=1)
At = Callable[[dt.timedelta], None]


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> At:
    """Have the clock of this machine be ahead by so much."""

    def set_to(ahead: dt.timedelta) -> None:
        class Clock(dt.datetime):
            @classmethod
            def now(cls, tz: dt.tzinfo | None = None) -> Any:
                return dt.datetime.now(tz) + ahead

        monkeypatch.setattr(metadata, "datetime", Clock)
        module = types.SimpleNamespace(datetime=Clock, timezone=dt.timezone)
        monkeypatch.setattr(trusted_metadata_set, "datetime", module)

    return set_to


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("CAIRN_SIGN_KEY", raising=False)
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "cache"))
    in_folder(released(tmp_path).store, tmp_path / "store")
    return tmp_path


@pytest.mark.parametrize(
    ("ahead", "code"),
    [
        (-10 * DAY, 9),
        (-dt.timedelta(minutes=10), 9),
        (-dt.timedelta(minutes=1), 0),
        (7 * DAY, 0),
        (9 * DAY, 9),
        (300 * DAY, 9),
    ],
    ids=str,
)
def test_refresh_by_a_clock_that_is_wrong_signs_nothing(
    cairn: Cairn, place: Path, at: At, ahead: dt.timedelta, code: int
) -> None:
    key = key_file(place, RELEASER)
    cairn("trust", "init", "--store", place / "store", "--root-key", key)
    before = (place / "store" / TIMESTAMP).read_bytes()
    at(ahead)
    refresh = ("trust", "refresh", "--store", place / "store", "--sign-key", key)
    shown = cairn(*refresh, code=code)
    assert ((place / "store" / TIMESTAMP).read_bytes() != before) == (code == 0)
    if code == 0:
        return
    today = f"{metadata.now():%Y-%m-%d}"
    assert f"trust refresh --store {place / 'store'} --adopt clock={today}" in shown.err
    cairn(*refresh, "--adopt", "clock=2020-01-01", code=9)
    assert (place / "store" / TIMESTAMP).read_bytes() == before
    cairn(*refresh, "--adopt", f"clock={today}")
    assert (place / "store" / TIMESTAMP).read_bytes() != before


SIGNERS: dict[str, tuple[str, ...]] = {
    "yank": ("release", "yank", "SET", "--reason", "x", "--store", "STORE", "--sign-key", "KEY"),
    "rollback": (
        *("release", "rollback", "--to", "0", "--reason", "x"),
        *("--index", "release", "--store", "STORE", "--sign-key", "KEY"),
    ),
    "promote": (
        *("release", "promote", "SET", "--to", "prerelease", "--stack", "sample"),
        *("--store", "STORE", "--sign-key", "KEY"),
    ),
    "adopt": ("trust", "refresh", "--store", "STORE", "--sign-key", "KEY", "--adopt", "release=1-12345678"),
    "new root": ("trust", "change", "--store", "STORE", "--root-key", "KEY", "--add", "tester=PUB"),
    "retain": (
        *("release", "retain", "--index", "release", "--keep-last", "1"),
        *("--store", "STORE", "--sign-key", "KEY"),
    ),
}


@pytest.mark.parametrize("name", SIGNERS)
@pytest.mark.parametrize("ahead", [-10 * DAY, 300 * DAY], ids=["slow", "fast"])
def test_no_command_signs_by_a_clock_that_is_wrong(
    cairn: Cairn, place: Path, at: At, name: str, ahead: dt.timedelta
) -> None:
    key = key_file(place, RELEASER)
    cairn("trust", "init", "--store", place / "store", "--root-key", key)
    (place / "tester.pub").write_bytes(TESTER.public.pem())
    (set_id,) = (one.name for one in (place / "store" / "sets").iterdir())
    names = {"STORE": place / "store", "KEY": key, "SET": set_id, "PUB": place / "tester.pub"}
    line = [str(names.get(word, word)).replace("PUB", str(names["PUB"])) for word in SIGNERS[name]]
    store = LocalStore(place / "store")
    before = {one.key: store.read(one.key).data for one in store.list("")}
    at(ahead)
    shown = cairn(*line, code=9)
    assert "the clock of this machine says" in shown.err
    assert {one.key: store.read(one.key).data for one in store.list("")} == before


class Elsewhere(MemoryStore):
    """A store with a clock of its own, as a bucket has it."""

    ahead = dt.timedelta()

    def clock_ahead(self) -> dt.timedelta | None:  # type: ignore[override]
        return self.ahead


@pytest.mark.parametrize("hours", [-2, 2, 24 * 365])
def test_the_clock_of_a_bucket_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: At, hours: int
) -> None:
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "cache"))
    store = Elsewhere()
    trusted: Anchor = rooted(store)
    with acting_as(tmp_path, PROMOTER):
        root.sign_all(store, trusted, {})
        promoter = Promoter(store, trusted)
        at(300 * DAY)  # a pause, which the bucket confirms
        promoter.refresh()
        store.ahead = dt.timedelta(hours=hours)
        before = dict(store.objects)
        today = f"{metadata.now():%Y-%m-%d}"
        with pytest.raises(CairnError, match="that of memory: says"), clock.confirmed(today):
            promoter.refresh()
        with pytest.raises(CairnError, match="that of memory: says"):
            root.publish(store, root.following(trusted.root, OFFLINE[:2]))
        with pytest.raises(CairnError, match="that of memory: says"):
            commit(Index(store, "release"), "promote", lambda _: Change())
        assert store.objects == before
