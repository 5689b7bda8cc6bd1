"""What holds for every module of the package, and no linter checks."""

import ast
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("parsed-package")

PACKAGE = Path(__file__).parents[3] / "build_tools" / "cairn"
MODULES = sorted(PACKAGE.rglob("*.py"))
TESTS = Path(__file__).parents[2]
# A stack, matrix, suite or skip list that a test writes, or a copy of a shipped stack, which it may change.
STAND_IN = re.compile(
    r"""schema = "cairn\.(stack|matrix-toml|suite|skips)/1"|copytree\((SAMPLE|ROOT / "external-builds")"""
)
REASON = re.compile(r"# Not (the shipped|a shipped|shipped|changed)[\w ]*: \w")


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
        for node in nodes:
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="os"), attr="scandir")):
                    open_ones += [f"{name}:{node.lineno}"] if node not in managed else []
    assert open_ones == []


# Rooms in which these names are gone too; two functions of `output` still take `what`.
NOT_YET_NAMED_BY_ROLE = ("output/", "wheels/")


def test_names_are_not_bare_participles(trees: dict[str, ast.Module]) -> None:
    """A variable, parameter or function says what it is: `found` and `done` fit anything.

    Fields are left out, since formats have some; so is a check whose bytes are in published wheels.
    """
    bare = {"found", "said", "done", "wanted", "there", "asked", "kept", "one", "thing"}
    by_role = {"known", "listed", "named", "other", "own", "what"}
    names = []
    for module, tree in trees.items():
        nodes = list(ast.walk(tree))
        bodies = (node.body for node in nodes if isinstance(node, ast.ClassDef))
        fields = {one.target for body in bodies for one in body if isinstance(one, ast.AnnAssign)}
        for node in nodes if module != "wheels/split/device_check.py" else ():
            match node:
                case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.FunctionDef(name=name):
                    words = bare if module.startswith(NOT_YET_NAMED_BY_ROLE) else bare | by_role
                    if name.strip("_") in words and node not in fields:
                        names.append(f"{module}:{node.lineno}: {name}")
    assert names == []


_DOTTED = re.compile(r"`([a-z_]\w*(?:\.[A-Za-z_]\w*)+)`")
_FILES = ("html", "j2", "json", "jsonl", "lock", "md", "py", "toml", "xml")


def _symbols(tree: ast.Module) -> set[str]:
    """What a module has to be named by: `name`, `Class` and `Class.member`; what it imports, too."""
    names = set()
    for node in tree.body:
        match node:
            case ast.ClassDef(name=name, body=body):
                fields = {ast.unparse(one.target) for one in body if isinstance(one, ast.AnnAssign)}
                methods = {one.name for one in body if isinstance(one, ast.FunctionDef)}
                names |= {name, *(f"{name}.{member}" for member in fields | methods)}
            case ast.FunctionDef(name=name):
                names.add(name)
            case ast.ImportFrom(names=imported):
                names |= {one.asname or one.name for one in imported}
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
    return names


def test_modules_that_texts_name_have_what_they_name(trees: dict[str, ast.Module]) -> None:
    """`records.find` in a docstring, or in the page about the layout, leads to what has that name."""
    paths = {name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): name for name in trees}
    known = {f"cairn.{path}" for path in paths if path != "__init__"}
    known |= {f"cairn.{path}.{name}" for path, file in paths.items() for name in _symbols(trees[file])}
    stems = {path.rpartition(".")[2] for path in paths}
    page = (PACKAGE.parents[1] / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    texts = {"architecture.md": page}
    documented = ast.Module | ast.ClassDef | ast.FunctionDef
    for file, tree in trees.items():
        nodes = (node for node in ast.walk(tree) if isinstance(node, documented))
        texts[file] = "\n".join(filter(None, map(ast.get_docstring, nodes)))
    named = [(file, name) for file, text in texts.items() for name in _DOTTED.findall(text)]
    of_modules = [
        (file, name)
        for file, name in named
        if {name.partition(".")[0]} <= stems and not name.endswith(_FILES)
    ]
    assert len(of_modules) > 100
    ends = {".".join(parts[n:]) for name in known if (parts := name.split(".")) for n in range(len(parts))}
    wrong = [f"{file}: {name}" for file, name in of_modules if name not in ends]
    assert wrong == [], "\n".join(wrong)


def test_what_stands_in_for_a_shipped_file_says_why() -> None:
    """What is shipped is wrong unseen where all tests have a copy of their own."""
    texts = {path: path.read_text(encoding="utf-8") for path in TESTS.rglob("*.py")}
    texts = {path: text for path, text in texts.items() if path.parent != TESTS / "upstream"}  # programs
    stand_ins = [path for path, text in texts.items() if STAND_IN.search(text)]
    assert len(stand_ins) > 20
    assert [path for path in stand_ins if not REASON.search(texts[path])] == []


def test_no_fixture_of_a_folder_has_the_name_of_one_above_it() -> None:
    """With files in some orders, pytest 9.1 takes the one above, without a word (pytest #14964)."""
    fixtures: dict[Path, set[str]] = {}
    for path in sorted(TESTS.rglob("conftest.py")):
        functions = [n for n in ast.parse(path.read_text("utf-8")).body if isinstance(n, ast.FunctionDef)]
        fixtures[path.parent] = {
            function.name
            for function in functions
            if any("fixture" in ast.unparse(decorator) for decorator in function.decorator_list)
        }
    assert sum(map(len, fixtures.values())) > 20
    twice = [
        f"{folder}: {name}"
        for folder, names in fixtures.items()
        for above in folder.parents
        for name in sorted(names & fixtures.get(above, set()))
    ]
    assert twice == []
