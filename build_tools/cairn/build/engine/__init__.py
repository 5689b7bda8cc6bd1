"""Run steps that depend on each other: started in order, side by side, ended together.

Knows nothing of wheels: `step` has the graph, `schedule` says which step starts next and how many cores
each has, `run` does it.
"""
