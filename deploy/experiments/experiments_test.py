#!/usr/bin/env python3
"""Runs each experiment on little data.

Usage: experiments_test.py PAWLCTL
"""

import csv
import importlib.machinery
import importlib.util
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, HERE)
PAWLCTL = ""
LIMIT_S = 250


def load(name):
    loader = importlib.machinery.SourceFileLoader(name, os.path.join(HERE, name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


class ExperimentsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_script(self, *arguments):
        done = subprocess.run(
            [sys.executable, os.path.join(HERE, arguments[0]), *arguments[1:]],
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
            cwd=self.folder,
            env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1"),
        )
        return done.returncode, done.stdout, done.stderr

    def experiment(self, name):
        """The rows of results.csv."""
        code, out, err = self.run_script(
            name, "--out=out", "--seeds=1", "--samples=2048", "--epochs=1", "--pawlctl=" + PAWLCTL
        )
        self.assertEqual(code, 0, out + err)
        files = os.listdir(os.path.join(self.folder, "out"))
        self.assertTrue("curves.svg" in files or "curves.csv" in files, files)
        with open(os.path.join(self.folder, "out", "results.csv"), encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def test_consistency_measures_staleness(self):
        rows = {row["setting"]: row for row in self.experiment("consistency")}
        self.assertEqual(len(rows), 8)
        for name, row in rows.items():
            self.assertGreater(float(row["AUC"]), 0.5, name)
            self.assertEqual(row["update staleness"] == "", name == "SYNC")
        # The bound limits each pull, hence also the mean.
        self.assertLessEqual(float(rows["BOUNDED 1"]["clock staleness p99"]), 1)
        self.assertLessEqual(float(rows["BOUNDED 1"]["clock staleness"]), 1)
        self.assertLessEqual(float(rows["BOUNDED 1"]["update staleness p99"] or 0), 16)

    def test_backup_workers_drop_gradients(self):
        rows = {row["setting"]: row for row in self.experiment("backup_workers")}
        self.assertEqual(float(rows["0 backups"]["gradients dropped; %"]), 0)
        self.assertGreater(float(rows["4 backups"]["gradients dropped; %"]), 10)

    def test_batch_sizes_see_the_same_samples(self):
        rows = self.experiment("batch_size")
        self.assertEqual(len(rows), 12)
        self.assertEqual({int(row["steps"]) for row in rows}, {32, 8, 2, 1})

    def test_search_runs_the_better_half_longer(self):
        subprocess.run(
            [
                sys.executable,
                os.path.join(os.path.dirname(HERE), "data", "generate_clicks"),
                "--samples=2000",
                os.path.join(self.folder, "clicks.libsvm"),
            ],
            check=True,
        )
        with open(os.path.join(self.folder, "job.pbtxt"), "w", encoding="utf-8") as file:
            file.write(
                'name: "clicks" data { train: "clicks.libsvm" eval: "clicks.libsvm" '
                "format: LIBSVM }\n"
                "model { logistic_regression {} } optimizer { adagrad { learning_rate: 1 } }\n"
                "batch_size: 200\n"
            )
        code, out, err = self.run_script(
            "search",
            "--job=job.pbtxt",
            "--trials=3",
            "--epochs=2",
            "--out=out",
            "--pawlctl=" + PAWLCTL,
            "optimizer.adagrad.learning_rate=0.0001:1",
            "batch_size=100,200",
        )
        self.assertEqual(code, 0, out + err)
        with open(os.path.join(self.folder, "out", "trials.jsonl"), encoding="utf-8") as file:
            trials = [json.loads(line) for line in file]
        self.assertEqual([trial["epochs"] for trial in trials], [1, 1, 1, 2, 2])
        first = sorted(trials[:3], key=lambda trial: trial["logloss"])
        self.assertEqual([t["settings"] for t in trials[3:]], [t["settings"] for t in first[:2]])
        best = min(trials[3:], key=lambda trial: trial["logloss"])
        rate = best["settings"]["optimizer.adagrad.learning_rate"]
        self.assertIn("best: --set=optimizer.adagrad.learning_rate=%s" % rate, out)

    def test_search_says_why_trials_fail(self):
        with open(os.path.join(self.folder, "job.pbtxt"), "w", encoding="utf-8") as file:
            file.write('name: "clicks" data { train: "missing.libsvm" }')
        code, out, err = self.run_script(
            "search",
            "--job=job.pbtxt",
            "--trials=1",
            "--out=out",
            "--pawlctl=" + PAWLCTL,
            "batch_size=100",
        )
        self.assertEqual(code, 1, out + err)
        self.assertIn("no trial has succeeded", err)
        self.assertRegex(out, r"--set=batch_size=100; failed: .*model is missing")

    def test_search_ignores_failed_trials(self):
        search = load("search")
        calls = []

        def score(settings, epochs):
            calls.append((settings["x"], epochs))
            return math.nan if settings["x"] == 4 else settings["x"] / epochs

        candidates = [{"x": x} for x in (4, 3, 1, 2, 5)]
        self.assertEqual(search.halve(candidates, 4, score, False), {"x": 1})
        self.assertEqual([epochs for _, epochs in calls], [1] * 5 + [2] * 2 + [4])
        self.assertEqual(search.halve(candidates, 1, score, True), {"x": 5})
        self.assertIsNone(search.halve([{"x": 4}], 4, score, False))

    def test_search_draws_from_the_space(self):
        search = load("search")
        space = {"rate": search.parse_range("0.001:1"), "dim": search.parse_range("4,8")}
        drawn = [search.draw_settings(space, random.Random(seed)) for seed in range(50)]
        self.assertEqual({settings["dim"] for settings in drawn}, {"4", "8"})
        self.assertTrue(all(0.001 <= settings["rate"] <= 1 for settings in drawn))
        self.assertGreater(sum(settings["rate"] < 0.03 for settings in drawn), 10)
        for wrong in ("1:0.5", "0:1", "a:b"):
            with self.assertRaises(ValueError):
                search.parse_range(wrong)

    def test_wrong_usage_is_refused(self):
        for arguments in (
            ("consistency", "--seeds=0"),
            ("backup_workers", "--sedes=1"),
            ("search", "--job=x"),
            ("search", "--job=x", "rate"),
        ):
            with self.subTest(arguments=arguments):
                self.assertEqual(self.run_script(*arguments)[0], 2)


if __name__ == "__main__":
    PAWLCTL = sys.argv.pop(1)
    unittest.main()
