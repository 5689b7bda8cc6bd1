"""What pages and files cost a server of an index: simpleindex and pypiserver beside Cairn's.

    python benchmarks/index_serve.py

The peers come from PyPI into an environment of their own, which is removed again; pypiserver runs on
waitress, which it takes where it can. All serve the same wheels from a folder: 60 versions of a project, and
one wheel of 100 MB. This program asks them as pip does, on several connections that stay open, and reads in
`/proc` what CPU time each server took meanwhile: so it needs Linux. On a machine with two cores, what asks
takes one of them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cairn.release.publish.files import publish
from cairn.store.folder import LocalStore

PEERS = ("simpleindex", "pypiserver")
VERSIONS = 60
LARGE = 100_000_000  # bytes of one wheel
CONNECTIONS = 8
PIP = (
    "Host: localhost\r\nUser-Agent: pip/25.3\r\nAccept-Encoding: gzip, deflate\r\nAccept: "
    "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html; q=0.1, text/html; q=0.01\r\n"
    "Cache-Control: max-age=0\r\nConnection: keep-alive\r\n"
)


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is asked of every server.

    Attributes:
        name: shown.
        project: whose page it is, or whose first file.
        file: whether it is the file.
        requests: how many.
    """

    name: str
    project: str
    file: bool
    requests: int


TASKS = (
    Task(name="page of 60 files", project="torch", file=False, requests=2_000),
    Task(name="wheel of 100 kB", project="torch", file=True, requests=2_000),
    Task(name="wheel of 100 MB", project="big", file=True, requests=16),
)


@dataclass(frozen=True, kw_only=True)
class Figures:
    """How a server did.

    Attributes:
        cpu: its seconds for 1,000 requests.
        rate: requests a second.
        p50: milliseconds that half of them took at most.
        lost: how many the server broke off, so that they were sent again.
    """

    cpu: float
    rate: float
    p50: float
    lost: int


class Client:
    """An installer with one connection; what it gets is counted, not kept."""

    def __init__(self, port: int, asked: bytes) -> None:
        self._asked = asked
        self._port = port
        self.lost = 0
        self._connect()

    def _connect(self) -> None:
        self.socket = socket.create_connection(("127.0.0.1", self._port))

    def ask(self) -> None:
        """Send the request once more."""
        self.began = time.perf_counter()
        self._send()

    def _send(self) -> None:
        self._head, self._left = b"", -1
        self.socket.sendall(self._asked)

    def answered(self) -> bool:
        """Take what has come; whether that was the last of the answer."""
        data = self.socket.recv(1 << 20)
        if not data:
            self.lost += 1
            self.socket.close()
            self._connect()
            self._send()
            return False
        if self._left < 0:
            self._head += data
            head, end, body = self._head.partition(b"\r\n\r\n")
            if not end:
                return False
            length = re.search(rb"(?i)\r\ncontent-length: *([0-9]+)", head)
            if length is None or b" 200 " not in head[:16]:
                raise SystemExit(f"not what was asked for: {head!r}")
            self._left, data = int(length[1]), body
        self._left -= len(data)
        return self._left == 0


def load(port: int, path: str, requests: int) -> Figures:
    """Ask so many times; the CPU time is left to be found."""
    asked = f"GET {path} HTTP/1.1\r\n{PIP}\r\n".encode()
    took: list[float] = []
    clients = []
    began = time.perf_counter()
    for _ in range(CONNECTIONS):
        clients.append(client := Client(port, asked))
        client.ask()
    left = requests - len(clients)
    while len(took) < requests:
        waiting = {client.socket: client for client in clients}
        for ready in select.select(waiting, (), ())[0]:
            client = waiting[ready]
            if client.answered():
                took.append(time.perf_counter() - client.began)
                if left > 0:
                    left -= 1
                    client.ask()
    seconds = time.perf_counter() - began
    for client in clients:
        client.socket.close()
    lost = sum(client.lost for client in clients)
    return Figures(cpu=0, rate=requests / seconds, p50=statistics.median(took) * 1000, lost=lost)


