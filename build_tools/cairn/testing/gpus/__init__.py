"""Which GPUs a machine has, which of them tests see, and whether tests have used them.

`kernel` lists the GPUs of this machine; `attest` asks the other `sources` as well and holds their answers
against each other. `visible` chooses those that a suite sees. `usage` decides whether a run was on the GPUs
that the wheels are for, and used one.
"""
