"""A replacement of torch.dtype, for tests without torch."""


class Dtype:
    """A dtype of torch, which has nothing but a name."""

    __module__ = "torch"

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return f"torch.{self.name}"
