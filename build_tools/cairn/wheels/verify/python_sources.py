"""Python files that no Python can read, and what they import that the wheel lacks.

Wheels have Python files on purpose that this Python cannot compile: for Python 2, templates, data of tests.
Only what no author writes counts: NUL bytes; a file of a package that ends before its last statement does;
and the markers of a conflict (git-merge(1), "How conflicts are presented") where they are no part of a text.
"""

from __future__ import annotations

import ast
import codecs
import re
import sys
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence

from cairn.formats.zip.reader import Archive
from cairn.output import wording
from cairn.wheels.metadata.wheel_info import FileName, WheelInfo, installed_path, is_of_tests
from cairn.wheels.verify.environments import allows
from cairn.wheels.verify.findings import Finding, FindingCode

_MARKERS = re.compile(rb"^<<<<<<< .*\n(?:.*\n)*?=======\r?\n(?:.*\n)*?>>>>>>> ", re.MULTILINE)
_PAGE = re.compile(rb"\s*<(?:!doctype\s+html|html[\s>])", re.IGNORECASE)
_CODING = re.compile(rb"(?:[^\n]*\n)?[ \t\f]*#[^\n]*?coding[:=]")  # PEP 263, in one of the first two lines
_LARGEST = 1 << 21  # bytes of a file that is parsed, which takes a hundred times as many for its tree
_TAIL = 99  # bytes at the end that are looked at
# Behind these a statement goes on. Most files end in none, and in a line end; the others are few, and parsed.
_GOES_ON = b"([{,\\:=+-*/%&|^<.@"
# PyCF_ALLOW_INCOMPLETE_INPUT of CPython (Include/cpython/compile.h), which `codeop` uses: of an error at the
# end of the text the parser says that more is due.
_ALLOW_INCOMPLETE = 0x4000
_INCOMPLETE = "incomplete input"
MODULE_FILES = (".py", ".pyc", ".pyd", ".so")
PACKAGE = re.compile(r"(\w+)(?:/__init__)?(?:\.[\w-]+)?\.(?:py|so|pyd)")
"""What Python imports by a name without a dot: a module, or the file that makes a folder a package."""
LARGEST_MODULE = 1 << 20  # bytes of a module that is parsed
_MOST = 16 << 20  # bytes of all that are
_ELSEWHERE = "(elsewhere)"  # among the names of a package whose modules may be elsewhere
# A package with one of these may find its modules elsewhere (pkgutil, pkg_resources, importlib).
FINDS_ELSEWHERE = (b"__path__", b"declare_namespace", b"meta_path", b"path_hooks")
# A module with one of these may have names that no statement of it binds.
_BINDS_UNSEEN = (
    b"globals",
    b"__getattr__",
    b"exec",
    b"sys.modules",
    b"setattr",
    b"__dict__",
    b"vars",
    b"locals",
)
# What every module has (docs.python.org, "Import-related attributes on module objects").
_OF_MODULES = frozenset(
    f"__{name}__" for name in ("name", "doc", "file", "path", "spec", "loader", "package")
)
_MOST_LINES = 1000  # of all `.pth` files
_PYTHON_3 = re.compile(r"(?:py|cp|pp|graalpy)3(\d*)")
_MOVES = re.compile(
    rb"sys\.path|addsitedir|from\s+sys\s"
)  # a line that may add folders to where Python looks
# The standard library of this Python, and what those of Python 3.9 and later have beside it ("What's New").
_STANDARD = sys.stdlib_module_names | frozenset(
    re.findall(
        r"\w+",
        "aifc annotationlib asynchat asyncore audioop binhex cgi cgitb chunk compression crypt distutils"
        " formatter imghdr imp lib2to3 mailcap msilib nis nntplib ossaudiodev parser pathlib pipes smtpd"
        " sndhdr spwd sunau symbol telnetlib tomllib uu xdrlib",
    )
)
_MOST_FIRST = 1 << 17  # bytes of the files that a package imports first
_HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
_AGAIN = "build the wheel again from a whole source tree"


