"""Run programs: their output is captured, logged and shown, and their children end with them.

`run` takes a command and gives a `Completed`, or raises. Each program leads a process group of its own,
because four things may end it, and none may leave a compiler behind that goes on writing:

- its time is over (`timeout`): its group is killed, and what it has written so far goes into the error;
- we are interrupted, or a callback raises: the exception ends the group on its way through `run`;
- a different thread ends everything (`terminate_all`, or the `Group` that the calling thread belongs to);
- it ends by itself, but a child of its own holds its output open: see `run_program.Dialogue`.
"""

from cairn.process.children import Group as Group
from cairn.process.children import end_groups as end_groups
from cairn.process.children import is_ended as is_ended
from cairn.process.children import terminate_all as terminate_all
from cairn.process.run_program import LINGER as LINGER
from cairn.process.run_program import Completed as Completed
from cairn.process.run_program import background as background
from cairn.process.run_program import interactive as interactive
from cairn.process.run_program import run as run
from cairn.process.run_program import tail as tail
