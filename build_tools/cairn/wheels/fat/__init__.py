"""Fat wheels: the ROCm libraries and their data put into a wheel, which then needs no SDK.

Takes a linked wheel and a ROCm tree, gives the fat wheel and a report of what it carries: `build.make`. What
to take is data: recipe.toml.
"""
