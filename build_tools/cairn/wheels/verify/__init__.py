"""Whether a wheel may be published: every check, and what it found.

`verify.verify` takes a wheel and an `findings.Expectation` and gives `findings.Finding`s, one module a
subject; `allowed.read` takes the file of those that are known and let through. Their codes:
docs/reference/findings.md.
"""
