"""GitHub's API as far as runs of workflows are read from it, on this machine."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from helpers.serving import QuietHandler

REPOSITORY = "ROCm/TheRock"


@dataclass
class GitHubApi:
    """The API: runs of repositories, and how it answers.

    Attributes:
        runs: by repository and workflow, in the order in which they are listed.
        commits: that repositories have.
        refusal: status and headers that every request is answered with, if any.
        asked: path and headers of the requests.
        body: what is answered instead of JSON.
    """

    runs: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict)
    commits: list[str] = field(default_factory=list)
    refusal: tuple[int, Mapping[str, str]] | None = None
    asked: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    body: bytes | None = None
    address: str = ""

    def add(
        self,
        run_id: int,
        *,
        commit: str,
        created: str,
        status: str = "completed",
        conclusion: str | None = "success",
        branch: str = "main",
        place: tuple[str, str] = (REPOSITORY, "multi_arch_ci.yml"),
    ) -> None:
        """Add a run, with the fields that GitHub gives beside those that are read."""
        self.commits.append(commit)
        self.runs.setdefault(place, []).append({
            "id": run_id, "name": "Multi-Arch CI", "node_id": "x", "head_branch": branch, "head_sha": commit,
            "path": f".github/workflows/{place[1]}", "event": "push", "status": status,
            "conclusion": conclusion, "created_at": created, "updated_at": created, "run_attempt": 1,
            "html_url": f"https://github.com/{place[0]}/actions/runs/{run_id}",
            "head_repository": {"full_name": place[0]},
        })  # fmt: skip

    def respond(self, path: str) -> tuple[int, object]:
        """The status and the answer at a path."""
        parts = urllib.parse.urlsplit(path)
        words = parts.path.strip("/").split("/")
        query = dict(urllib.parse.parse_qsl(parts.query))
        repository = "/".join(words[1:3])
        if repository not in {name for name, _ in self.runs}:
            return 404, {"message": "Not Found"}
        if words[3:] == []:
            return 200, {"full_name": repository, "default_branch": "main", "size": 1}
        if words[3:4] == ["commits"]:
            found = sorted({each for each in self.commits if each.startswith(words[4])})
            return (200, {"sha": found[0]}) if len(found) == 1 else (422, {"message": "No commit"})
        if (listed := self.runs.get((repository, words[5]))) is None:
            return 404, {"message": "Not Found"}
        chosen = [
            each
            for each in listed
            if each["head_branch"] == query.get("branch", each["head_branch"])
            and each["head_sha"] == query.get("head_sha", each["head_sha"])
        ]
        return 200, {"total_count": len(chosen), "workflow_runs": chosen[: int(query["per_page"])]}

    @contextlib.contextmanager
    def serving(self) -> Iterator[GitHubApi]:
        """Serve it on a free port."""
        api = self

        class Handler(QuietHandler):
            def do_GET(self) -> None:  # noqa: N802 - the base's name
                api.asked.append((self.path, dict(self.headers)))
                status, answer = api.respond(self.path)
                headers: Mapping[str, str] = {}
                if api.refusal is not None:
                    (status, headers), answer = api.refusal, {"message": "API rate limit exceeded"}
                data = json.dumps(answer).encode() if api.body is None else api.body
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(data))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            self.address = f"http://127.0.0.1:{server.server_address[1]}"
            try:
                yield self
            finally:
                server.shutdown()
