"""A mirror that goes by its lock: made by uv, fetched by pip, compared with the index."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from pathlib import Path

import msgspec
import pytest

from cairn import stack
from cairn.cli.main import main
from cairn.errors import GateError, NetworkError, StoreError
from cairn.release.audit.audit import audit
from cairn.release.index.generation import MIRRORED
from cairn.release.index.keys import index_url
from cairn.release.index.snapshot import Index
from cairn.release.publish import distribution, mirror, mirror_lock
from cairn.release.publish.compatibility import Platform
from cairn.release.publish.files import publish, publish_dists
from cairn.release.publish.mirror_lock import MirrorLock
from cairn.store.folder import LocalStore
from helpers.range_server import serving_ranges
from helpers.release import die_before_pages, make_wheel

pytestmark = pytest.mark.slow

SAMPLE = Path(__file__).parents[3] / "external-builds/sample"
PYTHONS, PLATFORMS = ("3.11", "3.12"), ("linux_x86_64", "win_amd64")
FAST = [
    f"fast-1.0-cp{python.replace('.', '')}-cp{python.replace('.', '')}-{tag}.whl"
    for python in PYTHONS
    for tag in ("manylinux_2_28_x86_64", "win_amd64")
]


def _use(monkeypatch: pytest.MonkeyPatch, upstream: Path) -> None:
    """Have pip set up for an index of ours, and for nothing else."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", index_url(upstream.as_uri(), "dev"))


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index with files for every Python and platform, and the lock of a torch that needs some of them."""
    base = tmp_path_factory.mktemp("locked")
    folder, stack_file = base / "up", base / "stack/stack.toml"
    tags = [name.removeprefix("fast-1.0-").removesuffix(".whl") for name in FAST]
    wheels = [make_wheel(folder, "fast", "1.0", tag=tag, requires=["deep"]) for tag in tags]
    wheels += [make_wheel(folder, "fast", "1.0", tag="cp311-cp311-musllinux_1_2_x86_64", requires=["deep"])]
    wheels += [make_wheel(folder, "deep", "1.1"), make_wheel(folder, "new", "1.0", python=">=3.12")]
    wheels += [make_wheel(folder, "opt", "1.0"), make_wheel(folder, "unasked", "1.0")]
    publish(LocalStore(base / "upstream"), "dev", wheels)
    # Not the shipped sample: it names Pythons and platforms, which its own lock would be for.
    shutil.copytree(SAMPLE, stack_file.parent)
    text = stack_file.read_text(encoding="utf-8")
    places = f"pythons = {json.dumps(PYTHONS)}\nplatforms = {json.dumps(PLATFORMS)}\n"
    stack_file.write_text(text.replace("\nline = ", f"\n{places}line = ", 1), encoding="utf-8")
    requires = ["fast", 'new; python_version >= "3.12"', 'opt; extra == "x"', "triton==3.5", "rocm==7.10.0"]
    torch = make_wheel(base, "torch", "2.9.0", requires=requires, extras=["x"])
    with pytest.MonkeyPatch.context() as monkeypatch:
        _use(monkeypatch, base / "upstream")
        assert main(["index", "mirror", "lock", "--stack", str(stack_file), str(torch)]) == 0
    return base


@pytest.fixture
def upstream(locked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalStore:
    """The index that the user's pip is set up for, for the test to change."""
    shutil.copytree(locked / "upstream", tmp_path / "upstream")
    _use(monkeypatch, tmp_path / "upstream")
    return LocalStore(tmp_path / "upstream")


@pytest.fixture
def project(locked: Path, tmp_path: Path) -> Path:
    """A stack for two Pythons on two platforms, with its lock."""
    return Path(shutil.copytree(locked / "stack", tmp_path / "stack"))


@pytest.fixture
def lock(upstream: LocalStore, project: Path) -> MirrorLock:
    """The lock of a torch that needs what is on `upstream`."""
    assert upstream.path.is_dir()
    return mirror_lock.read(project / mirror_lock.FILE)


def test_every_python_and_platform_of_the_stack_is_locked_not_only_ours(lock: MirrorLock) -> None:
    pure = ["deep-1.1-py3-none-any.whl", "new-1.0-py3-none-any.whl", "opt-1.0-py3-none-any.whl"]
    assert sorted(file.file_name for file in lock.files) == sorted([*FAST, *pure])
    assert (lock.pythons, lock.platforms) == (PYTHONS, PLATFORMS)


