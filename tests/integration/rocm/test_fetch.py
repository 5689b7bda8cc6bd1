"""Artifacts of a run, from a bucket to the packages of an SDK, by the scripts with upstream's names."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from cairn import files
from cairn.errors import StoreError
from cairn.rocm.fetch.fetch import NOTES
from helpers import artifacts as made
from helpers.buckets import ENDPOINT, Server

SCRIPTS = Path(__file__).parents[3] / "build_tools"
# The bucket of TheRock's own runs, which is made on our server.
BUCKET, RUN = "therock-ci-artifacts", "17123441166"
PUBLIC = {"ACL": "public-read"}


@pytest.fixture(scope="module")
def environment_of_nobody(s3_server: Server) -> Mapping[str, str]:
    """Variables that lead to the server, with no credentials: anyone may read these buckets."""
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("AWS_ACCESS", "AWS_SECRET", "GITHUB_"))}
    kept.pop("RELEASE_TYPE", None)
    return kept | {"AWS_ENDPOINT_URL_S3": s3_server.endpoint, "AWS_EC2_METADATA_DISABLED": "true"}


@pytest.fixture(scope="module")
def run(artifacts_once: Path, tmp_path_factory: pytest.TempPathFactory, s3_server: Server) -> Path:
    """A run of TheRock's, whose outputs are in its bucket; the folder that they came from."""
    if ENDPOINT in os.environ:
        pytest.skip("it makes a bucket with a fixed name")
    folder = tmp_path_factory.mktemp("run")
    for number, artifact in enumerate(sorted(artifacts_once.iterdir())):
        made.pack(folder, f"{artifact.name}.tar.{'zst' if number % 2 else 'xz'}", artifact)
    with contextlib.suppress(s3_server.client.exceptions.BucketAlreadyOwnedByYou):
        s3_server.client.create_bucket(Bucket=BUCKET)
    for path in folder.iterdir():
        s3_server.client.upload_file(str(path), BUCKET, f"{RUN}-linux/{path.name}", ExtraArgs=PUBLIC)
    for name in ("index-gfx94X-dcgpu.html", "logs/gfx942/build.log", "manifests/therock_manifest.json"):
        s3_server.client.put_object(Bucket=BUCKET, Key=f"{RUN}-linux/{name}", Body=b"x")
    return folder


