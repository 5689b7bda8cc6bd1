"""The locks of a set, as pip and uv take them: from a folder and from a server."""

from __future__ import annotations

import http.server
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from cairn import isolation, process, venv
from cairn.errors import ProcessError
from cairn.release.index.keys import index_url
from cairn.release.publish import locks
from cairn.release.publish.compatibility import Platform
from cairn.release.publish.files import publish
from cairn.store.folder import LocalStore
from cairn.venv import VirtualEnvironment
from cairn.wheels.wheelset import WheelSet
from helpers.release import make_set, make_wheel, stage_set

pytestmark = pytest.mark.slow

NOWHERE = "http://127.0.0.1:9/simple"
CORE = ["numpy==2.0", "torch==2.9.0+rocm7.10.0", "torchvision==0.24+rocm7.10.0"]


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, WheelSet]:
    """A store with a staged set and its locks, in an index that has newer versions by now."""
    here, folder = Platform.here(), tmp_path_factory.mktemp("sealed")
    store = LocalStore(folder / "store")
    tag = f"cp{here.python.replace('.', '')}-cp{here.python.replace('.', '')}-{here.tag}"
    publish(store, "staging", [make_wheel(folder, "numpy", "2.0"), make_wheel(folder, "einsum", "3.0")])
    requires = ["numpy", 'einsum; extra == "opt"', 'never; sys_platform == "plan9"']
    torch = make_wheel(folder, "torch", "2.9.0+rocm7.10.0", requires=requires, extras=["opt"], tag=tag)
    vision = make_wheel(
        folder, "torchvision", "0.24+rocm7.10.0", requires=["torch==2.9.0+rocm7.10.0", "numpy"], tag=tag
    )
    made = make_set([torch, vision], python=here.python, platform=here.tag)
    done = stage_set(store, "staging", made, [torch, vision])
    publish(store, "staging", [make_wheel(folder, "numpy", "2.1"), make_wheel(folder, "einsum", "3.1")])
    for key, data in locks.of_set(done, locks.metadata_of(store, done)).items():
        store.write(key, data)
    return store.path, done


@pytest.fixture
def sealed(pristine: tuple[Path, WheelSet], store: LocalStore) -> WheelSet:
    """The set, in a store of the test's own."""
    path, done = pristine
    shutil.copytree(path, store.path)
    return done


