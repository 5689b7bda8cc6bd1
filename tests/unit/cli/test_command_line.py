"""What the parser of every command makes of what people type."""

import argparse
import errno
import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from cairn import converters, files
from cairn.cli import binder, common_options, guard, main
from cairn.cli.upstream import build_prod_wheels, checkouts, scripts
from cairn.errors import BuildError, CairnError, ProblemsError, UsageError
from cairn.output import console, wording
from cairn.sources.git import url

ROOT = Path(__file__).parents[3]


def refused(capsys: pytest.CaptureFixture[str], *words: str, parser: argparse.ArgumentParser) -> str:
    with pytest.raises(SystemExit) as caught:
        parser.parse_args(words)
    shown = capsys.readouterr()
    assert (caught.value.code, shown.out) == (2, "")
    return shown.err


@pytest.mark.parametrize(
    ("words", "said", "meant"),
    [
        (("checkout", "--stak", "X"), "unknown option --stak", "did you mean --stack?"),
        (("checkout", "torch", "--stak=X"), "unknown option --stak", "did you mean --stack?"),
        (("index", "check", "--stor", "s"), "unknown option --stor", "did you mean --store?"),
        (("release", "promote", "--form", "dev", "SET"), "unknown option --form", "did you mean --from?"),
        (("wheel", "show", "a.whl", "--out", "x"), "unknown option --out", "`cairn wheel show --help`"),
        (("wheel", "repair", "a.whl", "--output", "x"), "unknown option --output", "--output-dir?"),
        (("--stack", "s", "build"), "unknown option --stack", "options of a command follow its name"),
        (("wheel", "show", "-x", "a.whl"), "unknown option -x", "`cairn wheel show --help`"),
        (("whel", "show", "a.whl"), "there is no command 'whel'", "did you mean wheel?"),
        (("wheel", "shwo", "a.whl"), "there is no command 'shwo'", "did you mean show?"),
        (("zzz",), "there is no command 'zzz'", "the commands are: checkout, manifest"),
        (("ci", "run", "--stack", "s", "extra"), "unexpected argument 'extra'", "takes options alone"),
        (("ci", "run", "--stack", "s", "--", "extra"), "unexpected argument 'extra'", "takes options alone"),
    ],
)
def test_what_was_mistyped_is_named(
    words: tuple[str, ...], said: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = refused(capsys, *words, parser=main.make_parser())
    assert [line for line in shown.splitlines() if line.startswith("error: ")] == [shown.splitlines()[0]]
    assert said in shown
    assert meant in shown


def test_the_scripts_name_what_was_mistyped_too(capsys: pytest.CaptureFixture[str]) -> None:
    repo = checkouts.pytorch_repo("torch", Path("pytorch_torch_repo.py"))
    assert "did you mean --repo-hashtag?" in refused(capsys, "checkout", "--repo-hastag", "x", parser=repo)
    assert "did you mean hipify?" in refused(capsys, "hipfy", parser=repo)
    build = build_prod_wheels.make_parser(Path("build_prod_wheels.py"))
    shown = refused(capsys, "build", "--pytorch-rocm-arc", "gfx942", parser=build)
    assert "did you mean --pytorch-rocm-arch?" in shown
    fat = scripts.patch_fat_wheel(Path("patch_fat_wheel.py"), windows=False)
    assert "did you mean --output-path?" in refused(capsys, "--output-pat", "x", parser=fat)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder, with a folder and files, of which one is called like an option."""
    monkeypatch.chdir(tmp_path)
    for name in ("a.whl", "here.whl", "-x.whl"):
        Path(name).touch()
    Path("folder").mkdir()


@pytest.mark.usefixtures("here")
def test_a_value_is_never_taken_for_an_option() -> None:
    parser = main.make_parser()
    given = parser.parse_args(["wheel", "verify", "--forbid", "-1", "--provided", "-a b", "--", "-x.whl"])
    assert (given.forbid, given.provided, [str(w) for w in given.wheels]) == (["-1"], ["-a b"], ["-x.whl"])


SET = ("test", "smoke", "--set", str(ROOT / "README.md"))


@pytest.mark.parametrize(
    ("words", "values", "said"),
    [
        # As CI passes a variable that is not set: it is neither the default nor every target.
        (("manifest", "create", "--targets"), (" ",), "--targets: it is empty; leave the option out"),
        (("ci", "run", "--targets"), (" ",), "--targets: it is empty; leave the option out"),
        (("build", "--targets"), (" ",), "--targets: it is empty; leave the option out"),
        (("rocm", "package", "--targets"), (" ",), "--targets: it is empty; leave the option out"),
        (("test", "smoke", "--targets"), (" ",), "--targets: it is empty; leave the option out"),
        # A different line, the public index, every address of the machine, the stack of the current folder.
        (("ci", "run", "--line"), ("",), "argument --line: "),
        (("checkout", "torch", "--repo-hashtag"), ("",), "argument --repo-hashtag: "),
        (("checkout", "torch", "--gitrepo-origin"), ("",), "argument --gitrepo-origin: "),
        (("rocm", "install", "--index-url"), ("",), "argument --index-url: "),
        (("test", "smoke", "--index-url"), ("",), "argument --index-url: "),
        (("index", "serve", "store", "--host"), ("",), "argument --host: "),
        (("ci", "run", "--stack"), ("",), "argument --stack: "),
        (("matrix", "--stack", "s", "--families"), ("",), "argument --families: "),
        (
            (*SET, "--timeout"),
            ("nan", "inf", "0", "-5", "1e12", "soon", ""),
            "not a positive number of seconds",
        ),
        (
            ("ci", "run", "--stack", "s", "--jobs"),
            ("0", "-1", "1e3", "", "\u0663", "9" * 5_000),
            "is not a positive number",
        ),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused_in_a_short_line(
    words: tuple[str, ...], values: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    *before, option = words
    for value in values:
        shown = refused(capsys, *before, f"{option}={value}", parser=main.make_parser())
        assert said in shown
        assert len(shown) < 500


def test_no_target_is_not_every_target_for_the_script_either(capsys: pytest.CaptureFixture[str]) -> None:
    build = build_prod_wheels.make_parser(Path("build_prod_wheels.py"))
    shown = refused(capsys, "build", "--output-dir", "o", "--pytorch-rocm-arch", "", parser=build)
    assert "argument --pytorch-rocm-arch: it is empty" in shown


@pytest.mark.parametrize("words", [(), ("wheel",), ("index",), ("-q",), ("manifest", "--debug")])
def test_no_command_prints_help_and_is_no_success(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main.main(words)
    shown = capsys.readouterr()
    assert (caught.value.code, shown.out) == (2, "")
    assert shown.err.startswith("usage: cairn")
    assert "commands:" in shown.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("-q", "wheel", "show", "a.whl"), {"quiet"}),
        (("wheel", "-q", "show", "a.whl"), {"quiet"}),
        (("wheel", "show", "a.whl", "-q"), {"quiet"}),
        (("--debug", "wheel", "show", "-v", "a.whl"), {"debug", "verbose"}),
        (("wheel", "show", "a.whl", "--verbose", "--quiet", "--debug"), {"quiet", "verbose", "debug"}),
        (("-qv", "wheel", "show", "a.whl"), {"quiet", "verbose"}),
        (("wheel", "show", "a.whl"), set()),
    ],
)
@pytest.mark.usefixtures("here")
def test_general_options_hold_wherever_they_stand(words: tuple[str, ...], expected: set[str]) -> None:
    given = vars(main.make_parser().parse_args(words))
    assert {name for name in ("quiet", "verbose", "debug") if given.get(name)} == expected


def test_the_scripts_take_general_options_on_both_sides() -> None:
    parser = build_prod_wheels.make_parser(Path("build_prod_wheels.py"))
    given = vars(parser.parse_args(["-q", "build", "--output-dir", "out", "--debug"]))
    assert (given["quiet"], given["debug"]) == (True, True)


@pytest.mark.parametrize(
    "words", [("--stack", "s", "--line", "l", "hipify"), ("hipify", "--stack", "s", "--line", "l")]
)
def test_the_scripts_take_stack_and_line_on_both_sides(words: tuple[str, ...]) -> None:
    parser = checkouts.pytorch_repo("vision", Path("folder/pytorch_vision_repo.py"))
    given = parser.parse_args(words)
    assert (given.stack, given.line) == (Path("s"), "l")
    usual = binder.make(common_options.StackOptions, parser.parse_args(["hipify"]))
    assert (usual.stack.name, usual.line) == ("folder", None)
    build = build_prod_wheels.make_parser(Path("folder/build_prod_wheels.py"))
    assert build.parse_args(["build", "--output-dir", "o", "--stack", "s"]).stack == Path("s")
    assert build.parse_args(["--stack", "s", "build", "--output-dir", "o"]).stack == Path("s")
    assert build.parse_args(["build", "--output-dir", "o"]).stack == Path("folder")


def test_verbose_shows_every_line_and_quiet_none(capsys: pytest.CaptureFixture[str]) -> None:
    for screen in (console.Console(verbose=True), console.Console(quiet=True), console.Console()):
        with screen.stage("build") as stage:
            stage.update("\x1b[1mfirst")
            stage.update("second")
        shown = capsys.readouterr().err
        assert ("  | first\n  | second\n" in shown) == screen.verbose


def test_the_help_of_the_program_names_every_command_without_loading_them() -> None:
    assert main.make_parser().format_help() == main.make_parser(whole=True).format_help()


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("GFX942", ("gfx942",)),
        ("gfx94X-dgpu", ("gfx94X-dcgpu",)),
        ("torchv", ("torchvision",)),
        ("xyz", ()),
    ],
)
def test_guesses_are_few_and_near(word: str, meant: tuple[str, ...]) -> None:
    assert wording.nearest(word, ("gfx942", "gfx94X-dcgpu", "torchvision", "torchaudio")) == meant


def every_path_argument() -> list[tuple[tuple[str, ...], str]]:
    """A command line for each argument that must be there already, with `{}` in its place, and its kind."""
    store = ("--store", "s")
    return [
        (("wheel", "show", "{}"), "file"),
        (("wheel", "verify", "{}"), "file"),
        (("wheel", "repair", "{}", "--output-dir", "out"), "file"),
        (("wheel", "repair", "here.whl", "--sdk", "{}", "--output-dir", "out"), "folder"),
        (("wheel", "repair", "here.whl", "--library-path", "{}", "--output-dir", "out"), "folder"),
        (("wheel", "set-version", "{}", "--version", "1", "--output-dir", "out"), "file"),
        (("wheel", "fat", "{}", "folder", "--output-dir", "out"), "file"),
        (("wheel", "fat", "here.whl", "{}", "--output-dir", "out"), "folder"),
        (("wheel", "split", "{}", "--output-dir", "out"), "file"),
        (("wheel", "join", "{}", "here.whl", "--output-dir", "out"), "file"),
        (("wheel", "join", "here.whl", "{}", "--output-dir", "out"), "file"),
        (("wheel", "verify", "here.whl", "--find-links", "{}"), "folder"),
        (("index", "publish", "{}", *store), "file"),
        (("index", "publish", "here.whl", "--set", "{}", *store), "file"),
        (("index", "mirror", "{}", *store), "file"),
        (("release", "promote", "abcd", "--record", "{}", *store), "file"),
        (("release", "promote", "abcd", "--python", "{}", *store), "program"),
        (("test", "smoke", "--set", "{}"), "file"),
        (("manifest", "verify", "{}"), "file"),
        (("manifest", "checkout", "{}"), "file"),
        (("patches", "audit", "{}"), "folder"),
        (("patches", "audit", "folder", "--allowlist", "{}"), "file"),
        (("patches", "report", "{}"), "folder"),
        (("patches", "export", "{}", "--output-dir", "out"), "folder"),
        (("patches", "apply", "folder", "{}"), "folder"),
        (("rocm", "package", "--prefix", "{}", "--rocm-version", "1", "--output-dir", "out"), "folder"),
        (("rocm", "install", "--python", "{}"), "file or folder"),
        (("checkout", "audio", "--stack", "s", "--torch-dir", "{}"), "folder"),
    ]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("words", "kind"), every_path_argument())
def test_what_is_not_there_or_of_another_kind_is_called_that(
    words: tuple[str, ...], kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("dangling").symlink_to("nowhere.whl")
    cases = {
        "gone/nothere.whl": f"there is no {kind} gone/nothere.whl",
        "here.whl/x": f"there is no {kind} here.whl/x",
        "*.zip": f"no {kind} matches *.zip",
        "dangling": "dangling is a link to nowhere.whl, which is not there",
        "x" * 300: "cannot be read: File name too long",
    }
    if kind == "folder":
        cases["here.whl"] = "here.whl is a file, not a folder"
    elif kind != "file or folder":
        cases["folder"] = f"folder is a folder, not a {kind}"
    for given, said in cases.items():
        asked = tuple(given if word == "{}" else word for word in words)
        assert said in refused(capsys, *asked, parser=main.make_parser())


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("wheel", "split", "here.whl", "--output-dir", "here.whl"), "here.whl is a file, not a folder"),
        (("wheel", "split", "here.whl", "--output-dir", "here.whl/out"), "cannot be made: "),
        (("build", "--stack", "s", "--output-dir", "here.whl"), "here.whl is a file, not a folder"),
        (("manifest", "create", "--stack", "s", "--output", "folder"), "folder is a folder, not a file"),
        (("diff", "here.whl", "here.whl", "--html", "folder"), "folder is a folder, not a file"),
    ],
)
def test_where_nothing_can_be_written_is_known_before_the_work(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refused(capsys, *words, parser=main.make_parser())


@pytest.mark.parametrize("check", [converters.file, converters.folder])
def test_what_may_not_be_read_is_called_that(
    check: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "locked"
    path.touch() if check is converters.file else path.mkdir()
    monkeypatch.setattr("os.access", lambda *_: False)  # root may read everything
    with pytest.raises(argparse.ArgumentTypeError, match="locked cannot be read: permission denied"):
        check(str(path))


@pytest.mark.usefixtures("here")
def test_a_mistyped_project_gets_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    stack = str(ROOT / "external-builds" / "sample")
    assert main.main(["checkout", "torhc", "--stack", stack]) == 2
    assert "did you mean torch?" in capsys.readouterr().err


PATHS = (
    converters.file,
    converters.folder,
    converters.program,
    converters.file_or_folder,
    converters.any_path,
)


@pytest.mark.parametrize("kind", [*PATHS, converters.new_file, converters.new_folder])
@pytest.mark.parametrize(("text", "said"), [("", "no path"), ("~nosuchuser/x", "~nosuchuser/x")])
def test_a_path_that_names_nothing_is_refused(kind: Callable[[str], Path], text: str, said: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=said):
        kind(text)


def test_a_store_or_an_origin_below_no_home_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["index", "check", "--store", "~nosuchuser/store"]) == 2
    assert "~nosuchuser/store" in capsys.readouterr().err
    with pytest.raises(CairnError, match="~nosuchuser/repo"):
        url.absolute("~nosuchuser/repo")


def test_without_a_home_folder_the_cache_asks_for_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "USERPROFILE", "XDG_CACHE_HOME", "CAIRN_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # as for a user id that has no entry
    with pytest.raises(UsageError, match="home") as caught:
        files.cache_dir()
    assert "CAIRN_CACHE_DIR" in str(caught.value.tip)


@pytest.mark.parametrize(
    ("number", "tip"),
    [
        (errno.EACCES, "take a folder of your own, or have its owner let you in: see `ls -ld /srv/store`"),
        (errno.EPERM, "take a folder of your own"),
        (errno.EROFS, "that file system is read-only"),
        (errno.ENOSPC, "free some space"),
        (errno.EMFILE, "ulimit -n"),
        (errno.ENOENT, "name one that is there"),
        (errno.ENOTDIR, "name a folder"),
    ],
)
def test_what_the_system_refuses_comes_with_what_to_do(
    number: int, tip: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refusal = OSError(number, os.strerror(number), "/srv/store")

    def plain(_: argparse.Namespace) -> int:
        raise refusal

    def explained(_: argparse.Namespace) -> int:
        raise UsageError(f"cannot read /srv/store: {refusal.strerror}") from refusal

    for run in (plain, explained):
        assert guard.guarded(argparse.Namespace(run=run)) != 0
        said = capsys.readouterr().err
        assert os.strerror(number) in said
        assert f"what to do: {tip}" in said or tip in said.partition("what to do: ")[2]


def test_of_several_problems_each_has_what_a_single_one_would_have(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(_: argparse.Namespace) -> int:
        lacking = BuildError("torch lacks numpy", tail=("uv: no numpy here",), tip="see what uv says above")
        broken = BuildError(
            "triton is broken", tail=("c++: no",), causes=("12: no such header",), log=Path("l")
        )
        raise ProblemsError("2 problems", problems=[lacking, broken])

    assert guard.guarded(argparse.Namespace(run=fail)) == BuildError.exit_code
    shown = capsys.readouterr().err
    parts = (
        "uv: no numpy here",
        "torch lacks numpy (see what uv says above)",
        "12: no such header",
        "c++: no",
    )
    places = [
        shown.index(part) for part in (*parts, "triton is broken (read the whole log: l)", "2 problems")
    ]
    assert places == sorted(places)


def test_what_would_install_an_sdk_is_json_for_programs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("rocm", "install", "--python", str(tmp_path), "--rocm-version", "7.10.0", "--dry-run")
    assert main.main([*words, "--json"]) == 0
    command = json.loads(capsys.readouterr().out)["command"]
    assert command[-1] == "rocm[libraries,devel]==7.10.0"
    assert main.main([*words]) == 0
    assert shlex.split(capsys.readouterr().out) == command


def test_channel_is_a_second_name_of_index(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--index", "dev"], ["--channel", "dev"], ["--channel=dev"]):
        given = main.make_parser().parse_args(["release", "log", "--store", "s", *words])
        assert (given.index, capsys.readouterr().err) == ("dev", "")


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("version",), "cairn "),
        (("-V",), "cairn "),
        (("--version",), "cairn "),
        (("help",), "usage: cairn [-h]"),
        (("help", "build"), "usage: cairn build [-h]"),
        (("help", "wheel", "show"), "usage: cairn wheel show [-h]"),
        (("help", "settings"), "CAIRN_STORE for --store"),
        (("help", "options"), "--version-suffix"),
        (("help", "exit-codes"), " 10   Promotion was refused."),
    ],
)
def test_help_and_version_by_the_names_that_people_try(
    words: tuple[str, ...], shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main.main(words)
    captured = capsys.readouterr()
    assert (end.value.code, captured.err) == (0, "")
    assert shown in captured.out
