"""What RELEASES.md tells people to type is typed here; in PyPI's place is an index with every name too."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from uv import find_uv_bin

from cairn import package_index
from cairn.release.index import people
from cairn.release.index.snapshot import Index
from cairn.release.publish.compatibility import Platform
from cairn.release.publish.files import publish
from cairn.release.serve import serving
from cairn.store.folder import LocalStore
from helpers.release import make_sdist, make_set, make_wheel, move, put, stage_set

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[3] / "RELEASES.md"
ROCM = "7.10.0"
LOCAL = f"+rocm{ROCM}"
SET = {
    "filelock": "3.20.0",
    "rocm": ROCM,
    "torch": f"2.9.0{LOCAL}",
    "torchaudio": f"2.9.0{LOCAL}",
    "torchvision": f"0.24.0{LOCAL}",
    "triton": f"3.5.0{LOCAL}",
}
ELSEWHERE = "99.0"  # the version of everything on the other index, which every tool would prefer


@dataclass(frozen=True, kw_only=True)
class Indexes:
    """The released one and, in the place of PyPI, one that has the same names."""

    url: str
    elsewhere: str
    set_id: str
    lock: str

    def filled(self, text: str) -> str:
        """A text of the page with our addresses in it."""
        public = f'name = "public"\nurl = "{self.elsewhere}"'
        text = text.replace('name = "PyPI"', public)  # Poetry's own name of it has a fixed address
        text = text.replace('"PYPI"', f'"{self.elsewhere}"')
        text = text.replace("URL/", f"{self.url}/").replace("/SET/", f"/{self.set_id}/")
        return text.replace(".NAME.", f".{self.lock}.")


def section(heading: str) -> str:
    """The part of the page below a heading, without what is below the headings under it."""
    text = PAGE.read_text(encoding="utf-8").split(f"# {heading}\n", 1)[1]
    return re.split(r"^##+ ", text, maxsplit=1, flags=re.MULTILINE)[0]


def blocks(heading: str, language: str) -> list[str]:
    found: list[str] = re.findall(rf"```{language}\n(.*?)```", section(heading), re.DOTALL)
    return found


def lines(heading: str) -> list[str]:
    return [line for block in blocks(heading, "bash") for line in block.splitlines()]


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Indexes]:
    folder = tmp_path_factory.mktemp("indexes")
    here = Platform.here()
    tag = f"cp{here.python.replace('.', '')}-cp{here.python.replace('.', '')}-{here.tag}"
    requires = {
        "triton": [],
        "torch": [f"triton=={SET['triton']}", f"rocm=={ROCM}", "filelock"],
        "torchvision": [f"torch=={SET['torch']}"],
        "torchaudio": [f"torch=={SET['torch']}"],
    }
    store = LocalStore(folder / "store")
    publish(
        store,
        "staging",
        [make_wheel(folder, "filelock", SET["filelock"]), make_sdist(folder, "rocm", SET["rocm"])],
    )
    wheels = [make_wheel(folder, n, SET[n], requires=needs, tag=tag) for n, needs in requires.items()]
    made = make_set(wheels, python=here.python, platform=here.tag)
    sealed = stage_set(store, "staging", made, wheels)
    move(store, sealed)
    (lock,) = people.of_names(Index(store, "release").load().sets())
    other = LocalStore(folder / "other")
    put(other, "release", [make_wheel(folder / "other", name, ELSEWHERE) for name in (*SET, "einops")])
    with serving(store) as ours, serving(other) as theirs:
        yield Indexes(url=ours.url, elsewhere=f"{theirs.url}/release/simple/", set_id=sealed.id, lock=lock)


@pytest.fixture
def environment(tmp_path: Path, isolated: dict[str, str]) -> dict[str, str]:
    """A shell's variables in which `pip` and `uv` work on an environment of its own."""
    programs = tmp_path / "bin"
    programs.mkdir()
    python = tmp_path / "env" / "bin" / "python"
    (programs / "pip").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pip --python "{python}" "$@"\n')
    (programs / "pip").chmod(0o755)
    kept = {name: value for name, value in isolated.items() if name != "UV_NO_CONFIG"}
    return kept | {
        "PATH": os.pathsep.join([str(programs), sysconfig.get_path("scripts"), os.environ["PATH"]]),
        "VIRTUAL_ENV": str(tmp_path / "env"),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_CACHE_DIR": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        "HOME": str(tmp_path),
    }


