"""What people type wrong: each ends in one line that says what is wrong, and one that says what to do."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from cairn.cli import main

STACK = Path(__file__).resolve().parents[3] / "external-builds" / "pytorch"
BUILD = "build --stack STACK --output-dir out"
INSTALL = "install --dry-run --index-url http://127.0.0.1:9/release/simple/"

# The line, the exit code, what is said to be wrong, and what is said to do about it.
WRONG = [
    # Commands.
    ("hlep", 2, "no command 'hlep'", "did you mean help?"),
    ("verison", 2, "no command 'verison'", "did you mean version?"),
    ("--verison", 2, "unknown option --verison", "did you mean --version?"),
    ("instal", 2, "no command 'instal'", "did you mean install?"),
    ("bulid", 2, "no command 'bulid'", "did you mean build?"),
    ("yank", 2, "no command 'yank'", "`cairn release yank`"),
    ("publish a.whl", 2, "no command 'publish'", "`cairn index publish`"),
    ("promote", 2, "no command 'promote'", "`cairn release promote`"),
    ("smoke", 2, "no command 'smoke'", "`cairn test smoke`"),
    ("torch", 2, "no command 'torch'", "the commands are: checkout"),
    ("gfx1100", 2, "no command 'gfx1100'", "the commands are: checkout"),
    ("help bulid", 2, "no command 'bulid'", "did you mean build?"),
    ("-q help bulid", 2, "no command 'bulid'", "did you mean build?"),
    ("version --jsno", 2, "unknown option --jsno", "did you mean --json?"),
    ("wheel verfy a.whl", 2, "no command 'verfy'", "did you mean verify?"),
    ("index chekc --store s", 2, "no command 'chekc'", "did you mean check?"),
    ("release prmote x", 2, "no command 'prmote'", "did you mean promote?"),
    ("ci nihgt", 2, "no command 'nihgt'", "did you mean night?"),
    # Options.
    ("--stack x build", 2, "unknown option --stack", "options of a command follow its name"),
    (f"{BUILD} --use-cache", 2, "unknown option --use-cache", "--use-ccache or --use-sccache?"),
    (f"{BUILD} --gpus 2", 2, "unknown option --gpus", "did you mean --gpu?"),
    ("release log --stroe s", 2, "unknown option --stroe", "did you mean --store?"),
    ("wheel show -x a.whl", 2, "unknown option -x", "`cairn wheel show --help`"),
    ("release retain --store s --days 9999999", 2, "--days: '9999999' is not a number of days", "--help"),
    ("index gc --store s --older-than 999999", 2, "--older-than: '999999' is not a number of", "--help"),
    ("install --index-url http://[::1 --dry-run", 2, "--index-url: it is no URL", "--help"),
    ("install --index-url http://h:99999/ --dry-run", 2, "--index-url: it is no URL", "--help"),
    ("rocm install --python . --find-links http://[x", 2, "--find-links: it is no URL", "--help"),
    ("checkout torch --stack STACK --gitrepo-origin http://[::1", 2, "--gitrepo-origin: it is no URL", "-"),
    ("checkout torch --stack STACK --gitrepo-origin ''", 2, "it is empty", "--help"),
    ("index check --store s3://b/p --endpoint-url http://h:x", 2, "--endpoint-url: it is no URL", "--help"),
    ("challenge x --store s --rocm-index-url http://[x", 2, "--rocm-index-url: it is no URL", "--help"),
    ("ci night freeze --rocm-index-url http://[x", 2, "--rocm-index-url: it is no URL", "--help"),
    ("ci night run --stack sample --scheduler tcp://[x", 2, "--scheduler: it is no URL", "--help"),
    ("test smoke --set README.md --floor -1", 2, "--floor: '-1' is not a number of tests", "--help"),
    ("test merge o --device-floor -1", 2, "--device-floor: '-1' is not a number of tests", "--help"),
    ("test suite --floor many", 2, "--floor: 'many' is not a number of tests", "--help"),
    (
        "test shards --sources-dir . --num-shards 999999999",
        2,
        "'999999999' is not a number from 1 to 999",
        "--help",
    ),
    ("test suite --num-shards 1000", 2, "--num-shards: '1000' is not a number from 1 to 999", "--help"),
    # Arguments that are too many.
    ("install torch", 2, "unexpected argument 'torch'", "leave it out: cairn install takes options alone"),
    ("install torch==2.9", 2, "unexpected argument 'torch==2.9'", "takes options alone"),
    ("checkout torch vision --stack STACK", 2, "unexpected argument 'vision'", "takes one argument, all|"),
    ("config get store extra", 2, "unexpected argument 'extra'", "takes one argument, NAME"),
    # What is missing.
    ("build --output-dir o --stack STACK --gpu auto", 3, "no GPU was found", "--gpu gfx1100"),
    ("build torch", 2, "torch is built by itself with --gpu alone", "cairn build torch --gpu auto"),
    ("build tourch --gpu cpu", 2, "no project 'tourch'", "did you mean torch?"),
    ("checkout", 2, "required: --stack", "for example: cairn checkout all"),
    ("checkout torch", 2, "required: --stack", "for example: cairn checkout all"),
    (f"{BUILD} --gpu cpu --targets gfx942", 2, "--gpu and --targets exclude each other", "leave one"),
    (f"{BUILD} --targets", 2, "--targets: expected one argument", "--help"),
    ("wheel show", 2, "required: WHEEL", "for example: cairn wheel show"),
    ("wheel set-version README.md --output-dir o", 2, "--version --rocm-version --promote", "for example: "),
    ("release promote", 2, "required: --stack, --store, SET", "for example: cairn release promote"),
    ("release yank abc --store s", 2, "required: --reason", "--reason 'wrong results"),
    ("release rollback --store s", 2, "required: --to", "for example: cairn release rollback"),
    ("test smoke", 2, "required: --set", "for example: cairn test smoke"),
    ("manifest create", 2, "required: --stack, --output", "for example: cairn manifest create"),
    ("rocm install", 2, "required: --python", "for example: cairn rocm install"),
    ("bisect", 2, "required: --store", "for example: cairn bisect"),
    ("bisect --store . -- true", 2, "two ends must be named", "give --good and --bad, or --jump"),
    ("matrix", 2, "required: --stack", "for example: cairn matrix"),
    ("index serve", 2, "required: URL", "for example: cairn index serve"),
    # Values.
    (f"{BUILD} --jobs 0", 2, "'0' is not a positive number", "--help"),
    (f"{BUILD} --jobs many", 2, "'many' is not a positive number", "--help"),
    (f"{BUILD} --resume", 2, "--resume is for a run with --clean", "leave it out"),
    ("build --stack STACK --output-dir README.md", 2, "README.md is a file", "--help"),
    ("build --stack nowhere --output-dir o", 2, "there is no stack nowhere", "name one with --stack"),
    ("build --stack . --output-dir o", 2, "the folder . has no stack.toml", "name one with --stack"),
    ("build --stack README.md --output-dir o", 2, "README.md is not TOML", "correct the file"),
    ("checkout torhc --stack STACK", 2, "no project 'torhc'", "did you mean torch?"),
    ("checkout pytorch --stack STACK", 2, "no project 'pytorch'", "did you mean torch?"),
    ("checkout torch --stack STACK --repo-hashtag ''", 2, "it is empty", "--help"),
    ("checkout torch --stack STACK --depth -1", 2, "'-1' is not a positive number", "--help"),
    ("wheel show nothing.whl", 2, "there is no file nothing.whl", "--help"),
    ("wheel show README.md", 7, "is not the name of a wheel", "a wheel is named like torch-2.9.0"),
    ("wheel show '*.whl'", 2, "no file matches *.whl", "--help"),
    ("wheel show .", 2, ". is a folder, not a file", "--help"),
    ("release log --store s --limit 0", 2, "'0' is not a positive number", "--help"),
    ("release log --store s3:/bucket/x", 2, "s3:/bucket/x names no store", "write s3://bucket/prefix"),
    ("release log --store htp://x", 2, "htp://x names no store", "s3://bucket/prefix"),
    ("release log --store nowhere", 9, "there is no store at nowhere", "publish into it first"),
    ("index serve nowhere", 9, "there is no store at nowhere", "publish into it first"),
    ("index serve store --port abc", 2, "invalid int value: 'abc'", "--help"),
    ("test smoke --set README.md", 2, "README.md is not JSON", "restore the file"),
    ("test skips lint nothing", 2, "there is no file or folder nothing", "--help"),
    ("manifest verify README.md", 2, "README.md is not JSON", "restore the file"),
    ("doctor --for gaming", 2, "--for cannot be 'gaming'", "the choices are: build, install, test"),
    ("matrix --stack STACK --families gfx9", 2, "there is no family 'gfx9'", "did you mean gfx900"),
    ("rocm install --python nowhere", 2, "there is no file or folder nowhere", "--help"),
    ("install --gpu cpu --python README.md", 2, "is not a Python that runs", "such as .venv/bin/python"),
    ("build torch --gpu gfx1100 --line 2.14", 2, "no line '2.14'", "did you mean release/2.14?"),
    ("matrix --stack STACK --lines 2.9", 2, "there is no line '2.9'", "did you mean release/2.9?"),
    ("matrix --stack nowhere", 2, "there is no stack nowhere", "name one with --stack; Cairn's own: sample"),
    ("image build nope", 2, "there is no image 'nope'", "the images are: build_debian_unstable"),
    (
        "image build build_manylinux_x86_64 --build-arg CAIRN --dry-run",
        2,
        "is not NAME=VALUE",
        "`cairn image build --help`",
    ),
    ("diff README.md README.md", 2, "neither a wheel nor a manifest.json", "name two of a kind"),
    (
        "-q index publish bad-1.0-py3-none-any.whl --store new",
        7,
        "is not a ZIP archive",
        "build it again, or fetch it again",
    ),
    ("ci night run --stack sample --store s --work-dir w --pythons 3.99", 3, "no Python 3.99", "install it"),
    ("release yank --night nope --store store --reason x", 9, "no night 'nope'", "`cairn ci night list`"),
    (
        "-q release promote zzz --store store --stack sample",
        2,
        "'zzz' is neither a set.json",
        "the sets there",
    ),
    ("patches audit nowhere", 2, "there is no folder nowhere", "--help"),
    # GPUs and indexes.
    (f"{INSTALL} --gpu 'RTX 4090'", 2, "is a GPU of NVIDIA", "--gpu cpu"),
    (f"{INSTALL} --gpu 'RX 7990'", 2, "not a product that is known", "name its target with --gpu"),
    (f"{INSTALL} --gpu gfx1109", 2, "unknown GPU target 'gfx1109'", "did you mean gfx1100"),
    (f"{INSTALL} --gpu gfx110X-all", 2, "is 4 targets", "name one: gfx1100"),
    (f"{INSTALL} --installer conda", 2, "--installer cannot be 'conda'", "the choices are: pip, uv"),
    (f"{INSTALL} --store s", 2, "not allowed with argument", "--help"),
    ("install --index-url ''", 2, "it is empty", "--help"),
    ("install --dry-run --store nowhere", 9, "there is no store at nowhere", "publish into it first"),
    ("index verify https://127.0.0.1:9/simple/", 2, "is not the address of a wheel", "below simple/"),
    # Settings.
    ("config set sotre s3://x", 2, "'sotre' is no option", "did you mean store"),
    ("config set jobs many", 2, "'many' is not a positive number", "whose --help says what --jobs takes"),
    ("config get store", 2, "store is not set", "cairn config set store VALUE"),
    ("config set store", 2, "store is not set in", "cairn config set store VALUE"),
    ("config set trusted-folders ~nobody-x/a", 2, "~nobody-x/a: the home folder is not known", "--help"),
    ("config set trusted-folders nowhere", 2, "there is no folder nowhere", "--help"),
    ("rocm fetch --run-id 1 --output-dir o --families a,,b", 2, "names nothing between two commas", "--help"),
    ("config set store=x", 2, "'store=x' is no option", "did you mean store?"),
    ("config set CAIRN_STORE x", 2, "'CAIRN-STORE' is no option", "did you mean store?"),
    ("ci init --cairn other-1.0-py3-none-any.whl", 2, "is no wheel of cairn-wheels", "name it with --cairn"),
]

# The line of a file of settings, and what is said of it.
WRONG_SETTINGS = [
    ("cairn.toml", "limit = ", "is not TOML", "correct the file"),
    ("cairn.toml", "limti = 3", "there is no option 'limti'", "did you mean limit?"),
    ("user.toml", "limit = -1", "limit: '-1' is not a positive number", "`cairn help settings`"),
    ("cairn.toml", "[tool.cairn]\nlimit = 3", "tool is a table", "[tool.cairn] is of pyproject.toml"),
    ("cairn.toml", "[release]\nlimit = 3", "release is a table", '[command."build run"]'),
    ("pyproject.toml", "[tool.cairn]\nlimti = 3", "there is no option 'limti'", "did you mean limit?"),
    (
        "user.toml",
        "trusted-folders = ['~nobody-x/a']",
        "trusted-folders: ~nobody-x/a: the home",
        "correct the",
    ),
    ("CAIRN_CONFIG", "~nobody-x/a", "CAIRN_CONFIG: ~nobody-x/a: the home folder is not known", "name a file"),
    ("CAIRN_LIMIT", "many", "CAIRN_LIMIT: limit: 'many' is not a positive number", "`cairn help settings`"),
    ("CAIRN_JSON", "maybe", "CAIRN_JSON: json is true or false", "`cairn help settings`"),
]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a page, and no settings but those that a test makes."""
    for name in [name for name in os.environ if name.startswith("CAIRN_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("CAIRN_CONFIG", str(tmp_path / "user.toml"))
    (tmp_path / ".git").mkdir()
    (tmp_path / "README.md").write_text("# No TOML, no JSON, no wheel\n\nit is = = not\n")
    (tmp_path / "bad-1.0-py3-none-any.whl").write_text("no archive\n")
    (tmp_path / "store" / "ledger").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("line", "code", "problem", "tip"), WRONG, ids=[line for line, *_ in WRONG])
def test_a_wrong_line_is_told_in_one(
    line: str, code: int, problem: str, tip: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    words = shlex.split(line.replace("STACK", str(STACK)))
    try:
        ended = main.main(words)
    except SystemExit as end:
        ended = int(end.code or 0)
    shown = capsys.readouterr()
    lines = shown.err.splitlines()
    errors = [each for each in lines if each.startswith("error: ")]
    assert (ended, shown.out, len(errors)) == (code, "", 1)
    assert problem in errors[0]
    tips = [each for each in lines if each.startswith("  what to do: ")]
    assert len(tips) == (tip is not None)
    assert tip is None or tip in tips[0]
    assert len(lines) == 1 + len(tips)


@pytest.mark.parametrize(("place", "text", "problem", "tip"), WRONG_SETTINGS)
def test_a_wrong_setting_is_told_in_one(
    place: str,
    text: str,
    problem: str,
    tip: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if place.startswith("CAIRN_"):
        monkeypatch.setenv(place, text)
    else:
        Path(place).write_text(f"{text}\n")
    with pytest.raises(SystemExit) as ended:
        main.main(["release", "log", "--store", "store"])
    first, second = capsys.readouterr().err.splitlines()
    assert (ended.value.code, first.startswith("error: "), second[:14]) == (2, True, "  what to do: ")
    assert (problem in first, tip in second) == (True, True), (first, second)


def test_of_two_values_the_last_counts_and_both_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["matrix", "--stack", "nowhere", "--stack=nothing"]) == 2
    warning, error, _ = capsys.readouterr().err.splitlines()
    assert warning == "warning: cairn matrix: --stack is given twice: nothing counts, and not nowhere"
    assert "there is no stack nothing" in error
    main.main(["matrix", "--stack", "nowhere", "--stack", "nowhere"])
    assert "twice" not in capsys.readouterr().err


def test_there_are_sixty() -> None:
    assert len({line for line, *_ in WRONG}) == len(WRONG) >= 60


def test_a_folder_that_is_gone_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path / "store" / "ledger")
    Path.cwd().rmdir()
    assert main.main(["release", "log", "--store", "store"]) == 11
    assert (
        capsys.readouterr().err
        == "error: the current folder is gone\n  what to do: change to one that is there: cd ~\n"
    )


def test_what_the_system_refuses_while_words_are_read_has_a_tip() -> None:
    """As a folder below one that is closed to whoever runs it, which is no such to root."""
    words = ["-m", "cairn", "build", "--stack", str(STACK), "--output-dir", "x" * 300]
    ended = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    first, second = ended.stderr.splitlines()
    assert (ended.returncode, first) == (11, f"error: File name too long: {'x' * 300}")
    assert second == "  what to do: name a folder with a shorter path"
