"""CUDA sources turned into HIP by upstream's own code, once per tree, and committed between two tags.

`checkout_step.hipify_tree` for a checkout, `build_step.recorded` for projects whose setup.py does it.
"""
