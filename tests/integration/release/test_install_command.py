"""`cairn install` from an index that Cairn published, over HTTP: the lines work, and so does installing."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import pytest

from cairn import venv
from cairn.cli.main import main
from cairn.release.serve import serving
from cairn.release.trust import anchor, signers
from cairn.store.folder import LocalStore
from helpers.hardware import RX7900, TORCH, kernel_nodes
from helpers.pages import PLATFORM, PYTHON
from helpers.release import make_set, make_wheel, move, stage_set


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a set for gfx1100 in the index of its family, and a newer one in the channel."""
    folder = tmp_path_factory.mktemp("released")
    store = LocalStore(folder / "store")
    for version, targets, family, index in (
        ("2.9.0", ("gfx1100", "gfx1101"), "gfx110X-all", "release/gfx110X-all"),
        ("2.10.0", ("gfx942",), "gfx94X-dcgpu", "release"),
    ):
        content = TORCH.replace("{version}", version)
        torch = make_wheel(folder / version, "torch", version, content=content)
        vision = make_wheel(folder / version, "torchvision", f"0.{version}", requires=[f"torch=={version}"])
        made = make_set([torch, vision], family=family, targets=targets, python=PYTHON, platform=PLATFORM)
        sealed = stage_set(store, "staging", made, [torch, vision])
        move(
            store, sealed, target=index, untested="untested on hardware: gfx1101; bypassed by ann: none here"
        )
    return store.path


@pytest.fixture
def released(pristine: Path, store: LocalStore) -> LocalStore:
    """That store, for the test to change."""
    shutil.copytree(pristine, store.path)
    return store


