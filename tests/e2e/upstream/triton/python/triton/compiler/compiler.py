"""The compiler."""


class ASTSource:
    pass


class CompiledKernel:
    pass
