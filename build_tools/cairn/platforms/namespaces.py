"""Linux: start foreign programs in namespaces without a network but their own loopback.

Any user may make a user namespace, and others in it (namespaces(7), user_namespaces(7)), unless the system
refuses: AppArmor's restriction (Ubuntu 23.10 and later), `user.max_user_namespaces`, a container's filter of
calls. Only a process of one thread may enter a user namespace, and Cairn has several. So a helper makes the
namespaces once a run and ends; they stay, since Cairn has their files open. Each program is started by
`nsenter` (util-linux, busybox), which enters them and becomes the program: its id, group and user stay.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

_OPTIONS = {"user": "-U", "net": "-n", "ipc": "-i", "uts": "-u"}
"""The files of /proc/PID/ns, each with its option of nsenter."""
# The machine is called `localhost` inside: the address of its own name may not be there.
_MAKE = """
import ctypes, fcntl, os, struct, _socket
if ctypes.CDLL(None).unshare(0x10000000 | 0x40000000 | 0x08000000 | 0x04000000):  # user, net, IPC, UTS
    raise SystemExit(1)
os.write(1, b"+"), os.read(0, 1)
_socket.sethostname("localhost")
# SIOCSIFFLAGS, IFF_UP (netdevice(7))
fcntl.ioctl(_socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM), 0x8914, struct.pack("16sh22x", b"lo", 1))
os.write(1, b"+"), os.read(0, 1)
"""


def are_here() -> bool:
    """Whether this machine gives us namespaces."""
    return bool(entrance()[0])


@functools.cache  # once a run
def entrance() -> tuple[tuple[str, ...], tuple[int, ...]]:
    """See `System.entrance`."""
    program, handles = shutil.which("nsenter"), []
    with contextlib.suppress(OSError):
        Path("/proc/self/uid_map").open("r+b").close()  # refused to foreign code, which is in some already
        handles = _make() if program is not None else []
    if program is None or not handles:
        return (), ()
    words = [f"{option}/proc/self/fd/{file}" for option, file in zip(_OPTIONS.values(), handles, strict=True)]
    command = (program, "--preserve-credentials", *words, "--")
    works = subprocess.run([*command, "true"], pass_fds=handles, capture_output=True, check=False)
    return ((), ()) if works.returncode else (command, tuple(handles))


def _make() -> list[int]:
    """Return the open files of new namespaces.

    Raises:
        OSError: the system gives none.
    """
    command, pipe, none = [sys.executable, "-I", "-S", "-c", _MAKE], subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(command, bufsize=0, stdin=pipe, stdout=pipe, stderr=none) as helper:
        process = Path("/proc", str(helper.pid))
        _await(helper)
        # The same numbers inside as outside, so that files keep their owners. Root maps all that it has, a
        # user one alone, and only if no group can be dropped (user_namespaces(7)).
        if os.geteuid():
            (process / "setgroups").write_text("deny")
        for name, number in (("uid_map", os.geteuid()), ("gid_map", os.getegid())):
            lines = (line.split() for line in Path("/proc/self", name).read_text().splitlines())
            ranges = [(number, 1)] if os.geteuid() else [(first, count) for first, _, count in lines]
            (process / name).write_text("".join(f"{first} {first} {count}\n" for first, count in ranges))
        _await(helper, b"+")
        return [os.open(process / "ns" / name, os.O_RDONLY) for name in _OPTIONS]


def _await(helper: subprocess.Popen[bytes], answer: bytes = b"") -> None:
    """Answer the helper, and wait until it has done its next step."""
    if helper.stdin is None or helper.stdout is None:
        raise TypeError
    helper.stdin.write(answer)
    if helper.stdout.read(1) != b"+":
        raise PermissionError