def test_files_of_the_rocm_sdk_are_noted_and_stay(lock: MirrorLock, project: Path, tmp_path: Path) -> None:
    own = make_wheel(tmp_path, "rocm-sdk-device-gfx942", "7.10.0")
    for given in ([str(own)], []):
        assert main(["index", "mirror", "lock", "--stack", str(project), *given]) == 0
        noted = mirror_lock.read(project / mirror_lock.FILE)
        assert noted.sdk == {own.name: hashlib.sha256(own.read_bytes()).hexdigest()}
        assert noted.files == lock.files


def test_an_index_is_brought_to_hold_the_lock_and_is_left_alone_when_it_does(
    lock: MirrorLock,
    upstream: LocalStore,
    project: Path,
    store: LocalStore,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    publish(store, "staging", [make_wheel(tmp_path, "ours", "1.0")])
    capsys.readouterr()
    command = ["--stack", str(project), "--store", str(store.path), "--json"]
    assert main(["index", "mirror", "sync", "--check", *command]) != 0
    before = json.loads(capsys.readouterr().out)["problems"]
    assert len([line for line in before if "staging lacks" in line]) == len(lock.files)
    assert main(["index", "mirror", "sync", "--dry-run", *command]) == 0
    assert [project.name for project in Index(store, "staging").load().projects()] == ["ours"]
    assert main(["index", "mirror", "sync", *command]) == 0
    capsys.readouterr()
    shutil.rmtree(upstream.path)  # nothing more is fetched
    die_before_pages(store, "staging")
    assert main(["index", "mirror", "sync", *command]) == 0
    assert json.loads(capsys.readouterr().out)["added"] == []
    assert audit(store).good
    assert main(["index", "mirror", "sync", "--check", *command]) == 0


def test_what_the_store_has_for_another_index_is_not_fetched_again(
    lock: MirrorLock, upstream: LocalStore, store: LocalStore
) -> None:
    mirror.sync(store, "staging", lock)
    kept = next(upstream.path.glob("files/*/*/deep-1.1-py3-none-any.whl"))
    damaged = next(store.path.glob("files/*/*/deep-1.1-py3-none-any.whl"))
    damaged.chmod(0o644)
    damaged.write_bytes(b"damaged")
    for path in upstream.path.glob("files/*/*/*.whl"):
        if path != kept:
            path.unlink()
    mirror.sync(store, "dev", lock)
    held = {file.filename: file.sha256 for p in Index(store, "dev").load().projects() for file in p.files}
    assert held == {file.file_name: file.sha256 for file in lock.files}
    assert damaged.read_bytes() == kept.read_bytes()


def test_one_machine_fetches_what_fits_there_alone(lock: MirrorLock, store: LocalStore) -> None:
    mirror.sync(store, "staging", lock, only=Platform(python="3.12", tag="win_amd64"))
    held = [file.filename for p in Index(store, "staging").load().projects() for file in p.files]
    assert [name for name in held if name.startswith("fast")] == ["fast-1.0-cp312-cp312-win_amd64.whl"]
    assert len(held) == 4


def test_a_poisoned_file_is_refused_by_name_and_nothing_is_published(
    lock: MirrorLock, upstream: LocalStore, store: LocalStore
) -> None:
    poisoned = next(upstream.path.glob("files/*/*/deep-1.1-py3-none-any.whl"))
    poisoned.write_bytes(make_wheel(upstream.path / "evil", "deep", "1.1", content="EVIL = 1\n").read_bytes())
    with pytest.raises(NetworkError, match=r"not fetched: deep-1\.1-py3-none-any\.whl: ") as caught:
        mirror.sync(store, "staging", lock)
    assert str(caught.value).count(".whl: ") == 1
    assert not Index(store, "staging").load().exists


def test_a_lock_that_names_other_bytes_than_the_index_offers_is_refused(
    lock: MirrorLock, store: LocalStore
) -> None:
    edited = tuple(
        msgspec.structs.replace(file, sha256="0" * 64) if file.name in ("deep", "opt") else file
        for file in lock.files
    )
    with pytest.raises(NetworkError, match="not fetched") as caught:
        mirror.sync(store, "staging", msgspec.structs.replace(lock, files=edited))
    assert [name for name in ("deep-1.1", "opt-1.0", "fast-1.0") if name in str(caught.value)] == [
        "deep-1.1",
        "opt-1.0",
    ]


def test_an_index_with_other_bytes_than_the_lock_is_not_changed(
    lock: MirrorLock, store: LocalStore, tmp_path: Path
) -> None:
    publish(store, "staging", [make_wheel(tmp_path / "own", "deep", "1.1", content="OURS = 1\n")])
    with pytest.raises(StoreError, match=r"deep-1\.1-py3-none-any\.whl is there with sha256"):
        mirror.sync(store, "staging", lock)


def test_nothing_is_mirrored_into_what_people_install_from(lock: MirrorLock, store: LocalStore) -> None:
    with pytest.raises(GateError):
        mirror.sync(store, "release", lock)


def test_a_new_python_is_noticed_before_users_notice(
    lock: MirrorLock, project: Path, store: LocalStore
) -> None:
    mirror.sync(store, "staging", lock)
    loaded = stack.load(project)
    snapshot = Index(store, "staging").load()
    assert mirror.problems(lock, loaded, snapshot) == ()
    more = msgspec.structs.replace(loaded, pythons=("3.11", "3.12", "3.13"))
    assert [line.partition(":")[0] for line in mirror.problems(lock, more, snapshot)] == [
        "the lock does not cover Python 3.13 on linux_x86_64",
        "the lock does not cover Python 3.13 on win_amd64",
    ]


def test_a_lock_from_which_a_file_was_taken_does_not_suffice(
    lock: MirrorLock, project: Path, store: LocalStore
) -> None:
    less = msgspec.structs.replace(
        lock, files=tuple(file for file in lock.files if "cp312-win" not in file.file_name)
    )
    mirror.sync(store, "staging", less)
    found = mirror.problems(less, stack.load(project), Index(store, "staging").load())
    assert [line.partition(":")[0] for line in found] == ["Python 3.12 on win_amd64"]


def test_a_file_that_no_review_has_seen_is_noticed_where_it_would_be_installed(
    lock: MirrorLock, project: Path, store: LocalStore, tmp_path: Path
) -> None:
    mirror.sync(store, "staging", lock)
    sneaked = make_wheel(tmp_path / "sneaked", "deep", "9.9")
    publish_dists(Index(store, "staging"), [distribution.read(sneaked)], "mirror", build=MIRRORED)
    found = mirror.problems(lock, stack.load(project), Index(store, "staging").load())
    assert len(found) == len(mirror_lock.places(lock))
    assert all("deep-9.9-py3-none-any.whl with sha256" in line for line in found)


def test_locking_again_keeps_versions_until_an_upgrade_is_asked_for(
    lock: MirrorLock, upstream: LocalStore, project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(upstream, "dev", [make_wheel(tmp_path / "up2", "deep", "1.2")])
    command = ["index", "mirror", "lock", "--stack", str(project)]
    capsys.readouterr()
    assert main(command) == 0
    assert capsys.readouterr().out == ""
    assert mirror_lock.read(project / mirror_lock.FILE) == lock
    assert main([*command, "--upgrade", "--dry-run"]) == 0
    assert capsys.readouterr().out == "- deep-1.1-py3-none-any.whl\n+ deep-1.2-py3-none-any.whl\n"
    assert mirror_lock.read(project / mirror_lock.FILE) == lock


@pytest.mark.usefixtures("upstream")
def test_what_cannot_be_locked_is_explained_for_its_platform(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = mirror_lock.read(project / mirror_lock.FILE)
    command = ["index", "mirror", "lock", "--stack", str(project), "--require", "nowhere"]
    assert main(command) != 0
    assert "uv cannot resolve what is asked for Python 3.11 on linux_x86_64" in capsys.readouterr().err
    assert mirror_lock.read(project / mirror_lock.FILE) == before


def test_what_is_locked_can_be_mirrored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A page may have two spellings of a version, and builds of one, which no index of ours takes."""
    _use(monkeypatch, tmp_path / "upstream")
    wheels = [
        make_wheel(tmp_path, "spelt", "1.0.0"),
        make_wheel(tmp_path, "spelt", "1.0", tag="cp311-cp311-manylinux_2_17_x86_64"),
        make_wheel(tmp_path, "rebuilt", "1.0"),
        make_wheel(tmp_path, "rebuilt", "2.0"),
    ]
    wheels[-1] = wheels[-1].rename(wheels[-1].with_name("rebuilt-2.0-1-py3-none-any.whl"))
    for wheel in wheels:
        page = tmp_path / "upstream/dev/simple" / wheel.name.split("-")[0] / "index.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        with page.open("a", encoding="utf-8") as stream:
            sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
            stream.write(f'<a href="{wheel.as_uri()}#sha256={sha256}">{wheel.name}</a>\n')
    lock = tmp_path / "new.toml"
    command = ["index", "mirror", "lock", "--stack", str(SAMPLE), "--lock", str(lock)]
    capsys.readouterr()
    for name, why in (
        ("rebuilt", "rebuilt-2.0-1-py3-none-any.whl has the build tag '1'"),
        ("spelt", "spelt-1.0.0-py3-none-any.whl is not of spelt 1.0"),
    ):
        assert main([*command, "--require", name]) == 2
        error = capsys.readouterr().err
        assert why in error
        assert "--require 'NAME!=VERSION'" in error
    assert main([*command, "--require", "rebuilt!=2.0"]) == 0
    sync = ["index", "mirror", "sync", "--stack", str(SAMPLE), "--lock", str(lock)]
    assert main([*sync, "--store", str(tmp_path / "store")]) == 0


def _gpulib(folder: Path) -> list[Path]:
    """The wheel of a library with an extra for each target, and the device wheels that these name."""
    targets = ("gfx942", "gfx1100")
    needs = [f'gpulib-device-{target}==1.0; extra == "device-{target}"' for target in targets]
    extras = [f"device-{target}" for target in targets]
    host = make_wheel(folder, "gpulib", "1.0", requires=needs, extras=extras)
    return [host, *(make_wheel(folder, f"gpulib-device-{target}", "1.0") for target in targets)]


@pytest.mark.parametrize("sidecars", [True, False])
def test_metadata_are_read_over_http_for_a_lock(
    project: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    sidecars: bool,
) -> None:
    publish(LocalStore(tmp_path / "up"), "dev", _gpulib(tmp_path))
    for page in () if sidecars else (tmp_path / "up/dev/simple").rglob("index.html"):
        page.write_text(re.sub(r' data-[a-z-]*metadata="[^"]*"', "", page.read_text()))
    for sidecar in () if sidecars else (tmp_path / "up/files").rglob("*.metadata"):
        sidecar.unlink()
    _use(monkeypatch, tmp_path / "up")
    words = ["--stack", str(project), "--lock", str(tmp_path / "new.lock.toml"), "--require"]
    with serving_ranges(tmp_path / "up") as server:
        server.fault = lambda _, answer: answer.headers.update({"Content-Type": "text/html"})
        monkeypatch.setenv("PIP_INDEX_URL", index_url(server.url, "dev"))
        assert main(["index", "mirror", "lock", *words, "gpulib"]) == 2
        assert "gpulib-1.0-py3-none-any.whl serves no GPU without one of" in capsys.readouterr().err
        assert main(["index", "mirror", "lock", *words, "gpulib[device-gfx942]"]) == 0
        asked = {path.rpartition("/")[2] for path, span in server.requests if sidecars or span}
    assert f"gpulib-1.0-py3-none-any.whl{'.metadata' * sidecars}" in asked


@pytest.mark.parametrize("require", ["gpulib", "gpulib[device-gfx942]", ""])
def test_what_uv_chooses_for_a_lock_is_looked_into_for_extras(
    project: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    require: str,
) -> None:
    wheels = _gpulib(tmp_path)
    publish(LocalStore(tmp_path / "up"), "dev", wheels)
    _use(monkeypatch, tmp_path / "up")
    words = ["--stack", str(project), "--lock", str(tmp_path / "new.lock.toml")]
    refused = require == "gpulib"
    if not require:  # an index, or a folder, without METADATA beside its wheels
        monkeypatch.delenv("PIP_INDEX_URL")
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(wheels[0].parent))
    assert main(["index", "mirror", "lock", *words, "--require", require or "gpulib"]) == (
        2 if refused else 0
    )
    printed = "".join(capsys.readouterr())
    said = "gpulib-1.0-py3-none-any.whl serves no GPU without one of gpulib-device-gfx942==1.0"
    assert (said in printed) == refused
    assert ("--require 'NAME[device-gfx942]'" in printed) == refused
    assert (tmp_path / "new.lock.toml").exists() != refused
    assert ("left out, with what they name: gpulib[device-gfx1100]" in printed) == ("[" in require)
    assert ("not looked into for extras: gpulib-1.0" in printed) == (not require)
