"""Everything that happens to a built wheel; knows nothing of git or of builds.

Takes wheels, gives new wheels or what is wrong with them; none is changed in place. From the ground up:
`metadata` is what a wheel says about itself, `contents` what is in it, `rewrite` writes it with changes. On
these stand `verify` (may it be published?), `repair`, `split`, `sbom`, `wheelset` with the `build_statement`
about it, and `fat`.
"""
