"""The line that a host wheel prints when it is imported, taken by pip as it stands."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import venv
from pathlib import Path

from cairn.wheels.split.split import split
from helpers.formats import make_bundle, make_code_object
from helpers.hip_library import make_hip_library
from helpers.wheels import build_wheel

FILES = {
    "demo/__init__.py": b"from . import _rocm_init\n_rocm_init.initialize()\n",
    "demo/_rocm_init.py": b"def initialize():\n    pass\n",
}
TARGETS = ("gfx942", "gfx1100")
BOOTSTRAP = """
from types import SimpleNamespace as Value
def detect_gpus():
    return [Value(target=Value(name="gfx1100"), node_id=1)]
"""


def test_pip_installs_what_the_line_names(tmp_path: Path) -> None:
    nights = {"index": "1.0+rocm7.14.0", "next": "1.1+rocm7.14.0"}
    for folder, version in nights.items():
        codes = {target: make_code_object(target, version.encode()) for target in TARGETS}
        files = {**FILES, "demo/lib/libx.so": make_hip_library([make_bundle(codes)])}
        tags = ("py3-none-manylinux_2_17_x86_64",)
        wheel = build_wheel(tmp_path, version=version, files=files, tags=tags, pure=False, requires=())
        split(wheel, tmp_path / folder)
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
    env |= {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "index")}

    def pip_install(*words: str) -> None:
        command = [sys.executable, "-m", "pip", "--python", str(python), "install", *words]
        subprocess.run(command, env=env, capture_output=True, check=True)

    def installed_from(line: str) -> str:
        """The requirement in a line, once it is installed."""
        command, words = line.partition("pip install ")[1:]
        assert command
        (requirement,) = shlex.split(words.rpartition(" (")[0])
        pip_install(requirement)
        return requirement

    def said_at_import() -> str:
        told = env | {"PYTHONPATH": str(tmp_path / "told"), "ROCM_BOOTSTRAP_FORCE_GFX_ARCH": "gfx1100"}
        command = [python, "-c", "import demo"]
        return subprocess.run(command, env=told, capture_output=True, text=True, check=True).stderr

    (tmp_path / "told").mkdir()
    (tmp_path / "told" / "rocm_bootstrap.py").write_text(BOOTSTRAP)
    pip_install("demo")
    assert installed_from(said_at_import()) == "demo[device-gfx1100]==1.0+rocm7.14.0"
    assert said_at_import() == ""
    # The next night, upgraded by its name alone, which leaves the code of the first where it was.
    for path in (tmp_path / "next").iterdir():
        path.rename(tmp_path / "index" / path.name)
    pip_install("--upgrade", "demo")
    line = said_at_import()
    assert line.startswith(
        "demo: the installed code for gfx1100 is of a different version, and kernels will fail"
    )
    assert installed_from(line) == "demo[device-gfx1100]==1.1+rocm7.14.0"
    assert said_at_import() == ""
