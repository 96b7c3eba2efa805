"""The part of PyTorch with which guidellm reads its data: PyTorch has 900 MB, and nothing computes here."""

from . import utils


class Generator:
    def manual_seed(self, seed):
        return self
