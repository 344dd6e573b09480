"""pawl.kept: what Job.keep saves."""

import unittest

import numpy as np
import torch

import pawl
from pawl import errors, kept


class EncodingTest(unittest.TestCase):
    def test_state_of_an_optimizer_is_restored(self):
        layer = torch.nn.Linear(3, 2)
        optimizer = torch.optim.Adam(layer.parameters())
        layer(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        saved = optimizer.state_dict()
        restored = kept.decode(kept.encode(saved))
        self.assertEqual(restored["param_groups"], saved["param_groups"])
        self.assertEqual(list(restored["state"]), [0, 1])
        for number, slots in saved["state"].items():
            for name, value in slots.items():
                self.assertTrue(torch.equal(restored["state"][number][name], value))
        optimizer.load_state_dict(restored)

    def test_types_and_shapes_are_kept(self):
        tree = {
            "empty": torch.empty(0, 3),
            "half": torch.tensor([[1.5, -2.0]], dtype=torch.bfloat16),
            "scalar": torch.tensor(3),
            "array": np.arange(6, dtype=np.uint32).reshape(2, 3)[:, ::-1],
            "mixed": [None, True, 2**80, 0.1, "text", b"\x00\xff", (1, ("nested",))],
        }
        restored = kept.decode(kept.encode(tree))
        self.assertEqual(restored["mixed"], tree["mixed"])
        np.testing.assert_array_equal(restored["array"], tree["array"])
        for name in ("empty", "half", "scalar"):
            self.assertEqual(restored[name].dtype, tree[name].dtype)
            self.assertEqual(restored[name].shape, tree[name].shape)
            self.assertTrue(torch.equal(restored[name], tree[name]))
        self.assertEqual(kept.encode(restored), kept.encode(tree))

    def test_other_bytes_are_data_loss(self):
        whole = kept.encode({"a": torch.ones(3), "b": [1, "text"]})
        damaged = [b"", whole[:9], whole[:-5], whole.replace(b"float32", b"ops\x20\x20\x20\x20")]
        damaged.append(whole.replace(b"tensor", b"sensor"))
        damaged.append((2**63).to_bytes(8, "little") + b"[" * 100000)
        for data in damaged:
            with self.assertRaises(errors.DataLossError):
                kept.decode(data)

    def test_other_types_are_named(self):
        with self.assertRaisesRegex(ValueError, r"state\['a'\]\[1\] is a set"):
            kept.encode({"a": [1, {2}]})
        with self.assertRaisesRegex(ValueError, "is a ndarray"):
            kept.encode(np.array([object()]))


class SettingsTest(unittest.TestCase):
    def test_every_setting_that_differs_is_named(self):
        recorded = {"ranks": 4, "batch_size": 96, "seed": 1, "samples": 1000}
        kept.check_same(recorded, dict(recorded))
        for name, value in (("ranks", 3), ("batch_size", 48), ("seed", 2), ("samples", None)):
            words = "%s was %d, is %s$" % (name, recorded[name], value)
            now = {**recorded, name: value}
            with self.assertRaisesRegex(errors.FailedPreconditionError, words):
                kept.check_same(recorded, {k: v for k, v in now.items() if v is not None})


class StateTableTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = pawl.LocalCluster(servers=2, job={"partitions": 8})
        cls.client = cls.cluster.client()
        cls.session = cls.client.free_running

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.cluster.close()

    def table(self, mode="ASYNC"):
        return kept.StateTable(self.client, mode)

    def read(self, rank, step, mode="ASYNC", **options):
        table = kept.StateTable(self.client, mode, **options)
        headers = table.start_read(self.session, rank, 60).wait()
        return table.finish_read(self.session, rank, step, headers)

    def test_newest_state_up_to_the_step_is_read(self):
        table = self.table()
        self.assertIsNone(self.read(1, 100))
        data = {step: np.random.default_rng(step).bytes(10000 - step) for step in (1, 2, 3, 4)}
        for step, content in data.items():
            self.session.push(table.items(1, step, content)).wait()
        self.assertEqual(self.read(1, 4), data[4])
        self.assertEqual(self.read(1, 9), data[4])
        self.assertEqual(self.read(1, 3), data[3])
        self.assertIsNone(self.read(2, 4))

    def test_only_changed_rows_are_pushed(self):
        table = self.table("SYNC")
        data = bytearray(np.random.default_rng(1).bytes(30000))
        # A predecessor may have pushed other rows in the same step: the second push has all again.
        for step in (0, 1):
            (item,) = table.items(3, step, bytes(data))
            self.assertEqual(len(item.keys), 11)
            self.session.push([item]).wait()
        self.assertEqual(table.items(3, 2, bytes(data)), [])
        data[20000] ^= 1
        (item,) = table.items(3, 2, bytes(data))
        self.assertEqual(len(item.keys), 2)
        self.session.push([item]).wait()
        self.assertEqual(self.read(3, 2, "SYNC"), bytes(data))

    def test_new_host_pushes_every_row_that_its_predecessor_may_have_pushed(self):
        data = np.random.default_rng(1).bytes(9000)
        old, new = self.table("SYNC"), self.table("SYNC")
        for step in (1, 2):
            (pushed,) = old.items(7, step, data)
            self.session.push([pushed]).wait()
        # The predecessor dies before it ends the second step, which repeats the state.
        headers = new.start_read(self.session, 7, 60).wait()
        self.assertEqual(new.finish_read(self.session, 7, 2, headers), data)
        (again,) = new.items(7, 2, data)
        np.testing.assert_array_equal(again.keys, pushed.keys)
        np.testing.assert_array_equal(again.values, pushed.values)

    def test_torn_state_is_not_read(self):
        table = self.table()
        whole, torn = (np.random.default_rng(seed).bytes(9000) for seed in (1, 2))
        self.session.push(table.items(4, 1, whole)).wait()
        (item,) = table.items(4, 2, torn)
        rows = pawl.items.push_item(item.table, item.keys[:2], item.values[:2], distinct=True)
        self.session.push([rows]).wait()
        self.assertEqual(self.read(4, 2), whole)

    def test_damage_is_an_error(self):
        table = self.table("SYNC")
        (item,) = table.items(5, 1, b"x" * 9000)
        rows = pawl.items.push_item(item.table, item.keys[:2], item.values[:2], distinct=True)
        self.session.push([rows]).wait()
        with self.assertRaises(errors.DataLossError):
            self.read(5, 1, "SYNC")
        # With backup workers, the servers may have dropped the rest.
        self.assertIsNone(self.read(5, 1, "SYNC", may_have_holes=True))

    def test_too_large_state_is_refused(self):
        with self.assertRaisesRegex(errors.ResourceExhaustedError, "67108865 bytes; at most"):
            self.table().items(6, 1, bytes(kept.LIMIT_BYTES + 1))

    def test_another_number_of_objects_is_refused(self):
        objects = kept.Kept()
        objects.add([("layer", torch.nn.Linear(1, 1))])
        with self.assertRaisesRegex(errors.FailedPreconditionError, r"keeps \[layer\]"):
            objects.load({})
        with self.assertRaisesRegex(ValueError, "a int has no state_dict"):
            objects.add([("number", 3)])


if __name__ == "__main__":
    unittest.main()
