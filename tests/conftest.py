"""What holds for every test."""

import gc
import os
import shutil
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

pytest.register_assert_rewrite("helpers.store_contract")

from cairn import isolation  # noqa: E402
from helpers import buckets, installed, starters, trail  # noqa: E402
from helpers.installed import Installed  # noqa: E402
from helpers.program import Cairn  # noqa: E402

# How fast an example is says more about the machine than about the code.
settings.register_profile("cairn", deadline=None)
settings.load_profile("cairn")

os.environ["CAIRN_CONFIG"] = os.devnull  # the settings of whoever runs the tests are theirs

# A shell has its background jobs ignore the interrupt, and so would every program that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


starters.watch()


@pytest.fixture(autouse=True)
def one_room_starts_programs() -> Iterator[list[str]]:
    """No module of the package starts a program by any name but the one room, and what is named beside it."""
    with starters.judged() as violations:
        yield violations
        assert violations == []


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage among 7,000 tests while they are collected, nor later: each worker has all."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what takes minutes, unless it was asked for."""
    if not os.environ.get("CAIRN_TEST_ALL"):
        for item in items:
            if item.get_closest_marker("by_hand"):
                item.add_marker(pytest.mark.skip(reason="takes minutes: CAIRN_TEST_ALL=1 runs it"))


@pytest.fixture(scope="session", autouse=True)
def temporary_files_of_programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Whatever a killed program, or clang, leaves behind goes with the other files of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        if os.name == "posix":
            patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("temporary")))
        yield


@pytest.fixture(scope="module", autouse=True)
def folders_of_foreign_code(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Confine foreign code as it is for users, whatever the shell of the tests opens to it.

    A module says `FOREIGN_DIRS = "notes"` where foreign code takes notes among the files of the tests.
    """
    folders = str(tmp_path_factory.getbasetemp()) if hasattr(request.module, "FOREIGN_DIRS") else ""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(isolation.VARIABLE, folders)
        yield
        isolation._CONCEALED.clear()  # the keys of these tests


@pytest.fixture(scope="session", autouse=True)
def cache_of_zig() -> Iterator[None]:
    """One cache for every compiler of ziglang: zig makes a C runtime in each new one, in five CPU seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZIG_GLOBAL_CACHE_DIR", str(trail.shared_cache() / "zig"))
        yield


@pytest.fixture(scope="session")
def debian_hip() -> None:
    """The HIP of Debian 12, below `/usr`: another one has other libraries, and other names for them."""
    programs = shutil.which("hipcc") and shutil.which("g++")
    if not programs or not list(Path("/usr/lib").glob("*/libamdhip64.so.5.2.*")):
        pytest.skip("not here: apt-get install --no-install-recommends g++ hipcc libamdhip64-dev libhiprand1")


@pytest.fixture(scope="session")
def s3_server() -> Iterator[buckets.Server]:
    """A server of buckets, and the variables that lead to it."""
    with buckets.serving() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        patch.setenv("AWS_CONFIG_FILE", os.devnull)
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("AWS_ENDPOINT_URL_S3", server.endpoint)
        yield server


@pytest.fixture(scope="session")
def base_of_workers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of this run that all workers have."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def program(base_of_workers: Path) -> Installed:
    """Cairn, installed from its wheel; whoever changes anything of it does so in a copy."""
    return installed.install(base_of_workers / "installed")


@pytest.fixture
def cairn(capsys: pytest.CaptureFixture[str]) -> Cairn:
    return Cairn(capsys)
