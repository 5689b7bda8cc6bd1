"""The user's package index: which one pip is set up for, and why it does not answer.

The index, proxy and certificates that a company gives its machines are in pip's configuration files and
variables. There is more in them that would make a download fail or give other files: `PIP_NO_BINARY`, a
constraint, a target folder. And uv reads none of them (uv's documentation, "Compatibility with pip").
`read_pip_settings` gives those that name an index, and nothing else of the set-up, for pip and for uv.

An index may be out of reach, or behind a login page, where pip only says that it found no such package.
`index_problem` and `page_problem` take a URL and give the reason in one sentence, or None.
"""

from __future__ import annotations

import configparser
import functools
import html
import locale
import math
import os
import re
import sys
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from cairn import isolation, platforms
from cairn.errors import UsageError
from cairn.isolation import Isolation
from cairn.output import console

# Options of pip that say where files come from and how the server is reached (pip's documentation, "pip
# download"); they are called so in files, and `PIP_…` in variables.
_KEPT = frozenset(
    {
        *("index-url", "extra-index-url", "find-links", "no-index", "trusted-host"),
        *("cert", "client-cert", "proxy", "keyring-provider", "use-deprecated"),
        *("timeout", "retries", "resume-retries", "cache-dir", "no-cache-dir"),
    }
)
_ALIASES = {"default-timeout": "timeout", "pypi-url": "index-url"}
_PATHS = ("cert", "client-cert", "cache-dir")  # in which pip replaces `~`
# In pip's order: what comes later wins.
_VARIABLES = ":env:"
_SECTIONS = ("global", "download", _VARIABLES)

TIP = "check the URL, the network, and the credentials in the URL or in ~/.netrc, then run it again"
"""The tip for an index that does not answer."""

_NOT_NAME = re.compile(r"[^A-Za-z0-9._-]|==")  # where a requirement's name ends
_PROBE_SECONDS = 10
_PAGE_SIZE = 1 << 18  # bytes that are read of a page to judge it
_ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
_INDEX_TYPES = ("application/vnd.pypi.simple.v1+json", "application/vnd.pypi.simple.v1+html")
# What a page of links has: a distribution, the mark of PEP 629, or the title that servers give to a folder.
_IS_INDEX = re.compile(
    # Nothing runs beyond its tag, nor far: a page of `<a href=` over and over would take hours.
    r"<a\s[^<>]{0,999}?href=[\"']?[^\"'<>]{0,999}\.(whl|zip|tar\.gz|tgz)[\"'>#?\s]"
    r"|<meta[^<>]{0,999}pypi:repository-version",
    re.IGNORECASE,
)
_INDEX_TITLE = re.compile(r"links for|index|directory listing", re.IGNORECASE)
_TITLE = re.compile(r"<title[^<>]*>([^<]*)", re.IGNORECASE)
_PASSWORD = re.compile(r"<input[^<>]*type=[\"']?password", re.IGNORECASE)
_LOGIN = re.compile(r"log[ -]?in|sign[ -]?in|log[ -]?on|authenticat", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class PipSettings:
    """The part of pip's configuration that is about its index.

    Attributes:
        values: options of pip by their long names, such as `index-url`.
    """

    values: Mapping[str, str]

    def addresses(self) -> tuple[str, ...]:
        """The URLs of these indexes."""
        return tuple(
            word
            for name in ("index-url", "extra-index-url", "find-links")
            for word in self.values.get(name, "").split()
        )

    def pip_environment(self, home: Path | None = None) -> dict[str, str]:
        """The variables of a pip that goes by these settings alone.

        Args:
            home: of its own (`isolation.own_home`); None for a pip that builds no sdist.
        """
        env = _without_settings(home) | {"PIP_CONFIG_FILE": os.devnull}
        return env | {f"PIP_{name.replace('-', '_').upper()}": value for name, value in self.values.items()}

    def uv_options(self) -> tuple[str, ...]:
        """Options with which uv asks the same indexes."""
        # pip takes the best file of all its indexes, uv by itself those of the first that has the project.
        options = ["--index-strategy", "unsafe-best-match"]
        if self._is_set("no-index"):
            options.append("--no-index")
        elif "index-url" in self.values:
            options += ["--default-index", self.values["index-url"]]
        for name, option in (
            ("extra-index-url", "--index"),
            ("find-links", "--find-links"),
            ("trusted-host", "--allow-insecure-host"),
        ):
            # pip splits such values at white space.
            options += [word for value in self.values.get(name, "").split() for word in (option, value)]
        if self.values.get("keyring-provider") == "subprocess":
            options += ["--keyring-provider", "subprocess"]
        return tuple(options)

    def uv_environment(self, home: Path | None = None) -> dict[str, str]:
        """The variables of such a uv; `home` likewise."""
        # Like pip, trust what the system trusts; the second is the name until 0.12.
        env = _without_settings(home) | {"UV_SYSTEM_CERTS": "1", "UV_NATIVE_TLS": "1"}
        if proxy := self.values.get("proxy"):
            env |= dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), proxy)
        for name, variable in (("cert", "SSL_CERT_FILE"), ("client-cert", "SSL_CLIENT_CERT")):
            if value := self.values.get(name):
                env[variable] = value
        limits = {"UV_HTTP_TIMEOUT": self._whole("timeout"), "UV_HTTP_RETRIES": self._whole("retries")}
        return env | {name: value for name, value in limits.items() if value}

    def _whole(self, name: str) -> str:
        """Return a number of pip's as uv takes it: rounded up, and empty where uv would refuse it."""
        try:
            return str(max(math.ceil(float(self.values.get(name, ""))), 0))
        except (ValueError, OverflowError):
            return ""

    def _is_set(self, name: str) -> bool:
        return self.values.get(name, "").lower() in ("y", "yes", "t", "true", "on", "1")  # as pip


