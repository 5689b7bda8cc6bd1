from __future__ import annotations

from pathlib import Path

import pytest

from cairn.cli.main import main
from cairn.wheels.verify.findings import FindingCode
from cairn.wheels.verify.shape import differences
from helpers.wheels import MakeWheel

UNLIKE = "unlike demo-1.0-cp311-cp311-manylinux_2_28_x86_64.whl"


def tags(python: str, platform: str = "manylinux_2_28_x86_64") -> tuple[str, ...]:
    return (f"{python}-{python}-{platform}",)


def reasons(wheels: list[Path]) -> list[tuple[str, str]]:
    found = list(differences(wheels))
    assert all(
        finding.code == (FindingCode.FILES_DIFFER if " file" in finding.reason else FindingCode.SHAPE_DIFFERS)
        for _, finding in found
    )
    return [(path.name.split("-")[2], finding.reason) for path, finding in found]


@pytest.mark.parametrize("platform", ["manylinux_2_28_x86_64", "win_amd64", "macosx_11_0_arm64"])
def test_the_same_module_has_another_name_for_each_python(make_wheel: MakeWheel, platform: str) -> None:
    ends = {"cp311": ".cpython-311-x86_64-linux-gnu.so", "cp312": ".cp312-win_amd64.pyd", "cp313": ".abi3.so"}
    wheels = [
        make_wheel(
            tags=tags(python, platform),
            files={
                f"demo/_C{end}": b"x",
                f"demo.libs/libz-{python}.so.1": b"y",
                f"demo/__pycache__/a.{python}.pyc": b"z",
            },
        )
        for python, end in ends.items()
    ]
    assert reasons(wheels) == []


def test_files_differ_between_platforms_but_not_between_pythons(make_wheel: MakeWheel) -> None:
    common = {"demo/__init__.py": b"", "demo/a.py": b""}
    wheels = [
        make_wheel(tags=tags("cp311"), files=common),
        make_wheel(tags=tags("cp312"), files=common),
        make_wheel(tags=tags("cp313"), files={"demo/__init__.py": b"", "tests/t.py": b""}),
        make_wheel(tags=tags("cp311", "win_amd64"), files={**common, "demo/nt.py": b""}),
        make_wheel(tags=("cp313-cp313t-manylinux_2_28_x86_64",), files={**common, "demo/free.py": b""}),
    ]
    assert reasons(wheels) == [
        (
            "cp313",
            f"for cp manylinux x86_64, it lacks the file demo/a.py and it has the file tests/t.py, {UNLIKE}",
        )
    ]


def test_what_resolvers_read_is_the_same_everywhere(make_wheel: MakeWheel) -> None:
    wheels = [
        make_wheel(tags=tags("cp311"), requires=("numpy >=2", "Typing_Extensions")),
        make_wheel(tags=tags("cp312"), requires=("typing-extensions", "numpy>=2")),
        make_wheel(tags=tags("cp311", "win_amd64"), requires=("numpy>=2", "typing-extensions", "colorama")),
        make_wheel(tags=tags("cp311"), version="2.0", requires=("other",)),
    ]
    assert reasons(wheels) == [("cp311", f"it has the requirement colorama, {UNLIKE}")]


def test_verify_says_so_of_wheels_that_are_named_together(
    make_wheel: MakeWheel, capsys: pytest.CaptureFixture[str]
) -> None:
    wheels = [
        make_wheel(tags=(f"{python}-none-any",), requires=requires)
        for python, requires in (("py2", ("numpy",)), ("py3", ("numpy", "scipy")))
    ]
    assert main(["wheel", "verify", *map(str, wheels)]) != 0
    assert "[shape-differs] it has the requirement scipy" in capsys.readouterr().out