@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_what_is_for_a_gpu_is_installed_and_proved(
    released: LocalStore,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    installer: str,
) -> None:
    environment = venv.create(tmp_path / "environment")
    with serving(released, port=0) as server:
        words = ["--index-url", f"{server.url}/release/simple/", "--python", str(environment.python)]
        words += ["--installer", installer]
        assert main(["install", *words, "--gpu", "RX 7900 XTX"]) == 0
        # The GPU beside it, which the wheels have no code for, is not asked.
        proof = "it works: torch 2.9.0 has multiplied matrices on RX 7900 XTX (gfx1100); "
        proof += "imported: torchvision\n"
        assert capsys.readouterr().out == proof
        nodes = kernel_nodes(tmp_path, RX7900)
        for user, problem in (
            ("nogpu", "sees no GPU of gfx1100"),
            ("nokernel", "no kernel image is available"),
        ):
            monkeypatch.setenv("USER", user)
            assert main(["install", *words, "--topology-dir", str(nodes)]) == 3
            printed = capsys.readouterr()
            assert problem in printed.err
            assert "what to do: `cairn doctor --for install`" in printed.err
            # That GPU may be in the machine that an image is made for.
            assert main(["install", *words, "--gpu", "gfx1100", "--json"]) == 0
            proof = json.loads(capsys.readouterr().out)["proof"]
            assert (proof["works"], problem in proof["text"]) == (False, True)
    ask = "import torch, torchvision; print(torch.VERSION, torchvision.VERSION)"
    done = subprocess.run([environment.python, "-c", ask], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2.9.0", "0.2.9.0"]


@pytest.mark.parametrize("installer", ["pip", "uv"])
@pytest.mark.parametrize(
    ("before", "code"),
    [("2.8.0", 0), ("2.11.0", 0), ("2.9.0+cu128", 3)],
    ids=["older", "newer", "CUDA"],
)
def test_what_was_announced_is_there_afterwards(
    released: LocalStore,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    installer: str,
    before: str,
    code: int,
) -> None:
    after = before if code else "2.9.0"
    environment = venv.create(tmp_path / "environment")
    wheel = make_wheel(tmp_path, "torch", before, content=TORCH.replace("{version}", before))
    uv = [venv.uv_program(), "pip", "install", "-q", "--python", environment.python, "--no-deps", wheel]
    subprocess.run(uv, check=True)
    with serving(released, port=0) as server:
        words = ["--index-url", f"{server.url}/release/simple/", "--python", str(environment.python)]
        assert main(["install", *words, "--installer", installer, "--gpu", "RX 7900 XTX"]) == code
    printed = capsys.readouterr()
    assert (f"torch {after}, not 2.9.0" in printed.err) == bool(code)
    assert ("it works: torch 2.9.0" in printed.out) != bool(code)
    ask = "import importlib.metadata; print(importlib.metadata.version('torch'))"
    done = subprocess.run([environment.python, "-c", ask], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == after


def test_the_printed_line_installs_in_a_shell(
    released: LocalStore,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    isolated: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environment = venv.create(tmp_path / "environment")
    monkeypatch.setenv("VIRTUAL_ENV", str(environment.path))
    with serving(released, port=0) as server:
        assert (
            main(
                [
                    "install",
                    "--index-url",
                    server.url + "/release/simple",
                    "--gpu",
                    "gfx942",
                    "--json",
                    "--dry-run",
                ]
            )
            == 0
        )
        (choice,) = json.loads(capsys.readouterr().out)["choices"]
        assert choice["versions"] == {"torch": "2.10.0", "torchvision": "0.2.10.0"}
        env = {
            **isolated,
            "VIRTUAL_ENV": str(environment.path),
            "PATH": f"{Path(sys.executable).parent}:{isolated['PATH']}",
        }
        subprocess.run(["bash", "-c", choice["uv"]], env=env, check=True, capture_output=True)
    done = subprocess.run(
        [environment.python, "-c", "import torch; print(torch.VERSION)"], capture_output=True, check=True
    )
    assert done.stdout.split() == [b"2.10.0"]


def test_an_index_out_of_reach(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    assert (
        main(["install", "--dry-run", "--index-url", "http://127.0.0.1:9/release/simple/", "--gpu", "cpu"])
        == 5
    )
    message = capsys.readouterr().err
    assert "cannot read http://127.0.0.1:9/" in message
    assert "check the URL, the network" in message


class Places:
    """A person's environment, and one that Cairn is installed in, as `uv tool install` makes it."""

    def __init__(self, folder: Path, store: LocalStore, env: Mapping[str, str]) -> None:
        self.mine = venv.create(folder / "mine")
        self.tool = venv.create(folder / "tools" / "cairn")
        ours = [sysconfig.get_path("purelib"), str(Path(__file__).parents[3] / "build_tools")]
        (self.tool.site_packages / "cairn.pth").write_text("\n".join(ours))
        self.store = store
        dropped = ("VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PATH")
        self.env = {name: value for name, value in env.items() if name not in dropped}

    def run(self, *words: str | Path, path: str = "", **env: str) -> "subprocess.CompletedProcess[str]":
        """Run the tool, whose own folder of programs is on PATH first."""
        command = [self.tool.python, "-m", "cairn", "install", "--store", self.store.path]
        path = os.pathsep.join((str(self.tool.bin), path or "/usr/bin:/bin"))
        return subprocess.run(
            [*command, "--gpu", "gfx942", *words],
            env={**self.env, "PATH": path, **env},
            capture_output=True,
            text=True,
            check=False,
        )

    def have_torch(self) -> list[str]:
        """Which of the two have torch in their own folder."""
        both = {"mine": self.mine, "tool": self.tool}
        return [name for name, one in both.items() if (one.site_packages / "torch").exists()]


@pytest.fixture
def places(tmp_path: Path, released: LocalStore, isolated: dict[str, str]) -> Places:
    return Places(tmp_path, released, isolated)


@pytest.mark.parametrize("installer", ["pip", "uv"])
@pytest.mark.parametrize("how", ["VIRTUAL_ENV", "CONDA_PREFIX", "file", "folder"])
def test_it_is_installed_where_the_user_works(places: Places, how: str, installer: str) -> None:
    named = {"file": places.mine.python, "folder": places.mine.path}.get(how)
    words = () if named is None else ("--python", named)
    others = {"file": str(places.tool.path), "folder": str(places.mine.path / "gone")}
    variables = {how: str(places.mine.path)} if named is None else {"VIRTUAL_ENV": others[how]}
    done = places.run("--installer", installer, *words, **variables)
    assert done.returncode == 0, done.stderr
    assert places.have_torch() == ["mine"]


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({}, "there is no environment to install into: none is active"),
        ({"VIRTUAL_ENV": "TOOL"}, "the active one, TOOL, is Cairn's own"),
        ({"CONDA_PREFIX": "MINE", "CONDA_DEFAULT_ENV": "base"}, "none is active"),
        ({"VIRTUAL_ENV": "MINE/not-there"}, "VIRTUAL_ENV names MINE/not-there, which has no Python"),
    ],
)
def test_nothing_is_installed_where_nobody_works(
    places: Places, variables: dict[str, str], problem: str
) -> None:
    def real(text: str) -> str:
        return text.replace("TOOL", str(places.tool.path)).replace("MINE", str(places.mine.path))

    done = places.run(**{name: real(value) for name, value in variables.items()})
    assert done.returncode == 2
    assert real(problem) in done.stderr
    assert "what to do: " in done.stderr
    assert "--python" in done.stderr
    assert places.have_torch() == []


@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_a_new_machine_installs_offline_from_a_copy_of_a_store_with_a_root(
    places: Places, installer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the copy and the fingerprint; no network, and no keys."""
    key = tmp_path / "key"
    signers.create(key)
    at, dead = ("--store", str(places.store.path)), "http://127.0.0.1:9"
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "releaser"))
    assert main(["trust", "init", *at, "--root-key", str(key / signers.PRIVATE_NAME)]) == 0
    root = anchor.fingerprint((places.store.path / "metadata/1.root.json").read_bytes())
    shutil.copytree(places.store.path, tmp_path / "copy")
    shutil.rmtree(places.store.path)
    places.store = LocalStore(tmp_path / "copy")
    offline = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), dead)
    offline |= {"CAIRN_CACHE_DIR": str(tmp_path / "new")}
    words = ("--installer", installer, "--python", places.mine.python)
    other = places.run(*words, "--root", "0" * 64, **offline)
    assert f"has the root {root}, not sha256:{'0' * 64}" in other.stderr
    done = places.run(*words, "--root", root, **offline)
    assert done.returncode == 0, done.stderr
    assert places.have_torch() == ["mine"]
    # A copy of which somebody has exchanged a wheel: the hash that was signed is not its own.
    (wheel,) = places.store.path.glob("files/*/*/torch-2.10.0-*.whl")
    wheel.write_bytes(wheel.read_bytes() + b" ")
    again = places.run(*words[:2], "--python", places.tool.python, "--root", root, **offline)
    assert again.returncode != 0
    assert places.have_torch() == ["mine"]


def test_cairns_own_environment_takes_it_where_it_is_named(places: Places) -> None:
    done = places.run("--python", places.tool.python)
    assert done.returncode == 0, done.stderr
    assert places.have_torch() == ["tool"]


def test_lines_are_for_the_python_that_a_shell_finds_and_never_the_tools(places: Places) -> None:
    done = places.run("--dry-run", "--json", path=str(places.mine.bin))
    assert json.loads(done.stdout)["interpreter"] in map(str, places.mine.bin.iterdir())
    done = places.run("--dry-run", path=str(places.mine.bin))
    assert f"{places.mine.bin}/python3 (the first on PATH: no environment is active)" in done.stderr
    assert "an installation needs an environment; make one: python3 -m venv torch-env" in done.stderr
    # The line goes there as well, whatever is active where it is typed.
    pip, uv = done.stdout.splitlines()
    assert shlex.split(pip)[:3] == [f"{places.mine.bin}/python3", "-m", "pip"]
    env = {
        **places.env,
        "PATH": f"{Path(sys.executable).parent}:/usr/bin",
        "VIRTUAL_ENV": str(places.tool.path),
    }
    subprocess.run(["bash", "-c", uv], env=env, check=True, capture_output=True)
    assert places.have_torch() == ["mine"]
    done = places.run("--dry-run", path="/no/such/folder")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no Python to install for" in done.stderr
