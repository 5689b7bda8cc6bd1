import zipfile
from pathlib import Path

import pytest
from msgspec import structs

from cairn.build import execution, plan, postprocess
from cairn.errors import WheelError
from cairn.sources.git.repository import HIPIFY_SUBJECT, UPSTREAM_TAG, root_at
from cairn.wheels.verify import Expectation, verify
from helpers.build import MakeRequest, with_project, with_stack
from helpers.wheels import build_wheel


@pytest.mark.parametrize(
    ("content", "codes"),
    [
        (b"see https://github.com/pytorch/pytorch and /pytorch", []),
        (b"compiled\0/pytorch/c10/core/Device.cpp\0", ["forbidden-text"]),
        (b'#define SOURCE "/pytorch/c10"', ["forbidden-text"]),
        (b"cmake -DPREFIX=/pytorch/torch", ["forbidden-text"]),
    ],
)
def test_a_tree_in_the_root_of_a_container_is_told_from_an_address(
    tmp_path: Path, content: bytes, codes: list[str]
) -> None:
    wheel = build_wheel(tmp_path, name="demo", requires=(), files={"demo/text": content})
    texts = postprocess.texts_of([Path("/pytorch")])
    assert [each.code for each in verify(wheel, Expectation(forbidden_strings=texts))] == codes


def test_a_tree_behind_a_link_is_known_by_both_paths(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "link").symlink_to("tree")
    assert postprocess.texts_of([tmp_path / "link"]) == (str(tmp_path / "link"), str(tmp_path / "tree"))


COPYING = """
import os, shutil
def build_wheel(folder, settings=None, metadata=None):
    return os.path.basename(shutil.copy({wheel!r}, folder))
"""


def build(request_for: MakeRequest, wheel: Path, *, allow: Path | None = None, version_file: str = "") -> str:
    """The name of the wheel that a build ends with whose backend gives this one."""
    request = request_for(demo=COPYING.format(wheel=str(wheel)))
    gate = structs.replace(request.stack.gate, allow=allow and str(allow))
    request = with_stack(with_project(request, version_file=version_file), gate=gate)
    (request.checkouts["demo"] / "version.txt").write_text("2.7.0a0\n")
    (built,) = execution.run(plan.make(request))
    return built.wheel.name


def test_a_wheel_that_took_no_notice_of_its_version_is_refused(
    request_for: MakeRequest, tmp_path: Path
) -> None:
    same = build_wheel(tmp_path, name="demo", version="2.7a0", requires=())  # written another way
    assert build(request_for, same, version_file="version.txt") == same.name
    # Of another length: Python knows a backend that has changed by its size, or by the second.
    wheel = build_wheel(tmp_path, name="demo", version="0.0.12", requires=())
    with pytest.raises(WheelError, match=r"demo was built as version 0\.0\.12, and was to be 2\.7\.0a0"):
        build(request_for, wheel, version_file="version.txt")


def test_a_build_lets_through_what_the_gate_does_and_nothing_else(
    request_for: MakeRequest, tmp_path: Path
) -> None:
    allow = tmp_path / "allow.toml"
    allow.write_text(
        'schema = "cairn.allow/1"\n[[finding]]\nwheel = "demo-*.whl"\ncode = "forbidden-text"\n'
        'member = "demo/share/*.cmake"\nreason = "as upstream has it"\n'
    )
    told = {"demo/share/Config.cmake": f'set(DIR "{tmp_path}/demo")'.encode()}
    wheel = build_wheel(tmp_path, name="demo", requires=(), files=told)
    assert build(request_for, wheel, allow=allow) == wheel.name
    more = {**told, "demo/code": f"compiled\0{tmp_path}/demo/a.cpp".encode()}
    (tmp_path / "more").mkdir()
    wheel = build_wheel(tmp_path / "more", name="demo", requires=(), files=more)
    with pytest.raises(WheelError, match="forbidden-text demo/code") as caught:
        build(request_for, wheel, allow=allow)
    assert "Config.cmake" not in str(caught.value)


def test_a_wheel_has_the_loader_that_its_stack_declares(request_for: MakeRequest, tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path, name="demo", requires=())
    request = request_for(demo=COPYING.format(wheel=str(wheel)))
    request = with_project(structs.replace(request, targets=("gfx942",)), rocm_init="demo/_rocm_init.py")
    with pytest.raises(WheelError, match=r"it has no demo/_rocm_init\.py, which its stack declares"):
        execution.run(plan.make(request))


def test_a_wheel_names_the_commit_of_upstream_and_none_of_this_machine(
    request_for: MakeRequest, tmp_path: Path
) -> None:
    """torch, vision and audio write HEAD into their version module, which may be hipify's commit."""
    request = request_for(demo=COPYING.format(wheel=str(tmp_path / "demo-1.0-py3-none-any.whl")))
    root = root_at(request.checkouts["demo"])
    upstream = root.head() or ""
    root.run("tag", UPSTREAM_TAG)
    root.run("commit", "--quiet", "--allow-empty", "-m", HIPIFY_SUBJECT)
    head = root.head() or ""
    text = f"__version__ = '1.0'\ngit_version = '{head}'\n".encode()
    files = {"demo/version.py": text, "demo/data/version.py": text, "demo/_version.py": b"a = 1\n"}
    build_wheel(tmp_path, name="demo", requires=(), files=files)
    (built,) = execution.run(plan.make(request))
    with zipfile.ZipFile(built.wheel) as archive:
        assert archive.read("demo/version.py") == text.replace(head.encode(), upstream.encode())
        assert archive.read("demo/data/version.py") == text
        (bill,) = (name for name in archive.namelist() if name.endswith("sboms/cairn.cdx.json"))
        assert upstream in archive.read(bill).decode()
    assert head != upstream
