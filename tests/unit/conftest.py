"""What holds for every unit test."""

import itertools

import pytest

_NUMBERS = itertools.count()


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each test remember on its own: the cache of whoever runs the tests is theirs."""
    folder = tmp_path_factory.getbasetemp() / "caches" / str(next(_NUMBERS))
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(folder))
