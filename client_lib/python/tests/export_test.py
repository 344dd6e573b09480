"""Models out of a cluster and in again: pawl.torch.export, load_export, states."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from unittest import mock

import numpy as np
import torch

import pawl
import pawl.torch as pt
from pawl import initial_values, safetensors
from pawl.torch.optimizer import SLOTS_ATTRIBUTE, _Dense
from pawl.torch.state import sorted_rows

try:
    import safetensors.numpy as official
    import safetensors.torch as official_torch
except ImportError as error:
    print("the package safetensors cannot be imported (%s): its tests are skipped" % error)
    official = None

KEYS = 50
INITIAL = {
    "normal": pawl.Normal(0.5, 2.0),
    "truncated": pawl.TruncatedNormal(0.1, 0.3),
    "uniform": pawl.Uniform(-0.3, 0.7),
    "xavier": pawl.Xavier(),
    "constant": pawl.Constant(0.25),
    "zeros": pawl.Constant(0.0),
    "part": pawl.ZeroFrom(pawl.Normal(0, 1), 3),
}


class Bags(torch.nn.Module):
    """A bag, a lookup with padding, layers, and a buffer."""

    def __init__(self, name, init=pawl.Normal(0, 1)):
        super().__init__()
        self.bag = pt.EmbeddingBag(
            name + "/bag", 4, mode="mean", padding_idx=3, optimizer=pawl.Adagrad(0.1), init=init
        )
        self.one = pt.Embedding(
            name + "/one", 4, padding_idx=5, optimizer=pawl.Adam(0.1), init=init
        )
        self.norm = torch.nn.BatchNorm1d(8)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 1)
        )

    def forward(self, keys):
        """keys: (batch, 3)."""
        rows = torch.cat([self.bag(keys), self.one(keys[:, 0])], dim=1)
        return self.layers(self.norm(rows)).squeeze(1)


class Collections(torch.nn.Module):
    """Both collections, on features with any number of keys."""

    def __init__(self, name, weighted, dims=(4, 4), poolings=("SUM", "SUM")):
        super().__init__()
        self.bags = pt.EmbeddingBagCollection(
            [
                pt.EmbeddingBagConfig(name + "a", dims[0], ["f", "h"], poolings[0]),
                pt.EmbeddingBagConfig(name + "b", dims[1], ["g"], poolings[1]),
            ],
            optimizer=pawl.Adagrad(0.1),
            init=pawl.Normal(0, 1),
            is_weighted=weighted,
        )
        self.rows = pt.EmbeddingCollection(
            [pt.EmbeddingConfig(name + "c", 4, ["g", "f"])],
            optimizer=pawl.SGD(0.1),
            init=pawl.Uniform(-1, 1),
        )
        self.layer = torch.nn.Linear(2 * dims[0] + dims[1], 1)

    def forward(self, features):
        """A score for each sample, and one for each key of f."""
        pooled = self.bags(features)
        return self.layer(pooled.values()).squeeze(1), self.rows(features)["f"].values().sum(1)


class ExportTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = pawl.LocalCluster(servers=2, job={"partitions": 8, "seed": 12345})
        cls.client = cls.cluster.client()

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.cluster.close()

    def setUp(self):
        torch.manual_seed(7)
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = os.path.join(folder.name, "model")

    def name(self):
        return self.id().rsplit(".", 1)[1]

    def train(self, net, inputs, client=None, seed=0):
        """Some steps on Pawl's tables and torch's layers."""
        sparse = pt.SparseOptimizer(net, client or self.client)
        parameters = list(net.parameters())
        dense = torch.optim.SGD(parameters or [torch.nn.Parameter(torch.zeros(1))], lr=0.1)
        net.train()
        torch.manual_seed(seed)
        for given in inputs:
            dense.zero_grad()
            outputs = net(given)
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            sum((output * torch.randn_like(output)).sum() for output in outputs).backward()
            sparse.step()
            # The next forward reads what this step has pushed.
            sparse.wait()
            dense.step()

    def keys(self, seed, low=-KEYS, high=KEYS, batch=12):
        generator = torch.Generator().manual_seed(seed)
        return torch.randint(low, high, (batch, 3), generator=generator)

    def features(self, seed, low=0, high=KEYS, batch=6):
        generator = torch.Generator().manual_seed(seed)
        lengths = torch.randint(0, 4, (3 * batch,), generator=generator)
        count = int(lengths.sum())
        return pt.KeyedJaggedTensor(
            ["f", "g", "h"],
            torch.randint(low, high, (count,), generator=generator),
            lengths,
            torch.rand(count, generator=generator),
        )

    def assert_same_bits(self, live, loaded, inputs):
        live.eval()
        with torch.no_grad():
            for given in inputs:
                mine, theirs = loaded(given), live(given)
                if not isinstance(mine, tuple):
                    mine, theirs = (mine,), (theirs,)
                for one, other in zip(mine, theirs):
                    np.testing.assert_array_equal(
                        one.numpy().view(np.uint32), other.numpy().view(np.uint32)
                    )

    def test_loaded_model_predicts_the_same_bits(self):
        for kind, init in INITIAL.items():
            name = self.name() + kind
            net = Bags(name, init)
            self.train(net, [self.keys(seed) for seed in range(4)])
            pt.export(net, self.folder + kind, client=self.client)
            loaded = pt.load_export(self.folder + kind, Bags(name, init))
            self.assertIsInstance(loaded.bag, torch.nn.EmbeddingBag)
            self.assertIsInstance(loaded.one, torch.nn.Embedding)
            # Known keys, known and unknown ones, and none that is known.
            inputs = [self.keys(9), self.keys(9, -1000, 1000), self.keys(9, 2**40, 2**41)]
            inputs.append(torch.full((4, 3), 3))
            inputs.append(torch.tensor([[3, 10**12, 1], [5, 3, 10**13], [3, 3, 3]]))
            self.assert_same_bits(net, loaded, inputs)

    def test_default_dtype_of_the_program_is_not_that_of_rows(self):
        net = Bags(self.name())
        self.train(net, [self.keys(1)])
        pt.export(net, self.folder, client=self.client)
        loaded = Bags(self.name())
        torch.set_default_dtype(torch.bfloat16)
        self.addCleanup(torch.set_default_dtype, torch.float32)
        loaded = pt.load_export(self.folder, loaded)
        torch.set_default_dtype(torch.float32)
        self.assert_same_bits(net, loaded, [self.keys(1)])

    def test_loaded_collections_predict_the_same_bits(self):
        for number, (weighted, dims, poolings) in enumerate(
            (
                (False, (4, 4), ("SUM", "SUM")),
                (True, (4, 4), ("SUM", "MEAN")),
                (False, (4, 8), ("MEAN", "SUM")),
            )
        ):
            settings = ("%s%d" % (self.name(), number), weighted, dims, poolings)
            net = Collections(*settings)
            self.train(net, [self.features(seed) for seed in range(4)])
            folder = self.folder + str(number)
            pt.export(net, folder, client=self.client)
            loaded = pt.load_export(folder, Collections(*settings))
            self.assert_same_bits(net, loaded, [self.features(8), self.features(9, 0, 5000)])

    def test_module_without_a_model_is_an_ordinary_one(self):
        module = pt.EmbeddingBag(self.name(), 4, optimizer=pawl.SGD(1.0), init=pawl.Normal(0, 1))
        self.train(module, [self.keys(1)])
        pt.export(module, self.folder, client=self.client)
        exported = pt.load_export(self.folder)
        self.assertEqual((set(exported.modules), exported.state), ({""}, {}))
        self.assert_same_bits(module, exported.modules[""], [self.keys(2, -90, 90)])
        replacement = pt.load_export(self.folder, pt.EmbeddingBag(self.name(), 4))
        self.assert_same_bits(module, replacement, [self.keys(3)])
        with self.assertRaises(ValueError):
            replacement(torch.tensor([[1.5]]))

    def test_module_that_two_places_share_is_replaced_in_both(self):
        class Shares(torch.nn.Module):
            def __init__(self, name):
                super().__init__()
                self.first = pt.Embedding(name, 4, init=pawl.Normal(0, 1))
                self.inner = torch.nn.ModuleList([self.first])

            def forward(self, keys):
                return self.first(keys) + 2 * self.inner[0](keys)

        net = Shares(self.name())
        self.train(net, [self.keys(1)])
        pt.export(net, self.folder, client=self.client)
        loaded = pt.load_export(self.folder, Shares(self.name()))
        self.assertIs(loaded.first, loaded.inner[0])
        self.assert_same_bits(net, loaded, [self.keys(2)])

    def test_unknown_keys_read_as_zero_on_request(self):
        module = pt.Embedding(self.name(), 4, optimizer=pawl.SGD(1.0), init=pawl.Normal(0, 1))
        self.train(module, [torch.tensor([1, 2])])
        pt.export(module, self.folder, client=self.client)
        keys = torch.tensor([1, 99])
        loaded = pt.load_export(self.folder, unknown="zero").modules[""]
        rows = loaded(keys)
        self.assertTrue((rows[0] != 0).all())
        np.testing.assert_array_equal(rows[1], np.zeros(4))
        self.assertTrue((pt.load_export(self.folder).modules[""](keys)[1] != 0).all())
        with self.assertRaises(ValueError):
            pt.load_export(self.folder, unknown="random")

    def test_initial_values_are_those_of_the_servers(self):
        keys = np.random.default_rng(1).integers(0, 2**64, 3000, np.uint64)
        keys[:3] = [0, 1, 2**64 - 1]
        seed = int(self.client.job["seed"])
        self.assertEqual(seed, 12345)
        for kind, init in INITIAL.items():
            for dim in (5, 130):
                name = "a-name-of-more-than-thirty-two-bytes/%s/%d" % (kind, dim)
                table = self.client.table(name, dim, optimizer=pawl.SGD(1.0), init=init)
                rows = initial_values.initial_rows(
                    table.spec["initializer"], name, seed, keys[: 15000 // dim], dim
                )
                expected = table.pull(keys[: 15000 // dim])
                np.testing.assert_array_equal(
                    rows.view(np.uint32), expected.view(np.uint32), err_msg=kind
                )

    def test_existing_folder_stays(self):
        module = pt.Embedding(self.name(), 2)
        os.mkdir(self.folder)
        with self.assertRaises(FileExistsError):
            pt.export(module, self.folder, client=self.client)
        self.assertEqual(os.listdir(os.path.dirname(self.folder)), ["model"])

    def test_job_that_is_trained_during_the_scan_is_not_exported(self):
        trainer = """if True:
            import sys, torch, pawl, pawl.torch as pt
            with pawl.init() as job:
                net = pt.Embedding("rows", 2, optimizer=pawl.SGD(1.0))
                optimizer = pt.Optimizer(net)
                data = pawl.data.Arrays(torch.arange(8), batch_size=2)
                for (keys,) in job.steps(data):
                    net(keys).sum().backward()
                    optimizer.step()
                # A worker of a job that has ended keeps no servers.
                sys.stdin.read()
            """
        with pawl.LocalCluster(job={"partitions": 8}) as cluster, cluster.client() as client:
            net = pt.Embedding("rows", 2, optimizer=pawl.SGD(1.0))
            environment = {**os.environ, "PAWL_SCHEDULER": cluster.scheduler}
            command = [sys.executable, "-c", trainer]
            programs = []

            def scan(table):
                rows = sorted_rows(table)
                if not programs:
                    programs.append(
                        subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
                    )
                    deadline = time.monotonic() + 120
                    while int(client.status().get("steps", 0)) < 4:
                        self.assertLess(time.monotonic(), deadline)
                        self.assertIsNone(programs[0].poll())
                        time.sleep(0.05)
                return rows

            # pt.export is the function.
            with mock.patch.object(sys.modules["pawl.torch.export"], "sorted_rows", scan):
                with self.assertRaisesRegex(pawl.FailedPreconditionError, "was trained while"):
                    pt.export(net, self.folder, client=client)
            self.assertFalse(os.path.exists(self.folder))
            pt.export(net, self.folder, client=client)
            (program,) = programs
            program.communicate()
            self.assertEqual(program.returncode, 0)

    def test_other_models_and_formats_are_refused(self):
        module = pt.EmbeddingBag(self.name(), 4)
        pt.export(module, self.folder, client=self.client)
        for model, words in (
            (pt.EmbeddingBag(self.name(), 4, mode="mean"), "mean"),
            (torch.nn.Sequential(pt.EmbeddingBag(self.name(), 4)), "model has None"),
        ):
            with self.subTest(words), self.assertRaises(ValueError) as raised:
                pt.load_export(self.folder, model)
            self.assertIn(words, str(raised.exception))
        path = pathlib.Path(self.folder, "model.json")
        content = json.loads(path.read_text("utf-8"))
        content["version"] = 2
        path.write_text(json.dumps(content), "utf-8")
        with self.assertRaises(ValueError) as raised:
            pt.load_export(self.folder)
        self.assertIn("version 2", str(raised.exception))

    def test_state_with_slots_continues_the_training(self):
        name = self.name()
        net = Bags(name)
        self.train(net, [self.keys(seed) for seed in range(4)])
        state = pt.state_dict(net, tables=True, slots=True)
        keys = state["tables/%s/bag/keys" % name].numpy().view(np.uint64)
        self.assertTrue((keys[1:] > keys[:-1]).all())
        with pawl.LocalCluster(job={"partitions": 4, "seed": 12345}) as cluster:
            with cluster.client() as client:
                other = Bags(name)
                with mock.patch("pawl.torch.lookup._ROWS_IN_CALL", 30):
                    pt.load_state_dict(other, state, client)
                later = [self.keys(seed) for seed in range(4, 8)]
                self.train(net, later, seed=1)
                self.train(other, later, client=client, seed=1)
                mine = pt.state_dict(other, tables=True, slots=True)
                theirs = pt.state_dict(net, tables=True, slots=True)
                self.assertEqual(set(mine), set(theirs))
                for part, value in theirs.items():
                    # The last bits of torch's products depend on how its memory is aligned.
                    np.testing.assert_allclose(
                        mine[part], value, rtol=1e-4, atol=1e-6, err_msg=part
                    )

    def test_parameters_with_tables_have_slots_in_the_state(self):
        net = torch.nn.Sequential(torch.nn.Linear(300, 300), torch.nn.Linear(300, 300))
        net[1].weight = net[0].weight
        tables = {}
        for name, parameter in net.named_parameters():
            table = self.client.dense(
                "dense/" + name, tuple(parameter.shape), optimizer=pawl.Adam(0.1)
            )
            table.push(None, torch.randn_like(parameter))
            tables[name] = (table, *table.pull_slots())
        self.assertEqual(len(tables), 3)
        state = pt.state_dict(net, self.client, slots=True)
        np.testing.assert_array_equal(state["1.weight"], tables["0.weight"][1])
        for table, _, _ in tables.values():
            table.push(None, np.ones(table.shape, np.float32))
        pt.load_state_dict(net, state, self.client)
        for name, (table, values, slots) in tables.items():
            np.testing.assert_array_equal(net.get_parameter(name).detach(), values)
            for found, expected in zip(table.pull_slots(), (values, slots)):
                np.testing.assert_array_equal(found, expected)

    def test_slots_of_an_earlier_state_are_not_those_of_the_next(self):
        net = torch.nn.Linear(3, 1, bias=False)
        table = self.client.dense("dense/weight", (1, 3), optimizer=pawl.Adagrad(0.1))
        state = {"weight": np.ones((1, 3), np.float32)}
        slots = {"slots/weight": np.full(3, 2, np.float32)}
        for given, expected in (({**state, **slots}, 2), (state, 0)):
            # Without a client: for the job's first step. Not part of the next state.
            pt.load_state_dict(net, {**state, **slots})
            pt.load_state_dict(net, given, self.client)
            self.assertEqual(table.pull_slots()[1].tolist(), [expected] * 3)
        pt.load_state_dict(net, {**state, **slots})
        _Dense([("weight", net.weight)], pawl.Adagrad(0.1), []).forget_initial()
        self.assertNotIn(SLOTS_ATTRIBUTE, vars(net.weight))

    def train_in_job(self, net, dense=None):
        """The job of a cluster of its own, after its loop; it ends with the test."""
        cluster = pawl.LocalCluster(job={"partitions": 4, "logical_workers": 1})
        self.addCleanup(cluster.close)
        job = pawl.init(cluster.scheduler)
        self.addCleanup(job.close)
        optimizer = pt.Optimizer(net, dense=dense)
        for _ in job.steps(pawl.data.Arrays(np.arange(4), batch_size=2)):
            optimizer.step()

    def test_parameters_of_other_names_are_refused(self):
        net = torch.nn.Linear(1, 1)
        self.train_in_job(net, dense=pawl.SGD(1.0))
        other = torch.nn.Sequential(net)
        for call in (lambda: pt.export(other, self.folder), lambda: pt.state_dict(other)):
            words = "the job trains no parameter '0.weight'"
            with self.assertRaisesRegex(pawl.InvalidArgumentError, words):
                call()
        self.assertFalse(os.path.exists(self.folder))
        pt.export(net, self.folder)
        other.requires_grad_(False)
        self.assertEqual(set(pt.state_dict(other)), {"0.weight", "0.bias"})

    def test_parameters_that_torch_trains_are_its_own(self):
        rows = pt.Embedding.from_pretrained(
            self.name(), torch.ones(2, 4), optimizer=pawl.SGD(1.0)
        )
        self.train_in_job(rows)
        net = torch.nn.Sequential(rows, torch.nn.Linear(4, 1))
        self.assertEqual(pt.state_dict(net)["1.bias"].tolist(), net[1].bias.tolist())

    def test_states_that_do_not_fit_are_refused(self):
        net = Bags(self.name())
        pt.SparseOptimizer(net, self.client)
        state = pt.state_dict(net, tables=True)
        table = "tables/%s/one/" % self.name()
        twice = dict(state)
        twice[table + "keys"] = torch.tensor([4, 4])
        twice[table + "rows"] = torch.zeros(2, 4)
        wide = dict(state)
        wide[table + "rows"] = torch.zeros(0, 5)
        for given, words in (
            (twice, "twice"),
            (wide, "(0, 5)"),
            ({k: v for k, v in state.items() if not k.startswith(table)}, self.name() + "/one"),
            ({k: v for k, v in state.items() if k != table + "keys"}, "no keys and rows"),
            ({k: v for k, v in state.items() if k != "norm.bias"}, "norm.bias"),
            ({**state, "more": torch.zeros(1)}, "more"),
        ):
            with self.subTest(words), self.assertRaises(ValueError) as raised:
                pt.load_state_dict(net, given, self.client)
            self.assertIn(words, str(raised.exception))

    def test_pretrained_keys_have_64_bits(self):
        rows = torch.arange(4.0).view(2, 2)
        net = pt.Embedding.from_pretrained(self.name(), rows, keys=[2**64 - 1, 5])
        pt.SparseOptimizer(net, self.client, assigns=True)
        torch.testing.assert_close(net.eval()(torch.tensor([-1, 5])), rows)

    def test_pretrained_rows_are_set_by_the_process_that_assigns(self):
        rows = torch.randn(7, 4)
        self.enterContext(mock.patch("pawl.torch.lookup._ROWS_IN_CALL", 3))
        for assigns in (True, False):
            name = "%s_%d" % (self.name(), assigns)
            module = pt.Embedding.from_pretrained(
                name, rows, torch.arange(10, 17), init=INITIAL["zeros"]
            )
            pt.SparseOptimizer(module, self.client, assigns=assigns)
            module.eval()
            found = module(torch.tensor([9, 10, 16]))
            expected = torch.stack([torch.zeros(4), rows[0], rows[6]])
            torch.testing.assert_close(found, expected * assigns, rtol=0, atol=0)
        with self.assertRaises(ValueError):
            pt.Embedding.from_pretrained("x", rows, torch.arange(6))

    def test_files_are_read_back(self):
        arrays = {
            "a": np.arange(6, dtype=np.float32).reshape(2, 3),
            "b": np.array([2**64 - 1], np.uint64),
            "flags": np.array([True, False, True]),
            "none": np.empty((0, 4), np.float32),
            "scalar": np.array(3, np.int64),
        }
        safetensors.write(self.folder, arrays, {"x": "y"})
        found, metadata = safetensors.read(self.folder)
        self.assertEqual(metadata, {"x": "y"})
        self.assertEqual(list(found), ["b", "scalar", "a", "none", "flags"])
        for name, array in arrays.items():
            np.testing.assert_array_equal(found[name], array)
            self.assertEqual(found[name].dtype, array.dtype)
        whole = pathlib.Path(self.folder).read_bytes()
        for damaged in (
            whole[:-1], whole[:5], b"\xff" * 8 + whole[8:], whole.replace(b"F32", b"F99")
        ):
            pathlib.Path(self.folder).write_bytes(damaged)
            with self.assertRaises(pawl.DataLossError) as raised:
                safetensors.read(self.folder)
            self.assertIn(self.folder, str(raised.exception))

    @unittest.skipUnless(official, "needs safetensors")
    def test_files_are_those_of_the_package(self):
        net = Bags(self.name())
        self.train(net, [self.keys(1)])
        pt.export(net, self.folder, client=self.client)
        names = sorted(os.listdir(self.folder))
        self.assertEqual(len(names), 4)
        for file in names:
            if not file.endswith(".safetensors"):
                continue
            path = os.path.join(self.folder, file)
            theirs, mine = official.load_file(path), safetensors.read(path)[0]
            self.assertEqual(set(theirs), set(mine))
            for name, array in theirs.items():
                np.testing.assert_array_equal(mine[name], array)
        bag = official.load_file(os.path.join(self.folder, self.name() + ".bag.safetensors"))
        self.assertTrue((bag["keys"][1:] > bag["keys"][:-1]).all())
        np.testing.assert_array_equal(
            bag["rows"], net.bag.handles[0].table(self.client).pull(bag["keys"])
        )
        state = pt.state_dict(net, tables=True, slots=True)
        official_torch.save_file(state, self.folder + ".state")
        pt.load_state_dict(net, official_torch.load_file(self.folder + ".state"), self.client)
        for name, array in safetensors.read(self.folder + ".state")[0].items():
            np.testing.assert_array_equal(array, state[name])

    def test_lines_of_the_manual_run(self):
        manual = pathlib.Path(pawl.__file__).parents[1].joinpath("README.md").read_text("utf-8")
        section = re.search(r"^## Out and in$(.*?)^## ", manual, re.M | re.S).group(1)
        blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", section, re.M)
        self.assertGreater(len(blocks), 1)
        lines = textwrap.dedent("".join(blocks)).replace('"model"', repr(self.folder))
        exec(compile(lines, "README.md", "exec"), {})  # pylint: disable=exec-used
        self.assertTrue(os.path.exists(os.path.join(self.folder, "model.json")))


if __name__ == "__main__":
    unittest.main()
