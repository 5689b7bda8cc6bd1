from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from cairn.cli.main import main
from cairn.errors import StoreError, UsageError
from cairn.pipeline.difference import in_store, of_files
from cairn.release.index import keys
from cairn.release.index.listing import index_set
from cairn.release.index.snapshot import MANIFEST_FILE, SET_FILE, Change, Index
from cairn.store.memory import MemoryStore
from cairn.wheels import wheelset
from cairn.wheels.interface.changes import Delta
from helpers.release import commit, make_set, manifest_of
from helpers.wheels import build_wheel

BEFORE = {"torch/__init__.py": b"def add(a, b): ...\n"}
AFTER = {"torch/__init__.py": b"def add(a, b, c): ...\n"}


def wheels(folder: Path, version: str, files: dict[str, bytes]) -> list[Path]:
    made = [build_wheel(folder, name="torch", version=version, files=files, requires=())]
    return [*made, build_wheel(folder, name="alpha", requires=())]


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Two sets beside their wheels and manifests, as two builds leave them."""
    made = []
    for name, version, files in (("monday", "1.0", BEFORE), ("tuesday", "1.1", AFTER)):
        folder = tmp_path / name
        folder.mkdir()
        wheelset.write(folder / SET_FILE, make_set(wheels(folder, version, files)))
        (folder / MANIFEST_FILE).write_bytes(manifest_of())
        made.append(folder)
    return made[0], made[1]


def test_sets_are_compared_wheel_by_wheel(folders: tuple[Path, Path]) -> None:
    old, new = (folder / SET_FILE for folder in folders)
    found = of_files(old, new, python=True, commits=False, say=print)
    assert (found.same, found.distributions) == (("alpha",), Delta())
    (torch,) = found.wheels
    assert torch.fields == {"version": ("1.0", "1.1")}
    assert torch.python is not None
    assert torch.python.breaking == ("torch.add: parameter c is new and must be given",)
    assert found.changes is not None
    assert not found.changes.is_changed


def test_nights_are_compared_in_the_store(folders: tuple[Path, Path]) -> None:
    store = MemoryStore()
    ids = []
    for day, folder in enumerate(folders, start=1):
        wheel_set = wheelset.seal(wheelset.read(folder / SET_FILE), ())
        ids.append(wheel_set.id)
        store.write(keys.set_key(wheel_set.id, SET_FILE), wheelset.dumps(wheel_set))
        store.write(keys.set_key(wheel_set.id, MANIFEST_FILE), manifest_of())
        for wheel in wheel_set.wheels:
            data = (folder / wheel.file_name).read_bytes()
            store.write(keys.file_key(wheel.sha256, wheel.file_name), data)
        listed = msgspec.structs.replace(index_set(wheel_set), added=f"2026-01-0{day}T10:00:00+00:00")
        change = Change(sets={wheel_set.id: listed})
        commit(Index(store, "nightly"), "stage", lambda _, change=change: change)

    def compared(old: str, new: str) -> list[str]:
        found = in_store(store, "nightly", old, new, python=False, commits=False, say=print)
        return [text for one in found for wheel in one.wheels for text in (wheel.before, wheel.after)]

    names = ["torch-1.0-py3-none-any.whl", "torch-1.1-py3-none-any.whl"]
    assert compared("2026-01-01", "2026-01-02") == compared(ids[0][:8], ids[1][:8]) == names
    assert compared("2026-01-02", "2026-01-05") == []
    with pytest.raises(StoreError, match="no set of 2025"):
        compared("2025-01-01", "2026-01-02")
    with pytest.raises(UsageError):
        compared("xyz", ids[0])


def test_the_command_takes_wheels_sets_and_manifests(
    folders: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = folders
    page = tmp_path / "page.html"
    assert main(["diff", str(old), str(new), "--no-commits", "--html", str(page)]) == 0
    text = capsys.readouterr().out
    assert "  ~ Python signature torch.add: parameter c is new and must be given" in text
    assert "torch-1.0-py3-none-any.whl → torch-1.1-py3-none-any.whl" in text
    assert "parameter c is new and must be given" in page.read_text()
    first, second = (next(folder.glob("torch-*.whl")) for folder in folders)
    assert main(["diff", str(first), str(second), "--json", "--no-python"]) == 0
    assert '"python": null' in capsys.readouterr().out
    assert main(["diff", str(first), str(first)]) == 0
    assert capsys.readouterr().out == "no difference\n"
    manifests = [str(folder / MANIFEST_FILE) for folder in folders]
    assert main(["diff", *manifests, "--no-commits"]) == 0
    assert "unchanged" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("WHEEL", "SET"), "compare two wheels, two manifests"),
        (("WHEEL", "nowhere"), "there is no file nowhere"),
        (("WHEEL", "EMPTY"), "has no set.json, compat.json or manifest.json"),
        (("OTHER", "OTHER"), "neither a wheel nor a manifest.json, a set.json or a compat.json"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    folders: tuple[Path, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, str],
    reason: str,
) -> None:
    other = folders[0] / "notes.txt"
    other.write_text("{}")
    places = {
        "WHEEL": str(next(folders[0].glob("torch-*.whl"))),
        "SET": str(folders[0] / SET_FILE),
        "OTHER": str(other),
        "EMPTY": str(tmp_path),
    }
    assert main(["diff", *(places.get(word, word) for word in words)]) == 2
    assert reason in capsys.readouterr().err
