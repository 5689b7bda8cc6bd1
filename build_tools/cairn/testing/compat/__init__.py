"""PyTorch's compatibility pages for ROCm, measured row by row on an installed wheel.

Takes an interpreter with torch, and gives a `report.CompatReport`: the tables of the pages, with what was
seen beside what is claimed. `measure.measure` is the call one needs; `rows` has the pages' rows, `probes/`
what is tried for each, in a process of its own. `write` writes a report (`tables`), `diff` compares
two, and `evidence` makes a test record of one.
"""
