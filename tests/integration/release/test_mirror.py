from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from cairn.errors import NetworkError, StoreError
from cairn.release.audit.audit import audit
from cairn.release.index.generation import MIRRORED
from cairn.release.index.keys import index_url
from cairn.release.index.snapshot import Index
from cairn.release.publish import distribution
from cairn.release.publish.files import publish, publish_dists
from cairn.release.publish.mirror import mirror
from cairn.store.folder import LocalStore
from helpers.release import die_before_pages, make_wheel

pytestmark = pytest.mark.slow


@pytest.fixture
def upstream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalStore:
    """The index that the user's pip is set up for."""
    store = LocalStore(tmp_path / "upstream")
    extra = ['ok; extra == "x"']
    publish(
        store,
        "dev",
        [
            make_wheel(tmp_path / "up", "numpy", "1.0"),
            make_wheel(tmp_path / "up", "numpy", "2.0", requires=["deep>=1"]),
            make_wheel(tmp_path / "up", "deep", "1.1"),
            make_wheel(tmp_path / "up", "torch", "9.9"),
            make_wheel(tmp_path / "up", "fancy", "1.0", requires=extra, extras=["x"]),
            make_wheel(tmp_path / "up", "ok", "1.0"),
        ],
    )
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", index_url(store.path.as_uri(), "dev"))
    return store


@pytest.mark.usefixtures("upstream")
def test_third_parties_are_fetched_with_what_they_need_and_siblings_are_not(
    store: LocalStore, tmp_path: Path
) -> None:
    torch = make_wheel(
        tmp_path, "torch", "2.9.0", requires=["numpy", 'fancy[x]; extra == "more"'], extras=["more"]
    )
    vision = make_wheel(tmp_path, "torchvision", "1", requires=["torch==2.9.0"])
    done = mirror(store, "staging", dists=[torch, vision])
    assert sorted(entry.filename.split("-py3")[0] for entry in done.added) == [
        "deep-1.1",
        "fancy-1.0",
        "numpy-2.0",
        "ok-1.0",
    ]
    die_before_pages(store, "staging")
    assert mirror(store, "staging", dists=[torch, vision]).added == ()
    assert audit(store).good


@pytest.mark.usefixtures("upstream")
def test_exact_requirements_are_fetched_exactly(store: LocalStore) -> None:
    (entry,) = mirror(store, "staging", requirements=["numpy==1.0"]).added
    assert entry.version == "1.0"


@pytest.mark.usefixtures("upstream")
def test_what_the_channel_has_stays_as_it_is(store: LocalStore, tmp_path: Path) -> None:
    own = make_wheel(tmp_path, "deep", "1.1", content="OURS = 1\n")
    publish(store, "staging", [own])
    assert [
        entry.filename.split("-")[0] for entry in mirror(store, "staging", requirements=["numpy"]).added
    ] == ["numpy"]


def test_a_version_that_was_mirrored_for_another_python_gets_the_file_of_this_one(
    upstream: LocalStore, store: LocalStore, tmp_path: Path
) -> None:
    here = f"cp{sys.version_info.major}{sys.version_info.minor}"
    wheels = [make_wheel(tmp_path / "up", "native", "1.0", tag=f"{p}-none-any") for p in ("cp39", here)]
    publish(upstream, "dev", wheels)
    publish_dists(Index(store, "staging"), [distribution.read(wheels[0])], "mirror", build=MIRRORED)
    (entry,) = mirror(store, "staging", requirements=["native"]).added
    assert entry.filename == wheels[1].name


@pytest.mark.usefixtures("upstream")
def test_what_cannot_be_found_is_named(store: LocalStore, tmp_path: Path) -> None:
    torch = make_wheel(tmp_path, "torch", "2.9.0", requires=["numpy>=3"])
    with pytest.raises(NetworkError, match=r"numpy>=3, wanted by torch-2\.9\.0"):
        mirror(store, "staging", dists=[torch])


@pytest.mark.parametrize("url", ["git+file:///nowhere/helper", "file:///nowhere/helper-1.0.tar.gz"])
def test_what_lies_at_an_address_is_neither_fetched_nor_built(
    store: LocalStore, tmp_path: Path, url: str
) -> None:
    """pip would run the build backend of what is no wheel, `--only-binary` or not."""
    torch = make_wheel(tmp_path, "torch", "2.9.0", requires=[f"helper @ {url}"])
    with pytest.raises(StoreError, match="a mirror takes files of an index alone: helper @ "):
        mirror(store, "staging", dists=[torch])


def test_whoever_registers_a_name_of_the_sdk_elsewhere_does_not_get_into_the_mirror(
    upstream: LocalStore, store: LocalStore, tmp_path: Path
) -> None:
    evil = [make_wheel(tmp_path / "evil", name, "7.10.0") for name in ("rocm", "rocm-sdk-libraries-gfx942")]
    publish(upstream, "dev", evil)
    requires = ["rocm==7.10.0", "ROCm_SDK.libraries-gfx942==7.10.0"]
    torch = make_wheel(tmp_path, "torch", "2.9.0", requires=requires)
    with pytest.raises(
        NetworkError, match=r"staging lacks files of the ROCm SDK: .*rocm==7\.10\.0, wanted by"
    ):
        mirror(store, "staging", dists=[torch])
    assert not Index(store, "staging").load().exists


@pytest.mark.usefixtures("upstream")
def test_settings_of_pip_that_do_not_say_where_files_are_change_nothing(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "constraints.txt").write_text("numpy==1.0\n")
    (tmp_path / "pip.conf").write_text("[global]\nno-binary = :all:\n[download]\nno-deps = true\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("PIP_CONSTRAINT", str(tmp_path / "constraints.txt"))
    monkeypatch.setenv("PIP_REQUIRE_HASHES", "1")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "shadow"))
    (tmp_path / "shadow/pip").mkdir(parents=True)
    (tmp_path / "shadow/pip/__init__.py").write_text("raise SystemExit('not pip')\n")
    added = mirror(store, "staging", requirements=["numpy"]).added
    assert [entry.filename.split("-py3")[0] for entry in added] == ["deep-1.1", "numpy-2.0"]
