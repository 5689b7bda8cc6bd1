"""Who gets which worker of a cluster."""

from cairn.cluster.dask_executor import Places
from cairn.pipeline.night.placing import Demand, Machine

LINUX = "linux_x86_64"
ANY = Demand(platform=LINUX)
CARD = Demand(platform=LINUX, gpu="gfx1100", gpus=1)


def machine(name: str, cores: int = 1, *, platform: str = LINUX, **gpus: int) -> Machine:
    return Machine(name=name, platform=platform, cores=cores, gpus=gpus)


def places(*machines: Machine) -> Places:
    made = Places()
    made.renew(machines)
    return made


def test_none_waits_in_line_while_another_worker_is_free() -> None:
    workers = places(machine("a"), machine("b"))
    first, second, third = (workers.ask(1, ANY, 1.0) for _ in range(3))
    assert ({first.worker, second.worker}, third.worker) == ({"a", "b"}, "")
    workers.give_back(second)
    assert (third.worker, third.is_placed.is_set()) == (second.worker, True)


def test_the_most_urgent_comes_first() -> None:
    workers = places(machine("a"))
    first, later, urgent = (workers.ask(1, ANY, urgency) for urgency in (1.0, 2.0, 3.0))
    workers.give_back(first)
    assert (urgent.worker, later.worker) == ("a", "")


def test_one_that_cannot_be_placed_holds_up_none() -> None:
    workers = places(machine("a"), machine("b", gfx1100=1))
    first, second = workers.ask(1, CARD, 9.0), workers.ask(1, CARD, 8.0)
    assert (first.worker, second.worker, workers.ask(1, ANY, 1.0).worker) == ("b", "", "a")


def test_gpus_are_left_to_those_who_need_them() -> None:
    workers = places(machine("a", 2, gfx1100=1), machine("b", 2))
    assert [workers.ask(1, ANY, 1.0).worker for _ in range(2)] == ["b", "b"]
    assert workers.ask(1, CARD, 1.0).worker == "a"
    assert workers.ask(1, CARD, 1.0).worker == ""  # there is one card
    assert workers.ask(1, ANY, 1.0).worker == "a"


def test_steps_go_to_machines_of_their_platform() -> None:
    workers = places(machine("a", platform="win_amd64"))
    wish = workers.ask(1, ANY, 1.0)
    assert (wish.worker, workers.can_take(ANY)) == ("", False)
    workers.renew([machine("a", platform="win_amd64"), machine("b")])
    assert (wish.worker, workers.can_take(ANY)) == ("b", True)


def test_a_worker_whose_gpu_hangs_gets_no_more_for_it() -> None:
    workers = places(machine("a", gfx1100=1))
    workers.exclude("a", "gfx1100")
    assert (workers.can_take(CARD), workers.ask(1, CARD, 1.0).worker) == (False, "")
    assert workers.ask(1, ANY, 1.0).worker == "a"


def test_a_step_larger_than_any_machine_has_one_alone() -> None:
    workers = places(machine("a", 2))
    small, large = workers.ask(1, ANY, 1.0), workers.ask(8, ANY, 1.0)
    assert (small.worker, large.worker) == ("a", "")
    workers.give_back(small)
    assert (large.worker, workers.ask(1, ANY, 1.0).worker) == ("a", "")


def test_who_leaves_the_line_gets_nothing() -> None:
    workers = places()
    gone, stays = workers.ask(1, ANY, 2.0), workers.ask(1, ANY, 1.0)
    workers.give_back(gone)
    workers.renew([machine("a")])
    assert (gone.worker, stays.worker) == ("", "a")
