"""What is said of an index that gives no answer, asked over HTTP on this machine."""

import http.server
import threading
import time
from collections.abc import Iterator, Mapping
from http import HTTPStatus

import pytest

from cairn import package_index

HTML = "text/html; charset=utf-8"
FILE = '<a href="rocm-7.10.0.tar.gz#sha256=00">rocm-7.10.0.tar.gz</a>'
LOGIN = '<title>Corporate SSO</title><form action=/auth><input name=u><input type="PassWord" name=p></form>'
PAGES: Mapping[str, tuple[int, str, str]] = {
    "/login/rocm/": (200, HTML, LOGIN),
    "/titled/rocm/": (200, HTML, "<title>Please sign in</title><script src=app.js></script>"),
    "/moved/rocm/": (302, HTML, "/sso?next=/moved/rocm/&token=s3cret"),
    "/sso": (200, HTML, LOGIN),
    "/app/rocm/": (200, HTML, "<title>Artifact browser</title><div id=root></div>"),
    "/bare/rocm/": (200, HTML, "hello"),
    "/api/rocm/": (200, "application/json", '{"error": "unauthorised"}'),
    "/denied/rocm/": (401, HTML, LOGIN),
    "/broken/rocm/": (503, HTML, "try later"),
    "/good/rocm/": (200, HTML, f"<title>Links for rocm</title>{FILE}"),
    "/plain/rocm/": (200, HTML, FILE),
    "/signed-in/rocm/": (200, HTML, f"<title>Login to publish</title>{FILE}"),
    "/empty/rocm/": (200, HTML, "<title>Links for rocm</title><h1>Links for rocm</h1>"),
    "/listing/rocm/": (200, HTML, '<title>Index of /rocm</title><a href="../">Parent</a>'),
    "/pep629/rocm/": (200, HTML, '<meta name="pypi:repository-version" content="1.0"><title>rocm</title>'),
    "/json/rocm/": (200, "application/vnd.pypi.simple.v1+json", '{"files": []}'),
}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, kind, body = PAGES.get(self.path.partition("?")[0], (404, HTML, "no such page"))
            self.send_response(status)
            if status == HTTPStatus.FOUND:
                self.send_header("Location", body)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()


@pytest.mark.parametrize(
    ("index", "said"),
    [
        ("login", "{url}/login/ is not a package index: it answers with a login page"),
        ("titled", "{url}/titled/ is not a package index: it answers with a login page"),
        ("moved", "{url}/moved/ is not a package index: it answers with a login page, at {url}/sso"),
        ("app", "{url}/app/ is not a package index: it answers with the web page 'Artifact browser'"),
        ("bare", "{url}/bare/ is not a package index: it answers with a web page without a link"),
        ("api", "{url}/api/ is not a package index: it answers with application/json"),
        ("denied", "cannot reach {url}/denied/: it answers 401 Unauthorized"),
        ("broken", "cannot reach {url}/broken/: it answers 503 Service Unavailable"),
    ],
)
def test_what_is_no_index_is_called_what_it_is(server: str, index: str, said: str) -> None:
    problem = package_index.index_problem(f"{server}/{index}/", "rocm[libraries,devel]==7.10.0")
    assert problem is not None
    assert problem.startswith(said.format(url=server))
    assert "s3cret" not in problem


@pytest.mark.parametrize(
    "index", ["good", "plain", "signed-in", "empty", "listing", "pep629", "json", "there-is-none"]
)
def test_an_index_that_lacks_a_project_is_still_one(server: str, index: str) -> None:
    assert package_index.index_problem(f"{server}/{index}", "rocm") is None


def test_nobody_at_home_and_no_http() -> None:
    assert package_index.index_problem("http://127.0.0.1:9/simple/", "rocm") == (
        "cannot reach http://127.0.0.1:9/simple/: ConnectionError"
    )
    assert package_index.index_problem("file:///nowhere", "rocm") is None
    assert package_index.index_problem(None, "rocm") is None


@pytest.mark.parametrize("text", ["<a href=", "<a ", "<meta ", "<title ", "<input "])
def test_a_page_without_end_is_judged_at_once(text: str) -> None:
    began = time.process_time()
    package_index._web_page_problem(text * 30_000)
    package_index._web_page_problem(f"{text} {'href=type=' * 20_000}")
    assert time.process_time() - began < 2
