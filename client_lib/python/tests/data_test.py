"""pawl.data: batches are a function of seed, epoch, step and rank."""

import dataclasses
import types
import unittest

import numpy as np

from pawl import data, errors


class StreamTest(unittest.TestCase):
    def test_batch_that_is_given_back_comes_next(self):
        stream = data.Stream(["a", "b", "c"])
        first, second = stream.batches(0, 2, 0), stream.batches(1, 2, 0)
        self.assertEqual([next(first), next(second)], ["a", "b"])
        stream.give_back("a")
        self.assertEqual(list(second), ["a", "c"])
        # Another rank has come to its end.
        stream.give_back("c")
        self.assertEqual(list(first), ["c"])

    def test_samples_of_a_batch_are_the_length_of_its_first_array(self):
        array = np.zeros((7, 2))

        @dataclasses.dataclass
        class Batch:
            name: str
            array: np.ndarray

        for batch in array, (array, "x"), [array], {"a": {"b": array}}, Batch("x", array):
            self.assertEqual(data.samples_of(batch), 7)
        for batch in "text", 3, [], (1, 2), np.float32(1), None, Batch:
            self.assertEqual(data.samples_of(batch), 1)

    def test_batch_without_a_readable_shape_counts(self):
        class Nested:
            @property
            def shape(self):
                raise RuntimeError("a nested tensor has none")

        class Slotted:
            __slots__ = ("array",)
            __annotations__ = {"array": np.ndarray}

        Slotted = dataclasses.dataclass(Slotted)
        self.assertEqual(data.samples_of(Nested()), 1)
        self.assertEqual(data.samples_of(Slotted(np.zeros((7, 2)))), 7)


class SamplerTest(unittest.TestCase):
    def test_each_epoch_has_every_sample_once(self):
        sampler = data.Sampler(103, 10, seed=4, epochs=3)
        self.assertEqual(sampler.step_count(), 33)
        orders = []
        for epoch in range(3):
            steps = range(epoch * 11, epoch * 11 + 11)
            order = np.concatenate([sampler.positions(step, 0, 1) for step in steps])
            np.testing.assert_array_equal(np.sort(order), np.arange(103))
            orders.append(order.tolist())
        self.assertEqual(len({tuple(order) for order in orders}), 3)

    def test_ranks_share_a_step(self):
        sampler = data.Sampler(103, 10, seed=4)
        for ranks in (1, 2, 3, 7):
            for step in range(11):
                parts = [sampler.positions(step, rank, ranks) for rank in range(ranks)]
                np.testing.assert_array_equal(
                    np.concatenate(parts), sampler.positions(step, 0, 1)
                )
                shares = [sampler.share(step, rank, ranks) for rank in range(ranks)]
                self.assertEqual([share[0] for share in shares], [len(part) for part in parts])
                self.assertEqual({share[1] for share in shares}, {3 if step == 10 else 10})

    def test_order_never_changes(self):
        # Fixed numbers: a job that is continued by another version must see the same batches.
        self.assertEqual(
            data.Sampler(10, 10, seed=1).positions(0, 0, 1).tolist(), ORDER_OF_SEED_1
        )
        in_order = data.Sampler(4, 4, shuffle=False)
        self.assertEqual(in_order.positions(0, 0, 1).tolist(), [0, 1, 2, 3])

    def test_iterator_begins_at_its_position(self):
        sampler = data.Sampler(40, 8, seed=2)
        sampler.set_position(1, 2, 3)
        batches = iter(sampler)
        sampler.set_position(0, 2, 0)
        self.assertEqual(next(batches), sampler.positions(3, 1, 2).tolist())
        self.assertEqual(next(batches), sampler.positions(4, 1, 2).tolist())
        self.assertEqual(list(batches), [])

    def test_order_looks_random(self):
        order = data.Sampler(100_000, 100_000, seed=3).positions(0, 0, 1)
        self.assertLess(abs(np.corrcoef(order, np.arange(100_000))[0, 1]), 0.02)
        other = data.Sampler(100_000, 100_000, seed=4).positions(0, 0, 1)
        self.assertLess(abs(np.corrcoef(order, other)[0, 1]), 0.02)

    def test_impossible_sizes_are_refused(self):
        for arguments in ((0, 1), (1, 0), (5, 10)):
            with self.assertRaises(errors.InvalidArgumentError):
                data.Sampler(*arguments, drop_last=True)