@pytest.fixture
def url(store: LocalStore) -> Iterator[str]:
    """The store behind a server of files that knows nothing of us."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=store.path)) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture
def environment(tmp_path: Path) -> VirtualEnvironment:
    return venv.create(tmp_path / "env")


def installed(environment: VirtualEnvironment, installer: str, *words: str) -> list[str]:
    """What an installer makes of an empty environment."""
    env = isolation.variables(isolation.Isolation.INSTALLER, environment.path) | {
        "UV_CACHE_DIR": str(environment.path / "uv-cache")
    }
    uv_pip = (venv.uv_program(), "pip")
    commands = {
        "pip": [*venv.pip_command(environment.python), "--isolated", "--no-cache-dir", *words],
        "uv": [*uv_pip, "install", "--no-config", "--python", environment.python, *words],
        "uv sync": [*uv_pip, "sync", "--no-config", "--python", environment.python, *words],
    }
    try:
        process.run(commands[installer], env=env, confined=False)
    except ProcessError as error:
        raise AssertionError(error.output) from error
    frozen = process.run(
        [*uv_pip, "freeze", "--no-config", "--python", environment.python], env=env, confined=False
    )
    lines = frozen.output.splitlines()
    return sorted(line.partition(" @ ")[0] for line in lines if "==" in line or " @ " in line)


def names(found: list[str]) -> list[str]:
    return [line.partition("==")[0] for line in found]


@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_constraints_lead_to_the_versions_of_the_set(
    sealed: WheelSet, url: str, environment: VirtualEnvironment, installer: str
) -> None:
    constraints = f"{url}/sets/{sealed.id}/locks/constraints.txt"
    index = index_url(url, "staging")
    words = ["--index-url", index, "-c", constraints, "torchvision", "torch[opt]"]
    assert installed(environment, installer, *words) == sorted([*CORE, "einsum==3.0"])


@pytest.mark.parametrize("installer", ["pip", "uv", "uv sync"])
def test_requirements_with_hashes_give_exactly_the_bytes_of_the_set(
    sealed: WheelSet, store: LocalStore, url: str, environment: VirtualEnvironment, installer: str
) -> None:
    key = f"sets/{sealed.id}/locks/requirements.txt"
    given = [] if installer == "uv sync" else ["-r"]
    words = ["--index-url", index_url(url, "staging"), *given, f"{url}/{key}"]
    assert installed(environment, installer, *words) == CORE
    text = store.read(key).data.decode()
    store.write(key, text.replace("sha256:", "sha256:0000", 1)[: text.index("sha256:") + 71].encode())
    with pytest.raises(AssertionError):
        installed(venv.create(environment.path.with_name("other")), installer, *words)


@pytest.mark.parametrize("installer", ["pip", "uv", "uv sync"])
def test_a_lock_in_a_folder_needs_no_server(
    sealed: WheelSet, store: LocalStore, environment: VirtualEnvironment, installer: str
) -> None:
    lock = str(store.path / f"sets/{sealed.id}/locks/pylock.toml")
    words = ["--index-url", NOWHERE, *([] if installer == "uv sync" else ["-r"]), lock]
    assert names(installed(environment, installer, *words)) == ["numpy", "torch", "torchvision"]


def test_pip_takes_a_lock_by_its_url(sealed: WheelSet, url: str, environment: VirtualEnvironment) -> None:
    words = ["--index-url", NOWHERE, "-r", f"{url}/sets/{sealed.id}/locks/pylock.toml"]
    assert installed(environment, "pip", *words) == CORE


@pytest.mark.parametrize("installer", ["pip", "uv", "uv sync"])
def test_a_lock_for_one_address_is_taken_from_anywhere(
    sealed: WheelSet,
    store: LocalStore,
    url: str,
    environment: VirtualEnvironment,
    tmp_path: Path,
    installer: str,
) -> None:
    key = f"sets/{sealed.id}/locks/pylock.toml"
    here = tmp_path / "pylock.torch.toml"
    here.write_bytes(locks.absolute(store.read(key).data, f"{url}/{key}"))
    words = ["--index-url", NOWHERE, *([] if installer == "uv sync" else ["-r"]), str(here)]
    assert names(installed(environment, installer, *words)) == ["numpy", "torch", "torchvision"]


def test_an_extra_of_a_lock_brings_what_it_needs(
    sealed: WheelSet, store: LocalStore, environment: VirtualEnvironment
) -> None:
    lock = str(store.path / f"sets/{sealed.id}/locks/pylock.toml")
    found = installed(environment, "uv", "--index-url", NOWHERE, "-r", lock, "--extra", "opt")
    assert names(found) == ["einsum", "numpy", "torch", "torchvision"]


@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_a_lock_is_refused_when_a_file_has_other_bytes(
    sealed: WheelSet, store: LocalStore, environment: VirtualEnvironment, tmp_path: Path, installer: str
) -> None:
    torch = next(store.path.glob("files/*/*/torch-*.whl"))
    torch.unlink()
    evil = make_wheel(
        tmp_path / "evil", "torch", "2.9.0+rocm7.10.0", tag="py3-none-any", content="EVIL = 1\n"
    )
    torch.write_bytes(evil.read_bytes())
    lock = str(store.path / f"sets/{sealed.id}/locks/pylock.toml")
    with pytest.raises(AssertionError, match=r"(?i)hash|size"):
        installed(environment, installer, "--index-url", NOWHERE, "-r", lock)


def test_a_lock_for_a_different_system_installs_nothing(
    store: LocalStore, environment: VirtualEnvironment, tmp_path: Path
) -> None:
    torch = make_wheel(tmp_path, "torch", "2.9.0", tag="cp311-cp311-win_amd64")
    made = make_set([torch], python="3.11", platform="win_amd64")
    done = stage_set(store, "staging", made, [torch])
    path = tmp_path / "pylock.toml"
    path.write_bytes(locks.of_set(done, locks.metadata_of(store, done))[f"sets/{done.id}/locks/pylock.toml"])
    for installer in ("pip", "uv"):
        with pytest.raises(AssertionError):
            installed(environment, installer, "--index-url", NOWHERE, "-r", str(path))
