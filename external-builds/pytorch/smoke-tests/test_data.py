"""torch.utils.data: each sample comes once, in its batch, from this process and from workers of their own."""

import multiprocessing
import os
from collections.abc import Iterator

import pytest
import torch
from torch.utils import data

SIZE, BATCH = 23, 4
FORK = "fork" in multiprocessing.get_all_start_methods()


class Squares(data.Dataset[dict[str, object]]):
    """Samples that say which process they were made in."""

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> dict[str, object]:
        return {"x": torch.tensor([index, index**2]), "pid": os.getpid(), "name": f"sample {index}"}


class Fails(data.Dataset[int]):
    """A worker has no other way to say what went wrong than its exception."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        raise KeyError("a sample that is not there")


class Stream(data.IterableDataset[int]):
    """Each worker gives its part."""

    def __iter__(self) -> Iterator[int]:
        worker = data.get_worker_info()
        assert worker is not None
        return iter(range(worker.id, SIZE, worker.num_workers))


def test_samples_come_in_order_and_in_batches() -> None:
    batches = list(data.DataLoader(Squares(), batch_size=BATCH))
    assert [len(batch["name"]) for batch in batches] == [4, 4, 4, 4, 4, 3]
    assert torch.cat([batch["x"] for batch in batches]).tolist() == [[i, i**2] for i in range(SIZE)]
    assert batches[0]["pid"].tolist() == [os.getpid()] * BATCH
    assert batches[-1]["name"] == ["sample 20", "sample 21", "sample 22"]
    assert len(list(data.DataLoader(Squares(), batch_size=BATCH, drop_last=True))) == 5


def test_workers_bring_what_they_are_given() -> None:
    # Started as this Python does it by default: such processes need not find what is in this file.
    loader = data.DataLoader(data.TensorDataset(torch.arange(SIZE)), batch_size=BATCH, num_workers=2)
    assert [index for (batch,) in loader for index in batch.tolist()] == list(range(SIZE))


@pytest.mark.skipif(not FORK, reason="this system starts processes anew, which do not find these tests")
def test_workers_make_the_same_batches_elsewhere() -> None:
    loader = data.DataLoader(Squares(), batch_size=BATCH, num_workers=2, multiprocessing_context="fork")
    batches = list(loader)
    assert torch.cat([batch["x"] for batch in batches]).tolist() == [[i, i**2] for i in range(SIZE)]
    made_by = {pid for batch in batches for pid in batch["pid"].tolist()}
    assert len(made_by) == 2
    assert os.getpid() not in made_by
    streamed = data.DataLoader(Stream(), None, num_workers=2, multiprocessing_context="fork")
    assert sorted(streamed) == list(range(SIZE))


@pytest.mark.skipif(not FORK, reason="this system starts processes anew, which do not find these tests")
def test_what_fails_in_a_worker_fails_here() -> None:
    with pytest.raises(KeyError, match="a sample that is not there"):
        list(data.DataLoader(Fails(), num_workers=1, multiprocessing_context="fork"))


def test_shuffled_samples_come_once_and_by_their_seed() -> None:
    def order(seed: int) -> list[int]:
        generator = torch.Generator().manual_seed(seed)
        loader = data.DataLoader(range(SIZE), batch_size=BATCH, shuffle=True, generator=generator)
        return [index for batch in loader for index in batch.tolist()]

    assert order(1) == order(1) != order(2)
    assert sorted(order(1)) == list(range(SIZE)) != order(1)


def test_parts_and_samplers() -> None:
    parts = data.random_split(range(SIZE), [0.5, 0.5], torch.Generator().manual_seed(0))
    assert sorted(index for part in parts for index in part) == list(range(SIZE))
    pairs = data.TensorDataset(torch.arange(5), torch.arange(5) * 2)
    assert [tuple(map(int, pair)) for pair in data.ConcatDataset([pairs, data.Subset(pairs, [4])])][-1] == (
        4,
        8,
    )
    torch.manual_seed(0)
    drawn = list(data.WeightedRandomSampler([0.0, 1.0, 3.0], 4000))
    assert drawn.count(0) == 0
    assert drawn.count(2) / 4000 == pytest.approx(0.75, abs=0.04)
    ranks = [list(data.DistributedSampler(range(10), 2, rank, shuffle=False)) for rank in range(2)]
    assert ranks == [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]
    assert list(data.BatchSampler(data.SequentialSampler(range(5)), 2, drop_last=False)) == [
        [0, 1],
        [2, 3],
        [4],
    ]
