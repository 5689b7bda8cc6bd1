"""Turn CUDA sources into HIP with upstream's own code, once per tree, committed between two tags.

`run.hipified` takes commits as upstream gave them and gives the commits that hipify makes of them, with a
`report.HipifyReport`; `build_step.recorded` gives one for projects whose setup.py hipifies.
"""
