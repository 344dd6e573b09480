"""Training programs that begin with given rows and states, and their models without servers."""

import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import torch
import training_program
import training_test

import pawl
import pawl.torch as pt

try:
    import safetensors.numpy as official
except ImportError as error:
    print("the package safetensors cannot be imported (%s): its files are not compared" % error)
    official = None


class StateTest(unittest.TestCase):
    def test_pretrained_rows_are_where_training_begins(self):
        training_test.TrainingTest.check_like_torch(
            self, "adagrad", rows=training_program.pretrained_rows()
        )

    def test_rows_alone_are_set_in_a_first_step(self):
        def first_loss(run):
            return run.parameters()["losses"][0]

        runs = [
            training_test.Run(
                "--pretrained", "--frozen", "--epochs=1", workers=workers, ranks=2, settings=mode
            )
            for workers, mode in ((1, ()), (2, ()), (2, ["consistency.mode=ASYNC"]))
        ]
        digests = [run.finish() for run in runs]
        self.assertEqual(digests[0], digests[1])
        other = training_test.Run("--frozen", "--epochs=1", ranks=2)
        other.finish()
        self.assertNotAlmostEqual(first_loss(runs[0]), first_loss(other), places=2)
        state = torch.load(runs[0].result + ".state")
        changed = state["tables/rows/rows"].numpy() - training_program.pretrained_rows()
        self.assertGreater(np.abs(changed).max(), 0.01)
        self.assertLess(np.abs(changed).max(), 2)

    def test_loaded_state_is_where_training_begins_whatever_dies(self):
        first = training_test.Run("--optimizer=adagrad", ranks=2)
        first.finish()
        state = first.result + ".state"
        calm = training_test.Run("--state=" + state, "--epochs=1", ranks=2)
        digest = calm.finish()
        died = training_test.Run(
            "--state=" + state, "--epochs=1", "--die_after_assign", ranks=2, workers=2
        )
        self.assertEqual(died.finish(), digest, died.describe())
        self.assertTrue(os.path.exists(died.result + ".died"))

        given = torch.load(state)
        self.assertIn("slots/layers.0.weight", given)
        for run in (calm, died):
            begun = torch.load(run.result + ".begin")
            self.assertEqual(set(begun), set(given))
            for name, value in given.items():
                np.testing.assert_array_equal(begun[name], value, err_msg=name)

        # The loss of the first batch tells the parameters that it has seen.
        parameters = first.parameters()
        rows = torch.from_numpy(parameters.pop("rows"))
        net = training_program.Net(torch.nn.EmbeddingBag.from_pretrained(rows, mode="mean"))
        del parameters["losses"]
        net.layers.load_state_dict({k: torch.from_numpy(v) for k, v in parameters.items()})
        keys, labels = training_program.samples()
        sampler = pawl.data.Sampler(
            training_program.SAMPLES, training_program.BATCH, seed=1, epochs=1
        )
        places = sampler.positions(0, 0, 2)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(
            net(keys[places]), labels[places]
        )
        self.assertAlmostEqual(calm.parameters()["losses"][0], float(loss.detach()), places=5)

    def test_checkpoint_becomes_a_model_without_servers(self):
        checkpoints = os.path.join(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")), "c")
        os.mkdir(checkpoints)
        run = training_test.Run(
            "--epochs=1", ranks=1, settings=["checkpoint.dir=" + checkpoints]
        )
        run.finish()
        parameters = run.parameters()
        rows = torch.from_numpy(parameters.pop("rows"))
        plain = training_program.Net(torch.nn.EmbeddingBag.from_pretrained(rows, mode="mean"))
        del parameters["losses"]
        plain.layers.load_state_dict({k: torch.from_numpy(v) for k, v in parameters.items()})
        keys, _ = training_program.samples()
        for arrays in ("npy", "safetensors"):
            folder = run.out + arrays
            export = [sys.executable, "-m", "pawl", "export", "--checkpoint=" + checkpoints]
            export += ["--out=" + folder, "--format=" + arrays]
            subprocess.run(export, check=True, timeout=60, stdout=subprocess.DEVNULL)
            with self.assertRaises(ValueError):
                pt.load_export(folder)
            bag = pt.EmbeddingBag(
                "rows", training_program.DIM, mode="mean", init=training_program.initial_rows()
            )
            model = pt.load_export(folder, training_program.Net(bag))
            np.testing.assert_array_equal(model(keys).detach(), plain(keys).detach())
        # A checkpoint has no buffers.
        with_buffers = training_program.Net(bag)
        with_buffers.norm = torch.nn.BatchNorm1d(1, affine=False)
        with self.assertRaisesRegex(pawl.errors.InvalidArgumentError, r"norm\.running_mean"):
            pt.load_export(folder, with_buffers)
        with_buffers.norm.running_mean.fill_(7)
        loaded = pt.load_export(folder, with_buffers, strict=False)
        self.assertEqual(float(loaded.norm.running_mean), 7)
        if official is None:
            return
        theirs = official.load_file(os.path.join(folder, "rows.safetensors"))
        self.assertEqual(set(theirs), {"keys", "rows"})
        for name, array in theirs.items():
            np.testing.assert_array_equal(array, np.load(run.out + "npy/rows.%s.npy" % name))
        dense = official.load_file(os.path.join(folder, "dense.layers.0.weight.safetensors"))
        np.testing.assert_array_equal(dense["values"], parameters["0.weight"])


if __name__ == "__main__":
    unittest.main()
