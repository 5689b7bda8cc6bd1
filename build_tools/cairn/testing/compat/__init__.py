"""PyTorch's compatibility pages for ROCm, measured row by row on an installed wheel.

Takes an interpreter that has torch, and returns a `report.CompatReport`: the tables of the pages
(`rows.toml`), with the measurement beside each claim. `measure` runs the probe of each row in a process of
its own; `tables` writes a report for people, `evidence` makes a test record of it.
"""
