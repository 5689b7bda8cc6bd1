"""The commands of upstream's page on building PyTorch, in its order, by the shipped scripts."""

import os
import re
import shlex
import shutil
import subprocess
import venv
from pathlib import Path

import pytest

from cairn import files
from helpers import installed
from helpers.installed import Installed
from helpers.trail import ROOT, SAMPLE, Trail

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("trail")]

SHIPPED = ROOT / "external-builds" / "pytorch"
CHECKOUTS = [f"python pytorch_{name}_repo.py checkout" for name in ("torch", "audio", "vision", "triton")]
# With a torch that its build has installed.
TESTS = [
    "rocm-sdk test",
    'python -c "import torch; print(torch.cuda.is_available())"',
    "pytest -v smoke-tests",
    "python run_pytorch_smoke_tests.py -- -v",
    "python run_pytorch_tests.py",
]


def copied_page(folder: Path) -> Path:
    """Put the shipped scripts beside the sample's stack: compiling the real PyTorch takes hours."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "."]
    names = subprocess.run(listing, cwd=SAMPLE, capture_output=True, check=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(SAMPLE / name, folder / name)
    for script in SHIPPED.glob("*.py"):
        shutil.copy2(script, folder / script.name)
    return folder


def is_in_index(dists: Path, trail: Trail) -> bool:
    """Whether these are the SDK of the run: others of the cache are for other targets or compilers."""
    place = trail.work / "index" / "files"
    digests = [files.sha256_of(path) for path in dists.iterdir()]
    return bool(digests) and all((place / digest[:2] / digest).is_dir() for digest in digests)


def run(line: str, environment: Path, env: dict[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """Type a line where an environment is active."""
    active = {"VIRTUAL_ENV": str(environment), "PATH": f"{environment / 'bin'}{os.pathsep}{env['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", line], cwd=cwd, env=env | active, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return done


def test_the_page_runs_in_one_environment_in_its_order(
    trail: Trail, program: Installed, tmp_path: Path
) -> None:
    readme = (SHIPPED / "README.md").read_text(encoding="utf-8")
    assert [line for line in (*CHECKOUTS, *TESTS) if f"\n{line}\n" not in readme] == []
    page, env = copied_page(tmp_path / "page"), trail.same_environment()
    environment = tmp_path / "environment"
    installed.into(environment, program.wheel)
    script = environment / "bin/pytest"  # as the extra `test` brings it
    script.write_text(f"#!{environment}/bin/python\nimport pytest\nraise SystemExit(pytest.main())\n")
    script.chmod(0o755)
    (dists,) = [folder for folder in trail.cache.glob("sdk/*/dists") if is_in_index(folder, trail)]
    for line in CHECKOUTS:
        run(line, environment, env, page)
    build = f"python build_prod_wheels.py build --install-rocm --find-links {shlex.quote(str(dists))}"
    build += f" --output-dir {shlex.quote(str(tmp_path / 'out'))}"
    said = run(build, environment, env, page).stderr
    assert not list(environment.glob("lib/python3*/site-packages/torch"))  # it is Cairn's own
    (line,) = re.findall("to install them into the active environment: (.*)", said)
    run(line, environment, env, page)
    for line in TESTS:
        run(line, environment, env, page)

    # By Cairn's Python, where another environment is active: that gets the wheels, and is tested.
    other = tmp_path / "other"
    venv.create(other, symlinks=True)
    python = shlex.quote(str(environment / "bin/python"))
    said = run(build.replace("python", python, 1), other, env, page).stderr
    assert f"installed for {other / 'bin/python'}" in said
    run(TESTS[0], other, env, page)
    torch = run("python -c 'import torch; print(torch.__file__)'", other, env, page).stdout
    assert torch.startswith(str(other))
    run(TESTS[3].replace("python", python, 1), other, env, page)
