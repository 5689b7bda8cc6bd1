"""Keys, tokens and passwords in files: found where they are, and not seen where there are none."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.wheels.verify import Expectation, verify
from cairn.wheels.verify import secrets as secret_kinds
from cairn.wheels.verify.secrets import Scanner
from helpers.formats import make_elf
from helpers.wheels import MakeWheel

# Put together here, so that nobody's scanner takes this file for a leak.
SECRETS = {
    "a private key": "-----BEGIN RSA PRIV" + "ATE KEY-----\n" + "MIIEow" * 20,
    "a key to Amazon's services": "key = 'AK" + "IAQ7LMNOPQRSTUVWX2'",
    "a GitHub token": "gh" + "p_" + "a1B2c3" * 6,
    "a PyPI token": "pypi-AgEIcHl" + "waS5vcmc" + "x" * 60,
    "a GitLab token": "token: glp" + "at-" + "a1B2c3d4e5-F6g7H8i9_",
    "a Hugging Face token": "HF_TOKEN=h" + "f_" + "aBcDeFgH" * 4 + "iJ",
    "a Slack token": "xo" + "xb-" + "123456789012-1234567890123-AbCdEfGhIjKlMnOpQrStUvWx",
    "an npm token": "//registry:_authToken=np" + "m_" + "a1B2c3" * 6,
    "a Docker token": "dckr_" + "pat_" + "a1B2c3d4e" * 3,
    "a password in a URL": "index-url = https://deploy:" + "hunter2x@pypi.corp.io/simple",
}
IN_URLS = [
    ("a GitHub token", "git+https://gh" + "p_" + "a1B2c3" * 6 + "@github.com/corp/x.git"),
    ("a GitLab token", "https://glp" + "at-" + "a1B2c3d4e5-F6g7H8i9_@gitlab.com/corp/x.git"),
    ("a password in a URL", "DB = 'postgresql+psycopg2://build:" + "hunter2x@db.corp.io/nightly'"),
    ("a password in a URL", "mongodb+srv://build:" + "hunter2x@cluster0.abcde.mongodb.net"),
]


@pytest.mark.parametrize("kind", SECRETS)
@pytest.mark.parametrize("before", [0, 7999, (256 << 10) - 20])
def test_secrets_are_found_and_not_repeated(make_wheel: MakeWheel, kind: str, before: int) -> None:
    text = "x" * before + "\n" + SECRETS[kind] + "\n"
    (finding,) = verify(make_wheel(files={"demo/config.py": text.encode()}), Expectation())
    assert (finding.code, finding.member) == ("secret", "demo/config.py")
    assert kind in finding.reason
    assert SECRETS[kind] not in finding.reason + finding.fix


# All that the patterns name, and what may stand around it; cut in two, so that random texts have halves too.
PIECES = [
    *(f"xo{'x'}{letter}-" for letter in "abeoprs"),
    *(f"gh{letter}_" for letter in "opsur"),
    *(f"gl{word}-" for word in ("cbt", "dt", "pat", "ptt", "rt")),
    *("github_pat_", "dckr_pat_", "hf_", "npm_", "AKIA", "ASIA", "pypi-AgEIcHl" + "waS5vcmc", "a1B2c3" * 6),
    *(
        "pypi-AgENdGVzd" + "C5weXBpLm9yZ",
        "-----BEGIN ",
        "EC ",
        "PRIVATE" + " KEY-----",
        "ABCDEFGH" * 8,
        "a_" * 20,
    ),
    *(
        "https",
        "://user:pa55",
        ":pa55@host",
        "://",
        "user",
        ":",
        "pa55",
        "@",
        "host",
        ".com",
        "/",
        "'",
        '"',
        "(",
        " ",
        "\n",
        "-",
        "_",
        "\\n",
        "é",
    ),
]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_a_mark_is_in_every_text_that_has_a_secret_of_its_kinds(text: str) -> None:
    """The search for marks spares time alone: where one is not, none of the plain patterns matches."""
    for mark, kinds in secret_kinds._KINDS:
        for kind in kinds:
            for match in kind.pattern.finditer(text.encode()):
                assert mark.search(text.encode(), match.start(), match.end())


@pytest.mark.parametrize("secret", [*SECRETS.values(), *(text for _, text in IN_URLS)])
def test_each_secret_has_the_mark_of_its_kind(secret: str) -> None:
    kinds = [(mark, kind) for mark, kinds in secret_kinds._KINDS for kind in kinds]
    matching = [mark for mark, kind in kinds if kind.pattern.search(secret.encode())]
    assert matching
    assert all(mark.search(secret.encode()) for mark in matching)


@pytest.mark.parametrize(("kind", "text"), IN_URLS)
def test_what_gives_access_is_found_in_urls_of_any_kind(make_wheel: MakeWheel, kind: str, text: str) -> None:
    (finding,) = verify(make_wheel(files={"demo/config.py": text.encode()}), Expectation())
    assert kind in finding.reason


@pytest.mark.parametrize("kind", SECRETS)
def test_secrets_are_found_however_they_come(kind: str) -> None:
    text = f"{'x ' * 5000}{SECRETS[kind]}".encode()
    for step in (1, 7, 1000):
        scanner = Scanner("demo/config.py")
        for at in range(0, len(text), step):
            scanner.feed(text[at : at + step])
        scanner.finish()
        assert scanner.matches == {kind}


@pytest.mark.parametrize(
    "text",
    [
        "gho_ glpat- hf_ xoxb- npm_ AKIA ghp_ github_pat_short",
        "AKIAIOSFODNN7" + "EXAMPLE",
        "AKIAEXAMPLE" + "PBUMBC3GA",
        "-----BEGIN RSA PRIVATE KEY" + "-----\\nEXAMPLEBAAKCAQEA" + "A" * 64,
        "-----BEGIN PRIVATE KEY----- ... begins a key",
        "x" + SECRETS["a GitHub token"],
        SECRETS["a GitHub token"] + "4",
        "data:base64,AAAA/" + SECRETS["a key to Amazon's services"][7:-1] + "+AAAA",
        "def hf_hub_download_to_a_folder_of_the_users_choice(): ...",
        "xoxb-your-token-stands-here-instead",
        "https://user:password@pypi.corp.io/simple",
        "https://user:pass@host.com:80/path",
        "https://{user}:{hunter2x}@pypi.corp.io",
        "https://***:***@proxy.com",
        "https://alice:wonderland@example.com/",
        "http://localhost:8080/a@b",
        "postgresql://scott:tiger@localhost/test",
        "mysql+mysqldb://scott:tiger@192.168.0.134/test",
        "mssql+pyodbc://scott:tiger2@mssql2017/test",
        "postgresql+pg8000://scott:t1ger@192.168.0.199",
        "https://pypi.org/project/x:y@z",
    ],
)
def test_texts_about_secrets_are_none(text: str) -> None:
    for before in (b"", b"x" * 7990 + b" ", b"x" * ((256 << 10) - 10) + b" "):
        scanner = Scanner("demo/a.py")
        scanner.feed(before + text.encode()[:5])
        scanner.feed(text.encode()[5:])
        scanner.finish()
        assert scanner.matches == set()


def test_binaries_are_not_read_as_texts(make_wheel: MakeWheel) -> None:
    secret = "\n".join(SECRETS.values()).encode()
    files = {
        "demo/a.so": make_elf(sections={".data": secret}),
        "demo/_core.cpython-312-darwin.so": b"\xcf\xfa\xed\xfe\x0c\0\0\1" + secret,  # Mach-O
        "demo/data.bin": b"any\0thing " + secret,
    }
    wheel = make_wheel(tags=("py3-none-manylinux_2_28_x86_64",), files=files)
    assert [f.code for f in verify(wheel, Expectation()) if f.code == "secret"] == []


def test_keys_of_tests_are_published_on_purpose_and_tokens_are_not(make_wheel: MakeWheel) -> None:
    files = {
        "demo/test/test.key": SECRETS["a private key"].encode(),
        "demo/SelfTest/Cipher/vectors.py": SECRETS["a private key"].encode(),
        "demo/crypto/test_rsa.py": SECRETS["a private key"].encode(),
        "demo/tests/config.py": SECRETS["a GitHub token"].encode(),
        "demo/latest/server.key": SECRETS["a private key"].encode(),
    }
    found = verify(make_wheel(files=files), Expectation())
    assert [(finding.code, finding.member) for finding in found] == [
        ("secret", "demo/latest/server.key"),
        ("secret", "demo/tests/config.py"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "https://a:b",
        "https://" + "a" * 130 + ":",
        "-----BEGIN A A A A PRIVATE KEY-----\n",
        "-----BEGIN PRIVATE KEY-----" + " " * 60,
        "xoxb-",
        " glpat-aaaaaaaaaaaaaaaa",
        "ghp_" + "a" * 35 + "\n",
    ],
)
def test_a_text_takes_as_long_as_it_is_large(text: str) -> None:
    def seconds(size: int) -> float:
        piece = (text * (size // len(text) + 1)).encode()[:size]
        best = []
        for _ in range(3):
            scanner = Scanner("demo/a.py")
            began = time.process_time()
            scanner.feed(piece)
            scanner.finish()
            best.append(time.process_time() - began)
        return min(best)

    # Four times the square of the ratio is what quadratic work would take, and a tenth is what is allowed.
    assert seconds(1_600_000) < 40 * max(seconds(100_000), 0.001)
