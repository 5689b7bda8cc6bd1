"""Origins: relative ones as git resolves them, equal ones recognised, secrets left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairn.errors import SourceError
from cairn.output import safe_text
from cairn.sources.git import url


@pytest.mark.parametrize(
    ("base", "relative", "expected"),
    [
        ("https://h/a/torch.git", "../vision.git", "https://h/a/vision.git"),
        ("https://h/a/torch.git/", "../../b/vision.git", "https://h/b/vision.git"),
        ("https://h/a/torch", "./sub", "https://h/a/torch/sub"),
        ("https://h/a/torch", "../x/../y", "https://h/a/x/../y"),
        ("git@h:a/torch.git", "../vision.git", "git@h:a/vision.git"),
        ("git@h:torch.git", "../vision.git", "git@h:vision.git"),
        ("/srv/up stream/torch.git", "../vision.git", "/srv/up stream/vision.git"),
        ("/torch.git", "../vision.git", "/vision.git"),
        ("https://h/a/torch.git", "https://other/x.git", "https://other/x.git"),
        ("https://h/a/torch.git", "/srv/x.git", "/srv/x.git"),
    ],
)
def test_relative_origins_resolve_as_git_does(base: str, relative: str, expected: str) -> None:
    assert url.resolve(base, relative) == expected


def test_leading_out_of_the_host_is_refused() -> None:
    with pytest.raises(SourceError, match="leads out"):
        url.resolve("torch.git", "../vision.git")
    with pytest.raises(SourceError, match="leads out"):
        url.resolve("https://h/a", "../../../x")


def test_credentials_change_neither_the_identity_nor_the_mirror() -> None:
    plain, secret = "https://h/a/torch", "https://user:t0ken@h/a/torch.git/"
    assert url.identity(plain) == url.identity(secret)
    assert url.slug(plain) == url.slug(secret)
    assert "t0ken" not in url.slug(secret) + url.without_credentials(secret)
    assert url.without_credentials("ssh://git@h/a") == "ssh://git@h/a"
    assert url.without_credentials("git@h:a/b@c") == "git@h:a/b@c"


@pytest.mark.parametrize(
    ("secret", "shown"),
    [
        ("https://t0ken@h/a", "https://h/a"),
        ("https://user:p@t0ken@h/a", "https://h/a"),
        ("HTTPS://user:t0ken@h/a/b@c", "HTTPS://h/a/b@c"),
        ("ssh://git:t0ken@h/a", "ssh://git@h/a"),
        ("ssh://git:p@t0ken@h:22/a", "ssh://git@h:22/a"),
    ],
)
def test_no_part_of_a_secret_is_left(secret: str, shown: str) -> None:
    assert url.without_credentials(secret) == shown
    assert "t0ken" not in safe_text.mask(f"fatal: cannot read '{secret}': gone")


def test_different_origins_have_different_mirrors() -> None:
    names = ["https://h/a/torch", "https://h/b/torch", "/srv/torch", "/srv/torch.git", "git@h:a/torch"]
    assert len({url.slug(name) for name in names}) == len(names)


def test_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert url.absolute("./torch.git") == str(tmp_path / "torch.git")
    assert url.absolute("git@h:a/b") == "git@h:a/b"
    assert url.absolute("https://h/a") == "https://h/a"


@pytest.mark.parametrize("bad", ["", " ", "--upload-pack=touch x", "-x", "/srv/\udcff"])
def test_what_is_no_origin(bad: str) -> None:
    with pytest.raises(SourceError, match="is not a valid origin"):
        url.absolute(bad)
