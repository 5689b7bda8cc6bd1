"""Which object a request is for, and in which form."""

from __future__ import annotations

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from cairn.release.index import keys
from cairn.release.serve_http import choose_page, find

WHEEL = f"files/ab/{'ab' * 32}/torch-2.9.0+rocm7.10.0-py3-none-any.whl"


@pytest.mark.parametrize(
    ("target", "key"),
    [
        (f"/{WHEEL}", WHEEL),
        (f"/{WHEEL.replace('+', '%2B')}", WHEEL),
        (f"/{WHEEL.replace('torch', '%74orch')}", WHEEL),
        (f"/{WHEEL}?x=/../y", WHEEL),
        (f"http://proxy:80/{WHEEL}", WHEEL),
        (f"HTTPS://proxy/{WHEEL}", WHEEL),
        ("/release/state.json", "release/state.json"),
        ("/release/gfx110X-all/simple/torch/index.json", "release/gfx110X-all/simple/torch/index.json"),
    ],
)
def test_an_object_is_found_however_it_is_spelt(target: str, key: str) -> None:
    assert find(target) == (key, {})


def test_a_folder_is_one_of_its_pages() -> None:
    pages = {name: f"release/simple/torch/{name}" for name in ("index.html", "index.json")}
    assert find("/release/simple/torch/") == ("release/simple/torch", pages)


@pytest.mark.parametrize(
    ("target", "location"),
    [
        ("/release/simple/Torch_Vision/", "../torch-vision/"),
        ("/release/simple/Torch_Vision", "./torch-vision/"),
        ("/release/simple/torch.vision/index.json", "../torch-vision/index.json"),
        ("/release/simple/torch.vision/index.html", "../torch-vision/index.html"),
        ("/release/gfx110X-all/simple/torch--vision/", "../torch-vision/"),
        ("/release/simple/%54orch/?x=1", "../torch/"),
    ],
)
def test_a_project_is_found_under_each_of_its_names(target: str, location: str) -> None:
    with pytest.raises(web.HTTPException) as caught:
        find(target)
    assert (caught.value.status, caught.value.headers["Location"]) == (301, location)


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("*", 400),
        ("release/simple/", 400),
        ("ftp://x/release/simple/", 400),
        ("http://x", 400),
        ("/release/simple/#torch", 400),
        ("/%", 400),
        ("/%4", 400),
        ("/%zz", 400),
        ("/%ff", 400),
        ("/release/simple/%00/", 400),
        ("/release/simple/%0d%0aX:1/", 400),
        ("//", 404),
        ("//x/release/simple/", 404),
        ("/release//simple/", 404),
        ("/release/simple//", 404),
        ("/release/../release/simple/", 404),
        ("/release/%2e%2e/release/simple/", 404),
        ("/release/./simple/", 404),
        ("/release%2fsimple/", 404),
        ("/release%5csimple/", 404),
        ("/release/simple/%2e%2e%2fx/", 404),
        ("/release/simple/.x/", 404),
        ("/release/simple/Torch@X/", 404),
        ("/release/simple/Torch/x/", 404),
        ("/release/simple/Torch/index.txt", 404),
        ("/simple/Torch/", 404),
        (f"/files/ab/{'ab' * 32}/{'a' * 256}", 404),
        (f"/files/ab/{'ab' * 32}/.hidden", 404),
        ("/etc/passwd", 404),
    ],
)
def test_what_is_nothing_of_a_store(target: str, status: int) -> None:
    with pytest.raises(web.HTTPException) as caught:
        find(target)
    assert caught.value.status == status


@given(st.text(st.sampled_from("/.%2efFA0cb+\\simplereltorch-_ T\u00e9\0"), min_size=1))
def test_nothing_but_what_a_store_may_have_is_found(text: str) -> None:
    try:
        key, pages = find(f"/release/{text}")
    except web.HTTPException:
        return
    assert all(keys.is_own(page) for page in pages.values())
    assert pages or keys.is_own(key)
    assert not any(part in ("", ".", "..") for each in (key, *pages.values()) for part in each.split("/"))


BOTH = ("index.html", "index.json")
JSON = "application/vnd.pypi.simple.v1+json"
HTML = "application/vnd.pypi.simple.v1+html"
PIP = f"{JSON}, {HTML}; q=0.1, text/html; q=0.01"


@pytest.mark.parametrize(
    ("accept", "filename", "content_type"),
    [
        ("", "index.html", "text/html"),
        ("*/*", "index.html", "text/html"),
        ("text/html", "index.html", "text/html"),
        ("text/*", "index.html", "text/html"),
        (PIP, "index.json", JSON),
        (HTML, "index.html", HTML),
        ("application/vnd.pypi.simple.latest+json", "index.json", JSON),
        (f"{JSON};q=0, text/html", "index.html", "text/html"),
        (f"{JSON};q=0.2, text/html;q=0.3", "index.html", "text/html"),
        (f"{JSON};q=nonsense, */*;q=0.1", "index.html", "text/html"),
    ],
)
def test_the_client_chooses(accept: str, filename: str, content_type: str) -> None:
    assert choose_page(accept, BOTH) == (filename, content_type)


def test_what_is_not_accepted_is_not_given() -> None:
    assert choose_page("image/png", BOTH) is None
    assert choose_page(JSON, ("index.html",)) is None
