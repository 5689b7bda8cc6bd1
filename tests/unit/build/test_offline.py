"""Builds that fetch nothing: `--offline`, and folders that keep a build from fetching."""

import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import structs

from cairn import venv
from cairn.build import environments, execution, plan
from cairn.build.environments import Content
from cairn.build.inputs import variables
from cairn.errors import BuildError, NetworkError
from cairn.stack import load
from cairn.venv import PackageSource, VirtualEnvironment
from helpers.build import MakeRequest, with_project
from helpers.trail import ROOT
from helpers.wheels import build_wheel

FETCHES = "import urllib.request; urllib.request.urlopen('http://192.0.2.1/', timeout=60)"
CLONES = """
import os, subprocess
def build_wheel(folder, settings=None, metadata=None):
    if not os.path.exists("third_party/nccl"):
        subprocess.check_call(["git", "clone", "https://192.0.2.1/nccl.git", "third_party/nccl"])
    raise SystemExit(f"nothing was cloned, and there is {os.listdir('third_party/nccl')}")
"""


pytestmark = pytest.mark.usefixtures("build_cache")


def ready(tmp_path: Path, *requirements: str) -> VirtualEnvironment:
    source = PackageSource(offline=True, find_links=(str(tmp_path / "links"),))
    content = Content(requirements=requirements, what="torch")
    return environments.ready(content, source, log=tmp_path / "log", say=lambda _: None)


def test_requirements_come_from_folders_and_from_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    build_wheel(tmp_path / "links", name="tool", requires=())
    env = ready(tmp_path, "tool")
    assert (env.site_packages / "tool" / "__init__.py").is_file()
    with pytest.raises(NetworkError, match="torch cannot be fetched") as caught:
        ready(tmp_path, "a-package-that-no-cache-has==1.0")
    assert "--offline" in (caught.value.tip or "")


def test_what_was_resolved_before_but_is_not_here_is_told(tmp_path: Path) -> None:
    env = venv.create(tmp_path / "env")
    words, source = ["tool-that-no-cache-has==1.0"], PackageSource(offline=True)
    with pytest.raises(NetworkError, match="the tools cannot be fetched") as caught:
        environments.install(env, words, source, subject="the tools", log=tmp_path / "log")
    assert "--offline" in (caught.value.tip or "")


@pytest.mark.parametrize(
    "program", [[sys.executable, "-c", FETCHES], ["git", "ls-remote", "ssh://192.0.2.1/a"]]
)
def test_what_a_build_fetches_by_itself_fails_at_once(
    request_for: MakeRequest, tmp_path: Path, program: list[str]
) -> None:
    made = request_for(torch="")
    offline = structs.replace(made, pip=PackageSource(offline=True))
    project = made.stack.project("torch")
    values = variables.placeholder_values(offline, project, base_version="1", built={}, source_dir=tmp_path)
    env = variables.build_variables(
        project, venv.describe(tmp_path), values, request=offline, epoch=0, home=tmp_path
    )
    done = subprocess.run(program, env=env, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode
    assert "refused" in done.stderr or "not allowed" in done.stderr, done.stderr


def test_a_folder_keeps_a_build_from_cloning_what_it_does_not_use(request_for: MakeRequest) -> None:
    torch = load(ROOT / "external-builds" / "pytorch").project("torch")
    assert torch.empty_dirs == ("third_party/nccl",)
    request = with_project(request_for(torch=CLONES), empty_dirs=torch.empty_dirs)
    with pytest.raises(BuildError) as caught:
        execution.run(plan.make(request))
    assert any("nothing was cloned, and there is []" in line for line in caught.value.tail)