def read_pip_settings() -> PipSettings:
    """The settings of the user's pip, of files and of variables.

    Raises:
        UsageError: pip cannot read its configuration.
    """
    return _read(tuple(sorted(os.environ.items())))


@functools.lru_cache(maxsize=1)  # a build asks for each of its steps, and one warning is enough
def _read(environ: tuple[tuple[str, str], ...]) -> PipSettings:
    variables = dict(environ)
    sections: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for path in _configuration_files(variables):
        # As pip reads it (pip/_internal/configuration.py): `pip config list` takes half a second to start.
        parser = configparser.RawConfigParser()
        parser.optionxform = _option  # type: ignore[method-assign, assignment]
        try:
            parser.read(path, encoding=locale.getpreferredencoding(do_setlocale=False))
        except (configparser.Error, UnicodeDecodeError) as error:
            reason = " ".join(str(error).split())[-300:]
            raise UsageError(
                f"pip cannot read its configuration, {path}: {reason}",
                tip="see python3 -m pip config debug",
            ) from error
        for section in _SECTIONS:
            if parser.has_section(section):
                sections[section] |= parser.items(section)
    sections[_VARIABLES] |= {
        _option(name.removeprefix("PIP_")): value
        for name, value in variables.items()
        if name.startswith("PIP_")
    }
    values: dict[str, str] = {}
    for section in _SECTIONS:
        # An empty value hides what another file has in its section, and nothing of other sections.
        options = {_ALIASES.get(name, name): value for name, value in sections[section].items() if value}
        values |= {name: value for name, value in options.items() if name in _KEPT}
    values |= {name: os.path.expanduser(values[name]) for name in _PATHS if name in values}  # noqa: PTH111 - as pip
    return PipSettings(values=_with_readable_links(values))


def _configuration_files(variables: Mapping[str, str]) -> list[Path]:
    """Return pip's configuration files in its order, in which later files win."""
    configured = variables.get("PIP_CONFIG_FILE")
    if configured == os.devnull:
        return []
    machine, user = platforms.here.pip_configurations(variables)
    if configured and Path(configured).exists():
        user = []
    site = Path(sys.prefix, machine[0].name)
    return [*machine, *user, site, *([Path(configured)] if configured else [])]


