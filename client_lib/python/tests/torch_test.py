"""pawl.torch's modules against torch's own, with the same rows."""

import copy
import functools
import gc
import io
import threading
import types
import unittest
import weakref
from unittest import mock

import numpy as np
import torch
from torch.nn import functional

import pawl
import pawl.torch as pt
from pawl.job import Job
from pawl.rank import Rank

try:
    from torchrec.modules.embedding_configs import EmbeddingBagConfig, PoolingType
    from torchrec.modules.embedding_modules import EmbeddingBagCollection
    from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

    HAVE_TORCHREC = True
except ImportError as error:
    print("TorchRec cannot be imported (%s): its tests are skipped" % error)
    HAVE_TORCHREC = False

ROWS = 40
HAVE_SCALER = hasattr(torch, "amp") and hasattr(torch.amp, "GradScaler")
if not HAVE_SCALER:
    print("torch %s has no GradScaler for CPUs: its tests are skipped" % torch.__version__)


def grad_scaler(**options):
    """A GradScaler for CPUs."""
    return torch.amp.GradScaler("cpu", **options)


class RankSession:
    """A session, such as a rank's, whose pulls are the client's own, and are counted."""

    is_open = True
    step = 4

    def __init__(self, session):
        self._session = session
        self.pulls = 0

    def pull(self, parts):
        self.pulls += 1
        self._session.pull(parts).wait()
        return types.SimpleNamespace(done=lambda timeout: True, wait=lambda: None)


class TorchTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = pawl.LocalCluster(servers=2, job={"partitions": 8})
        cls.client = cls.cluster.client()

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.cluster.close()

    def setUp(self):
        torch.manual_seed(7)

    def name(self, suffix=""):
        return self.id().rsplit(".", 1)[1] + suffix

    def start(self, module):
        """Gives the module its client and returns its optimizer."""
        return pt.SparseOptimizer(module, self.client)

    def rows_of(self, handle):
        """The first ROWS rows as a parameter of torch's."""
        values = handle.table(self.client).pull(np.arange(ROWS))
        return torch.nn.Parameter(torch.from_numpy(values))

    def assert_trains_like(self, ours, theirs, handles, weights, steps=4):
        """Compares outputs and, after each step of SGD, rows."""
        optimizer = self.start(ours.module)
        reference = torch.optim.SGD(weights, lr=0.1)
        for step in range(steps):
            torch.manual_seed(step)
            mine, other = ours(step), theirs(step)
            torch.testing.assert_close(mine, other)
            reference.zero_grad()
            factor = torch.randn_like(other)
            (mine * factor).sum().backward()
            (other * factor).sum().backward()
            optimizer.step()
            reference.step()
            optimizer.wait()
            for handle, weight in zip(handles, weights):
                torch.testing.assert_close(
                    torch.from_numpy(handle.table(self.client).pull(np.arange(ROWS))),
                    weight.data,
                )

    def test_embedding_is_that_of_torch(self):
        module = pt.Embedding(
            self.name(), 4, optimizer=pawl.SGD(0.1), init=pawl.Normal(0, 1), padding_idx=3
        )
        self.start(module)
        weight = self.rows_of(module.handles[0])
        with torch.no_grad():
            weight[3] = 0
        keys = [torch.randint(0, ROWS, (5, 6)) for _ in range(4)]

        # The row of the padding key is never pulled by the module; the reference keeps 0 there.
        before = module.handles[0].table(self.client).pull([3])
        optimizer = self.start(module)
        reference = torch.optim.SGD([weight], lr=0.1)
        for step in range(4):
            mine = module(keys[step])
            other = functional.embedding(keys[step], weight, padding_idx=3)
            torch.testing.assert_close(mine, other)
            reference.zero_grad()
            (mine**2).sum().backward()
            (other**2).sum().backward()
            optimizer.step()
            reference.step()
            optimizer.wait()
        np.testing.assert_array_equal(module.handles[0].table(self.client).pull([3]), before)

    def check_bag(self, mode, weighted=False, two_dimensions=False):
        suffix = "_%s_%d_%d" % (mode, weighted, two_dimensions)
        module = pt.EmbeddingBag(
            self.name(suffix), 3, mode=mode, optimizer=pawl.SGD(0.1), init=pawl.Normal(0, 1)
        )
        self.start(module)
        weight = self.rows_of(module.handles[0])
        shape = (6, 5) if two_dimensions else (30,)
        keys = [torch.randint(0, ROWS, shape) for _ in range(4)]
        # With empty bags at the begin, in the middle and at the end.
        offsets = None if two_dimensions else torch.tensor([0, 0, 7, 7, 20, 30])
        factors = torch.rand(shape) if weighted else None

        def ours(step):
            return module(keys[step], offsets, factors)

        ours_object = type("Ours", (), {"module": module, "__call__": lambda _, step: ours(step)})()

        def theirs(step):
            return functional.embedding_bag(
                keys[step], weight, offsets, mode=mode, per_sample_weights=factors
            )

        self.assert_trains_like(ours_object, theirs, module.handles, [weight])

    def test_embedding_bag_sums(self):
        self.check_bag("sum")

    def test_embedding_bag_takes_means(self):
        self.check_bag("mean")

    def test_embedding_bag_weights_keys(self):
        self.check_bag("sum", weighted=True)

    def test_embedding_bag_takes_bags_of_one_length(self):
        self.check_bag("mean", two_dimensions=True)

    def features(self, step, names=("a", "b", "c"), batch=6):
        generator = torch.Generator().manual_seed(step)
        lengths = torch.randint(0, 4, (len(names) * batch,), generator=generator)
        values = torch.randint(0, ROWS, (int(lengths.sum()),), generator=generator)
        weights = torch.rand(len(values), generator=generator)
        return list(names), values, lengths, weights

    def check_collection(self, dims, poolings, weighted=False):
        suffix = "_%s_%s_%d" % ("".join(map(str, dims)), "".join(poolings), weighted)
        tables = [
            pt.EmbeddingBagConfig(self.name(suffix) + "t0", dims[0], ["a", "c"], poolings[0]),
            pt.EmbeddingBagConfig(self.name(suffix) + "t1", dims[1], ["b"], poolings[1]),
        ]
        module = pt.EmbeddingBagCollection(
            tables, optimizer=pawl.SGD(0.1), init=pawl.Normal(0, 1), is_weighted=weighted
        )
        self.start(module)
        weights = [self.rows_of(handle) for handle in module.handles]

        def ours(_, step):
            names, values, lengths, factors = self.features(step)
            result = module(pt.KeyedJaggedTensor(names, values, lengths, factors))
            self.assertEqual(result.keys(), ["a", "c", "b"])
            return torch.cat([result["a"], result["b"], result["c"]], dim=1)

        def theirs(step):
            _, values, lengths, factors = self.features(step)
            parts, begin = [], 0
            for feature, table in enumerate((0, 1, 0)):
                own = lengths[feature * 6 : feature * 6 + 6]
                count = int(own.sum())
                bag = functional.embedding_bag(
                    values[begin : begin + count],
                    weights[table],
                    torch.cat([torch.zeros(1, dtype=torch.int64), own.cumsum(0)[:-1]]),
                    mode="sum" if weighted else poolings[table].lower(),
                    per_sample_weights=factors[begin : begin + count] if weighted else None,
                )
                if weighted and poolings[table] == "MEAN":
                    bag = bag / own.clamp(min=1).unsqueeze(1)
                parts.append(bag)
                begin += count
            return torch.cat(parts, dim=1)

        ours_object = type("Ours", (), {"module": module, "__call__": ours})()
        self.assert_trains_like(ours_object, theirs, module.handles, weights)

    def test_collection_pools_features_of_shared_tables(self):
        self.check_collection((4, 4), ("SUM", "SUM"))

    def test_collection_has_tables_of_different_widths(self):
        self.check_collection((4, 8), ("MEAN", "SUM"))

    def test_collection_weights_keys(self):
        self.check_collection((4, 4), ("SUM", "MEAN"), weighted=True)

    def test_collection_in_the_order_of_features_is_one_lookup(self):
        tables = [
            pt.EmbeddingBagConfig(self.name(name), 4, [name], "SUM") for name in ("a", "b", "c")
        ]
        module = pt.EmbeddingBagCollection(tables, optimizer=pawl.SGD(0.1), init=pawl.Normal(0, 1))
        self.start(module)
        names, values, lengths, _ = self.features(1)
        result = module(pt.KeyedJaggedTensor(names, values, lengths))
        begin = 0
        for feature, name in enumerate(names):
            own = lengths[feature * 6 : feature * 6 + 6]
            rows = self.rows_of(module.handles[feature])
            expected = torch.stack(
                [bag.sum(0) for bag in rows[values[begin : begin + int(own.sum())]].split(
                    own.tolist())]
            )
            torch.testing.assert_close(result[name], expected)
            begin += int(own.sum())
        self.assertEqual(result.values().shape, (6, 12))

    def test_embedding_collection_gives_rows_of_each_sample(self):
        tables = [pt.EmbeddingConfig(self.name("t"), 4, ["a", "c"])]
        module = pt.EmbeddingCollection(tables, init=pawl.Normal(0, 1))
        self.start(module)
        names, values, lengths, _ = self.features(2)
        result = module(pt.KeyedJaggedTensor(names, values, lengths))
        rows = self.rows_of(module.handles[0])
        begin = int(lengths[:12].sum())
        torch.testing.assert_close(result["c"].values(), rows[values[begin:]])
        torch.testing.assert_close(result["c"].lengths(), lengths[12:])
        self.assertEqual(set(result), {"a", "c"})

    @unittest.skipUnless(HAVE_TORCHREC, "needs TorchRec")
    def test_collection_takes_torchrecs_configs_and_features(self):
        configs = [
            EmbeddingBagConfig(
                name=self.name("t%d" % number),
                embedding_dim=4,
                num_embeddings=ROWS,
                feature_names=features,
                pooling=PoolingType.SUM,
            )
            for number, features in enumerate((["a"], ["b", "c"]))
        ]
        module = pt.EmbeddingBagCollection(configs, init=pawl.Normal(0, 1))
        self.start(module)
        theirs = EmbeddingBagCollection(tables=configs)
        with torch.no_grad():
            for handle, config in zip(module.handles, configs):
                theirs.embedding_bags[config.name].weight.copy_(self.rows_of(handle))
        names, values, lengths, _ = self.features(3)
        batch = KeyedJaggedTensor(keys=names, values=values, lengths=lengths)
        mine, other = module(batch), theirs(batch)
        self.assertEqual(mine.keys(), other.keys())
        torch.testing.assert_close(mine.values(), other.values())

    @unittest.skipUnless(HAVE_TORCHREC, "needs TorchRec")
    def test_initial_rows_are_those_of_torchrecs_config(self):
        def initializer(init=None, **settings):
            config = EmbeddingBagConfig(
                name="t", embedding_dim=4, num_embeddings=100, feature_names=["a"], **settings
            )
            config.init = init
            return pt.EmbeddingBagCollection([config]).handles[0].spec["initializer"]

        self.assertEqual(initializer(), pawl.Normal(0.0, 0.01).to_json())
        bounds = {"weight_init_min": -0.25, "weight_init_max": 0.5}
        self.assertEqual(initializer(**bounds), pawl.Uniform(-0.25, 0.5).to_json())
        self.assertEqual(initializer(weight_init_max=0.5), pawl.Uniform(-0.1, 0.5).to_json())
        uniform = functools.partial(torch.nn.init.uniform_, a=0.0, b=1.0)
        for function in uniform, torch.nn.init.zeros_:
            with self.assertRaisesRegex(pawl.InvalidArgumentError, "'t' has an init_fn"):
                initializer(init_fn=function)
            own = pawl.Constant(0.0)
            self.assertEqual(initializer(own, init_fn=function), own.to_json())

    def test_several_lookups_of_a_table_are_one_gradient(self):
        module = pt.EmbeddingBag(
            self.name(), 2, optimizer=pawl.Adagrad(1.0), init=pawl.Constant(0.0)
        )
        optimizer = self.start(module)
        keys = torch.tensor([[1, 2], [2, 3]])
        (module(keys).sum() + 2 * module(keys[:1]).sum()).backward()
        optimizer.step()
        optimizer.wait()
        # Adagrad's first step is the sign of the sum of the gradients, whatever its size; two
        # updates of a row would add up to more.
        rows = module.handles[0].table(self.client).pull([1, 2, 3])
        np.testing.assert_allclose(rows, np.full((3, 2), -1.0), rtol=1e-6)

    def test_accumulated_gradients_are_pushed_once(self):
        module = pt.Embedding(self.name(), 2, optimizer=pawl.SGD(1.0), init=pawl.Constant(0.0))
        optimizer = self.start(module)
        for _ in range(3):
            module(torch.tensor([5])).sum().backward()
        optimizer.step()
        optimizer.step()
        optimizer.wait()
        rows = module.handles[0].table(self.client).pull([5])
        np.testing.assert_array_equal(rows, [[-3, -3]])

    def test_backward_after_a_step_leaves_what_it_pushes(self):
        module = pt.Embedding(self.name(), 2, optimizer=pawl.SGD(1.0), init=pawl.Constant(0.0))
        self.start(module)
        loss = module(torch.tensor([5])).sum()
        loss.backward(retain_graph=True)
        # As an Optimizer does, which pushes at the end of the loop's body.
        parts = module.take_gradients(1.0, "float32")
        loss.backward()
        self.client.free_running.push(parts).wait()
        rows = module.handles[0].table(self.client).pull([5])
        np.testing.assert_array_equal(rows, [[-1, -1]])

    def test_gradients_that_come_after_a_step_belong_to_the_next(self):
        module = pt.Embedding(self.name(), 2, optimizer=pawl.SGD(1.0), init=pawl.Constant(0.0))
        other = torch.nn.Embedding(10, 2)
        torch.nn.init.zeros_(other.weight)
        ours, theirs = self.start(module), torch.optim.SGD(other.parameters(), 1.0)

        def late_backward(net, optimizer):
            a, b = net(torch.tensor([6])), net(torch.tensor([7, 6]))
            a.sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            b.sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        def graph_of_several_steps(net, optimizer):
            loss = (net(torch.tensor([5, 5])) * torch.tensor([1.0, 3.0])).sum()
            for _ in range(3):
                loss.backward(retain_graph=True)
                optimizer.step()
                optimizer.zero_grad()
            # Two for one step, beside those of another forward.
            loss.backward(retain_graph=True)
            loss.backward()
            net(torch.tensor([5])).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        for program in (late_backward, graph_of_several_steps):
            program(module, ours)
            program(other, theirs)
            ours.wait()
            np.testing.assert_array_equal(
                module.handles[0].table(self.client).pull(np.arange(10)), other.weight.detach()
            )

    def test_gradients_that_come_after_a_step_wait_for_their_rank(self):
        module = pt.Embedding(self.name(), 2, optimizer=pawl.SGD(1.0))
        first = self.rank_of_a_sync_job()
        second = RankSession(first._session)
        self.start(module)
        module._client = None
        loss = module(torch.tensor([5])).sum()
        loss.backward(retain_graph=True)
        self.assertEqual(len(module.take_gradients(1.0, "float32")), 1)
        loss.backward()
        for end in (module.zero_grad, module.forget):
            self.job._rank = Rank(1, 1, second, iter([]), step=4)
            self.assertEqual(list(module.gradient_leaves()), [])
            self.assertEqual(module.take_gradients(1.0, "float32"), [])
            end()
            self.job._rank = Rank(0, 1, first, iter([]), step=5)
            self.assertEqual(len(list(module.gradient_leaves())), 1)
        # The rank leaves the process.
        first.is_open = False
        self.job._rank = Rank(1, 1, second, iter([]), step=5)
        self.assertEqual(module.take_gradients(1.0, "float32"), [])
        self.assertEqual(module._recorded, [])

    def test_forward_without_a_backward_ends_with_its_graph(self):
        module = pt.Embedding(self.name(), 2, optimizer=pawl.SGD(1.0))
        optimizer = self.start(module)
        rows = module(torch.tensor([1]))
        recorded = weakref.ref(module._recorded[-1])
        optimizer.step()
        self.assertEqual(module._recorded, [])
        gc.collect()
        self.assertIsNotNone(recorded())
        del rows
        gc.collect()
        self.assertIsNone(recorded())

    def test_graph_may_outlive_its_module(self):
        module = pt.Embedding(self.name(), 2, optimizer=pawl.SGD(1.0))
        optimizer = self.start(module)
        rows = module(torch.tensor([1]))
        optimizer.step()
        del module, optimizer
        gc.collect()
        rows.sum().backward()

    def scaled(self, **options):
        """A module whose rows begin at 0, its optimizer with the rate 1, and a GradScaler."""
        module = pt.Embedding(self.name(), 2, optimizer=pawl.SGD(1.0), init=pawl.Constant(0.0))
        return module, self.start(module), grad_scaler(**options)

    @unittest.skipUnless(HAVE_SCALER, "this torch has no GradScaler for CPUs")
    def test_scaler_unscales_gradients_of_rows(self):
        module, optimizer, scaler = self.scaled(init_scale=1024.0, growth_interval=2)
        for step in range(4):
            scaler.scale((module(torch.tensor([5, 5, 6])) * 0.5).sum()).backward()
            if step == 3:
                scaler.unscale_(optimizer)
                (leaf,) = module.gradient_leaves()
                self.assertEqual(leaf.grad.max(), 1.0)
                leaf.grad *= 2
            scaler.step(optimizer)
            scaler.update()
        optimizer.wait()
        self.assertEqual(scaler.get_scale(), 4096.0)
        rows = module.handles[0].table(self.client).pull([5, 6])
        np.testing.assert_array_equal(rows, [[-5, -5], [-2.5, -2.5]])

    @unittest.skipUnless(HAVE_SCALER, "this torch has no GradScaler for CPUs")
    def test_scaler_skips_steps_with_gradients_that_are_not_finite(self):
        module, optimizer, scaler = self.scaled(init_scale=1024.0)
        for factor in (1.0, float("inf"), float("nan"), 2.0):
            optimizer.zero_grad()
            rows = module(torch.tensor([5, 6]))
            # One of the rows only.
            scaler.scale((rows * torch.tensor([[factor], [1.0]])).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            self.assertEqual(module._recorded, [])
        optimizer.wait()
        self.assertEqual(scaler.get_scale(), 256.0)
        rows = module.handles[0].table(self.client).pull([5, 6])
        np.testing.assert_array_equal(rows, [[-3, -3], [-2, -2]])

    @unittest.skipUnless(HAVE_SCALER, "this torch has no GradScaler for CPUs")
    def test_scaler_takes_steps_without_gradients(self):
        module, optimizer, scaler = self.scaled(init_scale=1024.0, growth_interval=3)
        for keys in ([5], None, []):
            optimizer.zero_grad()
            if keys is not None:
                rows = module(torch.tensor(keys, dtype=torch.int64))
                scaler.scale(rows.sum()).backward()
            if keys == []:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
        optimizer.wait()
        self.assertEqual(scaler.get_scale(), 2048.0)
        np.testing.assert_array_equal(
            module.handles[0].table(self.client).pull([5]), [[-1, -1]]
        )

    @unittest.skipUnless(HAVE_SCALER, "this torch has no GradScaler for CPUs")
    def test_scaler_refuses_an_optimizer_of_torch_without_gradients(self):
        # Why the optimizers here give it one: a rank's step must end.
        scaler = grad_scaler()
        scaler.scale(torch.ones(()))
        with self.assertRaisesRegex(AssertionError, "No inf checks"):
            scaler.step(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 0.1))

    def test_evaluation_records_nothing(self):
        module = pt.Embedding(self.name(), 2, optimizer=pawl.SGD(1.0))
        self.start(module)
        module.eval()
        self.assertFalse(module(torch.tensor([1])).requires_grad)
        module.train()
        with torch.no_grad():
            module(torch.tensor([1]))
        self.assertEqual(module._recorded, [])

    def rank_of_a_sync_job(self):
        """The session of a rank in its step; until the test's end, this is the current job."""
        session = RankSession(self.client.free_running)
        self.job, self.free_running = Job(self.client), RankSession(session._session)
        self.assertEqual(self.job.mode, "SYNC")
        self.job._rank = Rank(0, 1, session, iter([]), step=4)
        self.job._begin(self.job._rank)
        for patch in (
            mock.patch("pawl.job._current", self.job),
            mock.patch.object(self.client, "free_running", self.free_running),
        ):
            patch.start()
            self.addCleanup(patch.stop)
        return session

    def prefetch(self, module, inputs, session):
        """As Optimizer.prefetch, for the rank's step."""
        fetch = module.prefetch(inputs, session, session.step)
        fetch.pull = session.pull(fetch.parts())

    def test_evaluation_in_a_step_of_a_sync_job_pulls_as_the_rank(self):
        module = pt.Embedding(self.name(), 2)
        session = self.rank_of_a_sync_job()
        keys = torch.tensor([1, 2])
        self.prefetch(module, keys, session)
        self.assertEqual(session.pulls, 1)
        self.assertFalse(module.eval()(keys).requires_grad)
        self.assertEqual(session.pulls, 2)
        # The training has the rows that were fetched for it.
        self.assertTrue(module.train()(keys).requires_grad)
        self.assertEqual(session.pulls, 2)
        self.assertEqual(self.free_running.pulls, 0)

    def test_other_evaluation_pulls_as_the_client(self):
        module = pt.Embedding(self.name(), 2).eval()
        session = self.rank_of_a_sync_job()
        evaluate = functools.partial(module, torch.tensor([1, 2]))
        thread = threading.Thread(target=evaluate)
        thread.start()
        thread.join()
        self.assertEqual((session.pulls, self.free_running.pulls), (0, 1))
        # The rank may be given up while a batch is read, which ends its pulls.
        self.job._computing = False
        evaluate()
        self.assertEqual((session.pulls, self.free_running.pulls), (0, 2))
        self.job._computing = True
        evaluate()
        self.assertEqual((session.pulls, self.free_running.pulls), (1, 2))

    def test_features_that_change_after_prefetch_are_fetched_again(self):
        kinds = [pt.KeyedJaggedTensor] + ([KeyedJaggedTensor] if HAVE_TORCHREC else [])
        session = self.rank_of_a_sync_job()
        for number, kind in enumerate(kinds):
            tables = [pt.EmbeddingBagConfig(self.name(str(number)), 4, ["a"], "SUM")]
            module = pt.EmbeddingBagCollection(tables, init=pawl.Normal(0, 1))
            features, other = [
                kind(keys=["a"], values=torch.tensor(keys), lengths=torch.tensor([2, 1]))
                for keys in ([1, 2, 3], [1, 9, 3])
            ]
            expected = module(other).values()
            for changes, pulls in ((False, 1), (True, 2)):
                self.prefetch(module, features, session)
                if changes:
                    features.values()[1] = 9
                session.pulls = 1
                result = module(features).values()
                self.assertEqual(session.pulls, pulls)
            torch.testing.assert_close(result, expected)

    def test_zero_grad_may_come_between_forward_and_backward(self):
        module = pt.Embedding(self.name(), 2, optimizer=pawl.SGD(1.0), init=pawl.Constant(0.0))
        optimizer = self.start(module)
        rows = module(torch.tensor([1]))
        optimizer.zero_grad()
        rows.sum().backward()
        optimizer.step()
        optimizer.wait()
        np.testing.assert_array_equal(
            module.handles[0].table(self.client).pull([1]), [[-1, -1]]
        )

    def test_module_without_an_optimizer_records_nothing(self):
        module = pt.Embedding(self.name(), 2)
        module.use(self.client)
        with self.assertLogs("pawl", "WARNING") as logs:
            for _ in range(3):
                module(torch.tensor([1])).sum().backward()
        self.assertEqual(len(logs.output), 1)
        self.assertIn(self.name(), logs.output[0])
        self.assertEqual(module._recorded, [])

    def test_copies_and_saved_models_look_up_by_themselves(self):
        module = pt.Embedding(self.name(), 2, optimizer=pawl.SGD(1.0))
        self.start(module)
        expected = module(torch.tensor([1, 2]))
        file = io.BytesIO()
        torch.save(module, file)
        file.seek(0)
        for other in (copy.deepcopy(module), torch.load(file, weights_only=False)):
            other.use(self.client)
            other.eval()
            torch.testing.assert_close(other(torch.tensor([1, 2])), expected.detach())

    def test_zero_grad_drops_what_was_not_pushed(self):
        module = pt.Embedding(self.name(), 2, optimizer=pawl.SGD(1.0), init=pawl.Constant(0.0))
        optimizer = self.start(module)
        kept = []
        for _ in range(10):
            optimizer.zero_grad()
            rows = module(torch.tensor([1]))
            rows.sum().backward()
            kept.append(weakref.ref(module._recorded[-1]))
            del rows
        gc.collect()
        self.assertLessEqual(sum(reference() is not None for reference in kept), 1)
        optimizer.step()
        optimizer.wait()
        np.testing.assert_array_equal(
            module.handles[0].table(self.client).pull([1]), [[-1, -1]]
        )

    def test_no_keys_and_wrong_keys(self):
        module = pt.EmbeddingBag(self.name(), 2, optimizer=pawl.SGD(1.0))
        optimizer = self.start(module)
        empty = module(torch.empty(0, dtype=torch.int64), torch.tensor([0, 0]))
        torch.testing.assert_close(empty, torch.zeros(2, 2))
        empty.sum().backward()
        optimizer.step()
        with self.assertRaises(ValueError) as raised:
            module(torch.tensor([[1.0]]))
        self.assertIn("torch.float32", str(raised.exception))
        with self.assertRaisesRegex(ValueError, "keys are a ndarray; they must be a torch.Tensor"):
            module(np.array([[1]]))

    def test_offsets_that_leave_keys_out_are_refused(self):
        module = pt.EmbeddingBag(self.name(), 2)
        self.start(module)
        for begins in [1, 2], [2]:
            with self.assertRaisesRegex(RuntimeError, r"offsets\[0\] has to be 0"):
                module(torch.arange(3), torch.tensor(begins))

    def test_keys_of_all_64_bits(self):
        module = pt.Embedding(self.name(), 1, optimizer=pawl.SGD(1.0), init=pawl.Constant(0.0))
        optimizer = self.start(module)
        module(torch.tensor([-1, 2**63 - 1, -(2**63)])).sum().backward()
        optimizer.step()
        optimizer.wait()
        keys = np.array([2**64 - 1, 2**63 - 1, 2**63, 0], np.uint64)
        np.testing.assert_array_equal(
            module.handles[0].table(self.client).pull(keys), [[-1], [-1], [-1], [0]]
        )

    @unittest.skipUnless(hasattr(torch, "compile"), "needs torch 2")
    def test_compiled_model_trains(self):
        class Net(torch.nn.Module):
            def __init__(self, name):
                super().__init__()
                self.rows = pt.EmbeddingBag(
                    name, 2, optimizer=pawl.SGD(1.0), init=pawl.Constant(0.0)
                )

            def forward(self, keys):
                return self.rows(keys) * 2

        net = Net(self.name())
        optimizer = self.start(net)
        # The back end of torch itself needs a compiler and a minute.
        compiled = torch.compile(net, backend="eager")
        compiled(torch.tensor([[1, 1]])).sum().backward()
        optimizer.step()
        optimizer.wait()
        np.testing.assert_array_equal(
            net.rows.handles[0].table(self.client).pull([1]), [[-4, -4]]
        )

    def test_wrong_settings_are_named(self):
        twice = torch.nn.ModuleList([pt.Embedding("same", 2), pt.Embedding("same", 2)])
        for call, words in (
            (lambda: pt.EmbeddingBag("x", 2, mode="max"), "max"),
            (lambda: self.start(twice), "same"),
            (lambda: pt.EmbeddingBagCollection([]), "at least one table"),
            (
                lambda: pt.EmbeddingBagCollection([pt.EmbeddingBagConfig("x", 2, ["a"], "MAX")]),
                "MAX",
            ),
        ):
            with self.subTest(words), self.assertRaises(ValueError) as raised:
                call()
            self.assertIn(words, str(raised.exception))
        module = pt.EmbeddingBagCollection([pt.EmbeddingBagConfig(self.name(), 2, ["absent"])])
        self.start(module)
        names, values, lengths, _ = self.features(1)
        with self.assertRaises(ValueError) as raised:
            module(pt.KeyedJaggedTensor(names, values, lengths))
        self.assertIn("'absent'", str(raised.exception))

    def test_module_without_a_job_says_what_to_do(self):
        with self.assertRaises(pawl.FailedPreconditionError) as raised:
            pt.Embedding(self.name(), 2)(torch.tensor([1]))
        self.assertIn("pawl.init()", str(raised.exception))


if __name__ == "__main__":
    unittest.main()
