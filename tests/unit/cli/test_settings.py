"""Every option of every command takes its value from each of the four places, and the first of them wins."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from cairn import isolation
from cairn import stack as stacks
from cairn.cli import binder, common_options, main, setting_names, setting_values
from cairn.cli.parser import Parser
from cairn.cli.upstream import build_prod_wheels
from cairn.errors import UsageError
from cairn.settings import NOT_SETTINGS, variable_of
from helpers.parsers import all_parsers, below

Place = Callable[[str, str], None]
"""Sets an option, for a command or a group or (empty) for all, to text."""
PARSERS = all_parsers()
COMMANDS = [command for parser in PARSERS for command in below(parser)]


def settable(command: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in command._actions:
        if setting_values.can_be_set(action) and setting_values.name_of(action) not in NOT_SETTINGS:
            yield action


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a project, with files that options may name, and a user's file in a folder beside it."""
    for name in [name for name in os.environ if name.startswith("CAIRN_")]:
        monkeypatch.delenv(name)
    project = tmp_path / "project é"
    (project / "a folder").mkdir(parents=True)
    (project / "a file").touch(mode=0o755)
    (project / ".git").mkdir()
    monkeypatch.setenv("CAIRN_CONFIG", str(tmp_path / "user" / "cairn.toml"))
    monkeypatch.chdir(project)
    return project


def write_user(here: Path, text: str) -> None:
    (here.parent / "user").mkdir(exist_ok=True)
    (here.parent / "user" / "cairn.toml").write_text(text, encoding="utf-8")


def sample_of(action: argparse.Action) -> str:
    """A text that the option takes."""
    if action.choices is not None:
        return str(list(action.choices)[-1])
    samples = ("gfx1100", "3", "7.10.0", "2026-01-31", "2h", "20GB", "a file", "a folder", "a-word", "A=b")
    samples += ("tester=3f2a9c1b", "tester=a file")
    for text in samples:
        try:
            if action.type is None or action.type(text) is not None:
                return text
        except (argparse.ArgumentTypeError, ValueError):
            continue
    raise AssertionError(f"no sample for {action.option_strings}")


def expected_of(action: argparse.Action, text: str, folder: Path | None) -> object:
    if setting_values.is_flag(action):
        return True
    is_path = action.type in setting_values._PATHS or action.metavar in setting_values._PLACES
    word = str(folder / text) if folder is not None and is_path else text
    value = action.type(word) if callable(action.type) else word
    several = isinstance(action, argparse._AppendAction) or action.nargs in ("+", "*")
    return [value] if several else value


def read(command: argparse.ArgumentParser) -> dict[argparse.Action, object]:
    """What each option has in a command line that gives none."""
    assert isinstance(command, Parser)
    values = setting_values.SettingValues(command, ["a"])
    found: dict[argparse.Action, object] = {}
    for action in settable(command):
        if action in values._settings:  # options that exclude each other are read one by one
            found[action] = values._value(action, values._settings[action])
    return found


def toml_of(command: argparse.ArgumentParser, text_of: Callable[[argparse.Action], str]) -> str:
    lines = []
    for action in settable(command):
        is_flag = setting_values.is_flag(action)
        lines.append(f"{setting_values.name_of(action)} = " + ("true" if is_flag else f'"{text_of(action)}"'))
    return "\n".join(lines)


def test_a_private_key_of_the_users_file_is_kept_from_foreign_code_of_every_command(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "_CONCEALED", {})
    write_user(here, 'sign-key = "a"\n[command."trust init"]\nroot-key = ["b", "~/c"]\n')
    monkeypatch.setenv("HOME", str(here))
    user = here.parent / "user"
    for path in (keys := [user / "a", user / "b", here / "c"]):
        path.touch()
    (build,) = (command for command in COMMANDS if command.prog == "cairn test smoke")
    read(build)
    assert set(keys) <= {*isolation.credential_files()}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.prog)
