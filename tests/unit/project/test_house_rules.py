"""What holds for every module of the package, and no linter checks."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[3] / "build_tools" / "cairn"
MODULES = sorted(PACKAGE.rglob("*.py"))


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    return {
        path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in MODULES
    }


def test_modules_and_functions_stay_short(trees: dict[str, ast.Module]) -> None:
    long = [f"{path.name}: {n}" for path in MODULES if (n := len(path.read_bytes().splitlines())) > 500]
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                long += [f"{name}, {node.name}: {lines}"] if lines > 60 else []
    assert long == []


def test_folders_that_are_read_are_closed(trees: dict[str, ast.Module]) -> None:
    """A listing that an error or an interrupt cuts short stays open until it is collected."""
    open_ones = []
    for name, tree in trees.items():
        nodes = list(ast.walk(tree))
        managed = {item.context_expr for node in nodes if isinstance(node, ast.With) for item in node.items}
        open_ones += [
            f"{name}:{node.lineno}"
            for node in nodes
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "os.scandir" and node not in managed
        ]
    assert open_ones == []


def test_names_are_not_bare_participles(trees: dict[str, ast.Module]) -> None:
    """A variable, parameter or function says what it is: `found` and `done` fit anything.

    Fields are left out, since formats have some; so is a check whose bytes are in published wheels.
    """
    bare = {"found", "said", "done", "wanted", "there", "asked", "kept"}
    names = []
    for module, tree in trees.items():
        nodes = list(ast.walk(tree))
        bodies = (node.body for node in nodes if isinstance(node, ast.ClassDef))
        fields = {one.target for body in bodies for one in body if isinstance(one, ast.AnnAssign)}
        for node in nodes if module != "wheels/split/device_check.py" else ():
            match node:
                case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.FunctionDef(name=name):
                    if name.strip("_") in bare and node not in fields:
                        names.append(f"{module}:{node.lineno}: {name}")
    assert names == []