def run(command: str, folder: Path, environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-euc", command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def installed(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    frozen = run("uv pip freeze --no-config", folder, environment)
    # `name @ URL` is how a file is remembered that was asked for by its address.
    named = (re.split("==| @ ", line, maxsplit=1) for line in frozen.splitlines())
    return {name: address.rpartition("/")[2] for name, address in named}


def test_no_line_of_the_page_is_left_out() -> None:
    projects = ("uv", "pip and uv without a project", *PROJECT_TOOLS)
    typed = {line for heading in (*INSTALLING, *projects, "Uninstalling") for line in lines(heading)}
    everything = re.findall(r"```bash\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    left = {line for block in everything for line in block.splitlines()} - typed
    # Its key and its signed wheel are those of docs/how-to/verify-a-wheel.md, which is typed with them.
    assert [line.split(" torch")[0] for line in left] == ["cairn index verify"]


INSTALLING = ("One index is enough", "Exactly these versions, exactly these bytes", "Yanked releases")


@pytest.mark.parametrize(
    "line", [line for heading in INSTALLING for line in lines(heading) if line.startswith(("pip", "uv"))]
)
def test_a_line_installs_what_was_released_and_nothing_else(
    line: str, indexes: Indexes, environment: dict[str, str], tmp_path: Path
) -> None:
    run("uv venv --no-config --quiet env", tmp_path, environment)
    run(indexes.filled(line), tmp_path, environment)
    found = installed(tmp_path, environment)
    assert found.keys() | {"torchaudio"} == SET.keys()
    assert ("torchaudio" in found) == ("torchvision" not in line or "torchaudio" in line)
    assert all(SET[name].replace("+", "%2B") in found[name].replace("+", "%2B") for name in found)


@pytest.mark.parametrize(
    "line", [line for line in lines(INSTALLING[0]) if not line.startswith(("pip", "uv"))]
)
def test_other_indexes_in_the_settings_of_a_user_can_be_left_out(
    line: str, indexes: Indexes, environment: dict[str, str], tmp_path: Path
) -> None:
    run("uv venv --no-config --quiet env", tmp_path, environment)
    settings = tmp_path / "pip.conf"
    settings.write_text(f"[global]\nextra-index-url = {indexes.elsewhere}\n")
    named = ("PIP_EXTRA_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX", "UV_EXTRA_INDEX_URL")
    theirs = dict.fromkeys(named, indexes.elsewhere) | {"PIP_CONFIG_FILE": str(settings)}
    run(indexes.filled(line), tmp_path, environment | theirs)
    assert installed(tmp_path, environment) == SET


def test_what_was_installed_can_be_uninstalled(
    indexes: Indexes, environment: dict[str, str], tmp_path: Path
) -> None:
    install = indexes.filled(lines("One index is enough")[0])
    for line in lines("Uninstalling"):
        run("uv venv --no-config --quiet --clear env", tmp_path, environment)
        run(install, tmp_path, environment)
        assert installed(tmp_path, environment)
        run(indexes.filled(line), tmp_path, environment)
        assert installed(tmp_path, environment) == {}


def sources(folder: Path) -> dict[str, str]:
    """Where a uv.lock takes each package from."""
    with folder.joinpath("uv.lock").open("rb") as stream:
        packages = tomllib.load(stream)["package"]
    return {p["name"]: p["source"]["registry"] for p in packages if "registry" in p["source"]}


@pytest.mark.parametrize("number", [0, 1])
def test_a_uv_project_takes_the_whole_set_from_the_index(
    number: int, indexes: Indexes, environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "pyproject.toml").write_text(indexes.filled(blocks("uv", "toml")[number]))
    run(blocks("uv", "bash")[0], tmp_path, environment | {"UV_DEFAULT_INDEX": indexes.elsewhere})
    ours = f"{indexes.url}/release/simple/"
    assert sources(tmp_path) == dict.fromkeys(SET, ours) | {"einops": indexes.elsewhere}


def test_the_index_can_be_the_only_one_of_a_uv_project(
    indexes: Indexes, environment: dict[str, str], tmp_path: Path
) -> None:
    text = indexes.filled(blocks("uv", "toml")[1]).replace('"einops", ', "")
    (tmp_path / "pyproject.toml").write_text(f"{text}default = true\n")
    run(blocks("uv", "bash")[0], tmp_path, environment)
    assert sources(tmp_path) == dict.fromkeys(SET, f"{indexes.url}/release/simple/")


def test_with_a_name_left_out_a_uv_project_is_not_of_the_set(
    indexes: Indexes, environment: dict[str, str], tmp_path: Path
) -> None:
    # What the page warns of; should uv come to take such names from the index too, the page can be shorter.
    environment["UV_DEFAULT_INDEX"] = indexes.elsewhere
    text = indexes.filled(blocks("uv", "toml")[0])
    (tmp_path / "pyproject.toml").write_text(text.replace(', "filelock"]', "]"))
    run(blocks("uv", "bash")[0], tmp_path, environment)
    assert sources(tmp_path)["filelock"] == indexes.elsewhere
    (tmp_path / "pyproject.toml").write_text(text.replace(', "triton", "rocm"', ""))
    with pytest.raises(AssertionError, match="No solution found"):
        run(f"rm uv.lock; {blocks('uv', 'bash')[0]}", tmp_path, environment)


def test_uv_add_pins_a_set(indexes: Indexes, environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "app"\nversion = "0"\nrequires-python = ">=3.11"\n'
    )
    environment["UV_DEFAULT_INDEX"] = indexes.elsewhere
    run(indexes.filled(blocks("uv", "bash")[1]), tmp_path, environment)
    assert sources(tmp_path) == dict.fromkeys(SET, f"{indexes.url}/release/simple/")
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]
    assert sorted(project["dependencies"]) == sorted(f"{n}=={version}" for n, version in SET.items())


def test_pip_and_uv_lock_and_compile(indexes: Indexes, environment: dict[str, str], tmp_path: Path) -> None:
    run("uv venv --no-config --quiet env", tmp_path, environment)
    (tmp_path / "requirements.in").write_text("torch\ntorchvision\ntorchaudio\n")
    for line in lines("pip and uv without a project"):
        run(indexes.filled(line), tmp_path, environment)
    for name in ("pylock.toml", "pylock.app.toml"):
        with (tmp_path / name).open("rb") as stream:
            packages: list[dict[str, Any]] = tomllib.load(stream)["packages"]
        assert {p["name"]: p["version"] for p in packages} == SET
        files = [file for p in packages for file in (*p.get("wheels", ()), p.get("sdist")) if file]
        assert all(file["url"].startswith(f"{indexes.url}/files/") for file in files)
    compiled = (tmp_path / "requirements.txt").read_text()
    assert dict(re.findall(r"^([a-z]+)==(\S+)", compiled, re.MULTILINE)) == SET
    assert compiled.count("--hash=sha256:") == len(SET)
    assert f"--index-url {indexes.url}/release/simple/\n" in compiled


# What each of them was tried with; `locked` has the libraries that its release was tested with.
PROJECT_TOOLS = {"Poetry": "poetry==2.5.1", "PDM": "pdm[locked]==2.26.9"}


@pytest.mark.parametrize("tool", PROJECT_TOOLS)
def test_other_projects_take_the_whole_set_from_the_index(
    tool: str, indexes: Indexes, environment: dict[str, str], tmp_path: Path
) -> None:
    programs = tmp_path / "programs"
    # How it came here proves nothing, and pip takes ten times as long.
    settings = package_index.read_pip_settings()
    uv, env = [find_uv_bin(), "--no-config", "--quiet"], settings.uv_environment()
    subprocess.run([*uv, "venv", "--python", sys.executable, programs], env=env, check=True)
    place = ("--python", programs / "bin" / "python")
    named = (*settings.uv_options(), PROJECT_TOOLS[tool])
    subprocess.run([*uv, "pip", "install", *place, *named], env=env, check=True)
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text(indexes.filled(blocks(tool, "toml")[0]))
    variables = {
        "PATH": os.pathsep.join([str(programs / "bin"), environment["PATH"]]),
        "POETRY_VIRTUALENVS_IN_PROJECT": "true",
        "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
        "PDM_CHECK_UPDATE": "0",
        "PDM_PYPI_URL": indexes.elsewhere,
        "PDM_IGNORE_ACTIVE_VENV": "1",
    }
    (command,) = lines(tool)
    run(command, project, {n: v for n, v in environment.items() if n != "VIRTUAL_ENV"} | variables)
    with next(project.glob("*.lock")).open("rb") as stream:
        packages = tomllib.load(stream)["package"]
    # PDM leaves the local part out of what was asked for without one; the files have it.
    named = {p["name"]: {file["file"] for file in p["files"]} for p in packages}
    assert named.keys() == SET.keys() | {"einops"}
    for name, version in (SET | {"einops": ELSEWHERE}).items():
        assert {file.split("-")[1].removesuffix(".tar.gz") for file in named[name]} == {version}
