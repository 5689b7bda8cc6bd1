"""Types of the language."""


class constexpr:
    def __init__(self, value):
        self.value = value


class dtype:
    pass


class tensor:
    pass


def view(input, *shape, _semantic=None):
    raise NotImplementedError
