"""Builds by hand with a shared cache, where CAIRN_ROOT names the root of whose builders wheels are taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairn.cli.build.run import CacheOptions
from cairn.errors import UsageError
from cairn.pipeline.night.signed import BuilderVouch
from cairn.store.folder import LocalStore
from helpers.trust import BUILDER, TESTER, rooted


def test_where_a_root_is_named_wheels_of_its_builders_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("CAIRN_ROOT", "CAIRN_SIGN_KEY", "CAIRN_SIGN_PRIVATE_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "machine"))
    root = rooted(LocalStore(tmp_path / "store"))
    copy = tmp_path / "root.json"
    copy.write_bytes(root.first)

    def vouch() -> object:
        shared = CacheOptions(cache_store=str(tmp_path / "cache")).shared_cache()
        assert shared is not None
        return shared.vouch

    assert vouch() is None
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "another machine"))
    monkeypatch.setenv("CAIRN_ROOT", root.fingerprint)
    with pytest.raises(UsageError, match="nobody says whose wheels count in") as refused:
        vouch()
    assert refused.value.tip == "name a copy of the root: CAIRN_ROOT=root.json"
    monkeypatch.setenv("CAIRN_ROOT", str(copy))
    # A build by hand takes its SDK from where it is told: it signs nothing, whatever key there is.
    for key in (None, TESTER, BUILDER):
        if key is not None:
            monkeypatch.setenv("CAIRN_SIGN_PRIVATE_KEY", key.pem().decode())
        named = vouch()
        assert isinstance(named, BuilderVouch)
        assert (set(named.builders), named.signs) == ({BUILDER.key_id}, False)
        assert "nothing is put into the cache of wheels" in capsys.readouterr().err
    monkeypatch.setenv("CAIRN_ROOT", root.fingerprint)  # which this machine knows by now
    assert vouch() is not None