def script(name: str, *words: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPTS / f"{name}.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.slow
@pytest.mark.usefixtures("run")
def test_the_lines_of_upstreams_page_make_the_packages(
    tmp_path: Path, environment_of_nobody: Mapping[str, str]
) -> None:
    home = tmp_path / "home dir"
    fetched = script(
        "fetch_artifacts", f"--run-id={RUN}", f"--output-dir={home}/artifacts",
        environment=environment_of_nobody,
    )  # fmt: skip
    assert fetched.returncode == 0, fetched.stderr
    (home / "artifacts/core-hip_lib_generic/base/core-hip_lib_generic/stage/.info").mkdir()
    (home / "artifacts/core-hip_lib_generic/base/core-hip_lib_generic/stage/.info/version").write_text(
        "7.10.0-123\n"
    )
    packaged = script(
        "build_python_packages",
        f"--artifact-dir={home}/artifacts", f"--dest-dir={home}/packages",
        "--linux-amdgpu-families=gfx110X-all;gfx942", "--windows-amdgpu-families=gfx120X-all",
        environment=environment_of_nobody,
    )  # fmt: skip
    assert packaged.returncode == 0, packaged.stderr
    assert sorted(p.name for p in (home / "packages/dist").iterdir()) == [
        "rocm-7.10.0.dev0.tar.gz",
        "rocm_sdk_core-7.10.0.dev0-py3-none-manylinux_2_28_x86_64.whl",
        "rocm_sdk_devel-7.10.0.dev0-py3-none-manylinux_2_28_x86_64.whl",
        "rocm_sdk_libraries_gfx110x_all-7.10.0.dev0-py3-none-manylinux_2_28_x86_64.whl",
        "rocm_sdk_libraries_gfx942-7.10.0.dev0-py3-none-manylinux_2_28_x86_64.whl",
    ]
    lacking = script(
        "build_python_packages",
        f"--artifact-dir={home}/artifacts", f"--dest-dir={home}/more", "--linux-amdgpu-families=gfx120X-all",
        environment=environment_of_nobody,
    )  # fmt: skip
    assert lacking.returncode == 2
    assert "no artifacts for gfx1200" in lacking.stderr


@pytest.mark.usefixtures("run")
def test_one_family_of_a_run_and_again(tmp_path: Path, environment_of_nobody: Mapping[str, str]) -> None:
    words = [f"--run-id={RUN}", "--target=gfx110X-all", f"--output-dir={tmp_path}/out", "--json"]
    found = json.loads(script("fetch_artifacts", *words, environment=environment_of_nobody).stdout)
    found = found["artifacts"]
    assert {each["target"] for each in found} == {"generic", "gfx110X-all"}
    assert not any(each["already"] for each in found)
    assert sorted(p.name for p in (tmp_path / "out").iterdir() if p.name != ".fetched") == sorted(
        each["artifact"] for each in found
    )
    again = json.loads(script("fetch_artifacts", *words, environment=environment_of_nobody).stdout)
    again = again["artifacts"]
    assert all(each["already"] for each in again)
    assert [each["sha256"] for each in again] == [each["sha256"] for each in found]
    flat = script(
        "fetch_artifacts", f"--run-id={RUN}", "--amdgpu-targets=gfx942", f"--output-dir={tmp_path}/flat",
        "--flatten", "rand", "core-hip_(lib|run)", "--exclude", "_dev_", environment=environment_of_nobody,
    )  # fmt: skip
    assert flat.returncode == 0, flat.stderr
    assert (tmp_path / "flat/lib/libhiprand.so.1").is_file()
    assert (tmp_path / "flat/bin/hipcc").is_symlink()  # into an artifact that was not asked for
    assert not (tmp_path / "flat/include").exists()


def test_a_run_that_is_not_there_is_looked_for_where_forks_write(
    run: Path, tmp_path: Path, environment_of_nobody: Mapping[str, str], s3_server: Server
) -> None:
    with contextlib.suppress(s3_server.client.exceptions.BucketAlreadyOwnedByYou):
        s3_server.client.create_bucket(Bucket=f"{BUCKET}-external")
    for path in run.iterdir():
        s3_server.client.upload_file(
            str(path), f"{BUCKET}-external", f"ROCm-TheRock/99-linux/{path.name}", ExtraArgs=PUBLIC
        )
    words = ["--output-dir", str(tmp_path / "out"), "--dry-run"]
    found = script("fetch_artifacts", "--run-id=99", *words, environment=environment_of_nobody)
    assert found.returncode == 0, found.stderr
    assert not (tmp_path / "out").exists()
    none = script("fetch_artifacts", "--run-id=98", *words, environment=environment_of_nobody)
    assert none.returncode == 2
    assert "no artifacts at s3://therock-ci-artifacts-external/ROCm-TheRock/98-linux" in none.stderr


@pytest.mark.parametrize("damage", ["truncated", "another"])
def test_an_upload_that_is_not_what_its_sha256_says_is_refused(
    run: Path, tmp_path: Path, environment_of_nobody: Mapping[str, str], s3_server: Server, damage: str
) -> None:
    path = next(run.glob("rand_lib_gfx942.tar.*[tx]z*"))
    name = path.name.removesuffix(".sha256sum")
    data = (run / name).read_bytes()
    body = data[:-9] if damage == "truncated" else data[:-9] + b"different"
    s3_server.client.put_object(Bucket=BUCKET, Key=f"{RUN}-linux/{name}", Body=body, **PUBLIC)
    words = ["rocm", "fetch", "--store", f"s3://{BUCKET}/{RUN}-linux", "--output-dir", str(tmp_path / "out")]
    done = subprocess.run(
        [sys.executable, "-m", "cairn", *words], capture_output=True, text=True, check=False,
        env=environment_of_nobody,
    )  # fmt: skip
    s3_server.client.put_object(Bucket=BUCKET, Key=f"{RUN}-linux/{name}", Body=data, **PUBLIC)
    assert done.returncode == StoreError.exit_code
    assert f"{name} is not what its sha256sum says" in done.stderr
    assert not (tmp_path / "out/rand_lib_gfx942").exists()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_fetch_that_is_ended_half_way_goes_on(
    tmp_path: Path, s3_server: Server, how: signal.Signals
) -> None:
    folder, bucket = tmp_path / "run", s3_server.new_bucket()
    for number in range(6):
        made.write(folder, f"a{number}_lib_generic.tar.zst", {"x": os.urandom(3_000_000)})
    for path in folder.iterdir():
        s3_server.client.upload_file(str(path), bucket, path.name)
    out = tmp_path / "out"
    command = [sys.executable, "-m", "cairn", "rocm", "fetch", "--store", f"s3://{bucket}", "--jobs", "1",
               "--endpoint-url", s3_server.endpoint, "--output-dir", str(out), "--json"]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        begun = time.monotonic()
        # Noted as done: between that and the folder, which comes first, is another moment to be ended in.
        note = out / NOTES / "a1_lib_generic.json"
        while '"sha256": ""' in files.text_or_empty(note) + '"sha256": ""' * (not note.exists()):
            assert time.monotonic() - begun < 60
            time.sleep(0.005)
        process.send_signal(how)
        ended = time.monotonic()
        process.communicate()
        assert time.monotonic() - ended < 5
        assert process.returncode != 0
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)["artifacts"]
    assert [each["already"] for each in found][:2] == [True, True] or how is signal.SIGKILL
    assert any(each["already"] for each in found)
    assert len(found) == 6
    for number in range(6):
        assert (out / f"a{number}_lib_generic/base/a{number}_lib_generic/stage/x").stat().st_size == 3_000_000
