"""Datasets, samplers, collating and loading."""

import itertools
import warnings
from collections import ChainMap, OrderedDict, UserDict, defaultdict, deque, namedtuple
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.utils.data import (
    BatchSampler,
    ChainDataset,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    default_convert,
    random_split,
)
from tests.oracle import same_error, torch_module


class Squares(Dataset):
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        return i * i


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(5))


def numbers(size=10):
    return TensorDataset(lucid_gpu.arange(size), lucid_gpu.arange(size) * 2)


def flat(batches):
    return [batch.tolist() for batch in batches]


def test_numbers_of_numpy_become_tensors():
    found = default_convert([np.int64(3), {"a": np.ones(2)}, "s"])
    assert [type(found[0]), found[0].item(), found[1]["a"].tolist()] == [
        lucid_gpu.Tensor, 3, [1, 1],
    ]  # fmt: skip


def test_batches():
    assert flat(DataLoader(Squares(5), 2)) == [[0, 1], [4, 9], [16]]
    assert flat(DataLoader(Squares(5), 2, drop_last=True)) == [[0, 1], [4, 9]]
    assert list(DataLoader(Squares(3), None)) == [0, 1, 4]
    assert [len(DataLoader(Squares(5), 2, drop_last=d)) for d in (False, True)] == [3, 2]


def test_streams():
    assert flat(DataLoader(Stream(), 2)) == [[0, 1], [2, 3], [4]]
    assert flat(DataLoader(Stream(), 2, drop_last=True)) == [[0, 1], [2, 3]]
    assert list(DataLoader(Stream(), None)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "dataset",
    [numbers(), Subset(numbers(20), range(5, 15)), Subset(Subset(numbers(), range(9)), [3])],
)
def test_tensors_by_one_look_up_are_the_samples_collated(dataset):
    quick = list(DataLoader(dataset, 4))
    slow = list(DataLoader(dataset, 4, collate_fn=lambda samples: default_collate(samples)))
    assert [[t.tolist() for t in batch] for batch in quick] == [
        [t.tolist() for t in batch] for batch in slow
    ]
    assert type(quick[0]) is type(slow[0]) is list


def test_datasets_on_a_device(device):
    dataset = TensorDataset(lucid_gpu.arange(4).to(device))
    (batch,) = DataLoader(dataset, 4, shuffle=True)
    assert batch[0].device.type == device
    assert sorted(batch[0].tolist()) == [0, 1, 2, 3]


def test_shuffling_is_a_new_order_that_the_seed_decides():
    loader = DataLoader(numbers(50), 50, shuffle=True)

    def orders(seed):
        lucid_gpu.manual_seed(seed)
        return [next(iter(loader))[0].tolist() for _ in range(2)]

    first, second = orders(1)
    assert first != second and sorted(first) == sorted(second) == list(range(50))
    assert orders(1) == [first, second] != orders(2)


def test_a_generator_of_its_own():
    def order():
        generator = lucid_gpu.Generator().manual_seed(3)
        loader = DataLoader(numbers(30), 30, shuffle=True, generator=generator)
        return next(iter(loader))[0].tolist()

    lucid_gpu.manual_seed(1)
    first = order()
    lucid_gpu.manual_seed(2)
    assert order() == first


def test_custom_samplers_and_collating():
    loader = DataLoader(Squares(5), 2, sampler=[4, 3, 0], collate_fn=tuple)
    assert list(loader) == [(16, 9), (0,)]
    assert list(DataLoader(Squares(5), batch_sampler=[[1], [2, 3]], collate_fn=tuple)) == [
        (1,),
        (4, 9),
    ]


def test_samples_fetched_together():
    class Together(Squares):
        def __getitems__(self, indices):
            return [-i for i in indices]

    assert flat(DataLoader(Together(3), 2)) == [[0, -1], [-2]]


def test_samplers():
    assert list(SequentialSampler(range(3))) == [0, 1, 2]
    assert sorted(RandomSampler(range(5))) == [0, 1, 2, 3, 4]
    assert sorted(SubsetRandomSampler([7, 8])) == [7, 8]
    assert len(list(RandomSampler(range(3), replacement=True, num_samples=2000))) == 2000
    assert set(RandomSampler(range(3), replacement=True, num_samples=2000)) == {0, 1, 2}
    assert len(list(RandomSampler(range(3), num_samples=7))) == 7
    assert list(BatchSampler(range(5), 2, False)) == [[0, 1], [2, 3], [4]]
    assert len(BatchSampler(range(5), 2, True)) == 2


