"""The language."""

from triton.language import core, extra, math
from triton.language.core import constexpr, dtype, tensor, view