def _option(name: str) -> str:
    """Return the long name of an option as pip spells it, without its dashes."""
    return name.lower().replace("_", "-").removeprefix("--")


def _with_readable_links(values: Mapping[str, str]) -> dict[str, str]:
    """Return settings without the folders of `find-links` that do not exist or cannot be read.

    pip only warns of them, and uv fails. Both get `~` replaced: their HOME is not the user's.
    """
    from urllib.request import url2pathname  # noqa: PLC0415 - it loads HTTP and TLS

    links, unread = [], []
    for link in values.get("find-links", "").split():
        address = urllib.parse.urlsplit(link)
        is_page = "://" in link and address.scheme != "file"
        path = url2pathname(address.path) if address.scheme == "file" else link
        if link.startswith("~/"):
            path = str(Path(link).expanduser())
        if is_page or os.access(path, os.R_OK):
            links.append(path if link.startswith("~/") else link)
        else:
            unread.append(link)
    if unread:
        console.current().warn(
            f"pip's find-links names {' and '.join(unread)}, which cannot be read: left out; "
            "`pip config debug` shows where it is set"
        )
    settings = {name: value for name, value in values.items() if name != "find-links"}
    return settings | ({"find-links": " ".join(links)} if links else {})


def _without_settings(home: Path | None) -> dict[str, str]:
    """Our variables, without those that pip, uv and Python are set up by."""
    env = isolation.variables(Isolation.INSTALLER if home else Isolation.TOOL, home)
    env.pop("PIP_CONFIG_FILE", None)
    return env


def index_problem(index_url: str | None, project: str) -> str | None:
    """Why an index cannot list the files of a project; None where it can.

    "404" for the project's page is the honest answer of an index that lacks it (PEP 503). URLs other than
    HTTP's are not looked at.
    """
    if index_url is None:
        return None
    return page_problem(f"{index_url.rstrip('/')}/{_NOT_NAME.split(project)[0]}/", shown_as=index_url)


def page_problem(url: str, *, shown_as: str | None = None) -> str | None:
    """Like `index_problem`, for a page of links (`--find-links`), or of a project of the index `shown_as`."""
    shown_as = shown_as or url
    if not url.startswith(("http://", "https://")):
        return None
    import requests  # noqa: PLC0415 - only needed after a failure
    import urllib3  # noqa: PLC0415

    try:
        with requests.get(url, timeout=_PROBE_SECONDS, stream=True, headers={"Accept": _ACCEPT}) as answer:
            kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
            body = answer.raw.read(_PAGE_SIZE, decode_content=True).decode("utf-8", "replace")
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
        return f"cannot reach {shown_as}: {type(error).__name__}"
    if answer.status_code >= HTTPStatus.BAD_REQUEST:
        missing = answer.status_code == HTTPStatus.NOT_FOUND
        return (
            None if missing else f"cannot reach {shown_as}: it answers {answer.status_code} {answer.reason}"
        )
    if kind in _INDEX_TYPES:
        return None
    if kind != "text/html":
        return f"{shown_as} is not a package index: it answers with {kind or 'no content type'}"
    problem = _web_page_problem(body)
    redirected = f", at {answer.url.partition('?')[0]}" if answer.history else ""
    return f"{shown_as} is not a package index: it answers with {problem}{redirected}" if problem else None


def _web_page_problem(body: str) -> str | None:
    match = _TITLE.search(body)
    title = html.unescape(match[1]).strip() if match else ""
    has_password = _PASSWORD.search(body) is not None
    if _IS_INDEX.search(body) or (_INDEX_TITLE.search(title) and not has_password):
        return None
    if has_password or _LOGIN.search(title):
        return "a login page"
    return f"the web page {title[:80]!r}" if title else "a web page without a link to a distribution"
