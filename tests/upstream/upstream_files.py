"""Read facts out of a checkout of upstream: its files are parsed, and none of them is run.

Each reader takes the checkout and returns facts by name. A file that is gone, and one that has nothing of
what is looked for, is an error: an empty answer would say that nothing has changed.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeAlias

from cairn.testing.collection_plugin import TOLD

Facts: TypeAlias = dict[str, object]
PYTORCH = "external-builds/pytorch/"
_COMPUTED = "computed"
"""A value that a script makes up while it runs, such as a path: only its name can be compared."""

# What a value in a module may be made of to be read: literals, and comprehensions and unions of them.
_VALUES = (
    *(ast.Constant, ast.Dict, ast.List, ast.Set, ast.Tuple, ast.Starred, ast.Name, ast.Load, ast.Store),
    *(ast.DictComp, ast.ListComp, ast.SetComp, ast.comprehension, ast.BinOp, ast.Add, ast.BitOr),
)


class UpstreamError(Exception):
    """Something is not where it was in upstream's checkout."""


@dataclass(frozen=True)
class Unread:
    """The value of facts that could not be read. Its name is a pattern (fnmatch) of their names."""

    reason: str


SHAPE_ERRORS = (AttributeError, LookupError, TypeError, ValueError)
"""What reading a file of another shape raises."""


def describe_shape(error: Exception) -> str:
    """Return the text for a file that has another shape than its reader expects."""
    return f"another shape than the reader knows: {type(error).__name__}: {error}"


def read_parts(parts: Iterable[tuple[str, str, Callable[[], Facts]]]) -> Facts:
    """Read each part, and go on with the next where one cannot be read.

    Args:
        parts: the pattern of the names of its facts, the file, and the function that reads it.
    """
    facts: Facts = {}
    for pattern, path, read in parts:
        try:
            facts |= read()
        except UpstreamError as error:
            facts[pattern] = Unread(str(error))
        except SHAPE_ERRORS as error:
            facts[pattern] = Unread(f"{path}: {describe_shape(error)}")
    return facts


class Checkout:
    """A folder with upstream's files."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @cache  # noqa: B019 - it lives as long as the program
    def text(self, path: str) -> str:
        """The text of a file."""
        try:
            return (self.root / path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UpstreamError(f"{path} cannot be read: {error}") from error

    @cache  # noqa: B019
    def tree(self, path: str) -> ast.Module:
        """The syntax tree of a Python file."""
        try:
            return ast.parse(self.text(path))
        except (SyntaxError, ValueError) as error:
            raise UpstreamError(f"{path} is not Python: {error}") from error

    def constants(self, path: str) -> Mapping[str, Any]:
        """The values of a module's variables, as far as literals say them, here or in a module beside it."""
        return self._constants(path, follows_imports=True)

    @cache  # noqa: B019
    def _constants(self, path: str, *, follows_imports: bool) -> Mapping[str, Any]:
        names: dict[str, Any] = {}
        for node in self.tree(path).body:
            if isinstance(node, ast.ImportFrom) and follows_imports:
                names |= self._imported_constants(path, node)
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    pass
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    pass
                case _:
                    continue
            try:
                names[name] = _evaluate(value, names)
            except (ValueError, NameError, TypeError):
                continue
        return names

    def _imported_constants(self, path: str, node: ast.ImportFrom) -> dict[str, Any]:
        module = f"{Path(path).parent.as_posix()}/{(node.module or '').replace('.', '/')}.py"
        if not (self.root / module).is_file():
            return {}
        values = self._constants(module, follows_imports=False)
        names = {alias.name: alias.asname or alias.name for alias in node.names}
        return {name: values[source] for source, name in names.items() if source in values}

    def constant(self, path: str, name: str) -> Any:
        """The value of a module's variable, which must be there."""
        constants = self.constants(path)
        if name not in constants:
            raise UpstreamError(f"{path} has no {name} that is a literal")
        return constants[name]

    def variables(self, path: str, beginning: str) -> list[str]:
        """The names of a module's variables that begin so, literals or not, and of those that it imports."""
        names: list[str] = []
        for node in self.tree(path).body:
            match node:
                case ast.Assign(targets=[ast.Name(id=name), *_]) | ast.AnnAssign(target=ast.Name(id=name)):
                    names.append(name)
                case ast.ImportFrom(names=aliases):
                    names += [alias.asname or alias.name for alias in aliases]
        return [name for name in names if name.startswith(beginning)]

    def nodes(self, path: str, name: str = "") -> list[ast.AST]:
        """All nodes of a file, or of its function or class of that name."""
        tree: ast.AST = self.tree(path)
        return list(ast.walk(_definition(tree, path, name) if name else tree))

    def digest(self, path: str, names: Iterable[str]) -> str:
        """A digest of functions, classes or variables, whatever their layout, comments and docstrings.

        `*` is the whole file.
        """
        tree = self.tree(path)
        text = "\n".join(
            _normalised(tree if name == "*" else _definition(tree, path, name)) for name in names
        )
        return hashlib.sha256(text.encode()).hexdigest()[:12]


