"""What a wheel offers and wants, as one frozen value: `read.read_interface` makes an `model.Interface`.

Symbols, kernels, operators, Python names, requirements and licences, for whoever compares wheels or asks what
breaks. Nothing of the wheel is run.
"""
