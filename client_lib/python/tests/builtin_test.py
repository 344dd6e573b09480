"""pawl.train, and the notebook that uses it."""

import contextlib
import io
import json
import os
import pathlib
import tempfile
import unittest

import numpy as np

import pawl

NOTEBOOK = pathlib.Path(__file__).resolve().parent.parent / "examples" / "tour.ipynb"


class BuiltInTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        self.back = os.getcwd()
        os.chdir(self.folder)
        rng = np.random.default_rng(1)
        with open("train.libsvm", "w", encoding="ascii") as file:
            for _ in range(400):
                keys = rng.choice(40, 4, replace=False)
                label = int((keys < 20).sum() > 2)
                print(label, *("%d:1" % key for key in sorted(keys + 1)), file=file)
        self.job = {
            "name": "small",
            "data": {"train": "train.libsvm", "eval": "train.libsvm", "format": "LIBSVM"},
            "model": {"fm": {"dim": 4}},
            "optimizer": {"adagrad": {"learning_rate": 0.2}},
            "batch_size": 50,
            "epochs": 4,
            "logical_workers": 2,
        }

    def tearDown(self):
        os.chdir(self.back)

    def test_job_of_dictionaries_is_trained(self):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            result = pawl.train(self.job, workers=2, settings={"epochs": 2})
        self.assertEqual(result["steps"], 16)
        self.assertGreater(result["eval"]["auc"], 0.9)
        self.assertEqual(result.out, os.path.join(self.folder, "out", "small"))
        self.assertTrue(os.path.exists(os.path.join(result.out, "tensorboard")))
        self.assertIn("job small completed", output.getvalue())
        self.assertIn("auc", result._repr_html_())

        path = os.path.join(self.folder, "other.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self.job, file)
        again = pawl.train(path, settings={"epochs": 2}, out="again", quiet=True)
        self.assertEqual(again["digest"], result["digest"])

    def test_job_may_name_several_files(self):
        lines = pathlib.Path("train.libsvm").read_text("ascii").splitlines(keepends=True)
        for name, part in (("a.libsvm", lines[:200]), ("b.libsvm", lines[200:])):
            pathlib.Path(name).write_text("".join(part), "ascii")
        whole = pawl.train(self.job, settings={"epochs": 1}, quiet=True)
        for files in (["a.libsvm", "b.libsvm"], ("a.libsvm", "b.libsvm")):
            self.job["data"]["train"] = files
            parts = pawl.train(self.job, settings={"epochs": 1}, quiet=True)
            self.assertEqual(parts["digest"], whole["digest"])

    def test_job_that_fails_says_why(self):
        with self.assertRaisesRegex(pawl.FailedPreconditionError, "bath_size"):
            pawl.train({**self.job, "bath_size": 3}, quiet=True)
        self.job["data"]["train"] = "missing.libsvm"
        with self.assertRaisesRegex(pawl.FailedPreconditionError, "missing.libsvm"):
            pawl.train(self.job, quiet=True)

    def test_cells_of_the_notebook_run(self):
        notebook = json.loads(NOTEBOOK.read_text("utf-8"))
        cells = ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]
        self.assertGreater(len(cells), 5)
        names = {"__name__": "__main__"}
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            for number, cell in enumerate(cells):
                # The value of a cell's last line is what the notebook shows.
                exec(compile(cell, "cell %d" % number, "exec"), names)
        self.assertGreater(names["result"]["eval"]["auc"], 0.9)


if __name__ == "__main__":
    unittest.main()
