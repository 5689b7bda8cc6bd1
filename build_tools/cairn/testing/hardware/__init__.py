"""Which GPUs a machine has: asked of the kernel, of the makers' programs and of the torch that is tested.

`attest` asks them all and holds their answers against each other; the other modules read one source each.
"""
