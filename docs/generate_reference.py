"""Write the pages of docs/reference that follow from the code: every command, every file format.

    python3 dev.py docs

The text comes from the parsers and the docstrings, not from `--help`, whose layout differs between Pythons.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

import cairn
from cairn import datafile, stack
from cairn.cli import main as program
from cairn.cli import upstream
from cairn.matrix import legs, matrix_toml
from cairn.pipeline import bisect
from cairn.pipeline.doctor import model
from cairn.pipeline.night import plan as night_plan
from cairn.pipeline.repository.choices import Lock
from cairn.release import ledger_entries, weighing
from cairn.release.audit import inventory
from cairn.release.gate import judgement
from cairn.release.index import generation, names
from cairn.release.pages import night_history, targets_file, trends, view
from cairn.release.provenance import attest
from cairn.release.publish import mirror_lock
from cairn.rocm import packages_toml
from cairn.sources.manifest import manifest
from cairn.testing import record
from cairn.testing.compat.report import CompatReport
from cairn.testing.skips import skip_files
from cairn.testing.suite import shards, suite_results, suite_toml
from cairn.wheels import wheelset

REFERENCE = Path(__file__).parent / "reference"

GENERATED = "<!-- Written by `python3 dev.py docs` from the code; edit the code. -->\n"
PART, END = "<!-- Written by `python3 dev.py docs`: {}. -->", "<!-- End of what is written. -->"
GENERATED_FOLDERS = ("commands", "formats", "schemas", "scripts")  # below docs/reference
EVERYWHERE = {"-h", "-v", "-q", "--debug", "--json"}  # said once, on the page of all commands

COMMANDS = """\
# Commands

{table}
Every command takes `-h` (`--help`), `-q` (`--quiet`: results, warnings and errors alone), `-v` (`--verbose`:
every line of the programs that are run), `--json` (the answer as JSON) and `--debug` (the traceback of an
error), before or after the command.
Exit codes: [exit-codes.md](exit-codes.md).
"""

SCRIPTS = """\
# Scripts with upstream's names

They are in `external-builds/pytorch/`, and in `build_tools/` those over `cairn rocm`; they keep the names and
flags of ROCm's TheRock, and are run with `python`.

{table}"""

FORMATS = """\
# File formats

Each is a JSON or TOML file with its version in `schema`. A file of an unknown version, with an unknown key,
or with a value of a wrong type is refused, and the error names the place in it.

**What is promised.** What a released Cairn wrote into a store or a repository, each later one reads: a
key is added with a default only, and none is taken away. A format that must change otherwise gets a new
number, and its reader takes the old one as long as stores may hold it, as that of records does:
`cairn.record/2` and `/3`. What a deprecated option, key or format is replaced by, and the day after which
it may go, at least half a year later, is in [CHANGELOG.md](../../CHANGELOG.md), and a warning says it
when it is used. An older Cairn refuses what a newer one wrote, and says so. What commands print with
`--json`, and caches, follow the program. A file of each released version is read by a test
(`tests/unit/project/test_released_formats.py`).

{table}"""

WINDOWS = """\
# Variables of builds on Windows

What `external-builds/pytorch/stack.toml` gives a build for GPUs on Windows, beside what upstream's script
gives it ({source}). No build ever ran there: [platforms](platforms.md).
"""

MODULES = """\
# Every module, in a sentence

