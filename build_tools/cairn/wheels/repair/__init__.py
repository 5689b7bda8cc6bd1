"""What makes a built wheel portable: auditwheel on Linux, delvewheel for Windows, run paths to the ROCm SDK.

`auditwheel.repair_linked` takes a wheel and gives the repaired one.
"""
