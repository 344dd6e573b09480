"""pawl.data.Parquet: every sample once an epoch, by seed, epoch, step and rank."""

import errno
import os
import tempfile
import unittest
from unittest import mock

import numpy as np

from pawl import data, errors

try:
    import pyarrow
    import pyarrow.fs
    import pyarrow.parquet
except ImportError as error:
    print("pyarrow cannot be imported (%s): these tests are skipped" % error)
    pyarrow = None


@unittest.skipIf(pyarrow is None, "no pyarrow")
class ParquetTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        rng = np.random.default_rng(1)
        first = 0
        for day, rows in enumerate((370, 1, 250)):
            ids = np.arange(first, first + rows)
            table = pyarrow.table(
                {
                    "id": ids,
                    "label": (ids % 2).astype(np.float32),
                    "tags": [list(range(i, i + i % 4)) for i in ids.tolist()],
                    "name": ["n%d" % i for i in ids],
                    "pair": pyarrow.array(
                        [[i, -i] for i in ids.tolist()], pyarrow.list_(pyarrow.int64(), 2)
                    ),
                    "noise": rng.random(rows),
                }
            )
            path = os.path.join(cls.folder, "day_%d.parquet" % day)
            pyarrow.parquet.write_table(table, path, row_group_size=40)
            first += rows
        cls.count = first

    def source(self, batch_size=32, **options):
        return data.Parquet(os.path.join(self.folder, "day_*.parquet"), batch_size, **options)

    def ids_of_epochs(self, source, ranks=1):
        """For each epoch the ids in their order, with the ranks' parts one after the other."""
        steps = []
        streams = [source.batches(rank, ranks, 0) for rank in range(ranks)]
        for step in range(source.step_count()):
            parts = [next(stream)["id"] for stream in streams]
            for rank, part in enumerate(parts):
                self.assertEqual(len(part), source.share(step, rank, ranks)[0])
            steps.append(np.concatenate(parts))
        per_epoch = source.step_count() // 2
        return [np.concatenate(steps[:per_epoch]), np.concatenate(steps[per_epoch:])]

    def test_each_epoch_has_every_sample_once_in_another_order(self):
        orders = self.ids_of_epochs(self.source(epochs=2, seed=5, window_rows=100))
        for order in orders:
            np.testing.assert_array_equal(np.sort(order), np.arange(self.count))
        self.assertFalse(np.array_equal(*orders))
        other = self.ids_of_epochs(self.source(epochs=2, seed=6, window_rows=100))
        self.assertFalse(np.array_equal(orders[0], other[0]))

    def test_batches_do_not_depend_on_the_number_of_ranks_or_where_one_begins(self):
        one = self.ids_of_epochs(self.source(epochs=2, seed=5, window_rows=100))
        for ranks in (2, 3):
            parts = self.ids_of_epochs(self.source(epochs=2, seed=5, window_rows=100), ranks)
            np.testing.assert_array_equal(np.concatenate(one), np.concatenate(parts))
        source = self.source(epochs=2, seed=5, window_rows=100)
        late = np.concatenate([batch["id"] for batch in source.batches(0, 1, 7)])
        np.testing.assert_array_equal(late, np.concatenate(one)[7 * 32 :])

    def test_samples_are_shuffled_across_row_groups(self):
        (batch,) = [self.source(window_rows=200).batch(0, 0, 1)["id"]]
        self.assertGreater(len(set(batch // 40)), 2)
        plain = self.source(shuffle=False).batch(0, 0, 1)["id"]
        np.testing.assert_array_equal(plain, np.arange(32))

    def test_columns_of_a_sample_stay_together(self):
        for batch in self.source(window_rows=90).batches(1, 2, 0):
            ids = batch["id"]
            np.testing.assert_array_equal(batch["label"], (ids % 2).astype(np.float32))
            self.assertEqual(batch["name"].tolist(), ["n%d" % i for i in ids])
            values, offsets = batch["pair"]
            np.testing.assert_array_equal(values, np.stack([ids, -ids], axis=1).ravel())
            np.testing.assert_array_equal(offsets, 2 * np.arange(len(ids) + 1))
            values, offsets = batch["tags"]
            self.assertEqual(len(offsets), len(ids) + 1)
            for place, number in enumerate(ids):
                np.testing.assert_array_equal(
                    values[offsets[place] : offsets[place + 1]],
                    np.arange(number, number + number % 4),
                )

    def test_only_two_windows_are_held(self):
        source = self.source(window_rows=100)
        for _ in source.batches(0, 1, 0):
            self.assertLessEqual(len(source._read), 2)

    def test_rank_without_samples_gets_empty_arrays(self):
        source = self.source(batch_size=620)
        batch = source.batch(1, 0, 2)
        self.assertEqual(batch["id"].shape, (0,))
        self.assertEqual(batch["tags"][1].tolist(), [0])

    def test_filesystems_of_pyarrow_are_read(self):
        source = data.Parquet(
            ["day_0.parquet"],
            32,
            columns=["id"],
            filesystem=pyarrow.fs.SubTreeFileSystem(self.folder, pyarrow.fs.LocalFileSystem()),
        )
        self.assertEqual(len(source), 370)
        self.assertEqual(list(source.batch(0, 0, 1)), ["id"])

    def test_other_files_have_another_identity(self):
        path = os.path.join(self.folder, "day_0.parquet")
        self.assertEqual(self.source().identity(), self.source().identity())
        self.assertNotEqual(self.source().identity(), data.Parquet(path, 32).identity())
        self.assertNotEqual(self.source().identity(), self.source(window_rows=7).identity())

    def test_wrong_arguments_are_named(self):
        with self.assertRaisesRegex(KeyError, "no file matches .*nothing"):
            data.Parquet(os.path.join(self.folder, "nothing_*"), 8)
        with self.assertRaisesRegex(ValueError, "day_0.parquet has no column 'price'"):
            self.source(columns=["id", "price"])
        broken = os.path.join(self.folder, "broken")
        with open(broken, "wb") as file:
            file.write(b"PAR1 and nothing else")
        with self.assertRaisesRegex(ValueError, "broken cannot be read as Parquet"):
            data.Parquet(broken, 8)

    def test_file_that_is_away_is_no_wrong_argument(self):
        path = os.path.join(self.folder, "day_0.parquet")
        with self.assertRaisesRegex(errors.NotFoundError, "away cannot be read"):
            data.Parquet(path + ".away", 8)
        for number, kind in (
            (errno.EACCES, errors.PermissionDeniedError),
            (errno.EIO, errors.UnavailableError),
        ):
            failing = mock.patch("pyarrow.parquet.ParquetFile", side_effect=OSError(number, ""))
            with failing, self.assertRaisesRegex(kind, "day_0.parquet cannot be read"):
                data.Parquet(path, 8)
        # As an object store gives it.
        away = mock.patch("pyarrow.parquet.ParquetFile", side_effect=OSError("AWS Error"))
        with away, self.assertRaisesRegex(errors.UnavailableError, "cannot be read"):
            data.Parquet(path, 8, filesystem=mock.Mock())

    def test_file_that_changes_is_an_error(self):
        path = os.path.join(self.folder, "changing")
        pyarrow.parquet.write_table(pyarrow.table({"id": np.arange(50)}), path)
        source = data.Parquet(path, 8)
        pyarrow.parquet.write_table(pyarrow.table({"id": np.arange(49)}), path)
        with self.assertRaisesRegex(errors.DataLossError, "has changed"):
            source.batch(0, 0, 1)


if __name__ == "__main__":
    unittest.main()