Where to look for what, package by package. What happens in which order, and which package may import which:
[how Cairn is laid out](../explanation/architecture.md).
"""


def pages() -> Mapping[str, str]:
    """The generated pages and schemas: the path below docs/reference, and the text."""
    written: dict[str, str] = {}
    for kind, intro, parsers in (
        ("commands", COMMANDS, list(_below(program.make_parser(whole=True)))),
        ("scripts", SCRIPTS, [each for one in upstream.parsers() for each in _below(one)]),
    ):
        rows = []
        for parser in parsers:
            name = parser.prog.replace(" ", "-").replace(".py", "")
            written[f"{kind}/{name}.md"] = GENERATED + "".join(_command(parser))
            rows.append((f"[{parser.prog}]({kind}/{name}.md)", _first_sentence(parser.description or "")))
        written[f"{kind}.md"] = GENERATED + intro.format(table=_table("command", rows))
    rows = []
    for name, cls, use in _formats():
        written[f"formats/{_slug(name)}.md"] = GENERATED + "".join(_format(name, cls, use))
        written[_schema_file(name)] = json.dumps(datafile.json_schema(cls), indent=2, sort_keys=True) + "\n"
        rows.append((f"[{name}](formats/{_slug(name)}.md)", use))
    written["formats.md"] = GENERATED + FORMATS.format(table=_table("file", rows))
    facts = Path(__file__).with_name("windows_variables.toml")
    written["windows-variables.md"] = GENERATED + "".join(_windows(datafile.read_toml(facts)))
    written["modules.md"] = GENERATED + MODULES + "".join(_rooms())
    return written


def in_pages() -> Mapping[Path, str]:
    """Return the pages written by hand that have generated parts, with these parts as the code says them.

    Raises:
        ValueError: a page has no such part.
    """
    root = Path(__file__).parents[1]
    pytorch = stack.load(root / "external-builds" / "pytorch")
    parts = {
        "external-builds/pytorch/README.md": ("lines of stack.toml", "".join(_lines(pytorch))),
        "docs/reference/therock.md": ("runners of matrix.toml", "".join(_runners(pytorch))),
    }
    written = {}
    for name, (title, text) in parts.items():
        before, begin, rest = (root / name).read_text(encoding="utf-8").partition(PART.format(title))
        _, end, after = rest.partition(END)
        if not end:
            raise ValueError(f"{name} has no part {title}")
        written[root / name] = f"{before}{begin}\n{text}{end}{after}"
    return written


def _lines(pytorch: stack.Stack) -> Iterator[str]:
    """The release lines of a stack, and where their projects come from."""
    yield "| line | torch | audio | vision | triton |\n| --- | --- | --- | --- | --- |\n"
    names = sorted(pytorch.line_names(), key=lambda name: [int(n) for n in re.findall("[0-9]+", name)])
    for name in names:
        line = pytorch.for_line(name)
        cells = []
        for project in map(line.project, ("torch", "audio", "vision", "triton")):
            repository = str(project.origin.url).removeprefix("https://github.com/").removesuffix(".git")
            cells.append(f"{repository} `{project.hashtag}`")
        yield f"| {name} | {' | '.join(cells)} |\n"
    by_pin: dict[str, list[str]] = {}
    for project in pytorch.projects:
        if project.pin:
            by_pin.setdefault(project.pin, []).append(project.name)
    pins = "; ".join(f"`{pin}` for {', '.join(projects)}" for pin, projects in by_pin.items())
    yield f"\nA commit that the torch checkout names counts before the branch: {pins}.\n"


def _runners(pytorch: stack.Stack) -> Iterator[str]:
    """The labels of the machines that test each family."""
    matrix = matrix_toml.load_matrix_toml(Path(pytorch.folder, matrix_toml.FILE), pytorch)
    yield "| family | platform | tests | tests of several GPUs |\n| --- | --- | --- | --- |\n"
    without: dict[str, list[str]] = {}
    for family, platforms in matrix.families.items():
        for platform, machines in platforms.items():
            labels = [
                " ".join(f"`{label}`" for label in kind) for kind in (machines.test, machines.multi_gpu)
            ]
            if any(labels):
                yield f"| {family} | {platform} | {labels[0] or '-'} | {labels[1] or '-'} |\n"
            else:
                without.setdefault(platform, []).append(family)
    for platform, families in without.items():
        yield f"\nOn {platform} no machine has GPUs of {', '.join(families)}.\n"


def _windows(facts: Mapping[str, Any]) -> Iterator[str]:
    """Compare the variables of PyTorch's builds on Windows with upstream's, project by project.

    Args:
        facts: what windows_variables.toml says.

    Raises:
        ValueError: a difference has no reason, or a reason no difference.
    """
    upstreams, reasons = facts["upstream"], facts["reasons"]
    pytorch = stack.load(Path(__file__).parents[1] / "external-builds" / "pytorch")
    source = "TheRock 89553ce, `external-builds/pytorch/build_prod_wheels.py`"
    yield WINDOWS.format(source=source)
    used = set()
    for name in [name for name in upstreams if name != "common"]:
        project = pytorch.project(name)
        environments = (pytorch.environment, project.environment)
        ours = {key: text for each in environments for key, text in each.of("windows", cpu=False).items()}
        theirs = {**({} if name == "triton" else upstreams["common"]), **upstreams[name]}
        yield f"\n## {name}\n\n| variable | upstream | Cairn | |\n| --- | --- | --- | --- |\n"
        for key in sorted(ours.keys() | theirs.keys()):
            cells = [f"`{each[key]}`" if key in each else "not set" for each in (theirs, ours)]
            table = next((table for table in (name, "common") if key in reasons.get(table, {})), None)
            if cells[0] == cells[1]:
                why = "the same"
            elif table is None:
                raise ValueError(f"windows_variables.toml has no reason why {key} of {name} differs")
            else:
                used.add((table, key))
                why = reasons[table][key]
            yield f"| `{key}` | {' | '.join(map(_cell, cells))} | {why} |\n"
    if unused := {(table, key) for table in reasons for key in reasons[table]} - used:
        raise ValueError(f"windows_variables.toml has reasons for what does not differ: {sorted(unused)}")


def _rooms() -> Iterator[str]:
    """A table of each package with what its modules are for, by the first lines of their docstrings."""
    root = Path(cairn.__path__[0])
    for folder in sorted({path.parent for path in root.rglob("*.py")}, key=lambda path: path.parts):
        lines = {path.stem: _purpose(path) for path in sorted(folder.glob("*.py"))}
        room = lines.pop("__init__", None)
        if room is not None and lines:
            yield f"\n## {'.'.join(folder.relative_to(root.parent).parts)}\n\n{room}\n\n"
            yield _table("module", [(f"`{name}`", text) for name, text in lines.items()])


def _purpose(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return _one_line(docstring.partition("\n\n")[0])


def formats() -> Mapping[str, type[datafile.Value]]:
    """The class that reads each format, by the name of its file."""
    return {name: cls for name, cls, _ in _formats()}


def shapes() -> dict[str, Any]:
    """Return what compatibility of formats is judged by: required keys and all keys of each object.

    At a release it is kept in `tests/unit/project/released/<version>/shapes.json`.
    """
    return {
        name: {
            inner: {"required": sorted(shape.get("required", ())), "keys": sorted(shape["properties"])}
            for inner, shape in sorted(datafile.json_schema(cls)["$defs"].items())
            if "properties" in shape
        }
        | {"schema": str(cls.__struct_config__.tag)}
        for name, cls in formats().items()
    }


def _table(head: str, rows: Sequence[tuple[str, str]]) -> str:
    return f"| {head} | |\n| --- | --- |\n" + "".join(f"| {name} | {_cell(text)} |\n" for name, text in rows)


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=\.) ", _one_line(text), maxsplit=1)[0]


def _formats() -> Iterator[tuple[str, type[datafile.Value], str]]:
    """File name, the class that reads it, and who writes and reads it."""
    yield "stack.toml", stack.Stack, "Written by hand; `--stack` of every command reads it."
    yield (
        "packages.toml",
        packages_toml.Description,
        "Written by hand; `cairn rocm package` reads it.",
    )
    yield (
        mirror_lock.FILE,
        mirror_lock.MirrorLock,
        "`cairn index mirror lock` writes it beside the stack.toml; `mirror sync` goes by it.",
    )
    yield (
        matrix_toml.FILE,
        matrix_toml.MatrixToml,
        "Written by hand, beside the stack.toml; `cairn matrix` reads it.",
    )
    yield "legs.json", legs.Matrix, "What `cairn matrix --json` prints."
    yield "manifest.json", manifest.Manifest, "`cairn build` and `cairn manifest create` write it."
    yield "set.json", wheelset.WheelSet, "`cairn build` writes it beside the wheels; records are bound to it."
    yield (
        "record.json",
        record.TestRecord,
        "`cairn test smoke`, `suite` and `merge` write it; the gate reads it.",
    )
    yield "suite.toml", suite_toml.Suite, "Which of a project's own tests run; it lies beside the stack.toml."
    yield (
        "shard.json",
        suite_results.ShardResult,
        "What one shard of a suite leaves; `cairn test merge` reads it.",
    )
    yield (
        "suite-result.json",
        suite_results.SuiteResult,
        "What `cairn test merge` makes of the shards of a suite, beside the record.",
    )
    yield (
        "test-times.json",
        shards.Times,
        "How long tests took; upstream's files of that name are read as well.",
    )
    yield "compat.json", CompatReport, "`cairn test compat` writes it; `cairn diff` reads it."
    yield (
        "skip-tests.toml",
        skip_files.SkipFile,
        "Written by hand; a suite leaves out what its folder names.",
    )
    yield (
        "targets.json",
        targets_file.TargetsFile,
        "Beside the pages of an index; `cairn install` reads it where the store has no root.",
    )
    yield (
        "lock.json",
        Lock,
        "In `.github/cairn`: what `cairn ci init` wrote into a repository, and was told.",
    )
    yield (
        "night.json",
        view.Night,
        "Below `status/` of an index: how the last run of a line, family, Python and platform ended.",
    )
    yield (
        "nights.json",
        night_history.History,
        "Beside a channel's pages: its last nights, which `nights.html` and `nights.atom` show.",
    )
    yield (
        "night-plan.json",
        night_plan.NightPlan,
        "`cairn ci night freeze` keeps it below `nights/`: what is expected of a night.",
    )
    yield (
        "night-step.json",
        night_plan.StepNote,
        "Below `nights/<id>/steps/`: how one job of a leg ended; for people, and no reason to promote.",
    )
    yield (
        "trends.json",
        trends.Trends,
        "In the folder of an index: what its last nights measured; the status page draws it.",
    )
    yield "audit.json", inventory.AuditReport, "What `cairn index check --json` prints."
    yield "doctor.json", model.DoctorReport, "What `cairn doctor --json` prints; `--machine` reads it."
    yield "bisect.json", bisect.Search, "`cairn bisect` writes it after each run, and goes on from it."
    yield "judgement.json", judgement.GateReport, "`cairn release promote` keeps it beside the set."
    yield (
        "answer.json",
        weighing.Answer,
        "`cairn release record answer` keeps it beside the set; the gate reads it.",
    )
    yield (
        "provenance.json",
        attest.Provenance,
        "Beside a wheel that a key vouches for, around in-toto statements; `cairn index verify` reads it.",
    )
    yield (
        "notice.json",
        judgement.Notice,
        "`cairn release promote` gives it to the command of `--notify`, or of `[gate] notify`.",
    )
    yield (
        "state.json",
        generation.Pointer,
        "The one file of an index that changes: which generation is current.",
    )
    yield "generation.json", generation.Generation, "A whole state of an index; it never changes."
    yield (
        "project.json",
        generation.ProjectState,
        "What an index offers of one project: a part of a generation.",
    )
    yield (
        "project-change.json",
        generation.ProjectChange,
        "The same, as what changed over earlier parts: so parts grow with what changes.",
    )
    yield (
        "ledger-entry.json",
        ledger_entries.Entry,
        "One link of the chain of what a store never forgets; it never changes.",
    )
    yield "ledger-names.json", ledger_entries.Names, "The names that the ledger has of a project."
    yield "ledger-set.json", ledger_entries.History, "What the ledger has of a set."
    yield "ledger-head.json", ledger_entries.Head, "Up to which entry these two are written."
    yield "bin.json", names.Bin, "Some of the projects of a generation by their parts, or some of its sets."
    yield "index-set.json", generation.IndexSet, "A set as an index lists it."


def _slug(name: str) -> str:
    return name.replace(".", "-")


def _schema_file(name: str) -> str:
    return f"schemas/{name.rpartition('.')[0]}.schema.json"


def _below(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The commands that do something: the parser itself, or those below it."""
    groups = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not groups:
        yield parser
    for group in groups:
        for child in group.choices.values():
            yield from _below(child)


