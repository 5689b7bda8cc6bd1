"""Running programs: what they write is captured, logged and shown; what ends them ends their children too.

`run` takes a command and gives a `Completed`, or raises. Each program leads a process group of its own,
because four things may end it, and none may leave a compiler behind that goes on writing:

- its time is over (`timeout`): its group is killed, and what it has written so far goes into the error;
- we are interrupted, or a callback raises: the exception ends the group on its way through `run`;
- a different thread ends everything (`terminate_all`, or the `Group` that the calling thread belongs to);
- it ends by itself, but a child of its own holds its output open: see `dialogue`.
"""

from cairn.process.children import Group, end_groups, terminate_all
from cairn.process.dialogue import LINGER
from cairn.process.run_program import Completed, background, interactive, run, tail

__all__ = [
    "LINGER",
    "Completed",
    "Group",
    "background",
    "end_groups",
    "interactive",
    "run",
    "tail",
    "terminate_all",
]