def test_a_huge_sampler_costs_nothing():
    sampler = RandomSampler(range(3), replacement=True, num_samples=10**10)
    assert len(sampler) == 10**10
    assert next(iter(sampler)) in (0, 1, 2)


@pytest.mark.parametrize("lengths", [[6, 3, 1], [0.5, 0.3, 0.2], [0.25, 0.75]])
def test_random_split(lengths):
    parts = random_split(numbers(), lengths, lucid_gpu.Generator().manual_seed(0))
    again = random_split(numbers(), lengths, lucid_gpu.Generator().manual_seed(0))
    torch_parts = torch_module().utils.data.random_split(range(10), lengths)
    assert [len(p) for p in parts] == [len(p) for p in torch_parts]
    assert sorted(i for p in parts for i in p.indices) == list(range(10))
    assert [p.indices for p in parts] == [p.indices for p in again]


def test_subsets_fetch_together():
    class Together(Squares):
        def __getitems__(self, indices):
            return [-i for i in indices]

    assert Subset(Together(9), [4, 5, 6]).__getitems__([0, 2]) == [-4, -6]
    assert flat(DataLoader(Subset(Together(9), [4, 5, 6]), 2)) == [[-4, -5], [-6]]


def test_stacking():
    pairs = StackDataset(Squares(3), numbers(3))
    assert len(pairs) == 3 and pairs[2][0] == 4 and pairs[2][1][1].item() == 4
    named = StackDataset(x=Squares(3), y=[5, 6, 7])
    assert named[1] == {"x": 1, "y": 6} == named.__getitems__([1])[0]
    (batch,) = DataLoader(named, 3)
    assert batch["x"].tolist() == [0, 1, 4] and batch["y"].tolist() == [5, 6, 7]


def test_chains_of_streams():
    both = Stream() + Stream()
    assert isinstance(both, ChainDataset)
    assert list(both) == [0, 1, 2, 3, 4] * 2


def test_weights():
    drawn = list(WeightedRandomSampler([0, 1, 3], 4000))
    assert len(drawn) == 4000 and 0 not in drawn
    assert 0.70 < drawn.count(2) / 4000 < 0.80
    assert sorted(WeightedRandomSampler([1, 1, 1], 3, replacement=False)) == [0, 1, 2]
    huge = WeightedRandomSampler([1, 1], 10**10)
    assert len(huge) == 10**10 and next(iter(huge)) in (0, 1)


def test_an_order_does_not_depend_on_what_is_drawn_meanwhile():
    def order(meanwhile):
        lucid_gpu.manual_seed(0)
        seen = []
        for i in RandomSampler(range(8), replacement=True, num_samples=3000):
            seen.append(i)
            if meanwhile:
                lucid_gpu.rand(1)
        return seen

    assert order(True) == order(False)


def test_concatenation():
    both = Squares(3) + Squares(2)
    assert isinstance(both, ConcatDataset)
    assert [both[i] for i in range(5)] == [0, 1, 4, 0, 1] and both[-1] == 1


Point = namedtuple("Point", "x y")
SAMPLES = {
    "numbers": [1, 2],
    "floats": [1.0, 2.0],
    "booleans": [True, False],
    "strings": ["a", "b"],
    "NumPy's strings": [np.str_("a"), np.str_("b")],
    "arrays": [np.ones(2, np.float32), np.zeros(2, np.float32)],
    "mixed": [np.ones(2, np.float32), np.zeros(2, np.int64)],
    "scalars": [np.float32(1), np.float32(2)],
    "pairs": [(1, 2.0), (3, 4.0)],
    "lists": [[1, "a"], [3, "b"]],
    "dicts": [{"x": 1, "y": (2, 3)}, {"x": 4, "y": (5, 6)}],
    "ordered": [OrderedDict(x=1), OrderedDict(x=2)],
    "named tuples": [Point(1, 2), Point(3, 4)],
}


