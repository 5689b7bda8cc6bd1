"""Commands read what a promoter signed of an index where the store has a root, whoever wrote `state.json`."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from cairn.release.index import keys
from cairn.release.index.snapshot import Index
from cairn.release.provenance import evidence
from cairn.release.provenance.attest import KeyAttester
from cairn.store.memory import MemoryStore
from helpers.program import Cairn
from helpers.provenance import RELEASER, Released, released
from helpers.release import fill, in_folder
from helpers.trail import ROOT, SAMPLE
from helpers.trust import BUILDER, key_file

PACKAGE = ROOT / "build_tools" / "cairn"
READS_RAW = {
    *("release/index", "release/trust", "release/audit"),
    "release/ledger_entries.py",  # of a store whose ledger has no entry yet
    "release/wholes.py",  # what the ledger is compared with
    "cli/index/upkeep.py",  # index repair, which finishes what a writer has left
}
"""Where `Index.load` is called: the room of the index, promoters, and audits of what lies in a store."""


NOT_OF_AN_INDEX = {"cli/config.py", "cli/index/publish.py", "cli/setting_values.py"}
"""What calls `load()` of something else: of settings, and of a request."""


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Released:
    return released(tmp_path_factory.mktemp("honest"))


@pytest.fixture(scope="module")
def planted(honest: Released, tmp_path_factory: pytest.TempPathFactory) -> Released:
    """The same store after somebody who can write to it, and has no key of its root, released a set."""
    store = MemoryStore()
    fill(store, honest.store)
    folder = tmp_path_factory.mktemp("planted")
    return released(folder, version="2.9.1", store=store, attester=KeyAttester(BUILDER))


@pytest.fixture
def place(
    cairn: Cairn, honest: Released, planted: Released, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A store in which the planted state of `release` is current; CAIRN_ROOT names its root."""
    monkeypatch.delenv("CAIRN_SIGN_KEY", raising=False)
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "cache"))
    store = in_folder(honest.store, tmp_path / "store")
    (tmp_path / "store" / keys.set_key(honest.made.id, evidence.BUILDER_SIGNATURE)).unlink(missing_ok=True)
    key = key_file(tmp_path, RELEASER)
    shown = cairn.json("trust", "init", "--store", tmp_path / "store", "--root-key", key)
    monkeypatch.setenv("CAIRN_ROOT", shown["root"])
    for name, data in planted.store.objects.items():
        if honest.store.objects.get(name) != data and not name.startswith("ledger/"):
            store.write(name, data)
    assert Index(store, "release").load().set_ids == tuple(sorted((honest.made.id, planted.made.id)))
    return tmp_path / "store"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("release log", 0),
        ("release log --index release", 0),
        ("release record list PLANTED --index release", 9),
        ("release rollback --to PLANTED --dry-run", 9),
        ("release rollback --to 1 --dry-run", 0),
        ("release retain --keep-last 1 --dry-run", 0),
        ("release promote PLANTED --from release --to prerelease --stack STACK --dry-run", 9),
        ("challenge PLANTED --index release --dry-run", 9),
        ("diff HONEST PLANTED --index release", 9),
        ("bisect --index release --good HONEST --bad PLANTED --dry-run -- true", 9),
        ("wheel set-version --set PLANTED --index release --promote stable --output-dir DIR --dry-run", 9),
        ("index gc --dry-run", 9),
        ("install --index release --gpu cpu --dry-run", 0),
    ],
)
def test_no_command_reads_a_state_that_no_promoter_signed(
    cairn: Cairn, honest: Released, planted: Released, place: Path, words: str, code: int
) -> None:
    names = {
        "HONEST": honest.made.id,
        "PLANTED": planted.made.id[:12],
        "STACK": str(SAMPLE),
        "DIR": str(place.parent / "new"),
    }
    first, _, rest = words.partition(" --dry-run -- ")
    line = [names.get(word, word) for word in first.split()] + ["--store", str(place)]
    shown = cairn(*line, *(["--dry-run", "--", rest] if rest else []), code=code)
    assert not re.search("2[.]9[.]1|mallory", shown.out + shown.err)
    if "PLANTED" not in words:
        assert planted.made.id[:12] not in shown.out + shown.err


def test_what_reads_an_index_as_it_lies_there_is_named() -> None:
    """Any attribute `load` that is not of a module: an alias of `Index` does not hide it."""
    callers = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "release.index" in text else ():
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "load"
                and not (node.args or node.keywords)
            ):
                callers.add(path.relative_to(PACKAGE).as_posix())
    raw = {name for name in callers if not name.startswith(tuple(READS_RAW))}
    assert raw <= NOT_OF_AN_INDEX, "read the index by cairn.release.index.reading.read_current"
