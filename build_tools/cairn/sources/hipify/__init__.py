"""CUDA sources turned into HIP by upstream's own code, once per tree, and committed between two tags.

`run.run` takes a tree as upstream gave it, edits it, and gives a `report.HipifyReport`; `build_step.recorded`
does so for projects whose setup.py hipifies. (`cairn.sources.checkout.hipify_step` commits and tags.)
"""
