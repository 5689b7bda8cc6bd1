"""Scripts with upstream's names and flags (ROCm/TheRock, external-builds/pytorch): one module per script.

Each `main` takes the file of the script, beside which the stack.toml and the default checkouts are.
"""
