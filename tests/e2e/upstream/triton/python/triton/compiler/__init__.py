"""The compiler."""

from triton.compiler.compiler import ASTSource, CompiledKernel
