"""pip and uv against the index, over HTTP and from the files as they lie."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from cairn.release.index.generation import FileEntry
from cairn.release.index.keys import index_url
from cairn.release.index.snapshot import Change, Index
from cairn.release.serve import serving
from cairn.store.folder import LocalStore
from helpers.release import commit, keys_of, make_sdist, make_wheel, put

pytestmark = pytest.mark.slow

V = "2.9.0+rocm7.10.0"
Install = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def release(store: LocalStore, tmp_path: Path) -> LocalStore:
    """Siblings that pin each other, an sdist that decides late, and a third party."""
    put(
        store,
        "release",
        [
            make_wheel(tmp_path, "triton", V),
            make_wheel(tmp_path, "torch", V, requires=[f"triton=={V}", "rocm==7.10.0", "filelock"]),
            make_wheel(tmp_path, "torchvision", "0.24.0+rocm7.10.0", requires=[f"torch=={V}"]),
            make_sdist(tmp_path, "rocm", "7.10.0"),
            make_wheel(tmp_path, "filelock", "3.20.0"),
        ],
    )
    return store


def test_one_index_url_is_enough_over_http(release: LocalStore, install: Install, tmp_path: Path) -> None:
    with serving(release) as server:
        for tool in ("pip", "uv"):
            done = install(tool, index_url(server.url, "release"), "torchvision", target=tmp_path / tool)
            assert done.returncode == 0, done.stderr
            assert (tmp_path / tool / f"torch-{V}.dist-info").is_dir()
            assert (tmp_path / tool / "rocm" / "__init__.py").read_text() == "BUILT_FROM_SDIST = True\n"


def test_one_index_url_is_enough_from_files(release: LocalStore, install: Install, tmp_path: Path) -> None:
    url = index_url(release.path.as_uri(), "release")
    for tool in ("pip", "uv"):
        done = install(tool, url, "torchvision", target=tmp_path / tool)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / tool / f"triton-{V}.dist-info").is_dir()


def test_choosing_versions_takes_metadata_alone(release: LocalStore, isolated: dict[str, str]) -> None:
    """Wheels themselves are taken away: whoever still resolves read only what lies beside them."""
    for key in keys_of(release, "files/"):
        if key.endswith(".whl"):
            release.delete(key)
    with serving(release) as server:
        report = subprocess.run(
            [
                *(sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"),
                *(
                    "--report",
                    "-",
                    "--no-cache-dir",
                    "--index-url",
                    index_url(server.url, "release"),
                    "torchvision",
                ),
            ],
            env=isolated,
            capture_output=True,
            text=True,
            check=False,
        )
    assert report.returncode == 0, report.stderr
    chosen = {i["metadata"]["name"]: i["download_info"] for i in json.loads(report.stdout)["install"]}
    assert set(chosen) == {"torchvision", "torch", "triton", "rocm", "filelock"}
    assert len(chosen["torch"]["archive_info"]["hashes"]["sha256"]) == 64


def test_a_changed_file_is_not_installed(release: LocalStore, install: Install, tmp_path: Path) -> None:
    (key,) = [key for key in keys_of(release, "files/") if "/filelock-" in key and key.endswith(".whl")]
    release.write(key, release.read(key).data + b"\0")
    url = index_url(release.path.as_uri(), "release")
    for tool in ("pip", "uv"):
        done = install(tool, url, "filelock", target=tmp_path / tool)
        assert done.returncode != 0
        assert "hash" in done.stderr.lower()


def yank(store: LocalStore, name: str, version: str) -> None:
    def yanked(file: FileEntry) -> FileEntry:
        return msgspec.structs.replace(file, yanked="crashes") if file.version == version else file

    commit(
        Index(store, "release"),
        "yank",
        lambda now: Change(
            projects={name: now.project(name).with_files(tuple(map(yanked, now.project(name).files)))}
        ),
    )


def test_a_yanked_version_is_for_exact_pins_alone(
    release: LocalStore, install: Install, tmp_path: Path
) -> None:
    put(release, "release", [make_wheel(tmp_path, "filelock", "3.21.0")])
    yank(release, "filelock", "3.21.0")
    with serving(release) as server:
        url = index_url(server.url, "release")
        for tool in ("pip", "uv"):
            assert install(tool, url, "filelock", target=tmp_path / tool).returncode == 0
            assert (tmp_path / tool / "filelock-3.20.0.dist-info").is_dir()
            exact = install(tool, url, "filelock==3.21.0", target=tmp_path / f"{tool}-exact")
            assert exact.returncode == 0
            assert "crashes" in exact.stdout + exact.stderr


def test_an_sdist_with_metadata_to_rely_on_is_installed_all_the_same(
    store: LocalStore, install: Install, tmp_path: Path
) -> None:
    put(store, "release", [make_sdist(tmp_path, "plain", "1.0", dynamic=False)])
    with serving(store) as server:
        for tool in ("pip", "uv"):
            done = install(tool, index_url(server.url, "release"), "plain", target=tmp_path / tool)
            assert done.returncode == 0, done.stderr
