"""However an index is addressed, and whatever its pages list: under a root nothing unsigned is taken."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cairn.cli.main import main
from cairn.release.provenance import evidence
from cairn.release.provenance.attest import KeyAttester
from cairn.release.trust import root
from cairn.store.memory import MemoryStore
from helpers.program import Cairn
from helpers.provenance import released
from helpers.release import in_folder
from helpers.trust import BUILDER, PROMOTER, TESTER, acting_as, rooted


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with `planted`, a signed store where somebody without a key released; and its root."""
    folder = tmp_path_factory.mktemp("honest")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAIRN_CACHE_DIR", str(folder / "cache"))
        patch.delenv("CAIRN_SIGN_KEY", raising=False)
        made = released(tmp_path_factory.mktemp("wheels"), attester=KeyAttester(PROMOTER), tested_by=TESTER)
        evidence.sign_builder(made.store, made.made.id, evidence.of_builder(made.store, made.made), BUILDER)
        trusted = rooted(made.store)
        with acting_as(folder, PROMOTER):
            root.sign_all(made.store, trusted, {})
        unsigned = {key: data for key, data in made.store.objects.items() if not key.startswith("metadata/")}
        planted = MemoryStore(unsigned, url="memory:planted")
        released(
            tmp_path_factory.mktemp("evil"), version="2.9.1", store=planted, attester=KeyAttester(BUILDER)
        )
        for key, data in made.store.objects.items():
            if key.startswith("metadata/"):
                planted.write(key, data)
        in_folder(planted, folder / "planted")
    return folder, trusted.fingerprint


@pytest.fixture
def place(honest: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the server has in the folder `store`: the planted one."""
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("CAIRN_SIGN_KEY", raising=False)
    shutil.copytree(honest[0] / "planted", tmp_path / "store")
    return tmp_path


@pytest.fixture
def url(place: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(place))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/store"
        server.shutdown()


INSTALL = ("install", "--gpu", "cpu", "--python", sys.executable, "--dry-run")
SPELLINGS = [
    "{url}/release/simple/",
    "{url}/release/simple",
    "{url}/release",
    "{url}/release//",
    "{upper}/release/simple/",
    "{url}//release/simple/",
    "{url}/./release/simple/",
    "{url}/../store/release/simple/",
    "{url}/%72elease/simple/",
    "{url}/release/simple/?x=1",
    "{url}/release/simple/#x",
    "{login}/release/simple/",
    "{file}/release/simple/",
    "{FILE}/release/simple/",
    "{file}/release/../release/simple/",
    "{path}/release/simple",
    "{path}/release",
    "{path}/../store/release",
]


@pytest.mark.parametrize("way", ["by --root", "by the known root, metadata gone"])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_no_spelling_of_an_address_leaves_what_was_signed(
    cairn: Cairn, honest: tuple[Path, str], place: Path, url: str, spelling: str, way: str
) -> None:
    store = place / "store"
    address = spelling.format(
        url=url,
        upper=url.replace("http:", "HTTP:"),
        login=url.replace("//", "//me:word@"),
        file=store.as_uri(),
        FILE=store.as_uri().replace("file:", "FILE:"),
        path=store,
    )
    words = [*INSTALL, "--index-url", address]
    if way == "by --root":
        words += ["--root", honest[1]]
    else:
        for known in (f"{url}/release/simple/", store.as_uri() + "/release/simple/"):
            cairn(*INSTALL, "--index-url", known)
        shutil.rmtree(store / "metadata")
    cairn.capsys.readouterr()
    code, shown = main(words), cairn.capsys.readouterr()
    assert code == (0 if way == "by --root" and "%72" not in spelling else 9), shown
    assert "2.9.1" not in shown.out + shown.err
    assert (code == 0) == ("as signed under the root" in shown.err)


def test_staging_is_believed_for_the_root_that_was_asked_for(
    cairn: Cairn, honest: tuple[Path, str], url: str
) -> None:
    words = (*INSTALL, "--index-url", f"{url}/staging/simple/")
    assert "has the root" in cairn(*words, "--root", f"sha256:{'0' * 64}", code=9).err
    cairn(*words, "--root", honest[1])


def test_a_root_that_the_store_does_not_have_is_not_remembered_for_it(
    cairn: Cairn, place: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else's checkout sets CAIRN_ROOT for one command; all after it asked for his root, too."""
    words = (*INSTALL, "--index-url", f"{url}/release/simple/")
    cairn(*words)
    (place / "his.json").write_bytes(root.first([BUILDER], {}, 1))
    monkeypatch.setenv("CAIRN_ROOT", str(place / "his.json"))
    assert "has the root" in cairn(*words, code=9).err
    monkeypatch.delenv("CAIRN_ROOT")
    cairn(*words)


def test_a_wheel_of_an_index_is_shown_if_it_was_signed(
    cairn: Cairn, honest: tuple[Path, str], place: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    simple = f"{url}/release/simple/"
    monkeypatch.setenv("CAIRN_ROOT", honest[1])
    for index in (simple, simple.replace("http:", "HTTP:"), (place / "store/release/simple").as_uri()):
        assert "nobody has signed" in cairn("wheel", "show", f"{index}#torch==2.9.1", code=9).err
        assert (
            "nobody has signed" in cairn("diff", f"{index}#torch==2.9.0", f"{index}#torch==2.9.1", code=9).err
        )
        assert cairn.json("wheel", "show", f"{index}#torch==2.9.0")[0]["version"] == "2.9.0"
    monkeypatch.setenv("CAIRN_ROOT", f"sha256:{'0' * 64}")
    assert "has the root" in cairn("wheel", "show", f"{simple}#torch==2.9.0", code=9).err
