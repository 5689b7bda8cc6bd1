"""Find out which GPUs a machine has: ask every source, and compare the answers.

The kernel is authoritative: no program and no wheel can change its files. The other sources add details of
the same GPUs. If one contradicts the kernel, it is unknown what tests have computed on, and a run proves
nothing. A source may be missing, and may list fewer GPUs (AMD's runtime omits devices that it may not open,
amd-smi a card's partitions), but neither more nor different ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import structs

from cairn import targets
from cairn.testing.gpus import kernel, sources
from cairn.testing.gpus.gpu import Gpu, Source
from cairn.testing.gpus.visible import GPU_VARIABLES, OF_HIP, visible_gpus

_MORE = 1.1  # memory: how much of it torch may see beyond what the kernel gives, by rounding


class Attestation(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs that tests could use.

    Attributes:
        gpus: in the order in which the runtime counts them.
        disagreements: where the sources contradict each other, a sentence each.
        silent: the sources that are there and have no answer, a sentence each.
    """

    gpus: tuple[Gpu, ...] = ()
    disagreements: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()

    @property
    def hardware(self) -> tuple[str, ...]:
        """The gfx name of each GPU, or the driver's name for one that is not AMD's."""
        return tuple(gpu.target for gpu in self.gpus)


def attest(
    variables: Mapping[str, str],
    *,
    python: Path | None,
    log: Path,
    nodes: Path = kernel.KFD_NODES,
    sysfs: Path = kernel.SYSFS,
    hanging: Sequence[Gpu] = (),
) -> Attestation:
    """Find out which GPUs tests can use.

    Args:
        variables: the whole environment of the tests.
        python: the interpreter of the tested environment; None if its torch should not be asked.
        log: receives what the programs say.
        nodes: the folder in which the kernel describes the GPUs; one that does not exist hides them all.
        sysfs: the root of sysfs, for everything else.
        hanging: GPUs that hang, and with them every program that lists the whole machine: none is asked.
    """
    if nodes != kernel.KFD_NODES and not nodes.is_dir():
        return Attestation()
    machine = kernel.read(nodes, sysfs)
    # These list the whole machine, whatever is hidden from the tests.
    everything = {name: value for name, value in variables.items() if name not in GPU_VARIABLES}
    runtime = management = sources.Answer()
    if not hanging:
        runtime = sources.ask_rocminfo(everything, log)
        management = sources.ask_amd_smi(everything, log)
    if not machine and kernel.is_wsl(nodes):
        machine = tuple(structs.replace(gpu, seen_by=("rocminfo",)) for gpu in runtime.gpus)
    disagreements = [
        *_runtime_disagreements(machine, runtime.gpus),
        *_management_disagreements(machine, management.gpus, kernel.own_version(sysfs)),
    ]
    usable = _visible(_completed(machine, runtime.gpus, management.gpus), variables)
    tested = sources.Answer()
    # Torch takes seconds to start; it alone says what GPU of another maker a run is on.
    if python is not None and (machine or runtime.gpus or sources.program("nvidia-smi", everything)):
        tested = sources.ask_torch(python, variables, log)
    on_amd = [gpu for gpu in tested.gpus if gpu.vendor == "amd"]
    disagreements += _torch_disagreements(usable, on_amd)
    if not usable:
        usable = tuple(gpu for gpu in tested.gpus if gpu.vendor == "nvidia")
    answers = (runtime, management, tested)
    return Attestation(
        gpus=_seen_by_torch(usable, tested.gpus),
        disagreements=tuple(dict.fromkeys(disagreements)),
        silent=tuple(answer.problem for answer in answers if answer.problem),
    )


def _runtime_disagreements(machine: Sequence[Gpu], runtime: Sequence[Gpu]) -> Iterator[str]:
    by_node = {gpu.node: gpu for gpu in machine}
    for gpu in runtime:
        of_kernel = by_node.get(gpu.node)
        if of_kernel is None:
            yield f"rocminfo lists {gpu.target} as node {gpu.node}, where the kernel has no GPU"
        elif of_kernel.target != gpu.target:
            yield f"rocminfo calls node {gpu.node} {gpu.target}, and the kernel {of_kernel.target}"


