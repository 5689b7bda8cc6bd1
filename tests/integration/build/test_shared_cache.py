"""Machines that share a bucket of wheels: what one has built, the others fetch."""

from __future__ import annotations

import dataclasses
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from cairn import files, isolation
from cairn.build import execution, plan
from cairn.build.cache import SharedCache, WheelCache
from cairn.build.cache import entry as entries
from cairn.build.model import BuildRequest, BuiltWheel
from cairn.retry import RetryPolicy
from cairn.store.buckets import bucket, client
from cairn.store.protocol import CredentialsError, Store
from helpers import build, pure_wheel
from helpers.buckets import Server
from helpers.build import stand_in_compiler
from helpers.faults import Fault, Plan
from helpers.faulty_server import faulty_server

Machine = Callable[..., BuildRequest]


@pytest.fixture
def shared(s3_server: Server) -> SharedCache:
    """A bucket to share."""
    return SharedCache(url=f"s3://{s3_server.new_bucket()}/wheels", endpoint_url=s3_server.endpoint)


@pytest.fixture
def store(shared: SharedCache) -> Store:
    """What is in it."""
    return bucket.BucketStore(client.connect(shared.url, endpoint_url=shared.endpoint_url))


@pytest.fixture
def machine(tmp_path: Path, shared: SharedCache, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """The request to build `a` and `b`, in a folder that only the machine of that name has."""
    stand_in_compiler(tmp_path / "bin", monkeypatch)  # these builds compile nothing
    (tmp_path / "notes").mkdir()
    monkeypatch.setenv(isolation.VARIABLE, str(tmp_path / "notes"))
    names = {name: pure_wheel.backend(name, str(tmp_path / "notes" / "builds")) for name in ("a", "b")}
    request = build.request(tmp_path / "first", names)

    def make(name: str, cache: SharedCache | None = shared) -> BuildRequest:
        folder = tmp_path / name
        trees = {n: shutil.copytree(tree, folder / n) for n, tree in request.checkouts.items()}
        return structs.replace(
            request,
            checkouts=trees,
            output_dir=folder / "out",
            work_dir=folder / "work",
            cache_dir=folder / "cache",
            shared_cache=cache,
        )

    return make


def built(tmp_path: Path) -> int:
    """How many builds there were."""
    path = tmp_path / "notes" / "builds"
    return len(path.read_text().split()) if path.exists() else 0


def run(request: BuildRequest) -> tuple[BuiltWheel, ...]:
    return execution.run(plan.make(request))


@pytest.mark.slow
def test_what_one_machine_has_built_the_next_does_not_build(
    machine: Machine, tmp_path: Path, shared: SharedCache
) -> None:
    first = run(machine("one"))
    assert [wheel.origin for wheel in first] == ["built", "built"]
    assert built(tmp_path) == 2
    request = machine("two")
    # A plan that is only shown knows of the wheels, and fetches none.
    only = structs.replace(request, shared_cache=structs.replace(shared, fetched=False))
    assert all(step.hit is not None for step in plan.make(only))
    assert not list(request.cache_dir.rglob("*.whl"))
    second = run(request)
    assert built(tmp_path) == 2
    assert [wheel.origin for wheel in second] == ["shared", "shared"]
    assert all(wheel.cached and wheel.builder.startswith("Cairn ") for wheel in second)
    assert [wheel.sha256 for wheel in second] == [wheel.sha256 for wheel in first]
    assert all(wheel.wheel.read_bytes() for wheel in second)
    entry = next(request.wheel_cache.recent("a"))
    log = request.wheel_cache.log(entry)
    assert log is not None
    assert "building a" in log.read_text()
    assert [wheel.origin for wheel in run(request)] == ["local", "local"]


@pytest.mark.slow
def test_a_poisoned_wheel_is_refused_by_what_a_built_one_goes_through(
    machine: Machine, tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    one = machine("one")
    run(one)
    # Somebody who may write there puts the wheel of `b` under the key of `a`, with all digests right.
    entry = next(e for e in one.wheel_cache.recent("a") if e.key == e.first_key)
    key = entry.key
    other = next(one.wheel_cache.recent("b"))
    wheel = one.wheel_cache.local.path(other).read_bytes()
    plain = json.loads(store.read(entries.entry_key(key)).data)
    forged = {**plain, "sha256": other.sha256, "size": other.size, "file_name": entry.file_name}
    store.write(f"files/{other.sha256[:2]}/{other.sha256}/{entry.file_name}", wheel)
    store.write(entries.entry_key(key), json.dumps(forged).encode())
    capsys.readouterr()
    found = run(machine("two"))
    assert [wheel.origin for wheel in found] == ["built", "shared"]
    said = [line for line in capsys.readouterr().err.splitlines() if "put there by Cairn" in line]
    assert len(said) == 1
    assert built(tmp_path) == 3
    assert [wheel.origin for wheel in run(machine("three"))] == ["shared", "shared"]


@pytest.mark.slow
def test_a_bucket_out_of_reach_is_a_warning_and_a_build(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        endpoint = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        request = machine("one", SharedCache(url="s3://bucket/wheels", endpoint_url=endpoint))
        begun = time.monotonic()
        plan.make(request)
        assert time.monotonic() - begun < 10
        found = run(request)
    assert [wheel.origin for wheel in found] == ["built", "built"]
    said = [line for line in capsys.readouterr().err.splitlines() if "cannot be used" in line]
    assert len(said) == 1
    assert "the build goes on without it" in said[0]


@pytest.mark.slow
@pytest.mark.parametrize("code", ["ExpiredToken", "InvalidAccessKeyId"])
def test_credentials_that_are_no_good_end_a_build_before_it_begins(
    machine: Machine, shared: SharedCache, s3_server: Server, tmp_path: Path, code: str
) -> None:
    with faulty_server(s3_server.endpoint) as server:
        server.refuses = code
        with pytest.raises(CredentialsError):
            run(machine("one", SharedCache(url=shared.url, endpoint_url=server.endpoint)))
    assert built(tmp_path) == 0


@pytest.mark.slow
def test_credentials_that_expire_during_a_build_lose_no_wheel_and_are_an_error(
    machine: Machine, shared: SharedCache, store: Store, s3_server: Server, tmp_path: Path
) -> None:
    """A build of hours goes on, and whoever counts on the cache is told that not all of it is there."""
    with faulty_server(s3_server.endpoint) as server:

        def expire(_number: int) -> None:
            if built(tmp_path):
                server.refuses = "ExpiredToken"

        server.before = expire
        request = machine("one", SharedCache(url=shared.url, endpoint_url=server.endpoint))
        with pytest.raises(CredentialsError, match="have expired"):
            run(request)
    assert built(tmp_path) == 2
    assert len(list(request.output_dir.glob("*.whl"))) == 2
    assert list(store.list("entries/")) == []
    # With new ones, the same command takes what is there.
    assert [wheel.origin for wheel in run(machine("one again"))] == ["built", "built"]


@pytest.mark.slow
def test_the_commands_show_and_trim_what_machines_share(
    machine: Machine, shared: SharedCache, tmp_path: Path, store: Store
) -> None:
    request = machine("one")
    for name in ("a", "b"):
        wheel = build_wheel(tmp_path / "w", name)
        request.wheel_cache.put(name * 64, wheel, seconds=61, project=name)
    where = ["--cache-store", shared.url, "--endpoint-url", str(shared.endpoint_url)]
    found = json.loads(cairn(*where, "--json"))
    assert sorted(each["project"] for each in found["entries"]) == ["a", "b"]
    assert found["size"] == sum(each["size"] for each in found["entries"])
    assert "1 min 01 s" in cairn(*where)
    trimmed = json.loads(cairn("--trim", *where, "--max-size", "0", "--dry-run", "--json"))
    assert (len(trimmed["removed"]), trimmed["kept"]) == (2, 0)
    assert len(list(store.list("entries/"))) == 2
    cairn("--trim", *where, "--max-size", "0")
    assert list(store.list("")) == []


def build_wheel(folder: Path, name: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-1-py3-none-any.whl"
    path.write_bytes(name.encode())
    return path


def cairn(*words: str) -> str:
    command = [sys.executable, "-m", "cairn", "build", "cache", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
@pytest.mark.by_hand
@pytest.mark.parametrize("fault", [Fault.LOST_AND_REPEATED, Fault.BUSY, Fault.TRUNCATED])
def test_a_fault_at_any_request_on_the_line_is_no_failure(
    s3_server: Server, tmp_path: Path, fault: Fault, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel, key = build_wheel(tmp_path / "w", "a"), "a" * 64
    name = s3_server.new_bucket()
    with faulty_server(s3_server.endpoint) as line:
        place = client.connect(f"s3://{name}/x", endpoint_url=line.endpoint)
        place = dataclasses.replace(place, policy=RetryPolicy(attempts=3, wait=0.01))

        def use(machines: str, prefix: str, plan: Plan) -> int:
            """Put a wheel from one machine and get it on the next; how many requests that takes."""
            line.plan = plan
            there = bucket.BucketStore(dataclasses.replace(place, prefix=f"{prefix}/"))
            put = WheelCache(tmp_path / machines / "one", shared=there).put(key, wheel, seconds=1, log=wheel)
            assert put.entry.sha256 == files.sha256_of(wheel)
            found = WheelCache(tmp_path / machines / "two", shared=there).get(key)
            # A fault that the client does not get over is said, and costs a build and no more.
            warned = "warning: the shared cache" in capsys.readouterr().err
            assert warned if found is None else found.wheel.read_bytes() == wheel.read_bytes()
            return len(plan.requests)

        for at in range(1, use("count", "count", Plan()) + 1):
            use(f"{at}", f"{at}", Plan(fault, at))
            use(f"{at}-again", f"{at}", Plan())
            assert WheelCache(tmp_path / f"{at}-again/two").get(key) is not None
