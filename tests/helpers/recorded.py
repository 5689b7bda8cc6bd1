"""What building real projects took, and graphs of many builds that take the same."""

from __future__ import annotations

from cairn.build.engine.schedule import Cost, Graph, Record, Step

RECORDED = {
    # vision and audio were measured on two cores; torch's 3.3 core-hours are those of 1,700 compiled files,
    # what of them is serial, triton and apex are estimates.
    "triton": Record(kind="build", project="triton", seconds=660, cpu=1260, cores=2),
    "torch": Record(kind="build", project="torch", seconds=6180, cpu=12120, cores=2),
    "vision": Record(kind="build", project="vision", seconds=580, cpu=1100, cores=2),
    "audio": Record(kind="build", project="audio", seconds=22.5, cpu=35, cores=2),
    "apex": Record(kind="build", project="apex", seconds=170, cpu=320, cores=2),
}


def chains(projects: int, variants: int, *, cores: int = 64) -> tuple[Graph, dict[str, Cost]]:
    """A chain of projects for each variant, with what each took.

    Args:
        projects: in a chain; beyond the recorded ones they begin anew.
        variants: how many chains.
        cores: the most that a step can use.
    """
    names = list(RECORDED)
    steps: list[Step] = []
    costs = {}
    for variant in range(variants):
        for position in range(projects):
            project = names[position % len(names)]
            step = Step(
                name=f"{position} {project} [{variant}]",
                kind="build",
                project=project,
                needs=(steps[-1].name,) if position else (),
                inputs={"position": position, "variant": variant},
                cores=cores,
            )
            steps.append(step)
            costs[step.name] = RECORDED[project].cost()
    return Graph(tuple(steps)), costs
