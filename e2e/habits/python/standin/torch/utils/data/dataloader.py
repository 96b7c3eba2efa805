from typing import Generic, TypeVar

T = TypeVar("T")


class DataLoader(Generic[T]):
    def __init__(self, dataset, batch_size, collate_fn, **others):
        self.dataset, self.collate = dataset, collate_fn

    def __iter__(self):
        return (self.collate([item]) for item in self.dataset)
