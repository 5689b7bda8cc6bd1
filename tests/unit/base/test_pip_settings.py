"""Which of pip's settings reach the pip and the uv that fetch for a mirror."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cairn import package_index
from cairn.errors import UsageError

LISTING = """\
global.cert='/etc/company.pem'
global.constraint='/etc/constraints.txt'
global.extra-index-url='https://a.example/simple\\nhttps://b.example/simple'
global.index-url='https://user:secret@index.example/simple'
global.trusted-host='index.example'
download.index-url='https://download.example/simple'
install.index-url='https://install.example/simple'
install.target='/opt'
:env:.proxy='http://proxy.example:3128'
:env:.no-binary=':all:'
:env:.default-timeout='180'
:env:.retries='9'
"""


def test_what_says_where_files_come_from_is_kept_and_nothing_else() -> None:
    assert package_index.parsed(LISTING).values == {
        "cert": "/etc/company.pem",
        "extra-index-url": "https://a.example/simple\nhttps://b.example/simple",
        "index-url": "https://download.example/simple",
        "trusted-host": "index.example",
        "proxy": "http://proxy.example:3128",
        "default-timeout": "180",
        "retries": "9",
    }


def test_pip_hears_only_that(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIP_TARGET", "PIP_REQUIRE_HASHES", "PYTHONPATH", "UV_OFFLINE", "PIP_CONFIG_FILE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("OTHER", "not for pip")
    env = package_index.parsed(LISTING).pip_environment()
    assert {name for name in env if name.startswith(("PIP_", "PYTHON", "UV_"))} == {
        *("PIP_CONFIG_FILE", "PIP_CERT", "PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL", "PIP_TRUSTED_HOST"),
        *("PIP_PROXY", "PIP_DEFAULT_TIMEOUT", "PIP_RETRIES"),
    }
    assert env["PIP_CONFIG_FILE"] == os.devnull
    assert "OTHER" not in env


def test_uv_hears_the_same_in_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("UV_INDEX", "UV_NO_INDEX", "SSL_CERT_FILE", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UV_CONSTRAINT", "other.txt")
    settings = package_index.parsed(LISTING)
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
    settings = package_index.parsed(
        "global.index-url='https://x.example'\n:env:.no-index='True'\n:env:.find-links='a b'\n"
    )
    assert settings.uv_options()[2:] == ("--no-index", "--find-links", "a", "--find-links", "b")


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