def _command(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The page of a command."""
    yield f"# {parser.prog}\n\n{_one_line(parser.description or '')}\n"
    arguments = [a for a in parser._actions if not EVERYWHERE.intersection(a.option_strings)]
    if arguments:
        yield "\n| argument | meaning |\n| --- | --- |\n"
        yield from (f"| {_name(a)} | {_cell(_meaning(a, parser))} |\n" for a in arguments)
    if parser.epilog:
        yield f"\n```console\n$ {parser.epilog.removeprefix('example: ')}\n```\n"
    yield "\nThe arguments of [every command](../commands.md), and [exit codes](../exit-codes.md).\n"


def _name(action: argparse.Action) -> str:
    value = action.metavar or (
        "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()
    )
    value = " ".join(value) if isinstance(value, tuple) else value
    if not action.option_strings:
        return f"`{_cell(value)}`" + (" …" if action.nargs in {"+", "*"} else "")
    flags = ", ".join(f"`{flag}`" for flag in action.option_strings)
    return (
        _cell(flags)
        + ("" if action.nargs == 0 else f" `{value}`")
        + (" (required)" if action.required else "")
    )


def _meaning(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    return _one_line((action.help or "") % (vars(action) | {"prog": parser.prog}))


def _format(name: str, cls: type[datafile.Value], use: str) -> Iterator[str]:
    """The page of a file: a table of its keys, and one for each kind of object in it."""
    schema = f"../{_schema_file(name)}"
    yield f'# {name}\n\n`schema = "{cls.__struct_config__.tag}"`. {use} [JSON schema]({schema}).\n'
    for kind in _kinds(cls):
        summary, meanings = _docstring(kind)
        yield "" if kind is cls else f"\n## {kind.__name__}\n\n{summary}\n"
        yield "\n| key | value | meaning |\n| --- | --- | --- |\n"
        for field in msgspec.structs.fields(kind):
            meaning = meanings.get(field.encode_name, "")
            optional = "" if field.required else " (optional)"
            yield f"| `{field.encode_name}`{optional} | {_cell(_type(field.type))} | {_cell(meaning)} |\n"


def _kinds(cls: type[datafile.Value]) -> list[type[datafile.Value]]:
    """The class, and those of all objects in it, each once."""
    found = [cls]
    for kind in found:  # grows while it is walked
        waiting: list[Any] = [field.type for field in msgspec.structs.fields(kind)]
        while waiting:
            hint = waiting.pop(0)
            waiting += typing.get_args(hint)
            if isinstance(hint, type) and issubclass(hint, datafile.Value) and hint not in found:
                found.append(hint)
    return found


def _type(hint: Any) -> str:  # noqa: ANN401 - any type hint
    """A type as a reader of JSON or TOML calls it."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return " or ".join(f"`{value}`" for value in arguments)
    if origin is tuple:
        return f"list of {_type(arguments[0])}"
    if origin is Mapping:
        return f"object: {_type(arguments[0])} to {_type(arguments[1])}"
    if arguments:
        return " or ".join(_type(argument) for argument in arguments)
    names = {str: "string", int: "integer", float: "number", bool: "boolean", types.NoneType: "null"}
    return names.get(hint) or hint.__name__


def _docstring(cls: type) -> tuple[str, Mapping[str, str]]:
    """The first paragraph of a docstring, and what it says of each attribute."""
    summary, _, rest = inspect.cleandoc(cls.__doc__ or "").partition("\nAttributes:\n")
    # An attribute begins at four spaces; deeper lines go on with it.
    entries = re.findall(r"^    (\w+): (.*(?:\n     .*)*)", rest, re.MULTILINE)
    return _one_line(summary.split("\n\n")[0]), {name: _one_line(text) for name, text in entries}


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def main() -> None:
    """Write the pages, and remove those of what is gone."""
    written = pages()
    for name, text in written.items():
        path = REFERENCE / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for folder in GENERATED_FOLDERS:
        for path in (REFERENCE / folder).iterdir():
            if f"{folder}/{path.name}" not in written:
                path.unlink()
    for path, text in in_pages().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
