"""Three promoters, two publishers and one that rolls back, killed again and again, while clients install."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cairn.release.audit.audit import audit
from cairn.release.history import difference
from cairn.release.index.commit import recover
from cairn.release.index.keys import index_url
from cairn.release.index.snapshot import Index, existing, read_set
from cairn.release.serve import serving
from cairn.store.folder import LocalStore
from cairn.store.opening import open_store
from cairn.store.protocol import Store
from helpers.buckets import Server
from helpers.release import make_set, make_wheel, move, stage_set

pytestmark = pytest.mark.slow

Install = Callable[..., "subprocess.CompletedProcess[str]"]

INSTALLS = int(os.environ.get("CAIRN_TEST_INSTALLS", "10"))
"""At least so many with pip and with uv together; 400 takes half an hour."""

PROMOTERS = 3
SETS = 3  # of each promoter

# Each goes on until it is killed. What was killed is begun again, as CI would.
WRITERS = {
    "promote": """
from cairn.release.index.snapshot import read_set
from helpers.buckets import Server
from helpers.release import move
for set_id in itertools.cycle(words):
    move(store, read_set(store, set_id))
""",
    "publish": """
from cairn.release.publish.files import publish
for path in words:
    publish(store, "staging", [Path(path)])
""",
    "rollback": """
from cairn.release.history.rollback import rollback
while True:
    time.sleep(random.uniform(0, 1))
    rollback(store, "release", "1", reason="again")
""",
}
HEAD = """
import itertools, random, sys, time
from pathlib import Path
from cairn.store.opening import open_store
store, words = open_store(sys.argv[1]), sys.argv[2:]
"""


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.by_hand)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A new store, which other processes open by its URL."""
    if request.param == "folder":
        return LocalStore(tmp_path / "store")
    server: Server = request.getfixturevalue("s3_server")
    return open_store(f"s3://{server.new_bucket()}/below")


def stage(store: Store, folder: Path, version: str) -> str:
    """Stage a set whose wheels all have one version; its id."""
    wheels = [
        make_wheel(folder, "triton", version),
        make_wheel(folder, "torch", version, requires=[f"triton=={version}"]),
        make_wheel(folder, "torchvision", version, requires=[f"torch=={version}"]),
    ]
    return stage_set(store, "staging", make_set(wheels), wheels).id


class Writer:
    """A process that writes to the store, begun again whenever it was killed, until all is over."""

    def __init__(self, kind: str, store: Store, *words: str) -> None:
        self.command = [sys.executable, "-c", HEAD + WRITERS[kind], store.url, *words]
        self.env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
        self.kills = 0
        self.failures: list[str] = []
        self.process = self._begin()

    def kill(self, *, again: bool) -> None:
        """End it as the kernel would, wherever it is; one that has come to its end stays there."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGKILL)
            self._reap()
        if again and self.process.returncode:
            self.process = self._begin()

    def end(self) -> None:
        """Let it come to its end, from the beginning where it was killed last."""
        if self.process.returncode:
            self.process = self._begin()
        if self.process.returncode is None:
            self._reap()

    def _reap(self) -> None:
        said = self.process.communicate()[1]
        self.kills += self.process.returncode == -signal.SIGKILL
        if self.process.returncode not in (0, -signal.SIGKILL):
            self.failures.append(said)

    def _begin(self) -> subprocess.Popen[str]:
        return subprocess.Popen(self.command, env=self.env, stderr=subprocess.PIPE, text=True)


def has_met_all(store: Store, writers: list[Writer]) -> bool:
    """Whether clients have met enough kills, and a rollback."""
    actions = {entry.action for entry in difference.entries(store, "release")}
    return kills(writers) > PROMOTERS and "rollback" in actions


def kills(writers: list[Writer]) -> int:
    return sum(writer.kills for writer in writers)


@contextlib.contextmanager
def killed_again_and_again(writers: list[Writer]) -> Iterator[None]:
    """Kill one of the writers every now and then while the block lasts."""
    over = threading.Event()
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", HEAD, writers[0].command[3]], check=True)
    start = time.monotonic() - began  # on a busy machine no writer would come further than its imports

    def kill() -> None:
        choose = random.Random(0)  # noqa: S311 - which one is killed
        while not over.wait(choose.uniform(0.2, 1) * max(1, 3 * start)):
            choose.choice(writers).kill(again=True)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_clients_install_whole_sets_while_writers_are_killed(
    place: Store, tmp_path: Path, install: Install
) -> None:
    store = place
    ids = [stage(store, tmp_path / f"set{n}", f"2.9.{n}") for n in range(1 + PROMOTERS * SETS)]
    move(store, read_set(store, ids[0]))
    wheels = [[str(make_wheel(tmp_path / f"by{n}", "tool", f"{n}.{m}")) for m in range(12)] for n in range(2)]
    shares = [ids[1 + n * SETS : 1 + (n + 1) * SETS] for n in range(PROMOTERS)]
    promoters = [Writer("promote", store, *share) for share in shares]
    publishers = [Writer("publish", store, *share) for share in wheels]
    writers = [*promoters, *publishers, Writer("rollback", store)]
    seen: list[set[str]] = []
    with serving(store) as server, killed_again_and_again(writers):
        while (n := len(seen)) < INSTALLS or (n < 4 * INSTALLS and not has_met_all(store, writers)):
            target = tmp_path / f"target{n}"
            tool = ("pip", "uv")[n % 2]
            done = install(tool, index_url(server.url, "release"), "torch", "torchvision", target=target)
            assert done.returncode == 0, done.stderr
            seen.append({path.name for path in target.glob("*.dist-info")})
    for writer in writers:
        if writer in publishers:
            writer.end()
        else:
            writer.kill(again=False)
    assert [writer.failures for writer in writers] == [[]] * len(writers)
    assert kills(writers) > PROMOTERS
    versions = [{name.split("-")[1] for name in names} for names in seen]
    assert [len(found) for found in versions] == [1] * len(seen), "a mix of sets"
    assert all(len(names) == len(("torch", "torchvision", "triton")) for names in seen)
    check_store(store, [Path(path).name for share in wheels for path in share])


def check_store(store: Store, published: list[str]) -> None:
    """Nothing is lost, every generation is true, and all pages show the current generation."""
    for name in existing(store):
        recover(Index(store, name))
    assert audit(store, hashes=True).problems == ()
    page = json.loads(store.read("staging/simple/tool/index.json").data)
    assert {file["filename"] for file in page["files"]} == set(published)
    entries = list(difference.entries(store, "release"))
    assert {entry.action for entry in entries} == {"promote", "rollback"}
    assert [entry.number for entry in entries] == list(range(len(entries), 0, -1))
