"""Whom a new set of wheels breaks: what other wheels use of the old one, and the new one no longer has.

`needs` reads what a consumer uses (`python_uses` its Python names), `offers` what a set has for it
(`python_names` looks a name up), and `breaks` compares two offers. Nothing is imported or run.
"""