def test_every_option_takes_its_value_from_each_place(
    command: argparse.ArgumentParser, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    actions = list(settable(command))
    assert actions
    is_group = len([*below(command)]) > 1
    if is_group and all(action.dest in Parser.general for action in actions):
        return  # a group, whose commands have these options too
    assert read(command) == {}

    write_user(here, toml_of(command, sample_of))
    user = here.parent / "user"
    for action in actions:
        if action.type in setting_values._PATHS:
            (user / "a folder").mkdir(exist_ok=True)
            (user / "a file").touch(mode=0o755)
    assert read(command) == {a: expected_of(a, sample_of(a), user) for a in actions}

    write_user(here, f'trusted-folders = ["{here}"]')
    (here / "pyproject.toml").write_text(f"[tool.cairn]\n{toml_of(command, sample_of)}", encoding="utf-8")
    personal = [a for a in actions if setting_values.name_of(a) in setting_names.PERSONAL]
    if not personal:
        assert read(command) == {a: expected_of(a, sample_of(a), here) for a in actions}
    (here / "pyproject.toml").unlink()

    for action in actions:
        flag = "yes" if setting_values.is_flag(action) else f"'{sample_of(action)}'"
        several = isinstance(action, argparse._AppendAction) or action.nargs in ("+", "*")
        text = flag if several or setting_values.is_flag(action) else flag.strip("'")
        monkeypatch.setenv(variable_of(setting_values.name_of(action)), text)
    assert read(command) == {a: expected_of(a, sample_of(a), None) for a in actions}


def test_every_name_was_looked_at() -> None:
    names = {setting_values.name_of(a) for c in COMMANDS for a in c._actions if setting_values.can_be_set(a)}
    assert names == setting_names.FREE | setting_names.GUARDED
    assert not setting_names.FREE & setting_names.GUARDED


# Which of them wins.


def value_of(*words: str) -> object:
    return getattr(main.make_parser().parse_args(words), "store", None)


LOG = ("release", "log")


def test_the_first_place_wins(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit):
        value_of(*LOG)
    trusted = f'trusted-folders = ["{here}"]\n'
    write_user(here, f'{trusted}store = "s3://user"')
    assert value_of(*LOG) == "s3://user"
    (here / "cairn.toml").write_text('store = "s3://project"')
    assert value_of(*LOG) == "s3://project"
    # As in pip, what is for one command goes before what is for all, in whichever file it stands.
    write_user(here, f'{trusted}store = "s3://user"\n[command.release]\nstore = "s3://group"')
    assert value_of(*LOG) == "s3://group"
    (here / "cairn.toml").write_text('[command."release log"]\nstore = "s3://one"')
    assert value_of(*LOG) == "s3://one"
    monkeypatch.setenv("CAIRN_STORE", "s3://variable")
    assert value_of(*LOG) == "s3://variable"
    assert value_of(*LOG, "--store", "s3://line") == "s3://line"
    monkeypatch.setenv("CAIRN_STORE", "")  # as CI passes a variable that it does not have
    assert value_of(*LOG) == "s3://one"


def test_no_file_is_read_where_the_variable_says_so(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "cairn.toml").write_text("not TOML")
    monkeypatch.setenv("CAIRN_CONFIG", os.devnull)
    assert value_of(*LOG, "--store", "s") == "s"


def test_help_reads_no_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "cairn.toml").write_text("not TOML")
    with pytest.raises(SystemExit) as end:
        main.make_parser().parse_args(["release", "log", "--help"])
    assert (end.value.code, capsys.readouterr().err) == (0, "")


