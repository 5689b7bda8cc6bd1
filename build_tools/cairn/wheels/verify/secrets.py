"""Finding keys and tokens in a file, by the prefixes that their issuers gave them for this purpose.

Only text files are searched. A compiled file has every short text somewhere, and the test keys of the
libraries in it; it is recognised by a zero byte near its beginning, as git does (xdiff-interface.c,
`buffer_is_binary`).

The rule set of detect-secrets takes a line of text at a time, and 700 times as long (14 s for a MB of torch's
files); those of gitleaks and trufflehog come with programs of their own.

Sources: the documentation of the issuers, and the rules of gitleaks and of GitHub's secret scanning.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Collection

import msgspec

from cairn.wheels.metadata import wheel_info

_MOST_URLS = 100
_OVERLAP = 1024  # bytes: longer than what any pattern takes, with a byte on either side
_HEAD = 8000  # bytes that are searched for a zero byte: git's FIRST_FEW_BYTES
_TEST = re.compile(r"(?:test_.*|.*_tests?)\.py")


class _Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of secret.

    Attributes:
        name: what it is.
        pattern: matches a whole secret. All its repeats are bounded, so that no text takes long.
    """

    name: str
    pattern: re.Pattern[bytes]


def _token(name: str, mark: str, rest: str) -> _Kind:
    """A token that begins with `mark`, and stands alone: not within a longer word, except in a URL."""
    pattern = rf"(?:(?<![\w/+-])|(?<=://)){mark}{rest}(?![\w/+-])"
    return _Kind(name=name, pattern=re.compile(pattern.encode()))


_PRIVATE_KEY = _Kind(
    name="a private key",
    pattern=re.compile(
        rb"-----BEGIN (?:[A-Z]{1,20} ){0,4}PRIVATE KEY-----(?:\s|\\[rn]){1,8}"
        rb"(?!EXAMPLE)[A-Za-z0-9+/=\s\\]{64}"
    ),
)
PASSWORD = "a password in a URL"  # noqa: S105 - the name of a kind
_PASSWORD = _Kind(
    name=PASSWORD,
    # The scheme is matched backwards, so that the search can jump from one `://` to the next.
    pattern=re.compile(
        rb"://(?<=[A-Za-z0-9]://)(?P<web>(?<=http://)|(?<=https://)|(?<=ftp://)|(?<=ssh://))?"
        rb"(?P<user>[^\s/:@\"'`<>()\\]{0,120}):(?P<password>[^\s/:@\"'`<>()\\]{1,120})@"
        rb"(?P<host>[A-Za-z0-9._-]{1,120})"
    ),
)
# Every text is searched for each mark, which is part of every secret of the kinds beside it, and for them
# only where it is there. A mark begins with a plain text, from which it looks back: `re` finds that fast.
_KINDS: tuple[tuple[re.Pattern[bytes], tuple[_Kind, ...]], ...] = (
    (re.compile(rb"@(?<=[^\s/:@\"'`<>()\\]@)(?=[A-Za-z0-9._-])"), (_PASSWORD,)),
    (
        re.compile(b"IA(?<=A[KS]IA)"),
        (_token("a key to Amazon's services", "A[KS]IA", "(?![A-Z2-7]{0,9}EXAMPLE)[A-Z2-7]{16}"),),
    ),
    (
        re.compile(
            rb"_(?<=[ahp][fmoprstu]_)(?=[\w-]{27})(?:(?<=hf_)|(?<=npm_)|(?<=gh[opsur]_)|(?<=github_pat_)|(?<=dckr_pat_))"
        ),
        (
            _token("a GitHub token", "gh[opsur]_", "[A-Za-z0-9]{36}"),
            _token("a GitHub token", "github_pat_", r"\w{40,120}"),
            _token("a Hugging Face token", "hf_", "[A-Za-z0-9]{34}"),
            _token("an npm token", "npm_", "[A-Za-z0-9]{36}"),
            _token("a Docker token", "dckr_pat_", r"[\w-]{27}"),
        ),
    ),
    (
        re.compile(
            rb"-(?<=[Yabeioprst]-)"
            rb"(?:(?<=gl(?:cbt|pat|ptt)-)|(?<=gl[dr]t-)|(?<=xox[abeoprs]-)|(?<=pypi-)|(?<= KEY-))"
        ),
        (
            _PRIVATE_KEY,
            _token("a GitLab token", "gl(?:cbt|dt|pat|ptt|rt)-", r"[\w.-]{20,120}"),
            _token("a PyPI token", "pypi-AgE(?:IcHlwaS5vcmc|NdGVzdC5weXBpLm9yZ)", r"[\w-]{50,400}"),
            _token("a Slack token", "xox[abeoprs]-", r"(?=[\w-]{0,20}\d)[\w-]{20,200}"),
        ),
    ),
)
# What documentation writes for a password, and the hosts that are kept for it (RFC 2606, RFC 6761).
_PLACEHOLDERS = frozenset(
    b"pass passwd password passwort passphrase pw pwd secret token apikey api_key key mypass mypassword "
    b"user_password your_password yourpassword my_password some_password foo bar baz test".split()
)
_TEMPLATE = frozenset(b"{}$%*[]|,;!=")
_KEPT_HOSTS = re.compile(
    rb"(?:.*\.)?(?:localhost|127\.0\.0\.1|example\.(?:com|org|net)|example|test|invalid)", re.IGNORECASE
)
# URLs in the documentation of databases have all kinds of users and passwords, but rarely a full host name.
_FULL_HOST = re.compile(rb"(?:[A-Za-z0-9_-]{1,63}\.){1,10}[A-Za-z]{2,63}")
_DIGIT = re.compile(rb"\d")


