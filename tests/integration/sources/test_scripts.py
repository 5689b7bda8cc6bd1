"""Upstream's scripts: their names and flags, and a clear line where Cairn is not installed."""

from __future__ import annotations

import functools
import http.server
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from cairn.cli import main as program
from helpers.sources import Upstream, git

SCRIPTS = Path(__file__).resolve().parents[3] / "external-builds" / "pytorch"


def run(
    script: str, *args: str, python: tuple[str, ...] = (sys.executable,)
) -> subprocess.CompletedProcess[str]:
    name = script if script.endswith(".py") else f"pytorch_{script}_repo.py"
    command = [*python, str(SCRIPTS / name), *args]
    return subprocess.run(command, check=False, capture_output=True, text=True, env=os.environ.copy())


def test_the_documented_path(upstream: Upstream, tmp_path: Path) -> None:
    upstream.create("torchvision", {"version.txt": "0.24.0\n"})
    pin = upstream.commit("torchvision", {"version.txt": "0.24.1\n"}, "Pinned")
    line = f"ubuntu|pytorch|torchvision|release/0.24|{pin}|../torchvision.git\n"
    upstream.commit("torch", {"related_commits": line}, "Pin", branch="release/2.9")
    torch = tmp_path / "src" / "pytorch"
    done = run(
        "torch", "checkout", "--gitrepo-origin", upstream.origin("torch"), "--repo-hashtag", "release/2.9",
        "--checkout-dir", str(torch), "--jobs", "2", "--submodules", "--no-hipify",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert run("torch", "hipify", "--checkout-dir", str(torch)).returncode == 0
    assert git(torch, "log", "-2", "--format=%s").splitlines() == ["DO NOT SUBMIT: HIPIFY", "Pin"]
    assert str(torch) in done.stdout
    vision = run(
        "vision", "checkout", "--torch-dir", str(torch), "--require-related-commit",
        "--checkout-dir", str(tmp_path / "src" / "vision"), "--depth", "1", "--commit-hipify",
    )  # fmt: skip
    assert vision.returncode == 0, vision.stderr
    assert (tmp_path / "src/vision/version.txt").read_text() == "0.24.1\n"


@pytest.mark.parametrize("script", ["torch", "audio", "vision", "triton", "apex"])
def test_every_documented_flag_is_there(script: str) -> None:
    shown = run(script, "checkout", "--help").stdout
    flags = "checkout-dir repo-name gitrepo-origin repo-hashtag depth jobs submodules no-submodules"
    extra = {"torch": "", "audio": "torch-dir require-related-commit", "triton": "torch-dir release"}
    wanted = f"{flags} hipify no-hipify commit-hipify no-commit-hipify {extra.get(script, extra['audio'])}"
    missing = [flag for flag in wanted.split() if f"--{flag}" not in shown]
    assert missing == []


def test_apex_is_at_the_commit_that_torch_names(upstream: Upstream, tmp_path: Path) -> None:
    pin = upstream.create("apex", {"version.txt": "1.9.0\n"})
    upstream.commit("apex", {"version.txt": "1.10.0\n"}, "Moved on")
    line = f"ubuntu|pytorch|apex|master|{pin}|../apex.git\n"
    upstream.commit("torch", {"related_commits": line}, "Pin")
    torch, apex = tmp_path / "pytorch", tmp_path / "apex"
    git(tmp_path, "clone", "--quiet", upstream.origin("torch"), str(torch))
    done = run(
        "apex", "checkout", "--torch-dir", str(torch), "--checkout-dir", str(apex), "--require-related-commit"
    )
    assert done.returncode == 0, done.stderr
    assert (apex / "version.txt").read_text() == "1.9.0\n"


def therocks_manifest(upstream: Upstream, path: Path, **entries: Any) -> Path:
    """As generate_pytorch_source_manifest.py of TheRock writes one."""
    vision = upstream.create("torchvision", {"version.txt": "0.24.0\n"})
    upstream.commit("torchvision", {"version.txt": "0.25.0\n"}, "Moved on")
    torch = upstream.commit("torch", {"version.txt": "2.9.1\n"}, "Frozen")
    upstream.commit("torch", {"version.txt": "2.9.2\n"}, "Moved on")
    own = {
        "repo": "https://github.com/ROCm/TheRock",
        "commit": "1" * 40,
        "branch": "main",
        "version": "7.14.0",
    }
    frozen = {
        "schema_version": 1,
        "pytorch_vision": {"repo": upstream.origin("torchvision"), "commit": vision, "branch": "main"},
        "pytorch": {
            "repo": upstream.origin("torch"), "commit": torch, "branch": "main", "version": "2.9.1+rocm7",
        },
        "therock": own,
    }  # fmt: skip
    path.write_text(json.dumps(frozen | entries, indent=2))
    return path


def test_a_manifest_of_therocks_is_checked_out(upstream: Upstream, tmp_path: Path) -> None:
    path = therocks_manifest(upstream, tmp_path / "m.json")
    done = run("checkout_from_manifest.py", "--manifest", str(path), "--checkout-root", str(tmp_path / "src"))
    assert done.returncode == 0, done.stderr
    assert sorted(folder.name for folder in (tmp_path / "src").iterdir()) == ["pytorch", "pytorch_vision"]
    assert (tmp_path / "src/pytorch/version.txt").read_text() == "2.9.1\n"
    assert (tmp_path / "src/pytorch/src/hip/kernel.hip").exists()
    assert (tmp_path / "src/pytorch_vision/version.txt").read_text() == "0.24.0\n"


def test_flags_of_checkout_from_manifest(upstream: Upstream, tmp_path: Path) -> None:
    path = therocks_manifest(upstream, tmp_path / "m.json")
    common = ("--manifest", str(path), "--checkout-root", str(tmp_path / "src"))
    done = run("checkout_from_manifest.py", *common, "--projects", "pytorch;", "--no-hipify")
    assert done.returncode == 0, done.stderr
    assert [folder.name for folder in (tmp_path / "src").iterdir()] == ["pytorch"]
    assert not (tmp_path / "src/pytorch/src/hip").exists()
    done = run("checkout_from_manifest.py", *common, "--expected-pytorch-git-ref", "release/2.9")
    assert (done.returncode, "is of main, and release/2.9 was expected" in done.stderr) == (2, True)
    done = run("checkout_from_manifest.py", *common, "--projects", "pytorch_audio")
    assert (done.returncode, "does not have pytorch_audio" in done.stderr) == (2, True)


def test_a_manifest_of_therocks_from_a_server(upstream: Upstream, tmp_path: Path) -> None:
    therocks_manifest(upstream, tmp_path / "m.json")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url, root = f"http://127.0.0.1:{server.server_port}", tmp_path / "src"
        common = ("--checkout-root", str(root), "--projects", "pytorch_vision")
        done = run("checkout_from_manifest.py", "--manifest-url", f"{url}/m.json", *common)
        assert done.returncode == 0, done.stderr
        assert (root / "pytorch_manifest.json").read_bytes() == (tmp_path / "m.json").read_bytes()
        done = run("checkout_from_manifest.py", "--manifest-url", f"{url}/none.json", *common)
        server.shutdown()
    assert (done.returncode, "404" in done.stderr, done.stderr.count("error: ")) == (5, True, 1)


def test_cairns_own_command_recognises_a_manifest_of_therocks(
    upstream: Upstream, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = therocks_manifest(upstream, tmp_path / "m.json")
    place = ["--root-checkout-dir", str(tmp_path / "src")]
    assert program.main(["manifest", "checkout", str(path), *place]) == 2
    assert "is a manifest of TheRock's" in capsys.readouterr().err
    assert program.main(["manifest", "checkout", str(path), *place, "--stack", str(SCRIPTS)]) == 0
    assert "torch 2.9.1 at" in capsys.readouterr().out
    for command in (["diff", str(path), str(path)], ["manifest", "verify", str(path), *place]):
        assert program.main(command) == 2
        assert "is a manifest of TheRock's" in capsys.readouterr().err


def test_without_cairn_the_script_says_how_to_get_it(home: Path) -> None:
    # -S -E: an interpreter that sees nothing but the standard library.
    done = run("torch", "checkout", python=(sys.executable, "-S", "-E"))
    assert home.is_dir()
    assert (done.returncode, done.stdout) == (3, "")
    assert len(done.stderr.splitlines()) == 1
    assert "pip install -e" in done.stderr
    assert "dev.py" in done.stderr
