"""Files come into an index whole, under names that never get other bytes."""

from __future__ import annotations

import contextlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from cairn.errors import StoreError, UsageError, WheelError
from cairn.release.index import keys
from cairn.release.index.commit import recover
from cairn.release.index.snapshot import Index
from cairn.release.publish import distribution
from cairn.release.publish.files import publish
from cairn.store.folder import LocalStore
from cairn.store.memory import MemoryStore
from cairn.store.protocol import ObjectInfo
from helpers.moments import Forgetful, dying
from helpers.release import Breaking, audit, contents, keys_of, make_sdist, make_wheel, make_wheels
from helpers.wheels import altered


def filenames(store: MemoryStore, channel: str, name: str) -> list[str]:
    page = store.read(f"{channel}/simple/{name}/index.json").data
    return [file["filename"] for file in json.loads(page)["files"]]


def test_a_published_file_is_on_its_page_in_the_root_and_in_the_store(
    store: MemoryStore, tmp_path: Path
) -> None:
    wheel = make_wheel(tmp_path, "Torch", "2.9.0+rocm7.10.0")
    planned = publish(store, "staging", [wheel], dry_run=True)
    assert [entry.filename for entry in planned.added] == [wheel.name]
    assert not store.objects
    (entry,) = publish(store, "staging", [wheel, wheel]).added
    assert store.read(keys.file_key(entry.sha256, wheel.name)).data == wheel.read_bytes()
    assert filenames(store, "staging", "torch") == [wheel.name]
    assert b'href="torch/"' in store.read("staging/simple/index.html").data
    assert audit(store, "staging", hashes=True) == ()
    before = contents(store)
    for again in ([wheel], [wheel, wheel]):
        done = publish(store, "staging", again)
        assert (done.added, done.already) == ((), (wheel.name,))
    assert contents(store) == before


def test_a_name_never_gets_other_bytes(store: MemoryStore, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "1", "a", "1.0")
    other = make_wheel(tmp_path / "2", "a", "1.0", content="OTHER = 1\n")
    with pytest.raises(StoreError, match=r"a-1\.0-py3-none-any\.whl .*more than once, with different bytes"):
        publish(store, "staging", [wheel, other])
    assert not store.objects
    publish(store, "staging", [wheel])
    before = keys_of(store)
    with pytest.raises(StoreError, match=r"other bytes under a-1\.0"):
        publish(store, "staging", [make_wheel(tmp_path / "2", "b", "1.0"), other])
    assert keys_of(store) == before


@pytest.mark.parametrize("there", [False, True])
def test_a_file_that_is_written_to_meanwhile_is_not_published(tmp_path: Path, *, there: bool) -> None:
    wheel = make_wheel(tmp_path, "a", "1.0")
    good = wheel.read_bytes()

    class Meanwhile(LocalStore):
        """A build goes on just before a store looks at a file that it may have."""

        def stat(self, key: str) -> ObjectInfo | None:
            if key.endswith(wheel.name):
                wheel.write_bytes(good + b"more")
            return super().stat(key)

    if there:
        publish(LocalStore(tmp_path / "store"), "staging", [wheel])
    store = Meanwhile(tmp_path / "store")
    before = contents(store)
    with contextlib.suppress(StoreError):
        publish(store, "staging", [wheel])
        assert there
    assert wheel.read_bytes() != good
    assert contents(store) == before


def test_pages_are_written_dependencies_first_and_the_root_last(store: MemoryStore, tmp_path: Path) -> None:
    needs = {"audio 1": ["torch==2"], "torch 2": ["triton==3"], "triton 3": []}
    writes = Breaking(store, left=1000)
    publish(writes, "staging", make_wheels(tmp_path, needs))
    pages = [key for key in writes.written if "/simple/" in key and key.endswith("index.html")]
    assert pages == [f"staging/simple/{name}index.html" for name in ("triton/", "torch/", "audio/", "")]
    first_page = writes.written.index("staging/simple/triton/index.json")
    assert all(not key.startswith("files/") for key in writes.written[first_page:])
    again = Breaking(writes, left=1000)
    publish(again, "staging", [make_wheel(tmp_path, "torch", "3")])
    touched = {key.split("/")[2] for key in again.written if key.startswith("staging/simple/")}
    assert touched == {"torch"}  # the list of projects is as it was


