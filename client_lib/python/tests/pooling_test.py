"""pawl.torch's pooling against torch.nn.functional.embedding_bag."""

import contextlib
import unittest

import numpy as np
import torch
from torch.nn import functional

import pawl
from pawl.torch.pooling import Bags, pool_bags

ROWS, SAMPLES = 30, 50


def bags_of(features, generator, longest=4, mode="sum", width=5, **options):
    """Random bags, some of them empty, and rows of normal numbers."""
    lengths = torch.randint(0, longest + 1, (features * SAMPLES,), generator=generator)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    places = torch.randint(0, ROWS, (int(offsets[-1]),), generator=generator)
    rows = torch.randn(ROWS, width, generator=generator).requires_grad_()
    return Bags(places.numpy(), offsets.numpy(), features, SAMPLES, mode, **options), rows


def torchs(bags, rows, padding_idx=None):
    """The same by torch: (samples, features * width)."""
    pooled = functional.embedding_bag(
        torch.from_numpy(bags.places),
        rows,
        torch.from_numpy(bags.offsets),
        mode=bags.mode,
        include_last_offset=True,
        padding_idx=padding_idx,
    )
    return pooled.view(bags.features, SAMPLES, -1).transpose(0, 1).reshape(SAMPLES, -1)


@contextlib.contextmanager
def default_dtype(dtype):
    """Tensors without a dtype have this one."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class PoolingTest(unittest.TestCase):
    def setUp(self):
        # Several threads spin while they wait, which takes minutes on a busy machine.
        torch.set_num_threads(1)
        self.generator = torch.Generator().manual_seed(11)

    def assert_equal_to_torch(self, bags, rows, **options):
        mine, other = pool_bags([bags], [rows], SAMPLES), torchs(bags, rows, **options)
        self.assertTrue(torch.equal(mine, other))
        factors = torch.randn(other.shape, generator=self.generator)
        gradients = [torch.autograd.grad((one * factors).sum(), rows)[0] for one in (mine, other)]
        # The sums of long bags' gradients have another order.
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)

    def test_sums_and_means_have_the_bits_of_torch(self):
        for mode in ("sum", "mean"):
            # Widths below, at and above the lengths of vectors.
            for width in (1, 3, 4, 8, 17, 64):
                with self.subTest(mode=mode, width=width):
                    bags, rows = bags_of(3, self.generator, mode=mode, width=width)
                    self.assert_equal_to_torch(bags, rows)

    def test_long_bags_have_the_bits_of_torch(self):
        for mode in ("sum", "mean"):
            bags, rows = bags_of(2, self.generator, longest=100, mode=mode, width=16)
            self.assert_equal_to_torch(bags, rows)

    def test_padding_counts_as_no_key(self):
        for mode in ("sum", "mean"):
            with self.subTest(mode):
                bags, rows = bags_of(2, self.generator, mode=mode, padding_row=3)
                self.assert_equal_to_torch(bags, rows, padding_idx=3)

    def test_bags_of_one_key_need_no_offsets(self):
        places = torch.randint(0, ROWS, (2 * SAMPLES,), generator=self.generator).numpy()
        rows = torch.randn(ROWS, 5, generator=self.generator).requires_grad_()
        ends = np.arange(places.size + 1)
        pooled = [
            pool_bags([Bags(places, offsets, 2, SAMPLES)], [rows], SAMPLES)
            for offsets in (None, ends)
        ]
        self.assertTrue(torch.equal(*pooled))
        self.assertTrue(torch.equal(pooled[0], torchs(Bags(places, ends, 2, SAMPLES), rows)))

    def test_several_tensors_of_rows_are_side_by_side(self):
        first, rows = bags_of(1, self.generator, width=3)
        second, more = bags_of(2, self.generator, width=5, rows=1, column=3)
        mine = pool_bags([first, second], [rows, more], SAMPLES)
        other = torch.cat([torchs(first, rows), torchs(second, more)], dim=1)
        self.assertTrue(torch.equal(mine, other))
        factors = torch.randn(mine.shape, generator=self.generator)
        for one in (rows, more):
            torch.testing.assert_close(
                torch.autograd.grad((mine * factors).sum(), one, retain_graph=True),
                torch.autograd.grad((other * factors).sum(), one, retain_graph=True),
            )

    def test_gradients_of_gradients(self):
        bags, rows = bags_of(2, self.generator, mode="mean")

        def penalty(pooled):
            (slope,) = torch.autograd.grad((pooled**3).sum(), rows, create_graph=True)
            return torch.autograd.grad((slope**2).sum(), rows)[0]

        mine = penalty(pool_bags([bags], [rows], SAMPLES))
        # The same as a product with a matrix.
        lengths = np.diff(bags.offsets)
        matrix = np.zeros((lengths.size, ROWS), np.float32)
        np.add.at(
            matrix,
            (np.repeat(np.arange(lengths.size), lengths), bags.places),
            1 / np.repeat(lengths, lengths),
        )
        torch.testing.assert_close(mine, penalty(torch.from_numpy(matrix) @ rows))

    def check_defaults(self, defaults):
        """Compares forward and backward under the defaults with those of torch without them."""
        bags, rows = bags_of(3, self.generator, width=7)
        other = torchs(bags, rows)
        factors = torch.randn(other.shape, generator=self.generator)
        (wanted,) = torch.autograd.grad((other * factors).sum(), rows)
        with defaults:
            mine = pool_bags([bags], [rows], SAMPLES)
            (gradient,) = torch.autograd.grad((mine * factors).sum(), rows)
        self.assertEqual((mine.dtype, gradient.dtype), (torch.float32, torch.float32))
        self.assertTrue(torch.equal(mine, other))
        torch.testing.assert_close(gradient, wanted, rtol=1e-4, atol=1e-4)

    def test_default_dtype_of_the_program_changes_nothing(self):
        for dtype in (torch.float64, torch.bfloat16):
            with self.subTest(dtype):
                self.check_defaults(default_dtype(dtype))

    @unittest.skipUnless(hasattr(torch, "set_default_device"), "needs torch 2")
    def test_default_device_of_the_program_changes_nothing(self):
        self.check_defaults(torch.device("meta"))

    def test_places_and_offsets_out_of_range_are_refused(self):
        rows = torch.zeros(ROWS, 2)
        for places, offsets in (
            ([ROWS], [0, 1]),
            ([-1], [0, 1]),
            ([1, 2], [0, 3]),
            ([1, 2], [1, 0]),
            ([1, 2], [-1, 1]),
            ([1, 2], None),
        ):
            with self.subTest(places=places, offsets=offsets):
                bags = Bags(
                    np.array(places), None if offsets is None else np.array(offsets), 1, 1
                )
                with self.assertRaises(pawl.InvalidArgumentError):
                    pool_bags([bags], [rows], 1)


if __name__ == "__main__":
    unittest.main()