def _management_disagreements(
    machine: Sequence[Gpu], management: Sequence[Gpu], driver: str
) -> Iterator[str]:
    for of_kernel in machine:
        for gpu in (gpu for gpu in management if gpu.card and gpu.card == of_kernel.card):
            statements = (
                ("the target", gpu.target, of_kernel.target),
                ("the compute partition", gpu.compute_partition, of_kernel.compute_partition),
                ("the memory partition", gpu.memory_partition, of_kernel.memory_partition),
            )
            for subject, statement, agent in statements:
                if statement and agent and statement.lower() != agent.lower():
                    yield f"amd-smi calls {subject} of {of_kernel.card} {statement}, and the kernel {agent}"
    for gpu in management:
        # A kernel's own driver has no version, and amd-smi takes the kernel's in its place.
        if machine and driver and gpu.driver and gpu.driver != driver:
            yield f"amd-smi says that the driver is {gpu.driver}, and the kernel {driver}"


def _torch_disagreements(usable: Sequence[Gpu], tested: Sequence[Gpu]) -> Iterator[str]:
    present = Counter(gpu.target for gpu in usable)
    names = ", ".join(present) or "no GPU"
    for target, count in Counter(gpu.target for gpu in tested).items():
        if count > present[target]:
            how_many = (
                f"{count}x {target}, of which {present[target]} are" if present[target] else f"{target}, not"
            )
            yield f"torch sees {how_many} among what the machine has for it: {names}"
    shared = targets.families().get("igpu-all", ())  # these take the machine's memory as well
    for gpu in tested:
        most = max(
            (candidate.memory_bytes for candidate in usable if candidate.target == gpu.target), default=0
        )
        if most and gpu.target not in shared and gpu.memory_bytes > most * _MORE:
            yield f"torch sees {gpu.memory_bytes} bytes of memory on {gpu.target}, and the kernel {most}"


def _completed(machine: Sequence[Gpu], runtime: Sequence[Gpu], management: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """Return the kernel's GPUs with details from the other sources."""
    completed = []
    for gpu in machine:
        agent = next((agent for agent in runtime if agent.node == gpu.node), None)
        two = next((agent for agent in management if agent.card and agent.card == gpu.card), None)
        others = [
            found_agent
            for found_agent in (agent, two)
            if found_agent is not None and found_agent.target in ("", gpu.target)
        ]
        values_by_field: dict[str, object] = {}
        for field in ("name", "uuid", "compute_partition", "memory_partition"):
            values = (getattr(agent, field) for agent in (gpu, *others))
            values_by_field[field] = next(filter(None, values), "")
        sources: tuple[tuple[Source, Gpu | None], ...] = (("rocminfo", agent), ("amd-smi", two))
        agreeing = tuple(name for name, agent in sources if agent is not None and agent in others)
        if not gpu.memory_bytes and agent is not None:
            values_by_field["memory_bytes"] = agent.memory_bytes
        seen_by = tuple(dict.fromkeys((*gpu.seen_by, *agreeing)))
        completed.append(structs.replace(gpu, **values_by_field, seen_by=seen_by))
    return tuple(completed)


def _visible(machine: tuple[Gpu, ...], variables: Mapping[str, str]) -> tuple[Gpu, ...]:
    """Return the GPUs that the variables leave visible, renumbered by the runtime and then by HIP."""
    hip = next((name for name in OF_HIP if name in variables), None)
    for name in ("ROCR_VISIBLE_DEVICES", hip):
        if name is not None:
            machine = _chosen(machine, variables.get(name))
    return machine


def _chosen(machine: tuple[Gpu, ...], chosen: str | None) -> tuple[Gpu, ...]:
    words = [word.strip() for word in chosen.split(",")] if chosen is not None else []
    by_uuid = {gpu.uuid.lower(): gpu for gpu in machine if gpu.uuid}
    if words and all(word.lower() in by_uuid for word in words):
        return tuple(by_uuid[word.lower()] for word in words)
    return visible_gpus(machine, chosen)


def _seen_by_torch(usable: tuple[Gpu, ...], tested: Sequence[Gpu]) -> tuple[Gpu, ...]:
    # It counts as the runtime does, but may leave some out; only a full count says which is which.
    if [gpu.target for gpu in usable] != [gpu.target for gpu in tested]:
        return usable
    return tuple(
        structs.replace(
            gpu,
            name=gpu.name or seen.name,
            memory_bytes=gpu.memory_bytes or seen.memory_bytes,
            seen_by=tuple(dict.fromkeys((*gpu.seen_by, "torch"))),
        )
        for gpu, seen in zip(usable, tested, strict=True)
    )