def cpu(pid: int) -> float:
    """Seconds of CPU time that a process has taken, all its threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def first_file(page: str) -> str:
    """The path of the first file on an index page, as an installer without JSON finds it."""
    with urllib.request.urlopen(page) as answer:  # noqa: S310 - a server of this machine
        page_text: str = answer.read().decode()
    links: list[str] = re.findall(r'href="([^"]+\.whl[^"]*)"', page_text)
    return urllib.parse.urlsplit(urllib.parse.urljoin(page, links[0])).path


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@contextlib.contextmanager
def running(command: Sequence[str], port: int) -> Iterator[int]:
    """A server, until the block ends; its process."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        try:
            for _ in range(600):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.05)
            yield child.pid
        finally:
            child.terminate()


def figures(command: Sequence[str], port: int, prefix: str) -> list[Figures]:
    """How a server does each task."""
    found = []
    with running(command, port) as pid:
        for task in TASKS:
            path = f"{prefix}{task.project}/"
            if task.file:
                path = first_file(f"http://127.0.0.1:{port}{path}")
            load(port, path, CONNECTIONS)  # what is done once is done now
            before = cpu(pid)
            figure = load(port, path, task.requests)
            found.append(dataclasses.replace(figure, cpu=(cpu(pid) - before) / task.requests * 1000))
    return found


def wheel(folder: Path, name: str, version: str, payload: int) -> Path:
    """A wheel of so many bytes that do not compress."""
    info = f"{name}-{version}.dist-info"
    path = folder / name / f"{name}-{version}-py3-none-any.whl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/payload", os.urandom(payload))
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


def main() -> int:
    """Serve the same wheels by each, ask, print all and the ratios."""
    with tempfile.TemporaryDirectory(prefix="cairn-bench-") as name:
        work = Path(name)
        wheels = [
            wheel(work / "packages", "torch", f"2.10.0+rocm7.10.0a202601{n:02}", 100_000)
            for n in range(VERSIONS)
        ]
        publish(
            LocalStore(work / "store"), "staging", [*wheels, wheel(work / "packages", "big", "1.0", LARGE)]
        )
        subprocess.run([sys.executable, "-m", "venv", work / "peers"], check=True)
        programs = work / "peers" / "bin"
        subprocess.run([programs / "pip", "install", "--quiet", *PEERS, "waitress"], check=True)
        port = str(free_port())
        (work / "simpleindex.toml").write_text(
            f'[routes."{{project}}"]\nsource = "path"\nto = "{work}/packages/{{project}}"\n'
            f'[server]\nhost = "127.0.0.1"\nport = {port}\n',
            encoding="utf-8",
        )
        servers = {
            "simpleindex": ([str(programs / "simpleindex"), str(work / "simpleindex.toml")], "/"),
            "pypiserver": (
                [str(programs / "pypi-server"), "run", "-i", "127.0.0.1", "-p", port, str(work / "packages")],
                "/simple/",
            ),
            "cairn": (
                [sys.executable, "-m", "cairn", "index", "serve", str(work / "store"), "--port", port],
                "/staging/simple/",
            ),
        }
        found = {server: figures(command, int(port), prefix) for server, (command, prefix) in servers.items()}
    for number, task in enumerate(TASKS):
        print(f"\n{task.name}, {task.requests} requests on {CONNECTIONS} connections")
        print(f"{'':28}{'CPU s/1000':>12}{'requests/s':>12}{'p50 ms':>10}{'lost':>6}")
        for server, all_figures in found.items():
            figure = all_figures[number]
            print(f"{server:28}{figure.cpu:12.3f}{figure.rate:12.0f}{figure.p50:10.2f}{figure.lost:6}")
        ours = found["cairn"][number]
        for peer in PEERS:
            theirs = found[peer][number]
            ratios = (theirs.cpu / ours.cpu, ours.rate / theirs.rate, theirs.p50 / ours.p50)
            print(f"{f'ratio to {peer}':28}{ratios[0]:11.1f}x{ratios[1]:11.1f}x{ratios[2]:9.1f}x")
    return 0


if __name__ == "__main__":
    sys.exit(main())