def plain(value):
    """Types, dtypes and values of a batch."""
    if hasattr(value, "tolist"):
        return str(value.dtype).rpartition(".")[2], value.tolist()
    if isinstance(value, dict):
        return type(value).__name__, {k: plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [plain(v) for v in value]
    return value


@pytest.mark.parametrize("kind", SAMPLES)
def test_collating_is_torchs(kind):
    expected = torch_module().utils.data.default_collate(SAMPLES[kind])
    assert plain(default_collate(SAMPLES[kind])) == plain(expected)


def test_collating_tensors():
    swapped = default_collate([np.ones(2, ">f4"), np.zeros(2, ">f4")])  # (+)
    assert swapped.dtype is lucid_gpu.float32 and swapped.tolist() == [[1, 1], [0, 0]]
    assert default_collate([lucid_gpu.ones(2), lucid_gpu.zeros(2)]).tolist() == [[1, 1], [0, 0]]


class _Noted(dict):
    note = "class"


class _Row(list):
    note = "class"


class _Pair(list):
    def __init__(self, a: Any, b: Any) -> None:
        super().__init__([a, b])


def _noted(kind: Any) -> Any:
    made = kind({"a": 1}) if issubclass(kind, dict) else kind([1, 2])
    made.note = "own"
    return made


@pytest.mark.parametrize(
    "sample",
    [
        lambda: _noted(_Noted), lambda: _noted(_Row), lambda: _Pair(1, 2.0), lambda: range(3),
        lambda: defaultdict(list, {"a": 1}), lambda: MappingProxyType({"a": 1.0}),
        lambda: deque([1, 2]), lambda: UserDict(a=1), lambda: ChainMap({"a": 1}),
        lambda: bytearray(b"ab"), lambda: (np.ones(2), [np.ones(2)]), lambda: b"ab",
    ],
)  # fmt: skip
def test_containers_of_other_types_as_pytorch_collates_and_converts_them(sample: Any) -> None:
    theirs = torch_module().utils.data

    def seen(value: Any) -> Any:
        shown = getattr(value, "note", None), getattr(value, "default_factory", None)
        if hasattr(value, "tolist"):
            return str(value.dtype).rpartition(".")[2], value.tolist()
        if isinstance(value, Mapping):
            return type(value), shown, {key: seen(part) for key, part in value.items()}
        nested = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
        return (type(value), shown, [seen(part) for part in value]) if nested else value

    expected = theirs.default_collate([sample(), sample()])
    assert seen(default_collate([sample(), sample()])) == seen(expected)
    assert seen(default_convert(sample())) == seen(theirs.default_convert(sample()))


def test_functions_for_types_of_users() -> None:
    from lucid_gpu.utils.data._utils.collate import collate, default_collate_fn_map

    class Point:
        def __init__(self, x: float) -> None:
            self.x = x

    def joined(batch: Any, *, collate_fn_map: Any = None) -> Any:
        return lucid_gpu.tensor([point.x for point in batch])

    samples = [{"p": (Point(1.0), 2)}, {"p": (Point(3.0), 4)}]
    with pytest.raises(TypeError, match="found <class .*Point"):
        default_collate(samples)
    default_collate_fn_map[Point] = joined
    try:
        (batch,) = DataLoader(samples, 2)
        assert [part.tolist() for part in batch["p"]] == [[1, 3], [2, 4]]
    finally:
        del default_collate_fn_map[Point]
    count: Any = {(Point, str): lambda batch, *, collate_fn_map: len(batch), int: joined}
    assert collate([(Point(1.0), "a")] * 3, collate_fn_map=count) == [3, 3]
    with pytest.raises(TypeError, match="found <class .*Tensor"):
        collate([lucid_gpu.ones(1)])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda d, m: d.DataLoader(range(3), 0), "batch_size should be a positive integer value"),
        (
            lambda d, m: d.DataLoader(range(3), shuffle=True, sampler=[1]),
            "sampler option is mutually exclusive with shuffle",
        ),
        (
            lambda d, m: d.DataLoader(range(3), 2, batch_sampler=[[1]]),
            "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler",
        ),
        (
            lambda d, m: d.DataLoader(range(3), None, drop_last=True),
            "batch_size=None option disables auto-batching",
        ),
        (lambda d, m: d.DataLoader(range(3), num_workers=-1), "num_workers option should be non-n"),
        (lambda d, m: d.DataLoader(range(3), timeout=-1), "timeout option should be non-negative"),
        (lambda d, m: d.RandomSampler([1], num_samples=0), "num_samples should be a positive int"),
        (lambda d, m: d.TensorDataset(m.ones(2), m.ones(3)), "Size mismatch between tensors"),
        (lambda d, m: d.random_split(range(3), [1, 1]), "Sum of input lengths does not equal"),
        (lambda d, m: d.ConcatDataset([]), "datasets should not be an empty iterable"),
        (lambda d, m: d.default_collate([object()]), "default_collate: batch must contain tensors"),
        (lambda d, m: d.default_collate([np.array(["a"])]), "dicts or lists; found <U1"),
        (
            lambda d, m: d.default_collate([(1, 2), (1,)]),
            "each element in list of batch should be of equal size",
        ),
        (
            lambda d, m: d.default_collate([m.ones(2), m.ones(3)]),
            "stack expects each tensor to be equal size",
        ),
        (lambda d, m: d.WeightedRandomSampler([[1.0]], 3), "weights should be a 1d sequence but"),
        (lambda d, m: d.WeightedRandomSampler([1.0], 0), "num_samples should be a positive int"),
        (lambda d, m: d.WeightedRandomSampler([1.0], 1, 2), "replacement should be a boolean"),
        (lambda d, m: d.DataLoader([], shuffle=True), "num_samples should be a positive integer"),
        (lambda d, m: d.StackDataset(), "At least one dataset should be passed"),
        (lambda d, m: d.StackDataset([1], [1, 2]), "Size mismatch between datasets"),
        (lambda d, m: d.StackDataset([1], a=[1]), "but both types are given."),
        (lambda d, m: list(d.ChainDataset([[1]])), "ChainDataset only supports IterableDataset"),
        (lambda d, m: d.Dataset()[0], "Subclasses of Dataset should implement __getitem__."),
    ],
)
def test_errors_are_torchs(call, words):
    def run(m):
        __import__(f"{m.__name__}.utils.data")
        return call(m.utils.data, m)

    same_error(run, words)


