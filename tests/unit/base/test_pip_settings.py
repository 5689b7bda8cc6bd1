"""Which of pip's settings reach the pip and the uv that fetch for a mirror."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cairn import package_index, venv
from cairn.errors import UsageError
from cairn.package_index import PipSettings

CONFIGURATION = """\
[global]
cert = /etc/company.pem
constraint = /etc/constraints.txt
extra-index-url = https://a.example/simple
    https://b.example/simple
index_url = https://user:secret@index.example/simple
--Trusted-Host = index.example
[download]
index-url = https://download.example/simple
[install]
index-url = https://install.example/simple
target = /opt
"""
VARIABLES = {
    "PIP_PROXY": "http://proxy.example:3128",
    "PIP_NO_BINARY": ":all:",
    "PIP_DEFAULT_TIMEOUT": "180",
    "PIP_RETRIES": "9",
}
OPTIONS = (
    *("index-url", "extra-index-url", "find-links", "no-index", "trusted-host", "cert", "client-cert"),
    *("proxy", "keyring-provider", "timeout", "retries"),
)
PROGRAM = """
import json
from pip._internal.commands import create_command
command = create_command("download")
values, _ = command.parse_args([])
print(json.dumps({
    option.get_opt_string().removeprefix("--"): getattr(values, option.dest)
    for option in command.parser.option_list_all
    if option.dest and getattr(values, option.dest) not in (None, option.default)
}, default=str))
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder of a user who has set up nothing."""
    for name in (*os.environ,):
        if name.startswith(("PIP_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "etc"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def settings(home: Path, monkeypatch: pytest.MonkeyPatch) -> PipSettings:
    (home / ".pip").mkdir()
    (home / ".pip" / "pip.conf").write_text(CONFIGURATION)
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    return package_index.read_pip_settings()


def settings_of_pip() -> dict[str, str]:
    """What the real pip has for `pip download`, of the options that name an index."""
    command = [sys.executable, "-P", "-c", PROGRAM]
    options = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return {
        name: "\n".join(value) if isinstance(value, list) else str(value)
        for name, value in options.items()
        if name in OPTIONS
    }


PLACES = {
    "nothing": (),
    "of the machine": ("etc/pip/pip.conf",),
    "of the user": ("home/.config/pip/pip.conf",),
    "of the user, in an old place": ("home/.pip/pip.conf",),
    "of both": ("etc/pip/pip.conf", "home/.pip/pip.conf", "home/.config/pip/pip.conf"),
    "in XDG_CONFIG_HOME": ("xdg/pip/pip.conf", "home/.config/pip/pip.conf"),
    "in PIP_CONFIG_FILE": ("named.conf", "etc/pip/pip.conf", "home/.config/pip/pip.conf"),
    "in an XDG_CONFIG_HOME that is no absolute path": ("xdg/pip/pip.conf", "home/.config/pip/pip.conf"),
    "in a PIP_CONFIG_FILE that is missing": ("etc/pip/pip.conf", "home/.config/pip/pip.conf"),
    "switched off": ("etc/pip/pip.conf", "home/.config/pip/pip.conf"),
}
SET = {
    "in XDG_CONFIG_HOME": {"XDG_CONFIG_HOME": "{}/xdg"},
    "in an XDG_CONFIG_HOME that is no absolute path": {"XDG_CONFIG_HOME": "xdg"},
    "in PIP_CONFIG_FILE": {"PIP_CONFIG_FILE": "{}/named.conf", "PIP_INDEX_URL": "https://variable.example"},
    "in a PIP_CONFIG_FILE that is missing": {"PIP_CONFIG_FILE": "{}/missing.conf"},
    "switched off": {"PIP_CONFIG_FILE": os.devnull, "pip_retries": "2", "PIP_TIMEOUT": "3.5"},
}


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("case", PLACES)
def test_settings_are_those_that_pip_lists(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, place in enumerate(PLACES[case]):
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            f"[DEFAULT]\nretries = {number}\n[global]\nIndex_URL = https://{number}.example/%2B\n"
            f"{'cert' if number else 'proxy'} : {number}\n[download]\n--timeout = {number}.5\n"
        )
    for name, value in SET.get(case, {}).items():
        monkeypatch.setenv(name, value.format(tmp_path))
    values = package_index.read_pip_settings().values
    assert values == settings_of_pip()
    assert values or not PLACES[case]


# What is written below [global] of one file, below [download] of a later one, and into variables.
SPELLINGS: dict[str, tuple[str, str, dict[str, str]]] = {
    "an empty variable": ("index-url = https://a.example", "", {"PIP_INDEX_URL": ""}),
    "an empty value in a later section": ("index-url = https://a.example", "index-url =", {}),
    "an empty value alone": ("cert =", "", {}),
    "two names of one option": ("default-timeout = 7.5", "", {"PIP_TIMEOUT": "9.5"}),
    "the other two": ("timeout = 7.5", "default_timeout = 9.5", {}),
    "an old name": ("pypi-url = https://a.example", "", {}),
    "a home folder": ("cert = ~/company.pem", "client-cert = ~/me.pem", {"PIP_CACHE_DIR": "~/c"}),
    "percent signs": ("index-url = https://a%20b:%(c)s@a.example", "", {}),
    "a continued line": ("extra-index-url =\n    https://a.example\n    https://b.example", "", {}),
    "a byte order mark in a value": ("proxy = \ufeffhttp://p.example", "", {}),
    "a section of variables": ("proxy = http://a.example\n[:env:]\nproxy = http://b.example", "", {}),
    "such a section and a variable": ("x = y\n[:env:]\nproxy = http://b.example", "", {"PIP_RETRIES": "3"}),
}


@pytest.mark.parametrize("case", SPELLINGS)
def test_settings_are_read_as_pip_reads_them(
    case: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_all, of_download, variables = SPELLINGS[case]
    for path, text in (
        (tmp_path / "etc" / "pip" / "pip.conf", f"[global]\n{of_all}\n"),
        (home / ".config" / "pip" / "pip.conf", f"[download]\n{of_download}\n"),
    ):
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    values = package_index.read_pip_settings().values
    # pip splits a list at white space.
    shown = {name: "\n".join(value.split()) for name, value in values.items() if name in OPTIONS}
    assert shown == settings_of_pip()


def test_two_spellings_of_an_option_in_one_section_are_an_error_as_for_pip(home: Path) -> None:
    (home / ".pip").mkdir()
    (home / ".pip" / "pip.conf").write_text("[global]\nindex-url = https://a.example\nIndex_URL = b\n")
    with pytest.raises(UsageError, match="pip cannot read its configuration"):
        package_index.read_pip_settings()
    with pytest.raises(subprocess.CalledProcessError):
        settings_of_pip()


@pytest.mark.parametrize(
    ("seconds", "of_uv"),
    [("3.5", "4"), ("180", "180"), ("-1", "0"), ("abc", None), ("", None), ("inf", None)],
)
def test_uv_is_given_seconds_that_it_takes(seconds: str, of_uv: str | None) -> None:
    env = PipSettings(values={"timeout": seconds}).uv_environment()
    assert env.get("UV_HTTP_TIMEOUT") == of_uv
    command = [venv.uv_program(), "pip", "compile", "-", "--no-index", "--quiet"]
    subprocess.run(command, env=env, input=b"", check=True)


@pytest.mark.parametrize("text", ["y", "T", "yes", "true", "On", "1", "n", "f", "no", "0"])
def test_a_flag_is_set_by_the_words_that_pip_takes(text: str) -> None:
    options = PipSettings(values={"no-index": text}).uv_options()
    assert ("--no-index" in options) == (text.lower() in ("y", "t", "yes", "true", "on", "1"))


@pytest.mark.usefixtures("home")
def test_pip_settings_of_the_environment_that_cairn_runs_in_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://site.example\n")
    assert package_index.read_pip_settings().values["index-url"] == "https://site.example"


def test_what_says_where_files_come_from_is_kept_and_nothing_else(settings: PipSettings) -> None:
    assert settings.values == {
        "cert": "/etc/company.pem",
        "extra-index-url": "https://a.example/simple\nhttps://b.example/simple",
        "index-url": "https://download.example/simple",
        "trusted-host": "index.example",
        "proxy": "http://proxy.example:3128",
        "timeout": "180",
        "retries": "9",
    }


def test_pip_hears_only_that(settings: PipSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIP_TARGET", "PIP_REQUIRE_HASHES", "PYTHONPATH", "UV_OFFLINE", "PIP_CONFIG_FILE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("OTHER", "not for pip")
    env = settings.pip_environment()
    assert {name for name in env if name.startswith(("PIP_", "PYTHON", "UV_"))} == {
        *("PIP_CONFIG_FILE", "PIP_CERT", "PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL", "PIP_TRUSTED_HOST"),
        *("PIP_PROXY", "PIP_TIMEOUT", "PIP_RETRIES"),
    }
    assert env["PIP_CONFIG_FILE"] == os.devnull
    assert "OTHER" not in env


def test_uv_hears_the_same_in_its_own_words(settings: PipSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("UV_INDEX", "UV_NO_INDEX", "SSL_CERT_FILE", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UV_CONSTRAINT", "other.txt")
    assert settings.uv_options() == (
        *("--index-strategy", "unsafe-best-match"),
        *("--default-index", "https://download.example/simple"),
        *("--index", "https://a.example/simple", "--index", "https://b.example/simple"),
        *("--allow-insecure-host", "index.example"),
    )
    env = settings.uv_environment()
    assert env["SSL_CERT_FILE"] == "/etc/company.pem"
    assert env["https_proxy"] == env["HTTP_PROXY"] == "http://proxy.example:3128"
    assert (env["UV_HTTP_TIMEOUT"], env["UV_HTTP_RETRIES"]) == ("180", "9")
    assert "UV_CONSTRAINT" not in env
    assert "PIP_CONFIG_FILE" not in env


def test_an_index_that_is_switched_off_is_not_asked() -> None:
    values = {"index-url": "https://x.example", "no-index": "True", "find-links": "a b"}
    options = PipSettings(values=values).uv_options()
    assert options[2:] == ("--no-index", "--find-links", "a", "--find-links", "b")


def test_a_setting_that_pip_cannot_read_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pip.conf").write_text("index-url = https://x.example\n")  # no section
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    with pytest.raises(UsageError, match="pip cannot read its configuration"):
        package_index.read_pip_settings()


def test_files_and_variables_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://x.example\nuser = true\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("PIP_RETRIES", "7")
    values = package_index.read_pip_settings().values
    assert (values["index-url"], values["retries"]) == ("https://x.example", "7")
    assert "user" not in values


def test_a_folder_of_links_that_does_not_exist_is_left_out_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As with pip, which warns; uv would fail."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "wheels").mkdir()
    missing, page = (tmp_path / "missing").as_uri(), "https://x.example/links.html"
    links = f"/no/such\n  ~/wheels\n  {missing}\n  {page}"
    (tmp_path / "pip.conf").write_text(f"[global]\nfind-links = {links}\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    values = package_index.read_pip_settings().values
    assert values["find-links"].split() == [str(tmp_path / "wheels"), page]
    warning, end = capsys.readouterr().err.split("\n")
    assert warning.startswith(f"warning: pip's find-links names /no/such and {missing}, which cannot be read")
    assert not end
    # A machine's only folder is missing: nothing is left of the setting.
    monkeypatch.setenv("PIP_FIND_LINKS", "/no/such")
    assert "find-links" not in package_index.read_pip_settings().values