def test_options_that_exclude_each_other_do_so_across_places(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_user(here, 'index-url = "https://user.example/simple"')
    parse = main.make_parser().parse_args
    assert parse(["install"]).index_url == "https://user.example/simple"
    given = parse(["install", "--store", "s"])
    assert (given.store, getattr(given, "index_url", None)) == ("s", None)
    monkeypatch.setenv("CAIRN_STORE", "t")
    given = main.make_parser().parse_args(["install"])
    assert (given.store, getattr(given, "index_url", None)) == ("t", None)
    monkeypatch.setenv("CAIRN_INDEX_URL", "https://b.example")
    with pytest.raises(SystemExit):
        main.make_parser().parse_args(["install"])
    assert "exclude each other" in capsys.readouterr().err


def test_a_list_of_the_command_line_replaces_that_of_a_setting(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_user(here, 'find-links = ["https://user.example/1", "mine"]')
    words = ["build", "--output-dir", "out"]
    script = Path("build_prod_wheels.py")
    request = build_prod_wheels._request(build_prod_wheels.make_parser(script).parse_args(words))
    assert request.find_links == ("https://user.example/1", str(here.parent / "user" / "mine"))
    monkeypatch.setenv("CAIRN_FIND_LINKS", "'one place' two")
    request = build_prod_wheels._request(build_prod_wheels.make_parser(script).parse_args(words))
    assert request.find_links == ("one place", "two")
    for given in (["--find-links", "x", *words], [*words, "--find-links", "x"]):
        request = build_prod_wheels._request(build_prod_wheels.make_parser(script).parse_args(given))
        assert request.find_links == ("x",)


def test_the_scripts_take_a_stack_instead_of_the_one_beside_them(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Path("folder/build_prod_wheels.py")
    words = ["build", "--output-dir", "o"]
    assert build_prod_wheels.make_parser(script).parse_args(words).stack == Path("folder")
    (here / "cairn.toml").write_text('stack = "a folder"\nquiet = true')
    given = build_prod_wheels.make_parser(script).parse_args(words)
    assert (given.stack, given.quiet) == (here / "a folder", True)
    monkeypatch.setenv("CAIRN_STACK", "v")
    assert build_prod_wheels.make_parser(script).parse_args(words).stack == Path("v")
    assert build_prod_wheels.make_parser(script).parse_args(["--stack", "s", *words]).stack == Path("s")
    assert build_prod_wheels.make_parser(script).parse_args([*words, "--stack", "s"]).stack == Path("s")


def test_a_flag_that_is_off_is_as_if_it_were_not_there(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_user(here, "json = true\npre = false\nuse-ccache = true")
    given = main.make_parser().parse_args(["build", "--stack", "s", "--output-dir", "o"])
    assert (given.json, given.pre, given.use_ccache) == (True, False, True)
    for variable, text in (("CAIRN_JSON", "off"), ("CAIRN_USE_CCACHE", "0")):
        monkeypatch.setenv(variable, text)
    given = main.make_parser().parse_args(["build", "--stack", "s", "--output-dir", "o", "--pre"])
    assert (getattr(given, "json", False), given.pre, given.use_ccache) == (False, True, False)


# What is wrong, and what nobody trusts.


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = [", "is not TOML"),
        ("sotre = 's'", "there is no option 'sotre'"),
        ("sotre = 's'", "did you mean store"),
        ("store = 's'\n[command.'release log']\nstack = 's'", "no option 'stack' of `cairn release log`"),
        ("command = 3", "command is not a table"),
        ("[command]\n'release log' = 3", "is not a table"),
        ("[release]\nstore = 's'", "is a table, not the value of an option"),
        ("store = true", "store takes a value, not true or false"),
        ("store = 's'\nlimit = 'no'", "limit: 'no' is not a positive number"),
        ("store = 's'\njson = 'perhaps'", "json is true or false, not 'perhaps'"),
        ("store = [{}]", "is a list of something else"),
        ("trusted-folders = 3", "is not a list of folders"),
        ("\u0000", "is not TOML"),
    ],
)
def test_a_bad_file_is_one_line(text: str, said: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_user(here, text)
    with pytest.raises(SystemExit) as end:
        main.make_parser().parse_args([*LOG])
    shown = capsys.readouterr()
    assert (end.value.code, shown.out) == (2, "")
    assert said in shown.err
    assert "cairn.toml" in shown.err
    assert len([line for line in shown.err.splitlines() if line.startswith("error: ")]) == 1
    assert len(shown.err.splitlines()) == 2


def test_a_folder_below_a_home_that_is_not_known_is_one_line(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "cairn.toml").write_text("output-dir = '~nobody-x/wheels'")
    with pytest.raises(SystemExit):
        main.make_parser().parse_args(["build", "run", "--stack", "sample"])
    assert "cairn.toml: output-dir: ~nobody-x/wheels: the home folder is not known" in capsys.readouterr().err


def test_what_a_file_says_to_other_commands_does_not_disturb(here: Path) -> None:
    write_user(here, "targets = 'gfx942'\nstore = 's'\n[command.build]\njobs = 'nonsense'")
    assert value_of(*LOG).endswith("/user/s")  # type: ignore[union-attr, attr-defined]


@pytest.mark.parametrize("place", ["user", "project"])
def test_the_folder_of_a_project_of_ones_own_stack_disturbs_no_other_command(place: str, here: Path) -> None:
    text = "boxes-dir = 'a folder'\nbuild-boxes = true\naiter-dir = 'a folder'"
    if place == "user":
        write_user(here, text)
    else:
        (here / "cairn.toml").write_text(text)
    assert main.make_parser().parse_args([*LOG, "--store", "s"])
    box = msgspec.structs.replace(stacks.load(Path("sample")).projects[0], name="boxes", flag=None)
    script = build_prod_wheels.make_parser(Path("build_prod_wheels.py"), (box,))
    (here.parent / "user" / "a folder").mkdir(parents=True, exist_ok=True)
    values = vars(script.parse_args(["build", "--output-dir", "out"]))
    assert values["folder of boxes"].name == "a folder"


@pytest.mark.parametrize("name", ["ouput-dir", "torch-dri", "build-numbr", "boxes"])
def test_a_mistyped_option_is_no_project(name: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_user(here, f"{name} = 'x'")
    with pytest.raises(SystemExit):
        main.make_parser().parse_args([*LOG])
    assert f"there is no option {name!r}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("store = 's3://theirs'", "only in a folder that you trust"),
        ("endpoint-url = 'https://theirs.example'", "only in a folder that you trust"),
        ("[command.release]\nstore = 's3://theirs'", "only in a folder that you trust"),
    ],
)
def test_a_checkout_of_somebody_else_leads_nobody_to_its_store(
    text: str, said: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    below_it = here / "a folder"
    os.chdir(below_it)
    write_user(here, "store = 's3://mine'")
    (here / "cairn.toml").write_text(text)
    with pytest.raises(SystemExit):
        main.make_parser().parse_args([*LOG])
    shown = capsys.readouterr().err
    assert said in shown
    assert f"cairn config set trusted-folders {here}" in shown
    write_user(here, f"store = 's3://mine'\ntrusted-folders = ['{here.parent}']")
    assert main.make_parser().parse_args([*LOG])


LESS_OR_ELSE = (
    *("dry-run = true", "figures = true", "limit = 1", "lines = 'release/2.9'", "pytorch-version = 'all'"),
    *("refs = 'torch=https://theirs.example/torch@main'", "tries = 1"),
)
"""What has a command do, answer or ask less than was typed, or build what is elsewhere."""


@pytest.mark.parametrize("text", LESS_OR_ELSE)
def test_a_checkout_of_somebody_else_has_no_command_do_less_than_was_typed(text: str, here: Path) -> None:
    (here / "cairn.toml").write_text(text)
    name, found = text.partition(" ")[0], 0
    for command in COMMANDS:
        for action in settable(command):
            if setting_values.name_of(action) == name:
                values, found = setting_values.SettingValues(command, ["a"]), found + 1
                with pytest.raises(UsageError, match="only in a folder that you trust"):
                    values._value(action, values._settings[action])
    assert found


def test_a_yank_in_a_checkout_of_somebody_else_is_no_dry_run(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "cairn.toml").write_text("dry-run = true")
    with pytest.raises(SystemExit) as end:
        main.main(["release", "yank", "3f2a", "--reason", "it eats data", "--store", "s"])
    assert end.value.code == 2
    assert "sets dry-run, which a project's file may do only in a folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sign-key = 'a file'", ("release", "promote", "SET", "--stack", "s", "--store", "s", "--to", "r")),
        ("store = 'https://me:hunter2@host.example'", LOG),
    ],
)
def test_a_secret_is_never_taken_from_a_project(
    text: str, words: tuple[str, ...], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_user(here, f"trusted-folders = ['{here}']")
    (here / "cairn.toml").write_text(text)
    with pytest.raises(SystemExit):
        main.make_parser().parse_args(words)
    shown = capsys.readouterr().err
    assert "a person's, and not for the file of a project" in shown
    assert "hunter2" not in shown


def test_a_project_that_nobody_trusts_names_no_folder_beside_its_own(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("build", "--stack", "s")
    (here / "cairn.toml").write_text("output-dir = 'out'")
    assert main.make_parser().parse_args(words).output_dir == here / "out"
    for outside in ("../out", "/out", "~/out"):
        (here / "cairn.toml").write_text(f"output-dir = '{outside}'")
        with pytest.raises(SystemExit):
            main.make_parser().parse_args(words)
        assert "leads out of" in capsys.readouterr().err


def test_the_search_ends_at_the_root_of_the_repository(here: Path) -> None:
    (here.parent / "cairn.toml").write_text("store = 's3://above'")
    os.chdir(here / "a folder")
    with pytest.raises(SystemExit):
        value_of(*LOG)
    (here / "cairn.toml").write_text("quiet = true")
    assert main.make_parser().parse_args([*LOG, "--store", "s"]).quiet


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_somebody_else_is_not_read(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = here / "cairn.toml"
    path.write_text("quiet = true")
    os.chown(path, 12345, 12345)
    with pytest.raises(SystemExit):
        value_of(*LOG, "--store", "s")
    assert "belongs to somebody else" in capsys.readouterr().err


def test_a_request_is_made_of_settings(here: Path) -> None:
    (here / "cairn.toml").write_text("stack = 'a folder'\nline = 'nightly'")
    parser = Parser(prog="program")
    requests: list[common_options.StackOptions] = []
    binder.bind(parser, common_options.StackOptions, requests.append)
    parser.parse_args([]).run(parser.parse_args([]))
    assert requests == [common_options.StackOptions(stack=here / "a folder", line="nightly")]