def test_a_crash_at_any_write_is_finished_or_undone_by_the_next_run(
    store: MemoryStore, tmp_path: Path
) -> None:
    old, *wheels = make_wheels(tmp_path, {"a 1.0": [], "a 2.0": [], "b 1.0": ["a==2.0"]})
    publish(store, "staging", [old])
    outcomes = set()
    for left, after in dying(store, lambda it: publish(it, "staging", wheels)):
        recover(Index(after, "staging"))
        assert audit(after, "staging", hashes=True) == (), f"after a crash at write {left}"
        outcomes.add(tuple(filenames(after, "staging", "a")))
        publish(after, "staging", wheels)
        assert audit(after, "staging", hashes=True) == ()
        assert filenames(after, "staging", "b") == ["b-1.0-py3-none-any.whl"]
    assert outcomes == {(old.name,), (old.name, wheels[0].name)}


def test_a_changed_part_of_the_state_is_not_believed(store: MemoryStore, tmp_path: Path) -> None:
    publish(store, "staging", [make_wheel(tmp_path, "a", "1.0")])
    (key,) = (
        key for key in keys_of(store, "staging/parts/") if b"a-1.0" in store.read(key).data
    )  # not its bin
    store.write(key, store.read(key).data.replace(b"1.0", b"6.6"))
    with pytest.raises(StoreError, match="was changed"):
        publish(store, "staging", [make_wheel(tmp_path, "a", "2.0")])
    assert "cannot be read" in "\n".join(audit(store, "staging", hashes=False))