_DOCUMENTED = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _normalised(value: object) -> str:
    """A syntax tree as text, without positions; the same from each version of Python, unlike `ast.dump`."""
    if isinstance(value, list):
        return f"[{', '.join(map(_normalised, value))}]"
    if isinstance(value, ast.Constant):
        return f"{type(value.value).__name__} {value.value!r}"
    if not isinstance(value, ast.AST):
        return repr(value)
    fields = [(name, part) for name, part in ast.iter_fields(value) if name != "ctx"]
    if isinstance(value, _DOCUMENTED) and ast.get_docstring(value, clean=False) is not None:
        fields = [(name, part[1:] if name == "body" else part) for name, part in fields]
    # A field that a later version of Python has is empty, and left out by others.
    kept = ", ".join(f"{name}={_normalised(part)}" for name, part in fields if part not in (None, []))
    return f"{type(value).__name__}({kept})"


def _definition(tree: ast.AST, path: str, name: str) -> ast.stmt:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=found) | ast.ClassDef(name=found) if found == name:
                return node
            case ast.Assign(targets=[ast.Name(id=found)]) if found == name:
                return node
    raise UpstreamError(f"{path} has no {name}")


def _evaluate(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """Evaluate an expression of literals; calls are of `items`, `keys` and `values` alone."""
    allowed: set[ast.AST] = set()
    for part in ast.walk(node):
        match part:
            case ast.Call(func=ast.Attribute(attr="items" | "keys" | "values") as func, args=[], keywords=[]):
                allowed |= {part, func}
    if any(not isinstance(part, _VALUES) and part not in allowed for part in ast.walk(node)):
        raise ValueError(ast.unparse(node)[:80])
    code = compile(ast.Expression(node), "<upstream>", "eval")
    return eval(code, {"__builtins__": {}, **names})  # noqa: S307 - literals and comprehensions


def _needed(facts: Facts, path: str) -> Facts:
    if not facts:
        raise UpstreamError(f"{path} has nothing of what is looked for in it")
    return facts


def _calls(nodes: Iterable[ast.AST], name: str, parameters: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The literal arguments of each call of a function, by the names of its parameters.

    Raises:
        UpstreamError: one that is asked for is not a literal: what is passed over would never be compared.
    """
    for node in nodes:
        match node:
            case ast.Call(func=ast.Name(id=found), args=args, keywords=keywords) if found == name:
                values = dict(zip(parameters, args, strict=False))
                values |= {str(word.arg): word.value for word in keywords if word.arg in parameters}
                try:
                    yield {key: ast.literal_eval(value) for key, value in values.items()}
                except ValueError as error:
                    text = ast.unparse(node)
                    raise UpstreamError(
                        f"line {node.lineno} is not of literals any more: {text[:80]}"
                    ) from error


TARGETS = "cmake/therock_amdgpu_targets.cmake"


def targets(checkout: Checkout) -> Facts:
    """Targets: their families, and the words of their products that tell GPUs apart."""
    text = re.sub(r"#.*", "", checkout.text(TARGETS))
    calls = re.findall(r'therock_add_amdgpu_target\(\s*(gfx[\w-]+)\s+"([^"]*)"([^)]*)\)', text)
    if len(calls) != len(re.findall(r"^\s*therock_add_amdgpu_target\(", text, re.MULTILINE)):
        raise UpstreamError(f"{TARGETS} declares a target in another way")
    facts: Facts = {}
    for target, product, rest in calls:
        families = re.search(r"FAMILY\s+(.*?)(?:\s+EXCLUDE_TARGET_PROJECTS|\s*$)", rest, re.DOTALL)
        facts[f"{target} families"] = frozenset(families[1].split()) if families else frozenset()
        facts[f"{target} product"] = product
    return _needed(facts, TARGETS)


FAMILIES = "build_tools/github_actions/amdgpu_family_matrix.py"
_PLATFORMS = {"linux": "linux_x86_64", "windows": "win_amd64"}


def matrix(checkout: Checkout) -> Facts:
    """Rows of the matrix: when a family is built first, on what its tests run, and what may be bypassed."""
    facts: Facts = {}
    beginning = "amdgpu_family_info_matrix_"
    for variable in checkout.variables(FAMILIES, beginning):
        trigger = variable.removeprefix(beginning)
        for row in checkout.constant(FAMILIES, variable).values():
            for platform, entry in row.items():
                name = f"{entry['family']} {_PLATFORMS.get(platform, platform)}"
                facts[f"{entry['family']} trigger"] = trigger
                facts[f"{name} test"] = entry["test-runs-on"]
                facts[f"{name} multi_gpu"] = entry.get("test-runs-on-multi-gpu", "")
                facts[f"{name} bypass_tests"] = bool(entry.get("bypass_tests_for_releases"))
    for platform, labels in checkout.constant(FAMILIES, "BUILD_RUNNER_LABELS").items():
        facts[f"{_PLATFORMS.get(platform, platform)} build"] = [each["label"] for each in labels["default"]]
    return _needed(facts, FAMILIES)


def index_families(checkout: Checkout) -> Facts:
    """The families that are built: each by its name."""
    return {name.split()[0]: True for name in matrix(checkout) if name.endswith(" trigger")}


RELEASES = "build_tools/github_actions/configure_pytorch_release_matrix.py"


def lines(checkout: Checkout) -> Facts:
    """Release lines and Pythons, those of CI, and the families that a line is not built for."""
    return read_parts(
        [
            ("pythons", RELEASES, partial(_release_pythons, checkout)),
            *(
                (f"* {what}", RELEASES, partial(_of_ci, checkout, what, constant))
                for what, constant in (("pythons", "CI_PYTHON_VERSIONS"), ("lines", "CI_PYTORCH_REFS"))
            ),
            ("* without", RELEASES, partial(_families_without_lines, checkout)),
        ]
    )


def _release_pythons(checkout: Checkout) -> Facts:
    return {"pythons": list(checkout.constant(RELEASES, "RELEASE_PYTHON_VERSIONS"))}


def _of_ci(checkout: Checkout, what: str, constant: str) -> Facts:
    """What upstream's CI builds, by trigger and platform; its workflows have the same for both."""
    return {
        f"{trigger} {_PLATFORMS.get(platform, platform)} {what}": frozenset(values)
        for trigger in ("presubmit", "postsubmit")
        for platform, values in checkout.constant(RELEASES, constant).items()
    }


def _families_without_lines(checkout: Checkout) -> Facts:
    facts: Facts = {}
    without = checkout.constant(RELEASES, "UNSUPPORTED_AMDGPU_FAMILIES")
    for platform, refs in checkout.constant(RELEASES, "RELEASE_PYTORCH_REFS").items():
        for ref in refs:
            names = frozenset(without.get(platform, {}).get(ref, ()))
            facts[f"{ref} {_PLATFORMS.get(platform, platform)} without"] = names
    return facts


BUCKETS = "build_tools/_therock_utils/s3_buckets.py"
OWNERSHIP = "build_tools/packaging/python/rocm_whl_next_ownership.yaml"


def indexes(checkout: Checkout) -> Facts:
    """The streams of the aggregate index, and their addresses."""
    templates = [
        "".join(str(part.value) if isinstance(part, ast.Constant) else "{stream}" for part in node.values)
        for node in checkout.nodes(BUCKETS, "get_release_package_index_url")
        if isinstance(node, ast.JoinedStr)
    ]
    known = re.search(r"^  known:\n((?:    - \S+\n)+)", checkout.text(OWNERSHIP), re.MULTILINE)
    if len(templates) != 1 or known is None:
        raise UpstreamError(f"{BUCKETS} and {OWNERSHIP} do not name an address and streams as they did")
    streams = {
        *re.findall(r"- (\S+)", known[1]),
        *checkout.constant(BUCKETS, "_RELEASE_STREAM_BY_TYPE").values(),
    }
    return {stream: templates[0].replace("{stream}", stream) for stream in streams}


def buckets(checkout: Checkout) -> Facts:
    """Types of releases, and the buckets of artifacts."""
    facts: Facts = dict.fromkeys(
        checkout.constant(BUCKETS, "_ALLOWED_ARTIFACT_RELEASE_TYPES"), "a release type"
    )
    for call in _calls(_without_functions(checkout.tree(BUCKETS)), "S3BucketConfig", ("name",)):
        if "-artifacts" in call["name"]:
            facts[call["name"]] = "a bucket"
    return facts


BUILD = f"{PYTORCH}build_prod_wheels.py"


def preloads(checkout: Checkout) -> Facts:
    """What torch loads before its own libraries."""
    return {
        f"{platform} {name}": True
        for platform in ("linux", "windows")
        for name in checkout.constant(BUILD, f"{platform.upper()}_LIBRARY_PRELOADS")
    }


DIST_INFO = "build_tools/packaging/python/templates/rocm/src/rocm_sdk/_dist_info.py"


def libraries(checkout: Checkout) -> Facts:
    """The libraries of the SDK that have a name, with the pattern of their files."""
    parameters = ("shortname", "package_name", "so_pattern")
    calls = _calls(_without_functions(checkout.tree(DIST_INFO)), "LibraryEntry", parameters)
    return _needed({call["shortname"]: call["so_pattern"] for call in calls}, DIST_INFO)


def packages(checkout: Checkout) -> Facts:
    """The packages of the SDK: the name of each distribution by what it is."""
    parameters = ("logical_name", "dist_package_template")
    calls = _calls(_without_functions(checkout.tree(DIST_INFO)), "PackageEntry", parameters)
    return _needed({call["logical_name"]: call["dist_package_template"] for call in calls}, DIST_INFO)


_TEMPLATES = "build_tools/packaging/python/templates/"
CORE_SETUP, CORE_CLI = (
    f"{_TEMPLATES}rocm-sdk-core/{name}" for name in ("setup.py", "src/rocm_sdk_core/_cli.py")
)
PROFILER_SETUP, PROFILER_CLI = (
    f"{_TEMPLATES}rocm-profiler/{name}" for name in ("setup.py", "src/rocm_profiler/_cli.py")
)
_SCRIPT = re.compile(r"([\w.+-]+)\s*=\s*[\w.]+:(\w+)")


def scripts(checkout: Checkout) -> Facts:
    """Console scripts of the SDK: the program that each starts, and whether it is one that only reports."""
    packages = (("core", CORE_SETUP, CORE_CLI), ("profiler", PROFILER_SETUP, PROFILER_CLI))
    return read_parts(
        (f"{package} *", setup, partial(_scripts_of_package, checkout, package, setup, cli))
        for package, setup, cli in packages
    )


def _scripts_of_package(checkout: Checkout, package: str, setup: str, cli: str) -> Facts:
    facts: Facts = {}
    for node in checkout.nodes(setup):
        match node:
            case ast.Constant(value=str(text)) if script := _SCRIPT.fullmatch(text):
                facts[f"{package} {script[1]}"] = _program(checkout, cli, script[2])
    return _needed(facts, setup)


def _program(checkout: Checkout, cli: str, function: str) -> str:
    if not any(isinstance(node, ast.FunctionDef) and node.name == function for node in checkout.nodes(cli)):
        return f"a function that is not there, {function}"
    for call in _calls(checkout.nodes(cli, function), "_exec", ("relpath", "expand_devel")):
        return str(call["relpath"]) + (", reports" if call.get("expand_devel") is False else "")
    raise UpstreamError(f"{cli}: {function} starts no program")


PACKAGES = "build_tools/build_python_packages.py"


def artifacts(checkout: Checkout) -> Facts:
    """The artifacts of each package, and the files of the profilers."""
    facts = read_parts(
        (f"{package} *", PACKAGES, partial(_artifacts_of_package, checkout, package))
        for package in ("core", "libraries", "profiler", "device")
    )
    pattern = "profiler file *"
    return facts | read_parts([(pattern, PACKAGES, partial(_profiler_files, checkout))])


def _artifacts_of_package(checkout: Checkout, package: str) -> Facts:
    facts: Facts = {}
    constants = checkout.constants(PACKAGES)
    for node in checkout.nodes(PACKAGES, f"{package}_artifact_filter"):
        if not (isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And)):
            continue
        values = {
            test.left.attr: _compared_texts(test.comparators[0], constants)
            for test in node.values
            if isinstance(test, ast.Compare)
            and isinstance(test.left, ast.Attribute)
            and test.left.attr in ("name", "component")
        }
        for name in values.get("name", ()):
            facts |= {f"{package} {name}_{part}": True for part in values.get("component", ())}
    return _needed(facts, PACKAGES)


def _profiler_files(checkout: Checkout) -> Facts:
    patterns = checkout.constant(PACKAGES, "PROFILER_WHEEL_INCLUDES")
    return {f"profiler file {pattern}": True for pattern in patterns}


def _compared_texts(node: ast.expr, names: Mapping[str, Any]) -> list[str]:
    """The text, or those of a list, that something is compared with."""
    value = _literal_or_none(node, names)
    if value is None:
        raise UpstreamError(f"{PACKAGES} compares with what is no literal: {ast.unparse(node)[:80]}")
    return [value] if isinstance(value, str) else list(value)


def _strings(node: ast.AST) -> list[str]:
    return [
        part.value
        for part in ast.walk(node)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    ]


def flags(checkout: Checkout, scripts: Iterable[str]) -> Facts:
    """The flags of each command of scripts, such as `build_prod_wheels.py build --clean`.

    Behind a flag's name and ` default` is its default, where that is a literal, and neither empty nor false;
    behind ` choices` are the values that it takes.
    """
    return read_parts(
        (f"{script} *", script, partial(_facts_of_script, checkout, script)) for script in scripts
    )


def _facts_of_script(checkout: Checkout, script: str) -> Facts:
    return {
        f"{f'{script} {command}'.strip()} {name}": value
        for command, facts in _flags_of_script(checkout, script).items()
        for name, value in facts.items()
    }


def _flags_of_script(checkout: Checkout, script: str) -> dict[str, Facts]:
    """The flags by command; those of a script without commands by an empty name."""
    functions = {node.name: node for node in checkout.nodes(script) if isinstance(node, ast.FunctionDef)}
    parsers: dict[str, str] = {}  # variables of parsers and groups: the name of the command
    by_command: dict[str, Facts] = {}
    for function in functions.values():
        nodes = list(_without_functions(function))
        calls = (node.func for node in nodes if isinstance(node, ast.Call))
        if not any(isinstance(call, ast.Attribute) and call.attr == "ArgumentParser" for call in calls):
            continue
        for node in nodes:
            _read_parser(checkout, script, node, functions, parsers, by_command)
    if not any(by_command.values()):
        raise UpstreamError(f"{script} has no flags where they were")
    return by_command


def _read_parser(
    checkout: Checkout,
    script: str,
    node: ast.AST,
    functions: Mapping[str, ast.FunctionDef],
    parsers: dict[str, str],
    by_command: dict[str, Facts],
) -> None:
    """Take a new parser, a group of one, a flag, or a function that adds flags from a node."""
    constants = checkout.constants(script)
    match node:
        case ast.Assign(
            targets=[ast.Name(id=name)],
            value=ast.Call(func=ast.Attribute(value=ast.Name(id=of), attr=attr), args=args),
        ):
            if attr == "add_parser" and isinstance(args[0], ast.Constant):
                parsers[name] = str(args[0].value)
                by_command.setdefault(parsers[name], {})
            elif attr in ("add_argument_group", "add_mutually_exclusive_group"):
                parsers[name] = parsers.get(of, "")
        case ast.Call(func=ast.Attribute(value=ast.Name(id=of), attr="add_argument")):
            by_command.setdefault(parsers.get(of, ""), {}).update(_flag(node, constants))
        case ast.Call(func=ast.Attribute(value=ast.Name(id=of), attr="set_defaults"), keywords=words):
            facts = by_command.setdefault(parsers.get(of, ""), {})
            facts |= _defaults(words, facts, constants)
        case ast.Call(args=[ast.Name(id=of), *_]) if helper := _helper(checkout, script, node, functions):
            facts = _flags_within(helper, node, constants)
            by_command.setdefault(parsers.get(of, ""), {}).update(facts)


def _helper(
    checkout: Checkout, script: str, call: ast.Call, functions: Mapping[str, ast.FunctionDef]
) -> ast.stmt | None:
    """The function of the script, or of a module beside it, that a call adds flags with."""
    match call.func:
        case ast.Name(id=name):
            return functions.get(name)
        case ast.Attribute(value=ast.Name(id=module), attr=name) if name.startswith("add_"):
            path = f"{Path(script).parent.as_posix()}/{module}.py"
            if (checkout.root / path).exists():
                return _definition(checkout.tree(path), path, name)
    return None


def _defaults(words: Iterable[ast.keyword], flags: Facts, names: Mapping[str, Any]) -> Facts:
    """The defaults that a call of `set_defaults` has for flags."""
    by_flag = {f"--{word.arg.replace('_', '-')}": word.value for word in words if word.arg}
    return {
        f"{flag} default": shown_default(_literal_or_none(value, names))
        for flag, value in by_flag.items()
        if flag in flags
    }


def _without_functions(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below one in order, without those of functions defined there."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef):
            yield child
            yield from _without_functions(child)


def _flags_within(function: ast.AST, call: ast.Call, names: Mapping[str, Any]) -> Facts:
    """The flags that a call of a function adds to a parser, with the values that it passes by name."""
    passed = {word.arg: _literal_or_none(word.value, names) for word in call.keywords if word.arg}
    values = {**names, **{name: value for name, value in passed.items() if value is not None}}
    facts: Facts = {}
    for node in ast.walk(function):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "add_argument"
        ):
            facts |= _flag(node, values)
    return facts


def _flag(call: ast.Call, names: Mapping[str, Any]) -> Facts:
    """The names of a flag, its default and its choices."""
    facts: Facts = dict.fromkeys(_names(call), True)
    words = {word.arg: word.value for word in call.keywords}
    action = ast.unparse(words["action"]) if "action" in words else ""
    default = _literal_or_none(words["default"], names) if "default" in words else action == "'store_false'"
    choices = _literal_or_none(words["choices"], names) if "choices" in words else None
    for flag in [name for name in facts if not name.startswith("--no-") or "BooleanOptional" not in action]:
        if shown := shown_default(default):
            facts[f"{flag} default"] = shown
        if "choices" in words:
            facts[f"{flag} choices"] = frozenset(choices) if choices else _COMPUTED
    return facts


def shown_default(value: object) -> str:
    """Return a default as text; empty where an option has none: not given is then the same as false."""
    return str(value) if value and value is not MISSING else ""


def _literal_or_none(node: ast.expr, names: Mapping[str, Any]) -> Any:
    try:
        return _evaluate(node, names)
    except (ValueError, NameError, TypeError):
        return None


def _names(call: ast.Call) -> set[str]:
    if any(not isinstance(arg, ast.Constant) for arg in call.args):
        raise UpstreamError(
            f"line {call.lineno}: a flag whose name is not a literal: {ast.unparse(call)[:80]}"
        )
    names = {text for arg in call.args for text in _strings(arg) if text.startswith("-")}
    if any(word.arg == "action" and "BooleanOptional" in ast.unparse(word.value) for word in call.keywords):
        names |= {f"--no-{name[2:]}" for name in names if name.startswith("--")}
    return names


def files(checkout: Checkout, folders: Sequence[str]) -> Facts:
    """The scripts in folders."""
    return read_parts(
        (f"{folder}/*", folder, partial(_files_of_folder, checkout, folder)) for folder in folders
    )


def _files_of_folder(checkout: Checkout, folder: str) -> Facts:
    paths = sorted((checkout.root / folder).glob("*")) if (checkout.root / folder).is_dir() else []
    names = [
        path.name for path in paths if path.suffix in (".py", ".sh", ".ps1") and path.name != "__init__.py"
    ]
    if not names:
        raise UpstreamError(f"{folder} has no scripts")
    return {f"{folder}/{name}": True for name in names}


WORKFLOWS = ".github/workflows/"


def workflows(checkout: Checkout, names: Iterable[str]) -> Facts:
    """Those workflows of these names that are there."""
    found = {path.name for path in (checkout.root / WORKFLOWS).glob("*.yml")}
    if not found:
        raise UpstreamError(f"{WORKFLOWS} has no workflows")
    return {name: True for name in names if name in found}


SKIPS, FULL = f"{PYTORCH}skip_tests", f"{PYTORCH}run_pytorch_tests_full.py"


def skips(checkout: Checkout) -> Facts:
    """The names of skipped tests: by file, section, and module; and the modules of which no test runs."""
    programs = ("__init__.py", "create_skip_tests.py", "test_skip_tests.py")
    paths = sorted((checkout.root / SKIPS).rglob("*.py"))
    names = [path.relative_to(checkout.root).as_posix() for path in paths if path.name not in programs]
    facts = read_parts(
        [
            (f"{Path(FULL).stem} *", FULL, partial(_skipped_modules, checkout)),
            *((f"{Path(name).stem} *", name, partial(_skips_of_file, checkout, name)) for name in names),
        ]
    )
    return _needed(facts, SKIPS)


def _skipped_modules(checkout: Checkout) -> Facts:
    modules = checkout.constant(FULL, "EXCLUDED_TEST_MODULES")
    return {f"{Path(FULL).stem} common modules {module}": True for module in modules}


def _skips_of_file(checkout: Checkout, path: str) -> Facts:
    return {
        f"{Path(path).stem} {section} {module} {name}": True
        for section, modules in checkout.constant(path, "skip_tests").items()
        for module, names in modules.items()
        for name in names
    }


_BUILT = {
    "torch": ("do_build_pytorch",),
    "audio": ("do_build_pytorch_audio",),
    "vision": ("do_build_pytorch_vision",),
    "apex": ("do_build_apex",),
    "triton": ("build_triton_linux", "build_triton_windows"),
}


def variables(checkout: Checkout) -> Facts:
    """The variables that builds see: by project and platform, the value where it is a literal."""
    builds = [(project, platform) for platform in ("linux", "windows") for project in _BUILT]
    return read_parts(
        (f"{project} {platform} *", BUILD, partial(_variables_of_build, checkout, project, platform))
        for project, platform in builds
        if (project, platform) != ("apex", "windows")
    )


def _variables_of_build(checkout: Checkout, project: str, platform: str) -> Facts:
    values: dict[str, str] = {}
    # On Windows triton is built without the common ones.
    if (project, platform) != ("triton", "windows"):
        values |= _variables(checkout, "_setup_common_build_env", platform)
    for function in _BUILT[project]:
        if project != "triton" or function.endswith(platform):
            values |= _variables(checkout, function, platform)
    return _needed({f"{project} {platform} {name}": value for name, value in values.items()}, BUILD)


def _variables(checkout: Checkout, function: str, platform: str) -> dict[str, str]:
    definition = _definition(checkout.tree(BUILD), BUILD, function)
    values: dict[str, str] = {}
    for node in _of_platform(definition, platform):
        match node:
            case ast.Assign(
                targets=[ast.Subscript(value=of, slice=ast.Constant(value=str(name)))], value=value
            ):
                if ast.unparse(of) in ("env", "os.environ"):
                    values[name] = _literal(value, platform)
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="env" | "windows_env"), attr="update"),
                args=[ast.Dict() as pairs],
            ):
                values |= _pairs(pairs, platform)
            case (
                ast.AnnAssign(target=ast.Name(id="env"), value=ast.Dict() as pairs)
                | ast.AugAssign(target=ast.Name(id="env"), op=ast.BitOr(), value=ast.Dict() as pairs)
            ):
                values |= _pairs(pairs, platform)
            case ast.Call(
                func=ast.Name(id="add_env_compiler_flags"), args=[_, ast.Constant(value=str(name)), *_]
            ):
                values[name] = _COMPUTED
    return values