def problem(data: bytes, *, in_package: bool) -> str:
    """Return what is wrong with a Python file; an empty text where nothing is known to be.

    Args:
        data: its content.
        in_package: whether Python imports it: what is beside packages may be a template.
    """
    if b"\0" in data:
        return "it has NUL bytes, which no Python reads"
    if _PAGE.match(data):
        return "it is a page of HTML, as servers send for a file that they do not have"
    if in_package and (line := _line_of_no_encoding(data)):
        return f"line {line} is not UTF-8, and it names no other encoding (PEP 263)"
    if b"<<<<<<<" in data and (match := _MARKERS.search(data)):
        line = data.count(b"\n", 0, match.start()) + 1
        error = _error(data)
        if error is not None and error.lineno == line:
            return f"it has the markers of a conflict from line {line} on"
    if in_package and _may_be_cut(data):
        error, lines = _error(data, _ALLOW_INCOMPLETE), data.splitlines()
        if error is not None and (error.msg == _INCOMPLETE or _is_at_end(error, lines)):
            return f"it ends within a statement, in line {len(lines)}"
    return ""


def _line_of_no_encoding(data: bytes) -> int:
    """The first line that is not UTF-8, in a file that names no encoding; 0 where each is."""
    if data.isascii() or _CODING.match(data):
        return 0
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return data.count(b"\n", 0, error.start) + 1
    return 0


def _may_be_cut(data: bytes) -> bool:
    """Whether a text may end within a statement, as far as that costs little."""
    if (
        not data
        or len(data) > _LARGEST
        or (data[-1:] == b"\n" and data[-_TAIL:].rstrip()[-1:] not in _GOES_ON)
    ):
        return False
    # Of the few that are left, most are good from the last definition on.
    last = max(data.rfind(word) for word in (b"\ndef ", b"\nclass ", b"\nimport ", b"\nfrom "))
    return _error(data[last + 1 :]) is not None


def _is_at_end(error: SyntaxError, lines: Sequence[bytes]) -> bool:
    """Whether the parser has taken all but the end: what stands before it may be for no other Python."""
    if error.lineno != len(lines) or error.offset is None:
        return False
    text = lines[-1].decode("utf-8", "replace").rstrip()
    return error.offset > len(text) or error.msg.startswith("unterminated string literal")