@pytest.mark.parametrize(
    ("name", "content"),
    [("a-1.0.tar.gz", b"no archive"), ("notes.txt", b""), ("torch.tar.gz", b"")],
)
def test_what_is_no_distribution_is_refused_in_one_line(
    store: MemoryStore, tmp_path: Path, name: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(StoreError, match=name):
        publish(store, "staging", [tmp_path / name])
    assert not store.objects


def test_of_many_wheels_the_bad_one_is_named(store: MemoryStore, tmp_path: Path) -> None:
    wheels = [make_wheel(tmp_path, name, "1.0") for name in ("a", "b")]
    altered(wheels[1], {"b-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\n"})
    with pytest.raises(WheelError, match=r"METADATA of b-1\.0-py3-none-any\.whl has no single Name"):
        publish(store, "staging", wheels)


def test_metadata_of_another_project_is_refused(store: MemoryStore, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "a", "1.0").rename(tmp_path / "a-1.1-py3-none-any.whl")
    with pytest.raises(StoreError, match=r"holds the metadata of a 1\.0"):
        publish(store, "staging", [wheel])


def test_an_sdist_that_decides_late_offers_no_metadata(store: MemoryStore, tmp_path: Path) -> None:
    late = make_sdist(tmp_path, "late", "1.0")
    fixed = make_sdist(tmp_path, "fixed", "1.0", dynamic=False)
    offered = {e.filename: e.metadata_sha256 for e in publish(store, "staging", [late, fixed]).added}
    assert offered[late.name] is None
    assert offered[fixed.name] is not None


@pytest.mark.parametrize(
    "channel", ["files", "..", "a/b", "", "Release", "relase", "release/gfx9", "staging/", "staging/gfx942/x"]
)
def test_a_channel_cannot_be_called_anything(store: MemoryStore, tmp_path: Path, channel: str) -> None:
    with pytest.raises(UsageError, match=r"is not (a channel|an index)"):
        publish(store, channel, [make_wheel(tmp_path, "a", "1.0")])


def test_a_file_damaged_in_the_store_is_put_right_by_publishing_it_again(
    store: MemoryStore, tmp_path: Path
) -> None:
    wheel = make_wheel(tmp_path, "torch", "2.9.0")
    publish(store, "staging", [wheel])
    (stored,) = (key for key in keys_of(store, "files/") if key.endswith(".whl"))
    store.objects[stored] = b"damaged" + store.objects[stored][7:]
    assert wheel.read_bytes()[:7] != b"damaged"
    assert audit(store, "staging", hashes=True) != ()
    publish(store, "staging", [wheel])
    assert audit(store, "staging", hashes=True) == ()


@pytest.mark.parametrize(
    ("about", "why"),
    [
        ({"python": "junk"}, "'junk' is not a version specifier"),
        ({"python": f">={'9' * 5_000}"}, "is not a version specifier"),
        ({"requires": ["a b c"]}, "requires something unreadable: 'a b c' is not a requirement"),
        ({"requires": [f"a; {'(' * 3_000}python_version > '3'{')' * 3_000}"]}, "nested too deep"),
        ({"requires": ["a; sys_platform ~= 'linux'"]}, "is not a requirement: Undefined"),
        ({"requires": ["a; nonsense == 'x'"]}, "is not a requirement"),
        ({"requires": [f"a>={'9' * 5_000}"]}, "is not a requirement"),
    ],
)
def test_metadata_that_no_installer_can_evaluate_is_refused(
    store: MemoryStore, tmp_path: Path, about: dict[str, object], why: str
) -> None:
    wheel = make_wheel(tmp_path, "a", "1.0", **about)
    with pytest.raises(StoreError, match=why):
        publish(store, "staging", [wheel])
    assert not store.objects


@pytest.mark.parametrize("extra", ["a b", "<>", "\N{LATIN SMALL LETTER E WITH ACUTE}", "-x", "x]"])
def test_an_extra_that_nobody_can_ask_for_is_refused(store: MemoryStore, tmp_path: Path, extra: str) -> None:
    with pytest.raises(StoreError, match=r"a-1\.0-py3-none-any\.whl has an extra that cannot be asked for"):
        publish(store, "staging", [make_wheel(tmp_path, "a", "1.0", extras=["good", extra])])
    assert not store.objects


@pytest.mark.parametrize("version", ["2", "2.x", "x", "2.2.1", "-1.0", "9" * 5_000, ""])
def test_an_sdist_with_an_odd_metadata_version_is_published_and_not_relied_upon(
    store: MemoryStore, tmp_path: Path, version: str
) -> None:
    sdist = make_sdist(tmp_path, "a", "1.0", dynamic=False, metadata_version=version)
    (entry,) = publish(store, "staging", [sdist]).added
    assert (entry.metadata_sha256 is not None) == (version == "2.2.1")


@pytest.mark.parametrize(
    "text", ["requires = 1", "requires = [1]", "requires = ['a b']", "x = " + "[" * 5_000]
)
def test_an_sdist_whose_pyproject_says_nonsense_is_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        entry = tarfile.TarInfo("a-1.0/pyproject.toml")
        data = f"[build-system]\n{text}\n".encode()
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    with path.open("rb") as stream, pytest.raises((StoreError, UsageError), match=r"a-1\.0\.tar\.gz"):
        distribution.build_requirements(stream, filename=path.name)


@pytest.mark.parametrize("name", ["<script>", "a'b", "é", "-a", "%2e", "a b"])
def test_a_project_that_cannot_be_called_so_is_refused(store: MemoryStore, tmp_path: Path, name: str) -> None:
    with pytest.raises(StoreError, match="has a name that no project can have"):
        publish(store, "staging", [make_sdist(tmp_path, name, "1.0")])
    assert not store.objects


def test_a_write_whose_answer_was_lost_is_known_by_its_entry(store: MemoryStore, tmp_path: Path) -> None:
    forgetful = Forgetful(store, at="staging/state.json")
    (entry,) = publish(forgetful, "staging", [make_wheel(tmp_path, "a", "1.0")]).added
    assert forgetful.lost
    assert [entry.filename] == filenames(forgetful, "staging", "a") == ["a-1.0-py3-none-any.whl"]
    assert Index(forgetful, "staging").load().generation.number == 1
    assert audit(forgetful, "staging", hashes=True) == ()