def _pairs(node: ast.Dict, platform: str) -> dict[str, str]:
    pairs = zip(node.keys, node.values, strict=True)
    return {
        str(key.value): _literal(value, platform) for key, value in pairs if isinstance(key, ast.Constant)
    }


def _literal(node: ast.expr, platform: str) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text.strip()
        case ast.IfExp() if (is_true := _is_true(node.test, platform)) is not None:
            return _literal(node.body if is_true else node.orelse, platform)
        case ast.Call(func=func, args=[_, default]) if ast.unparse(func) == "os.environ.get":
            return _literal(default, platform)  # what the environment says wins, as it does here
    return _COMPUTED


def _of_platform(node: ast.AST, platform: str) -> Iterator[ast.AST]:
    """The nodes below one, without the branches for another platform."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and (is_true := _is_true(child.test, platform)) is not None:
            branch = ast.Module(body=child.body if is_true else child.orelse, type_ignores=[])
            yield from _of_platform(branch, platform)
        else:
            yield child
            yield from _of_platform(child, platform)


def _is_true(test: ast.expr, platform: str) -> bool | None:
    """Whether a condition holds on a platform; None where that does not say it."""
    match test:
        case ast.Name(id="is_windows"):
            return platform == "windows"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            result = _is_true(operand, platform)
            return None if result is None else not result
        case ast.BoolOp(op=operator, values=parts):
            deciding = isinstance(operator, ast.Or)  # what one part decides alone
            return deciding if deciding in [_is_true(part, platform) for part in parts] else None
    return None


REPOSITORIES = tuple(
    f"{PYTORCH}pytorch_{name}_repo.py" for name in ("torch", "audio", "vision", "apex", "triton")
)
MANAGEMENT, PIN = f"{PYTORCH}repo_management.py", f"{PYTORCH}ci_commit_pins/triton-windows.txt"


def projects(checkout: Checkout) -> Facts:
    """Where projects come from and go to, the tags of their diff bases, and what torch carries on Windows."""
    constants = {
        "diff base": (MANAGEMENT, "TAG_UPSTREAM_DIFFBASE"),
        "hipify diff base": (MANAGEMENT, "TAG_HIPIFY_DIFFBASE"),
        "triton windows llvm": (BUILD, "LLVM_BASE_URL"),
    }
    for path in REPOSITORIES:
        name = Path(path).stem.split("_")[1]
        constants[f"{name} folder"] = (path, "THIS_MAIN_REPO_NAME")
        if name != "triton":
            constants[f"{name} origin"] = (path, "DEFAULT_ORIGIN")
            constants[f"{name} hashtag"] = (path, "DEFAULT_HASHTAG")
        else:
            constants["triton origin"] = (path, "ROCM_TRITON_ORIGIN")
            constants["triton windows origin"] = (path, "TRITON_WINDOWS_ORIGIN")

    def read_constant(name: str, path: str, constant: str) -> Facts:
        return {name: checkout.constant(path, constant)}

    facts = read_parts(
        (name, path, partial(read_constant, name, path, constant))
        for name, (path, constant) in constants.items()
    )
    pin, flash_attention = "triton windows commit", "flash attention targets"
    return facts | read_parts(
        [
            (pin, PIN, lambda: {pin: checkout.text(PIN).strip()}),
            (flash_attention, BUILD, lambda: {flash_attention: _flash_attention_targets(checkout)}),
            ("torch carries *", BUILD, partial(_carried_by_torch, checkout)),
        ]
    )


def _flash_attention_targets(checkout: Checkout) -> frozenset[str]:
    for node in checkout.nodes(BUILD, "do_build_pytorch"):
        match node:
            case ast.Assign(targets=[ast.Name(id="AOTRITON_SUPPORTED_ARCH_PREFIXES")], value=value):
                return frozenset(_strings(value))
    raise UpstreamError(f"{BUILD} has no AOTRITON_SUPPORTED_ARCH_PREFIXES")


def _carried_by_torch(checkout: Checkout) -> Facts:
    facts: Facts = {}
    for node in checkout.nodes(BUILD, "do_build_pytorch"):
        match node:
            case ast.Constant(value=str(text)) if carried := re.fullmatch(
                r"-Cwheel\.force-include\.(\S+?)=.*", text
            ):
                facts[f"torch carries {carried[1]}"] = True
    for node in checkout.nodes(BUILD):
        if isinstance(node, ast.FunctionDef) and node.name.endswith("_to_torch_lib"):
            names = [text for text in _strings(node) if re.fullmatch(r"[\w.]+\.dll", text)]
            facts |= {f"torch carries torch/lib/{name}": True for name in names}
    return facts


FAT = ".ci/manywheel/build_rocm.sh"
_PINS = (".ci/docker/ci_commit_pins/triton.txt", ".ci/docker/triton_version.txt", "version.txt")


def fat_libraries(checkout: Checkout) -> Facts:
    """The libraries of a fat wheel, and the folders of their data."""
    text = checkout.text(FAT)
    facts: Facts = dict.fromkeys(re.findall(r'"(lib[\w-]+)\.so"', text), True)
    facts |= {f"data {name}": True for name in re.findall(r"^\w+_DST=(\S+)", text, re.MULTILINE)}
    facts |= {f"data {name}": True for name in re.findall(r'^\s*"(share/[\w./-]+)"', text, re.MULTILINE)}
    return _needed(facts, FAT)


def pytorch_files(checkout: Checkout, names: Iterable[str]) -> Facts:
    """The files of pins that checkouts read, and those of `test` that our suite.toml names."""
    facts: Facts = {path: (checkout.root / path).is_file() for path in _PINS}
    return facts | {f"test/{name}": (checkout.root / "test" / name).is_file() for name in names}


CONFTESTS, PYTEST_INI = ("test/conftest.py", "test/torch_np/conftest.py"), "pytest.ini"
SHARDS = "test/pytest_shard_custom.py"


def hooks(checkout: Checkout) -> Facts:
    """The hooks of the tests that decide anything, and the plugins that pytest.ini turns off.

    The classes of a conftest.py are plugins for options that we do not give; that of SHARDS is always there.
    """
    facts: Facts = {}
    for path in (*CONFTESTS, SHARDS):
        nodes: list[ast.stmt] = ast.parse(checkout.text(path)).body
        if path == SHARDS:
            nodes = [node for each in nodes if isinstance(each, ast.ClassDef) for node in each.body]
        functions = (node.name for node in nodes if isinstance(node, ast.FunctionDef))
        deciding = (name for name in functions if name.startswith("pytest_") and name not in TOLD)
        facts |= {f"{path.removeprefix('test/')}: {name}": True for name in deciding}
    off = re.findall(r"-p (no:\w+)$", checkout.text(PYTEST_INI), re.MULTILINE)
    return facts | {f"-p {name}": True for name in off}


Reader: TypeAlias = Callable[[Checkout], Facts]