def test_samples_of_pytorch_say_how_they_come_over():
    with pytest.raises(
        TypeError, match=r"<class 'torch.Tensor'>: have .*from_numpy\(x.numpy\(\)\)"
    ):
        default_collate([torch_module().ones(2)])


def test_a_timeout_without_workers_is_refused():
    loader = lucid_gpu.utils.data.DataLoader(range(3), timeout=3)
    with pytest.raises(AssertionError, match="requires timeout == 0"):
        list(loader)


class Counted(IterableDataset):
    def __iter__(self):
        return iter(range(4))

    def __len__(self):
        return 2


def test_more_samples_than_the_length_said_warn():
    loader: DataLoader[int] = DataLoader(Counted(), None)
    assert [*map(int, loader)] == [0, 1, 2, 3] and not loader._auto_collation
    assert len(loader) == 2
    samples = iter(loader)
    assert [next(samples), next(samples)] == [0, 1]
    with pytest.warns(UserWarning, match=r"reported to be 2 .* but 3 samples have been fetched"):
        assert next(samples) == 2


def test_more_workers_than_processors_warn():
    with pytest.warns(UserWarning, match="excessive worker creation might get DataLoader running"):
        DataLoader([1], num_workers=10_000)


def test_samplers_draw_at_the_first_number():
    sampler = RandomSampler(range(50))
    walks = iter(sampler), iter(sampler)
    firsts = []
    for walk in walks:
        lucid_gpu.manual_seed(0)
        firsts.append(next(walk))
    assert firsts[0] == firsts[1] and list(walks[0]) == list(walks[1])


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["stream", "stream in batches", "map", "map in batches"])
def test_iterators_take_what_has_a_loaders_attributes(kind: str, workers: int) -> None:
    def batches(m: Any) -> list[Any]:
        loader = m.utils.data.dataloader
        iterable = "stream" in kind

        class Described:
            _dataset_kind = loader._DatasetKind.Iterable if iterable else loader._DatasetKind.Map
            _auto_collation = "batches" in kind
            _index_sampler = itertools.count() if iterable else [0, 2, 1]
            _IterableDataset_len_called = generator = worker_init_fn = multiprocessing_context = (
                None
            )
            drop_last = pin_memory = persistent_workers = False
            pin_memory_device, in_order, timeout = "", True, 0
            prefetch_factor, num_workers, batch_size = 2, workers, 2
            dataset = [3, 5, 7]

            def collate_fn(self, samples: Any) -> Any:
                return samples

            def _get_shared_seed(self) -> None: ...

        one = Described()
        if "batches" in kind:
            one._index_sampler = [[0, 1], [2]]
        made = (loader._MultiProcessingDataLoaderIter, loader._SingleProcessDataLoaderIter)
        return list(made[workers == 0](one))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = batches(lucid_gpu)
    assert found and (workers and "stream" in kind or found == batches(torch_module()))
