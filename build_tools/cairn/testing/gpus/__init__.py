"""Find the GPUs of a machine, and choose those that tests see.

`kernel` lists the GPUs of this machine; `attest` asks the other `sources` as well and compares their
answers. `hangs` hides those that do not answer. `visible` chooses the GPUs that a suite sees.
`testing.verdict` decides whether a run was on the GPUs that the wheels are for, and used one.
"""
