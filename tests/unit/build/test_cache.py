from pathlib import Path

import pytest

from cairn.build import cache


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "a-1-py3-none-any.whl"
    path.write_bytes(b"wheel")
    return path


def test_what_was_put_is_found_again_with_its_identity(tmp_path: Path, wheel: Path) -> None:
    store = cache.WheelCache(tmp_path / "cache")
    put = store.put("k" * 64, wheel, seconds=2.5)
    assert store.get("k" * 64) == put
    alias = store.put("m" * 64, put.wheel, seconds=2.5, identity=put.identity)
    assert alias.identity == "k" * 64
    assert store.get("x" * 64) is None


def test_damaged_bytes_are_a_miss(tmp_path: Path, wheel: Path) -> None:
    store = cache.WheelCache(tmp_path / "cache")
    hit = store.put("k" * 64, wheel, seconds=1)
    hit.wheel.unlink()
    hit.wheel.write_bytes(b"other")
    assert store.get("k" * 64) is None
    (hit.wheel.parent / "entry.json").write_text("{")
    assert store.get("k" * 64) is None


def test_the_key_depends_on_every_input_and_not_on_their_order() -> None:
    assert cache.key_of({"a": 1, "b": 2}) == cache.key_of({"b": 2, "a": 1})
    assert cache.key_of({"a": 1}) != cache.key_of({"a": 2}) != cache.key_of({"a": "2"})
