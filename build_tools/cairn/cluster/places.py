"""Which worker of a cluster takes which step: the most urgent first, as soon as a worker has room for it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from cairn.pipeline.night.placing import Demand, Machine


@dataclass(kw_only=True, eq=False)
class Wish:
    """A step that waits for a worker, or runs on one.

    Attributes:
        cores: that it takes.
        demand: what it needs besides.
        urgency: seconds from its start to the end of the last step behind it.
        worker: the name of the machine that it runs on; empty while it waits.
        is_placed: set once it has one.
    """

    cores: int
    demand: Demand
    urgency: float
    worker: str = ""
    is_placed: threading.Event = field(default_factory=threading.Event)


class Places:
    """The places of all workers.

    Dask alone would deal steps out as they are submitted, to workers that are busy, too: some would wait in
    line at one while another has nothing to do.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._machines: tuple[Machine, ...] = ()
        self._unfit: set[tuple[str, str]] = set()
        self._waiting: list[Wish] = []
        self._running: list[Wish] = []

    def renew(self, machines: Sequence[Machine]) -> None:
        """Take note of the workers that there are by now."""
        with self._lock:
            self._machines = tuple(machines)
            self._place()

    def exclude(self, worker: str, gpu: str) -> None:
        """Give a worker no more steps for a GPU, such as one that hangs."""
        with self._lock:
            self._unfit.add((worker, gpu))

    def can_take(self, demand: Demand) -> bool:
        """Whether there is a worker for a demand, busy or not."""
        return any(self._fits(machine, demand) for machine in self._machines)

    def ask(self, cores: int, demand: Demand, urgency: float) -> Wish:
        """Wait in line; `give_back` has to follow, whether a worker was had or not."""
        wish = Wish(cores=cores, demand=demand, urgency=urgency)
        with self._lock:
            self._waiting.append(wish)
            self._place()
        return wish

    def give_back(self, wish: Wish) -> None:
        """Leave the line, or the worker."""
        with self._lock:
            (self._running if wish.worker else self._waiting).remove(wish)
            self._place()

    def _place(self) -> None:
        for wish in sorted(self._waiting, key=lambda wish: -wish.urgency):
            fit = (machine for machine in self._machines if self._fits(machine, wish.demand))
            free = [machine for machine in fit if self._has_room(machine, wish)]
            if free:
                # GPUs are left to those who need them.
                best = min(free, key=lambda one: (bool(one.gpus) and not wish.demand.gpu, self._load(one)))
                wish.worker = best.name
                self._waiting.remove(wish)
                self._running.append(wish)
                wish.is_placed.set()

    def _fits(self, machine: Machine, demand: Demand) -> bool:
        return demand.is_met_by(machine) and (machine.name, demand.gpu) not in self._unfit

    def _has_room(self, machine: Machine, wish: Wish) -> bool:
        beside = [one for one in self._running if one.worker == machine.name]
        gpus = sum(one.demand.gpus for one in beside if one.demand.gpu == wish.demand.gpu)
        # A step that is larger than the machine has it alone.
        has_cores = not beside or sum(one.cores for one in beside) + wish.cores <= machine.cores
        has_gpus = not wish.demand.gpu or gpus + wish.demand.gpus <= machine.gpus[wish.demand.gpu]
        return has_cores and has_gpus

    def _load(self, machine: Machine) -> float:
        return sum(one.cores for one in self._running if one.worker == machine.name) / machine.cores