class Scanner:
    """Looks through one file, piece by piece.

    Attributes:
        matches: the kinds of secrets it has.
        urls: those with passwords, of a Python module: `outside_docstrings` tells examples from them.
    """

    def __init__(self, member: str) -> None:
        """Begin with the member of that path."""
        self.matches: set[str] = set()
        self.urls: set[bytes] = set()
        self._member = member
        self._python = member.endswith((".py", ".pyi"))
        self._held = b""
        self._begun = self._binary = False

    def feed(self, piece: bytes) -> None:
        """Look at the next piece, of any length."""
        if not self._binary:
            # Most files are one piece: looked at once, when it is known that nothing follows.
            if len(self._held) >= (_OVERLAP * 2 if self._begun else _HEAD):
                self._look(last=False)
            self._held += piece

    def finish(self) -> None:
        """Look at what is left, once all pieces were seen."""
        if not self._binary:
            self._look(last=True)

    def _look(self, *, last: bool) -> None:
        text = self._held
        first = not self._begun
        if first:
            self._begun = True
            self._binary = text.find(b"\0", 0, _HEAD) >= 0
        if self._binary:
            self._held = b""
            return
        # A match at the edge of a piece, where the file goes on, may be part of something longer. Pieces
        # overlap, so it was seen whole with the piece before, or will be with the next.
        low, high = 0 if first else 1, len(text) if last else len(text) - 1
        for mark, kinds in _KINDS:
            for kind in kinds if mark.search(text) else ():
                self._match(kind, text, low, high)
        self._held = b"" if last else text[-_OVERLAP:]

    def _match(self, kind: _Kind, text: bytes, low: int, high: int) -> None:
        collects = kind is _PASSWORD and self._python
        # The private keys of tests are published on purpose; a token or a password never is.
        if (kind.name in self.matches and not collects) or (kind is _PRIVATE_KEY and self._is_fixture):
            return
        matches = (m for m in kind.pattern.finditer(text) if low <= m.start() and m.end() <= high)
        real = (m[0] for m in matches if kind is not _PASSWORD or _is_real(m))
        if collects and len(self.urls) < _MOST_URLS:
            self.urls.update(real)
        if any(real) or (collects and self.urls):
            self.matches.add(kind.name)

    @property
    def _is_fixture(self) -> bool:
        file = self._member.rpartition("/")[2]
        return bool(_TEST.fullmatch(file)) or wheel_info.is_of_tests(self._member)


def outside_docstrings(source: bytes, urls: Collection[bytes]) -> bool:
    """Whether one of the URLs in a module is more than an example in its documentation."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of old syntax, which is theirs
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True
    # Any string that stands alone, since those behind attributes are documentation too (PEP 257).
    alone = (node.value for node in ast.walk(tree) if isinstance(node, ast.Expr))
    texts = [node.value for node in alone if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    documented = "\n".join(texts).encode("utf-8", "surrogatepass")
    return any(source.count(url) > documented.count(url) for url in urls)


def _is_real(match: re.Match[bytes]) -> bool:
    """Whether the password of a URL is a real one, not a placeholder in documentation."""
    user, password, host = match.group("user", "password", "host")
    if (
        password.lower() in _PLACEHOLDERS
        or password == user
        or len({*password}) == 1
        or not _TEMPLATE.isdisjoint(user + password)
        or b"..." in password
    ):
        return False
    if match["web"] is None:
        return bool(user and _DIGIT.search(password) and _FULL_HOST.fullmatch(host))
    return bool(_DIGIT.search(password)) or not _KEPT_HOSTS.fullmatch(host)
