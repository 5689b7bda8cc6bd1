"""What makes a built wheel portable: auditwheel on Linux, delvewheel for Windows, run paths to the ROCm SDK.

Takes a wheel as a build left it, gives one that says on which systems it runs and brings what they lack:
`auditwheel.repair_linked`, for wheels of both systems. The original stays as it is.
"""
