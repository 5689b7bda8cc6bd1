"""Fat wheels: the ROCm libraries and their data put into a wheel, which then needs no SDK.

`plan.make_plan` finds what goes in and changes nothing; `build.make` writes the wheel. What to take is data:
recipe.toml.
"""