def _parse(text: bytes, flags: int = 0) -> ast.Module | SyntaxError | None:
    """The tree of a Python file, or why there is none; None where it is for another Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of old syntax, which is theirs
            tree: ast.Module = compile(text, "", "exec", flags | ast.PyCF_ONLY_AST, dont_inherit=True)
            return tree
    except SyntaxError as error:
        return error
    except (ValueError, RecursionError, MemoryError):
        return None


def _error(text: bytes, flags: int = 0) -> SyntaxError | None:
    return error if isinstance(error := _parse(text, flags), SyntaxError) else None


def _parsed(text: bytes) -> ast.Module | None:
    return tree if isinstance(tree := _parse(text), ast.Module) else None


def check_imports(
    own: Modules, info: WheelInfo, name: FileName, before: Iterable[Finding], *, every: bool
) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """Breaches by file that imports what the wheel lacks, at once or in `every` one; what is unknown.

    A file that is refused `before` is not refused again by the Python at hand.
    """
    left: list[str] = []
    of_files = _absent_modules(own, info, left) if every else _first_imports(own, info, name, left)
    refused = {finding.member for finding in before if finding.code is FindingCode.PYTHON_SOURCE}
    again = (f for f in of_files if f.code is not FindingCode.PYTHON_SOURCE or f.member not in refused)
    findings = (*_check_start(own, info, name, left), *again)
    return findings, (f"the imports of {wording.some(left)}, and of what these import",) if left else ()


def _check_start(own: Modules, info: WheelInfo, name: FileName, left: list[str]) -> Iterator[Finding]:
    """Lines of `.pth` files that are run at each start of Python (docs.python.org, `site`) do not fail.

    Files with lines that cannot be judged are added to `left`.
    """
    most, elsewhere = _MOST_LINES, _Elsewhere(own)
    for path in sorted(path for path in own.files if path.endswith(".pth") and "/" not in path):
        text = own.read(own.files[path])
        lines = _lines(text or b"")
        judged = not any(map(_is_run, lines)) or _is_for_known_grammar(info, name)
        if text is None or len(lines) > most or not judged:
            left.append(path)
        for number, line in enumerate(lines[: most if judged else 0], 1):
            for code, problem in _problems_at_start(own, info, line, elsewhere):
                reason = f"line {number}, which is run at each start of Python, {problem}"
                yield Finding(code=code, member=own.files[path], reason=reason, fix=_AGAIN)
        if elsewhere.is_open and any(map(_is_run, lines)) and path not in left:
            left.append(path)
        most = max(most - len(lines), 0)


def _lines(text: bytes) -> list[bytes]:
    """The lines of a `.pth` file as UTF-8; `site` reads others in the encoding of the locale."""
    try:
        text.decode()
    except UnicodeDecodeError:
        text = text.decode("latin-1").encode()
    return text.removeprefix(codecs.BOM_UTF8).splitlines()


def _is_run(line: bytes) -> bool:
    return line.startswith((b"import ", b"import\t"))


class _Elsewhere:
    """The modules that are in folders which `.pth` files have named so far.

    Attributes:
        names: the modules.
        is_open: whether any module may be in one of the folders.
    """

    def __init__(self, own: Modules) -> None:
        self._own = own
        self._folders: set[str] = set()
        self.names: set[str] = set()
        self.is_open = False

    def add(self, line: bytes) -> None:
        """Look in the folder that a line names, unless it is empty or a comment."""
        folder = line.decode(errors="replace").strip().replace("\\", "/").rstrip("/")
        if folder and not line.startswith(b"#") and folder not in self._folders:
            self._folders.add(folder)
            self.is_open |= folder not in self._own
            self.names.update(self._own.inside(folder))


def _problems_at_start(
    own: Modules, info: WheelInfo, line: bytes, elsewhere: _Elsewhere
) -> Iterator[tuple[FindingCode, str]]:
    if not _is_run(line):
        elsewhere.add(line)
        return
    elsewhere.is_open |= bool(_MOVES.search(line))
    if error := _error(line):
        yield FindingCode.PYTHON_SOURCE, f"cannot be read: {error.msg}"
    if elsewhere.is_open:
        return
    absent = [
        module
        for module, attribute in dict.fromkeys(_unguarded(_parsed(line), ()))
        if module.partition(".")[0] not in elsewhere.names and module_problem(own, info, module, attribute)
    ]
    if absent:
        yield FindingCode.MEMBER_MISSING, f"imports {wording.some(absent)}, which the wheel lacks"


def _absent_modules(own: Modules, info: WheelInfo, left: list[str]) -> Iterator[Finding]:
    """The modules that Python files of a wheel without any binary import, and that it does not have."""
    absent: dict[str, str] = {}
    for path, member in own.files.items():
        if not path.endswith(".py") or is_of_tests(path):
            continue
        text = own.read(member)
        left += [path] if text is None else []
        tree = _parsed(text or b"")
        for module, name in _imports(tree, path.split("/")[:-1]) if tree else ():
            if module.partition(".")[0] in own and module_problem(own, info, module, name):
                absent.setdefault(f"{module}.{name}" if name else module, member)
    for module, member in absent.items():
        reason = f"it imports {module}, which the wheel lacks, though its tag names an ABI of Python"
        fix = "build the wheel with its extension modules, or tag it as one of Python alone"
        yield Finding(code=FindingCode.MEMBER_MISSING, member=member, reason=reason, fix=fix)


def _first_imports(own: Modules, info: WheelInfo, name: FileName, left: list[str]) -> Iterator[Finding]:
    """What Python runs as it imports a package can be read, and imports no module that the wheel lacks.

    Followed are the statements at the top of a file, which nothing guards; of large packages only the first,
    and those not followed are added to `left`.
    """
    most, is_ours, files = _MOST_FIRST, _is_for_this_python(info, name), own.files
    queue = [path for path in files if path.endswith("/__init__.py") and path.count("/") == 1]
    queue = [path for path in queue if not is_of_tests(path)]
    seen, imports = set(queue), dict[str, list[tuple[str, str | None]]]()
    later: list[str] = []  # `from . import name`, since a name may be no module
    while queue or later:
        path = (queue or later).pop(0)
        text = own.read(files[path], most)
        if text is None:
            left += [path, *queue, *later]
            break
        most -= len(text)
        tree = own.trees[path] = _parse(text)
        if is_ours and isinstance(tree, SyntaxError):
            reason = f"Python {_HERE} cannot read it: {tree.msg} (line {tree.lineno})"
            yield Finding(code=FindingCode.PYTHON_SOURCE, member=files[path], reason=reason, fix=_AGAIN)
        imports[path] = list(_unguarded(tree, path.split("/")[:-1]))
        for module, attribute in imports[path]:
            place = module.replace(".", "/")
            for following, inside in ((queue, place), (later, f"{place}/{attribute}")):
                ends = (f"{inside}.py", f"{inside}/__init__.py")
                following.extend(fresh := [file for file in ends if file in files and file not in seen])
                seen.update(fresh)
    for path, modules in imports.items():
        for absent in _lacking(own, info, path, modules, imports):
            reason = f"it imports {absent} as soon as it is imported, and the wheel lacks that"
            yield Finding(code=FindingCode.MEMBER_MISSING, member=files[path], reason=reason, fix=_AGAIN)


def _lacking(
    own: Modules,
    info: WheelInfo,
    path: str,
    modules: Iterable[tuple[str, str | None]],
    followed: Collection[str],
) -> list[str]:
    """The modules that the wheel lacks of those that a file imports, and the names that they lack."""
    lacking: list[str] = []
    for module, attribute in modules:
        if module in lacking or module.partition(".")[0] not in own:
            continue
        place = module.replace(".", "/")
        files = own.files.keys() & {f"{place}.py", f"{place}/__init__.py"}
        # A module that was not followed may have any name.
        read = not files or files.intersection(followed) or path.startswith(f"{place}/")
        if (read or attribute is None) and module_problem(own, info, module, attribute):
            lacking.append(f"{module}.{attribute}" if attribute else module)
    return lacking


def _unguarded(
    tree: ast.Module | SyntaxError | None, package: Sequence[str]
) -> Iterator[tuple[str, str | None]]:
    """What the statements at the top of a file import, as `_imports` has it, with the names of modules."""
    for node in tree.body if isinstance(tree, ast.Module) else ():
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from _imports(node, package, names=True)


def _is_for_known_grammar(info: WheelInfo, name: FileName) -> bool:
    """Whether the wheel is for a Python 3 that is no newer than this one, or for any."""
    minors = [int(match[1] or 0) for tag in name.tags if (match := _PYTHON_3.match(tag))]
    return bool(minors) and min(minors) <= sys.version_info[1] and allows(info, _HERE)


def _is_for_this_python(info: WheelInfo, name: FileName) -> bool:
    """Whether the Python that Cairn runs on may import the wheel, on some platform."""
    pythons = {tag.split("-")[0] for tag in name.tags}
    return allows(info, _HERE) and not pythons.isdisjoint(("py3", f"cp{_HERE.replace('.', '')}"))


def _imports(
    tree: ast.AST, package: Sequence[str], *, names: bool = False
) -> Iterator[tuple[str, str | None]]:
    """The modules that a file imports when it runs; for `from . import name` the package and the name.

    With `names` also each module and the name that it takes from it.
    """
    nodes: list[ast.AST] = [tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*above, node.module) if node.module else above)
            if node.module:
                yield module, None
            if module and (names or not node.module):
                yield from ((module, alias.name) for alias in node.names)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            nodes += node.orelse
        else:
            nodes += ast.iter_child_nodes(node)


class Modules:
    """The modules of a wheel: looked up once, since it may have thousands of files and of entry points.

    Attributes:
        files: where a file is installed, to its member.
        trees: what was parsed already.
    """

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self.trees: dict[str, ast.Module | SyntaxError | None] = {}
        self.files = files = {installed_path(m.name): m.name for m in archive.members if not m.is_dir}
        self._names: dict[str, frozenset[str]] = {}
        self._left = _MOST
        self._folders: set[str] = set()
        for folder in {path.rpartition("/")[0] for path in files}:
            above = folder
            while above and above not in self._folders:
                self._folders.add(above)
                above = above.rpartition("/")[0]
        ends = [path.rpartition("/") for path in files if path.endswith(MODULE_FILES)]
        self._inside: dict[str, set[str]] = {}
        stems = [
            (f"{folder}{slash}{file.split('.')[0]}", file.endswith((".so", ".pyd")))
            for folder, slash, file in ends
        ]
        self._modules = {stem for stem, _ in stems}
        self._compiled = {stem for stem, compiled in stems if compiled}  # which Python imports before sources

    def __contains__(self, path: str) -> bool:
        """Whether there is a module or a folder at a path."""
        return path in self._folders or path in self._modules

    def inside(self, folder: str) -> Collection[str]:
        """The names of the modules and folders that are in a folder."""
        if not self._inside:
            for path in (*self._folders, *self._modules):
                above, _, file = path.rpartition("/")
                self._inside.setdefault(above, set()).add(file)
        return self._inside.get(folder, ())

    def read(self, member: str, most: int = LARGEST_MODULE) -> bytes | None:
        """A file of Python code; None where it has more bytes than `most`, or all that were read have."""
        size = self._archive.member(member).size
        if size > min(most, LARGEST_MODULE) or size > self._left:
            return None
        self._left -= size
        return self._archive.read(member)

    def names(self, path: str) -> frozenset[str] | None:
        """All names that a file may define, `*` among them where it may be any; None if there is no file."""
        if path not in self._names and path in self.files:
            text = None if path.removesuffix(".py") in self._compiled else self.read(self.files[path])
            elsewhere = text is None or any(mark in text for mark in FINDS_ELSEWHERE)
            names = frozenset("*") if text is None else _names_of(text, self.trees.get(path))
            self._names[path] = names.union(_OF_MODULES, (_ELSEWHERE,) if elsewhere else ())
        return self._names.get(path)

    def names_in(self, module: str) -> frozenset[str] | None:
        """All names that a module may define, as `names`; None where it may be any, or elsewhere."""
        for path in (f"{module}/__init__", module):
            if (names := self.names(f"{path}.py")) is not None or path in self._modules:
                return names
        # A folder of a package is one without names of its own, unless the package looks elsewhere.
        above = self.names(f"{module.rpartition('/')[0]}/__init__.py")
        return None if above is None or _ELSEWHERE in above else frozenset()


def module_problem(own: Modules, info: WheelInfo, module: str, attribute: str | None) -> str | None:
    """The problem; None where none is known, an empty text where a requirement may bring the module."""
    parts = module.split(".")
    if parts[0] in _STANDARD:
        return None
    for count in range(1, len(parts) + 1):
        if "/".join(parts[:count]) in own:
            continue
        if count == 1:
            return "" if info.requires_dist else f"the wheel has no module {parts[0]}, and requires nothing"
        package = own.names("/".join(parts[: count - 1]) + "/__init__.py")
        # One without a file of its own may have parts in other wheels (PEP 420).
        if package is None or _ELSEWHERE in package:
            return None
        return f"the wheel has no module {'.'.join(parts[:count])}"
    path = "/".join(parts)
    # A submodule is an attribute too, once it was imported.
    if attribute is None or f"{path}/{attribute}" in own:
        return None
    names = own.names_in(path)
    # All names of a module may be taken; a folder has none (see `names_in`).
    absent = names is not None and not {attribute, "*"} & names and not (names and attribute == "*")
    return f"nothing there defines {attribute}" if absent else None


def _names_of(text: bytes, tree: ast.Module | SyntaxError | None) -> frozenset[str]:
    """All names that a module may have, `*` among them where it may have any; it may be parsed already."""
    if any(mark in text for mark in _BINDS_UNSEEN):
        return frozenset("*")
    tree = tree if isinstance(tree, ast.Module) else _parsed(text)
    return frozenset("*" if tree is None else (name for node in ast.walk(tree) for name in _bound(node)))


def _bound(node: ast.AST) -> tuple[str, ...]:
    """The names that a node binds, wherever it stands: more than the module's own do no harm."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return (node.name,)
    if isinstance(node, ast.Import | ast.ImportFrom):
        return tuple((alias.asname or alias.name).split(".")[0] for alias in node.names)
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return (node.id,)
    if isinstance(node, ast.MatchAs | ast.MatchStar | ast.ExceptHandler):
        return (node.name or "",)
    return ()
