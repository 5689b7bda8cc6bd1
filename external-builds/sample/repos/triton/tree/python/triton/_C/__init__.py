"""Contract: the compiled part lies in a package of its own."""