class SourceTest(unittest.TestCase):
    def test_arrays_gives_parts_of_all_arrays(self):
        source = data.Arrays(np.arange(20), np.arange(20) * 2, batch_size=8)
        batches = list(source.batches(0, 2, 1))
        self.assertEqual([len(a) for a, _ in batches], [4, 2])
        for a, b in batches:
            np.testing.assert_array_equal(a * 2, b)
        with self.assertRaises(errors.InvalidArgumentError):
            data.Arrays(np.arange(3), np.arange(4), batch_size=1)

    def test_ranks_without_samples_in_a_step_have_no_batch(self):
        source = data.Arrays(np.arange(9), batch_size=8, shuffle=False)
        counts = [len(list(source.batches(rank, 4, 0))) for rank in range(4)]
        self.assertEqual(counts, [1, 1, 1, 2])
        source.sampler.set_position(0, 4, 0)
        self.assertEqual(list(source.sampler), [[0, 1]])

    def test_hashes_are_the_keys_of_the_built_in_models(self):
        # The same as in worker/data/feature_key_test.cc.
        expected = np.array([6108944475798487922, 250766445698304742], np.uint64)
        for texts in (["LAS", ""], np.array(["LAS", ""]), np.array(["LAS", ""], object),
                      np.array([b"LAS", b""])):
            np.testing.assert_array_equal(data.hash64(texts, "origin"), expected)
        numbers = data.hash64([[3, -21]], "x")
        self.assertEqual(numbers.shape, (1, 2))
        np.testing.assert_array_equal(numbers, data.hash64([["3", "-21"]], "x"))
        # XXH64's own test vectors.
        self.assertEqual(int(data.hash64("").reshape(())), 0xEF46DB3751D8E999)
        self.assertEqual(int(data.hash64("abc").reshape(())), 0x44BC2CF5AD770999)
        self.assertEqual(data.hash64([]).shape, (0,))

    def test_zeros_at_the_end_of_a_category_count(self):
        for plain, longer in ((b"a", b"a\0"), ("a", "a\0")):
            keys = {
                int(key)
                for values in ([plain, longer], (plain, longer), plain, longer)
                for key in data.hash64(values).reshape(-1)
            }
            self.assertEqual(len(keys), 2)
        np.testing.assert_array_equal(data.hash64([b"a\0"]), data.hash64(["a\0"]))

    def test_what_is_no_category_is_refused(self):
        for wrong in ([None], [0.5], np.array([None, "a"], object), [True]):
            with self.assertRaises(errors.InvalidArgumentError):
                data.hash64(wrong)
        for column in np.array([3, 4]), np.array(["a", "b"]):
            masked = np.ma.array(column, mask=[False, True])
            with self.assertRaisesRegex(errors.InvalidArgumentError, "is masked"):
                data.hash64(masked)
            np.testing.assert_array_equal(data.hash64(masked[:1]), data.hash64(column[:1]))

    def test_sync_refuses_what_cannot_be_repeated(self):
        with self.assertRaises(errors.InvalidArgumentError) as raised:
            data.source_of(iter([1, 2]), "SYNC")
        self.assertIn("list_iterator", str(raised.exception))
        loader = types.SimpleNamespace(
            batch_sampler=data.Sampler(10, 2), persistent_workers=True
        )
        with self.assertRaisesRegex(errors.InvalidArgumentError, "persistent_workers"):
            data.source_of(loader, "SYNC")
        stream = data.source_of([1, 2], "ASYNC")
        self.assertEqual(list(stream.batches(0, 1, 0)), [1, 2])


# The order of the first version.
ORDER_OF_SEED_1 = [4, 6, 5, 9, 2, 8, 3, 1, 0, 7]


if __name__ == "__main__":
    unittest.main()
