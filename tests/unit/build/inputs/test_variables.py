from pathlib import Path

import msgspec
import pytest

from cairn import platforms
from cairn.build.inputs import variables
from cairn.errors import UsageError
from cairn.stack import Environment, Stack
from helpers.build import project


def test_placeholders_are_replaced_and_other_braces_stay() -> None:
    values = {"version": "2.9.0+rocm7", "version:torch": "1", "requirements": "a|b"}
    text = "{version} {version:torch} {requirements} ${HOME} {} {0}"
    assert variables.expand(text, {**values, "HOME": "h"}, where="x") == "2.9.0+rocm7 1 a|b $h {} {0}"


def test_a_value_is_not_expanded_again() -> None:
    assert variables.expand("{a}", {"a": "{b}", "b": "no"}, where="x") == "{b}"


def test_an_unknown_placeholder_names_the_place() -> None:
    with pytest.raises(UsageError, match=r"environment of torch, USE_X.*\{nope\}"):
        variables.expand_all({"USE_X": "{nope}"}, {}, where="environment of torch")


OWN = msgspec.structs.replace(
    project("own"),
    environment=Environment(always={"A": "own"}, linux={"L": "own", "X": "own"}, rocm={"R": "own"}),
)
SHARED = Environment(
    always={"A": "shared", "S": "shared"},
    linux={"L": "shared"},
    rocm={"A": "shared rocm", "L": "shared rocm", "R": "shared rocm", "X": "{rocm_home}"},
    cpu={"A": "shared cpu"},
)


@pytest.mark.parametrize(
    ("section", "for_cpu", "expected"),
    [
        ("linux", False, {"A": "own", "S": "shared", "L": "own", "X": "own", "R": "own"}),
        ("linux", True, {"A": "own", "S": "shared", "L": "own", "X": "own"}),
        ("windows", False, {"A": "own", "S": "shared", "L": "shared rocm", "X": "{rocm_home}", "R": "own"}),
        ("windows", True, {"A": "own", "S": "shared"}),
    ],
)
def test_a_projects_own_variable_wins_over_the_stacks_whichever_table_has_it(
    monkeypatch: pytest.MonkeyPatch,
    section: str,
    *,
    for_cpu: bool,
    expected: dict[str, str],
) -> None:
    monkeypatch.setattr(platforms.here, "stack_section", lambda: section)
    other = project("other")
    stack = Stack(name="s", line="l", targets=("cpu",), projects=(OWN, other), environment=SHARED)
    assert variables.template_of(stack, OWN, for_cpu=for_cpu) == expected
    assert variables.template_of(stack, other, for_cpu=True)["A"] == "shared cpu"


def _stack_at(folder: Path, *, always: dict[str, str], rocm: dict[str, str] | None = None) -> Stack:
    environment = Environment(always=always, rocm=rocm or {})
    return Stack(
        name="s",
        line="l",
        targets=("cpu",),
        projects=(msgspec.structs.replace(project("p"), config_settings={"o": "{stack_dir}/o.txt"}),),
        environment=environment,
        folder=str(folder),
    )


def test_files_beside_the_stack_are_found_where_templates_name_them(tmp_path: Path) -> None:
    (tmp_path / "py" / "__pycache__").mkdir(parents=True)
    (tmp_path / "a b").mkdir()
    for name in (
        "a b/c;d.txt",
        "o.txt",
        "py/a.py",
        "py/__pycache__/a.pyc",
        "flags.txt",
        "gpu.txt",
        "not_named.txt",
    ):
        (tmp_path / name).write_text(name)
    stack = _stack_at(
        tmp_path,
        always={"PYTHONPATH": "{stack_dir}/py:/elsewhere", "FLAGS": '-g "@{stack_dir}/flags.txt" -O'}
        | {"SPACED": "{stack_dir}/a b/c;d.txt -O", "LONG": "{stack_dir}/py " + "x" * 5000},
        rocm={"GPU": "{stack_dir}/gpu.txt"},
    )
    found = variables.stack_files(stack, stack.projects[0], for_cpu=True)
    assert found.keys() == {"o.txt", "py/a.py", "flags.txt", "a b/c;d.txt"}
    assert variables.stack_files(stack, stack.projects[0], for_cpu=False).keys() == found.keys() | {"gpu.txt"}
    (tmp_path / "py" / "a.py").write_text("changed")
    changed = variables.stack_files(stack, stack.projects[0], for_cpu=True)
    assert {name for name in found if found[name] != changed[name]} == {"py/a.py"}


def test_a_file_that_a_template_names_and_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "o.txt").touch()
    stack = _stack_at(tmp_path, always={"PYTHONPATH": "{stack_dir}/pyhton"})
    with pytest.raises(UsageError, match=r"p names .*/pyhton, which does not exist"):
        variables.stack_files(stack, stack.projects[0], for_cpu=True)
