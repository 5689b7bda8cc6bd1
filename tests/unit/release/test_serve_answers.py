from __future__ import annotations

import gzip

import pytest

from cairn.release.serve import answers
from cairn.release.serve.answers import Answer, Site
from cairn.release.serve.request import parse
from cairn.store.memory import MemoryStore
from cairn.store.protocol import StoredObject

PAGES = {
    f"release/simple/{name}/index.html": b"".join(b"%d %s\n" % (n * n, name.encode()) for n in range(1_000))
    for name in ("one", "two", "ten")
}


class Counting(MemoryStore):
    """Knows how often each object was read."""

    def __init__(self) -> None:
        super().__init__(PAGES)
        self.read_keys: list[str] = []

    def read(self, key: str) -> StoredObject:
        self.read_keys.append(key)
        return super().read(key)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What was compressed, each time."""
    found: list[bytes] = []
    really = gzip.compress

    def compress(data: bytes, level: int, *, mtime: float) -> bytes:
        found.append(data)
        return really(data, level, mtime=mtime)

    monkeypatch.setattr(gzip, "compress", compress)
    return found


def ask(site: Site, name: str, *headers: str) -> Answer:
    lines = [f"GET /release/simple/{name}/ HTTP/1.1", "Host: x", "Accept-Encoding: gzip", *headers, "", ""]
    return site.answer(parse("\r\n".join(lines).encode()))


def test_a_page_is_compressed_once_as_long_as_it_is_the_same(made: list[bytes]) -> None:
    store = MemoryStore(PAGES)
    site = Site(store)
    first, second = ask(site, "one"), ask(site, "one")
    assert first == second
    store.write("release/simple/one/index.html", b"new" * 1_000)
    assert gzip.decompress(ask(site, "one").body) == b"new" * 1_000
    assert len(made) == 2


def test_the_pages_asked_for_last_are_kept_up_to_a_size(
    made: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    size = len(gzip.compress(PAGES["release/simple/one/index.html"], 6, mtime=0))
    made.clear()
    monkeypatch.setattr(answers, "_CACHE", size * 5 // 2)  # of two pages
    site = Site(MemoryStore(PAGES))
    for name in ("one", "two", "one", "ten", "one"):
        ask(site, name)
    assert len(made) == 3
    ask(site, "two")
    assert len(made) == 4
    monkeypatch.setattr(answers, "_CACHE", 0)
    assert (
        gzip.decompress(ask(Site(MemoryStore(PAGES)), "one").body) == PAGES["release/simple/one/index.html"]
    )


def test_a_page_costs_one_read_of_the_store(made: list[bytes]) -> None:
    store = Counting()
    site = Site(store)
    answer = ask(site, "one")
    assert ask(site, "one", f"If-None-Match: {answer.headers['ETag']}").status == 304
    assert store.read_keys == ["release/simple/one/index.html"] * 2
    assert len(made) == 1
