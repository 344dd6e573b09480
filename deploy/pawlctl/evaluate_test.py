#!/usr/bin/env python3
"""Tests of `pawlctl evaluate`: trains jobs and evaluates their checkpoints.

Usage: evaluate_test.py PAWLCTL
"""

import glob
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import unittest

from testing.program import LIMIT_S, TrainingTest

# What an evaluation of the same parameters need not share.
OF_THE_RUN = ("evaluation", "time", "train_s", "trained_samples")


def scores_of(evaluation):
    return {name: value for name, value in evaluation.items() if name not in OF_THE_RUN}


class EvaluateTest(TrainingTest):
    def setUp(self):
        super().setUp()
        self.environment["TMPDIR"] = self.path("tmp")
        os.mkdir(self.path("tmp"))
        generator = random.Random(7)
        # Some categories of the evaluation data are not in the training data.
        for name, lines, categories in (("train", 1000, 10), ("eval", 400, 13)):
            self.write(
                name + ".libsvm",
                "".join(
                    "%d qid:%d %d:1 %d:1\n"
                    % (
                        generator.random() < 0.1 + 0.05 * (line % 10),
                        1 + line % 23,
                        1 + generator.randrange(categories),
                        101 + line % 10,
                    )
                    for line in range(lines)
                ),
            )
        self.write_job("deepfm { dim: 4 hidden: [8] init_stddev: 0.5 }")

    def write_job(self, model):
        self.write(
            "job.pbtxt",
            """name: "small" seed: 7 batch_size: 64 epochs: 2 logical_workers: 4 partitions: 16
data { train: "train.libsvm" eval: "eval.libsvm" format: LIBSVM libsvm_fields: 2 }
model { %s } optimizer { adagrad { learning_rate: 0.1 } } evaluation { group_by: "qid" }
"""
            % model,
        )

    def evaluate(self, *more, checkpoint=None):
        code, text, err = self.pawlctl(
            "evaluate", "--checkpoint=" + (checkpoint or self.checkpoints), "--json", *more
        )
        self.assertEqual((code, err), (0, ""), text)
        self.assertEqual(os.listdir(self.path("tmp")), [])
        return json.loads(text)

    def test_scores_are_those_of_the_jobs_end_in_every_mode(self):
        for mode in ("mode:SYNC", "mode:BOUNDED staleness:2", "mode:ASYNC"):
            with self.subTest(mode=mode):
                shutil.rmtree(self.checkpoints, ignore_errors=True)
                metrics = self.train("--set=consistency={%s}" % mode)
                expected = scores_of(metrics["eval"])
                self.assertTrue({"auc", "gauc", "ndcg", "logloss"} < set(expected), expected)
                result = self.evaluate()
                self.assertEqual(scores_of(result["eval"]), expected)
                self.assertEqual(result["job"], "small")
                self.assertEqual(result["data"], [self.path("eval.libsvm")])
                # With the sums of other ranks' processes in the same order.
                self.assertEqual(
                    scores_of(
                        self.evaluate("--job=" + self.job, "--set=consistency={%s}" % mode,
                                      "--workers=2", "--servers=3")["eval"]
                    ),
                    expected,
                )

    def test_streamed_data_has_the_scores_of_data_in_memory(self):
        metrics = self.train(
            "--set=data.window_samples=150",
            "--set=data.stream_eval=true",
            "--set=evaluation.group_by=",
        )
        expected = scores_of(metrics["eval"])
        self.assertEqual(scores_of(self.evaluate()["eval"]), expected)
        os.mkdir(self.path("indexes"))
        for index in glob.glob(self.path("eval.libsvm.*.pawlindex")):
            os.remove(index)
        self.assertEqual(
            scores_of(self.evaluate("--index_dir=" + self.path("indexes"))["eval"]), expected
        )
        self.assertTrue(os.listdir(self.path("indexes")))
        self.assertEqual(glob.glob(self.path("eval.libsvm.*.pawlindex")), [])
        in_memory = self.evaluate("--set=data.stream_eval=false")
        self.assertEqual(scores_of(in_memory["eval"]), expected)

    def test_signal_ends_the_making_of_an_index(self):
        self.train("--set=data.window_samples=150", "--set=data.stream_eval=true",
                   "--set=evaluation.group_by=")
        # A worker that makes an index for ever.
        programs = self.path("programs")
        os.mkdir(programs)
        began = self.path("began")
        os.mkfifo(began)
        for name in ("pawl-scheduler", "pawl-server", "pawl-worker"):
            self.write("programs/" + name, "#!/bin/sh\necho > %s\nexec sleep 1000\n" % began)
            os.chmod(os.path.join(programs, name), 0o700)
        evaluation = subprocess.Popen(
            [self.PAWLCTL, "evaluate", "--checkpoint=" + self.checkpoints],
            env=dict(self.environment, PAWL_BIN_DIR=programs),
        )
        self.addCleanup(evaluation.kill)
        with open(began, encoding="utf-8") as file:
            file.readline()
        evaluation.terminate()
        self.assertEqual(evaluation.wait(LIMIT_S), -signal.SIGTERM)

    def test_every_checkpoint_of_a_bounded_job_can_be_evaluated(self):
        self.train(
            "--set=consistency={mode:BOUNDED staleness:3}",
            "--set=checkpoint.every_steps=7",
            "--set=checkpoint.keep=9",
            "--straggler=constant:ms=20,ranks=1",
        )
        seen = set()
        for name in sorted(os.listdir(self.checkpoints)):
            before = sorted(os.listdir(os.path.join(self.checkpoints, name)))
            result = self.evaluate(checkpoint=os.path.join(self.checkpoints, name))
            self.assertEqual(result["checkpoint"], os.path.join(self.checkpoints, name))
            self.assertIn("%d" % result["eval"]["step"], name)
            self.assertEqual(result["eval"]["samples"], 400)
            seen.add(result["eval"]["auc"])
            self.assertEqual(sorted(os.listdir(os.path.join(self.checkpoints, name))), before)
        self.assertGreater(len(seen), 1)

    def test_all_reduce_checkpoint_is_evaluated(self):
        metrics = self.train("--set=dense_path=ALLREDUCE")
        self.assertEqual(scores_of(self.evaluate()["eval"]), scores_of(metrics["eval"]))

    def test_unknown_categories_have_their_initial_values(self):
        self.write_job("logistic_regression {}")
        self.train()
        for name, label in (("clicks", 1), ("rest", 0)):
            for offset in (5000, 6000):
                self.write(
                    "%s-%d" % (name, offset),
                    "".join("%d %d:1 %d:1\n" % (label, offset + i, offset + 99) for i in range(9)),
                )
        logloss = lambda *files: self.evaluate(
            "--set=evaluation.group_by=", *("--data=" + file for file in files)
        )["eval"]["logloss"]
        clicks, rest = logloss("clicks-5000"), logloss("rest-5000")
        # Weights start at 0, so every prediction is that of the bias.
        self.assertAlmostEqual(math.exp(-clicks) + math.exp(-rest), 1, 9)
        self.assertEqual(logloss("clicks-6000"), clicks)
        self.assertAlmostEqual(logloss("clicks-6000", "rest-6000"), (clicks + rest) / 2, 9)

    def test_text_names_the_checkpoint_and_the_scores(self):
        metrics = self.train()
        code, text, err = self.pawlctl("evaluate", "--checkpoint=" + self.checkpoints)
        self.assertEqual((code, err), (0, ""))
        for part in (
            "step %d" % metrics["steps"],
            "400 samples of " + self.path("eval.libsvm"),
            "auc %.4f" % metrics["eval"]["auc"],
            "ndcg %.4f" % metrics["eval"]["ndcg"],
        ):
            self.assertIn(part, text)

    def test_what_does_not_fit_is_refused_by_name(self):
        def refused(*arguments):
            code, text, err = self.pawlctl("evaluate", *arguments)
            self.assertEqual((code, text), (2, ""), err)
            return err

        self.assertIn("--checkpoint", refused("--checkpoint=" + self.path("nowhere")))
        self.train()
        checkpoint = "--checkpoint=" + self.checkpoints
        self.assertIn("model", refused(checkpoint, "--set=model.deepfm.dim=5"))
        self.assertIn("seed", refused(checkpoint, "--set=seed=8"))
        self.assertIn("--data", refused(checkpoint, "--set=data.eval=[]"))
        self.assertIn(
            "data.eval: cannot open " + self.path("nowhere.libsvm"),
            refused(checkpoint, "--data=nowhere.libsvm"),
        )
        self.assertIn("--workers=0", refused(checkpoint, "--workers=0"))
        self.assertIn("--servers=0", refused(checkpoint, "--servers=0"))
        self.assertIn("--device=gpu", refused(checkpoint, "--device=gpu"))
        self.assertIn("same to evaluate the checkpoint", refused(checkpoint, "--set=seed=8"))
        self.assertNotIn("without a checkpoint", refused(checkpoint, "--set=seed=8"))


if __name__ == "__main__":
    TrainingTest.PAWLCTL = sys.argv.pop(1)
    unittest.main()
