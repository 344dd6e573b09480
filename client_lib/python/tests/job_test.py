"""Decisions of pawl.Job about its ranks, without servers."""

import json
import os
import tempfile
import unittest
from unittest import mock

import numpy as np
import torch

from pawl import _abi, data, errors
from pawl.data import ENDLESS
from pawl.job import Job
from pawl.rank import Rank
from pawl.reporter import Reporter
from pawl.torch.optimizer import _Rates
from pawl.worker_folder import WorkerFolder


class FakeFuture:
    """A call that has ended, or not, with an error or a result."""

    def __init__(self, ended=True, error=None, result=None):
        self.ended, self.error, self.result = ended, error, result

    def done(self, timeout=0.0):
        del timeout
        return self.ended

    def wait(self):
        assert self.ended
        if self.error is not None:
            raise self.error
        return self.result


class FakeClient:
    """Records the calls of the C interface."""

    job = {"consistency": {"mode": "SYNC"}}
    handle = None
    is_open = True

    def __init__(self):
        self.calls = []
        # What the latest pawl_finish_rank reported.
        self.progress = {}
        # What the status reports: the steps of the slowest rank, and of the furthest.
        self.steps = 0
        self.most_steps = 0

    def close(self):
        self.is_open = False

    def status(self, timeout=None):
        del timeout
        nodes = [{"node": "server-0"}, {"worker": {"steps_max": str(self.most_steps)}}]
        return {"steps": str(self.steps), "nodes": nodes}

    def call(self, name, *arguments, **options):
        del options
        self.calls.append((name, arguments[0] if name != "pawl_give_up_ranks" else arguments[0][0]))
        if name == "pawl_finish_rank":
            self.progress = json.loads(arguments[1])
        return FakeFuture()


class FakeSession:
    """The step of a rank."""

    def close(self):
        pass


class JobTest(unittest.TestCase):
    def setUp(self):
        self.client = FakeClient()
        self.job = Job(self.client)
        self.rank = Rank(3, 7, FakeSession(), iter([]), step=5)
        self.job._hosted.ranks[3] = self.rank

    def given_up(self):
        return [rank for name, rank in self.client.calls if name == "pawl_give_up_ranks"]

    def test_batch_that_a_rank_has_read_ahead_goes_to_another(self):
        stream = data.Stream(["a", "b"])
        self.job._hosted.read(stream, 0)
        self.rank.batches = stream.batches(3, 4, 0)
        self.assertTrue(self.job._read(self.rank))
        self.job._hosted.give_up_others()
        self.assertEqual(self.given_up(), [3])
        self.assertEqual(list(stream.batches(0, 4, 0)), ["a", "b"])

    def test_batches_of_a_predecessor_have_as_many_samples_as_those_here(self):
        stream = data.Stream([np.zeros(96), np.zeros(40)])
        hosted = self.job._hosted
        hosted.read(stream, 0)
        self.client.handle = "client"
        with mock.patch("pawl._abi.invoke", return_value=5):
            hosted._take_over(0, 1)
            for samples in 96, 40:
                self.assertEqual(len(next(stream)), samples)
                hosted.ranks[0].count_batch(samples)
            hosted._take_over(2, 1)
        self.assertEqual(hosted.ranks[0].samples, 6 * 96 + 40)
        # It comes after the last batch, and gets none.
        self.assertEqual(hosted.ranks[2].samples, 5 * 40)

    def test_rank_stays_until_the_step_that_is_computed_has_ended(self):
        self.job._rank, self.job._computing = self.rank, True
        self.job._hosted.give_up_others()
        self.assertEqual(self.given_up(), [])
        self.assertIn(3, self.job._hosted.ranks)
        self.job._computing = False
        self.job._hosted.give_up_others()
        self.assertEqual(self.given_up(), [3])
        self.assertNotIn(3, self.job._hosted.ranks)

    def test_rank_stays_until_its_last_step_is_acknowledged(self):
        self.rank.ending = FakeFuture(ended=False)
        self.job._hosted.give_up_others()
        self.assertEqual(self.given_up(), [])
        self.rank.ending.ended = True
        self.job._hosted.give_up_others()
        self.assertEqual(self.given_up(), [3])

    def failures_after(self, *ends):
        """How often the job failed after programs in one folder ended by these exceptions.

        None: a program that was killed.
        """
        with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
            with mock.patch.dict(os.environ, PAWL_WORKER_DIR=folder):
                for error in ends:
                    WorkerFolder(folder).previous_node()
                    if error is not None:
                        self.job.on_exception(error)
        return len([name for name, _ in self.client.calls if name == "pawl_finish_rank"])

    def test_refused_argument_before_the_first_step_fails_the_job_at_once(self):
        self.assertEqual(self.failures_after(errors.InvalidArgumentError("wrong")), 1)

    def test_same_exception_before_the_first_step_fails_the_job_the_second_time(self):
        self.assertEqual(self.failures_after(KeyError("a"), KeyError("b")), 0)
        self.assertEqual(self.failures_after(KeyError("a"), KeyError("a")), 1)

    def test_unreachable_servers_before_the_first_step_fail_nothing(self):
        self.assertEqual(self.failures_after(*[errors.UnavailableError("down")] * 3), 0)

    def test_program_that_cannot_begin_fails_no_job_that_others_train(self):
        for self.client.steps, self.client.most_steps in (1, 0), (0, 7):
            for error in (errors.InvalidArgumentError("wrong"), KeyError("a")):
                self.assertEqual(self.failures_after(error, error), 0)

    def test_program_that_cannot_begin_fails_no_job_whose_steps_are_unknown(self):
        self.client.status = mock.Mock(side_effect=errors.UnavailableError("away"))
        self.assertEqual(self.failures_after(errors.InvalidArgumentError("wrong")), 0)

    def test_same_exception_after_another_end_is_not_repeated(self):
        self.job._position = (3, 5)
        self.assertEqual(self.failures_after(KeyError("a"), None, KeyError("a")), 0)
        self.assertEqual(self.failures_after(KeyError("a"), None, KeyError("a"), KeyError("a")), 1)

    def test_refused_argument_in_a_step_fails_the_job_the_second_time(self):
        self.job._position = (3, 5)
        error = errors.InvalidArgumentError("wrong")
        self.assertEqual(self.failures_after(error), 0)
        self.assertEqual(self.failures_after(error, error), 1)

    def test_failure_is_reported_although_the_disk_is_full(self):
        with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
            os.mkdir(os.path.join(folder, "exception.json.new"))
            with mock.patch.dict(os.environ, PAWL_WORKER_DIR=folder), self.assertLogs("pawl"):
                self.job.on_exception(errors.InvalidArgumentError("wrong"))
        self.assertIn("pawl_finish_rank", [name for name, _ in self.client.calls])

    def test_assigned_rank_stays(self):
        self.job._hosted.assigned = {3: 7}
        self.job._hosted.give_up_others()
        self.assertEqual(self.given_up(), [])

    def test_data_that_ends_early_is_an_error(self):
        self.job._end = 9
        with self.assertRaisesRegex(errors.FailedPreconditionError, "ends at step 5; .* says 9"):
            self.job._end_stream(self.rank)

    def test_loss_that_is_no_number_is_not_reported(self):
        self.job.report_loss(0.5)
        self.job.report_loss(float("nan"))
        self.job._finish_rank(self.rank)
        self.assertEqual(self.client.progress["loss"], 0.5)

    def test_rank_of_a_completed_job_is_finished_although_the_answer_is_lost(self):
        answer = FakeFuture(ended=False)
        states = iter(["RUNNING", "FINISHING", "COMPLETED"])
        self.client.call = lambda *_, **__: answer
        self.client.describe = lambda: {"state": next(states)}
        self.job._finish_rank(self.rank)
        self.assertEqual(self.job._hosted.finished, {3})
        self.assertEqual(list(states), [])

    def finish_at(self, state, **error):
        """Finishes a job whose last rank has ended, and that is in this state then."""
        self.rank.step = self.job._end = 5
        self.client.describe = lambda: {"state": state, "code": 0, "error": "", **error}
        with mock.patch("pawl._abi.invoke", return_value=_abi.OK):
            self.job.finish()

    def test_end_of_a_completed_job_finishes_it(self):
        self.finish_at("COMPLETED")
        self.assertTrue(self.job.is_finished)

    def test_work_for_a_job_that_has_failed_is_not_finished(self):
        with self.assertRaisesRegex(errors.FailedPreconditionError, "the job is STOPPED"):
            self.finish_at("STOPPED")
        with self.assertRaisesRegex(errors.AbortedError, "was superseded"):
            self.finish_at("RUNNING", code=10, error="was superseded")
        self.assertFalse(self.job.is_finished)

    def test_job_is_closed_although_it_cannot_be_finished(self):
        self.job.is_trained = True
        with self.assertRaises(errors.FailedPreconditionError):
            with self.job, mock.patch.object(
                self.job, "finish", side_effect=errors.FailedPreconditionError("failed")
            ):
                pass
        self.assertFalse(self.client.is_open)

    def test_failure_without_a_reason_is_a_failure(self):
        self.job.fail("")
        self.assertEqual(self.client.progress["failure"], "a worker gave no reason")

    def test_scheduler_that_the_job_steps_is_not_kept(self):
        kept, own = [
            torch.optim.lr_scheduler.LambdaLR(torch.optim.SGD(layer.parameters(), 0.1), float)
            for layer in (torch.nn.Linear(1, 1), torch.nn.Linear(1, 1))
        ]
        self.job.keep(decay=kept)
        words = r"Job\.keep\(decay=\.\.\.\): job\.steps.* has this LambdaLR too"
        with self.assertRaisesRegex(errors.InvalidArgumentError, words):
            next(self.job.steps([], schedulers=[own, kept]))
        # One that the program steps is not refused; the next check is that of the data.
        with self.assertRaisesRegex(errors.InvalidArgumentError, "a SYNC job cannot train on list"):
            next(self.job.steps([]))


class WaitTest(unittest.TestCase):
    def test_step_that_cannot_be_ended_ends_the_wait_for_the_next(self):
        ending = mock.Mock()
        ending.done.return_value = True
        job = object.__new__(Job)
        job._hosted = mock.Mock(ranks={0: mock.Mock(ending=ending, unsent=None)})
        pull = mock.Mock()
        pull.done.side_effect = [False, False, True]
        # Another process may have the rank by now, as follow finds out.
        ending.wait.side_effect = errors.AbortedError("taken over")
        job.wait_for(pull)
        self.assertEqual(job._hosted.follow.call_count, 2)
        ending.wait.side_effect = errors.InvalidArgumentError("too many segments")
        pull.done.side_effect = [False] * 5
        with self.assertRaises(errors.InvalidArgumentError):
            job.wait_for(pull)


class WorkerFolderTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = WorkerFolder(folder.name)
        self.file = os.path.join(folder.name, "node.json")

    def test_successor_gets_the_node_that_was_written(self):
        self.assertEqual(self.folder.previous_node(), ("", 0, 1))
        self.folder.write_node("worker-3", 7, 1)
        self.assertEqual(self.folder.previous_node(), ("worker-3", 7, 2))

    def test_damaged_file_means_no_predecessor(self):
        for text in ("", "[]", '{"node": "worker-3"}', "{"):
            with open(self.file, "w", encoding="utf-8") as file:
                file.write(text)
            with self.assertLogs("pawl") as logs:
                self.assertEqual(self.folder.previous_node(), ("", 0, 1), text)
            self.assertIn("joins as a new one", logs.output[0])
        self.assertEqual(self.folder.previous_node(), ("", 0, 2))

    def test_folder_that_cannot_be_written_means_no_predecessor(self):
        self.folder.write_node("worker-3", 7, 1)
        os.mkdir(self.file + ".new")
        # A start that is not counted would be taken for the one before.
        with self.assertLogs("pawl"):
            self.assertEqual(self.folder.previous_node(), ("", 0, 1))


class BackupWorkersTest(unittest.TestCase):
    def setUp(self):
        client = FakeClient()
        client.job = {"consistency": {"mode": "SYNC", "backup_workers": 1}}
        self.job = Job(client)

    def test_kept_objects_are_refused(self):
        words = r"Job\.keep: consistency\.backup_workers is 1, .*; set it to 0, or do without"
        with self.assertRaisesRegex(errors.InvalidArgumentError, words):
            self.job.keep(layer=torch.nn.Linear(1, 1))

    def test_evaluations_are_refused(self):
        self.job._rank = Rank(0, 1, FakeSession(), iter([]), step=6)
        words = r"Job\.evaluate: consistency\.backup_workers is 1, "
        with self.assertRaisesRegex(errors.InvalidArgumentError, words):
            self.job.evaluate([0.5], [1])


class VersionTest(unittest.TestCase):
    def setUp(self):
        self.client = FakeClient()
        self.job = Job(self.client)
        self.client.describe = lambda: {"state": self.state}
        self.state = "RUNNING"

    def test_loop_of_a_job_whose_steps_close_without_the_rank_has_none(self):
        self.job._rank = Rank(0, 1, FakeSession(), iter([]), step=6)
        for consistency in ({"mode": "ASYNC"}, {"mode": "SYNC", "backup_workers": 1}):
            self.client.job = {"consistency": consistency}
            job = Job(self.client)
            job._rank = self.job._rank
            self.assertFalse(job.wait_for_version())

    def test_end_of_all_loops_has_one(self):
        self.assertFalse(self.job.wait_for_version(), "before the loop")
        self.job._end, self.job.is_trained = 9, True
        self.assertTrue(self.job.wait_for_version())

    def test_end_of_a_stream_has_one_when_the_job_has_ended(self):
        self.job._end, self.job.is_trained = ENDLESS, True
        self.assertFalse(self.job.wait_for_version())
        self.state = "COMPLETED"
        self.assertTrue(self.job.wait_for_version())


class LogTest(unittest.TestCase):
    def setUp(self):
        self.job = Job(FakeClient())
        self.logged = []
        self.enterContext(mock.patch("pawl._abi.invoke", self.invoke))

    def invoke(self, name, handle, *arguments):
        del handle
        self.assertEqual(name, "pawl_log_metric")
        self.logged.append(arguments)
        return 0

    def test_numbers_of_all_kinds_are_logged(self):
        self.job.log("ctr", 0.5, step=3)
        self.job.log(
            {"a": torch.tensor([0.25]), "b": np.array([2.0]), "c": 7, "d": True}, step=np.int64(4)
        )
        expected = [(b"ctr", 3, 0.5), (b"a", 4, 0.25), (b"b", 4, 2.0), (b"c", 4, 7.0)]
        self.assertEqual(self.logged, expected + [(b"d", 4, 1.0)])

    def test_step_is_that_of_the_loop(self):
        with self.assertRaisesRegex(errors.FailedPreconditionError, "inside of the loop"):
            self.job.log("ctr", 1)
        self.job._rank, self.job._step = Rank(0, 1, FakeSession(), iter([]), step=6), 5
        self.job.log("ctr", 1)
        self.assertEqual(self.logged, [(b"ctr", 5, 1.0)])

    def test_figure_that_is_not_finite_is_left_out_with_one_warning(self):
        with self.assertLogs("pawl", "WARNING") as logs:
            self.job.log({"a": float("nan"), "b": 1}, step=1)
            self.job.log("a", float("-inf"), step=2)
        self.assertEqual(len(logs.output), 1)
        self.assertEqual(self.logged, [(b"b", 1, 1.0)])

    def test_what_is_no_number_is_named(self):
        for value in (None, "text", [1, 2], torch.ones(2)):
            with self.assertRaisesRegex(ValueError, "metric 'a' is a .*; it must be one number"):
                self.job.log("a", value, step=1)
        with self.assertRaisesRegex(ValueError, "step is -1"):
            self.job.log("a", 1, step=-1)


class ReportTest(unittest.TestCase):
    def setUp(self):
        self.sent = []
        # The answers of the scheduler, call by call.
        self.answers = []
        self.enterContext(mock.patch("pawl.reporter._SCORES_IN_PART", 2))

    def call(self, name, part, timeout_ms, convert):
        del convert
        self.assertEqual(name, "pawl_report_evaluation")
        self.assertEqual(timeout_ms, 24 * 3600 * 1000)
        self.sent.append(json.loads(part)["part"])
        return self.answers[len(self.sent) - 1]

    def report(self, scores):
        return Reporter(self).report_evaluation({"rank": 1}, np.arange(scores), np.ones(scores))

    def forgotten(self):
        return FakeFuture(error=errors.FailedPreconditionError("send all of them again"))

    def test_scheduler_that_has_forgotten_parts_gets_all_of_them_again(self):
        last = FakeFuture(ended=False)
        self.answers = [FakeFuture(), FakeFuture(), last]
        report = self.report(scores=5)
        self.assertEqual(self.sent, [0, 1, 2])
        self.assertFalse(report.done())
        self.answers += [FakeFuture(), FakeFuture(), self.forgotten(), FakeFuture(), FakeFuture()]
        self.answers += [FakeFuture(result={"auc": 0.75})]
        last.ended, last.error = True, self.forgotten().error
        self.assertEqual(report.wait(), {"auc": 0.75})
        self.assertEqual(self.sent, [0, 1, 2, 0, 1, 2, 0, 1, 2])

    def test_earlier_part_is_refused_for_another_reason(self):
        self.answers = [FakeFuture(), self.forgotten()]
        with self.assertRaises(errors.FailedPreconditionError):
            self.report(scores=5).wait()
        self.assertEqual(self.sent, [0, 1])

    def test_scheduler_that_always_refuses_is_an_error(self):
        self.answers = [FakeFuture(), self.forgotten()] * 101
        with self.assertRaises(errors.FailedPreconditionError):
            self.report(scores=3).wait()
        self.assertEqual(self.sent, [0, 1] * 100)

    def test_report_of_one_part_that_is_refused_is_an_error(self):
        self.answers = [self.forgotten()]
        with self.assertRaises(errors.FailedPreconditionError):
            self.report(scores=2).wait()

    def test_other_errors_of_a_part_are_those_of_the_report(self):
        self.answers = [FakeFuture(error=errors.CancelledError("closed"))]
        report = self.report(scores=3)
        self.assertTrue(report.done())
        with self.assertRaises(errors.CancelledError):
            report.wait()


class RatesTest(unittest.TestCase):
    def test_rank_that_is_far_behind_gets_the_rates_of_its_step(self):
        rates = _Rates([1.0])
        by_step = [1.0, 1.0, 0.5, 0.5, 0.25]
        now = iter(by_step + [0.25] * 100)
        rates.advance(100, lambda: [next(now)])
        changes = [rates.changed_at(step)[0] for step in range(5)]
        self.assertEqual(changes, [None, None, 0.5, None, 0.25])

    def test_schedule_may_change_in_steps_that_are_not_done(self):
        rates = _Rates([1.0])
        now = iter([1.0, 1.0, 1.0, 0.5])
        rates.advance(3, lambda: [next(now)])
        # On another machine the last bit of the schedule may differ.
        rates.check_continues(2, [1.0 + 1e-9])
        # A job that an earlier version has begun.
        rates.check_continues(2, None)
        with self.assertRaisesRegex(errors.FailedPreconditionError, r"step 1 were \[0.7\], and"):
            rates.check_continues(2, [0.7])
        # The rate of step 3 is sent.
        self.assertEqual(rates.changed_at(3), [0.5])
        rates.check_continues(3, [0.7])


if __name__ == "__main__":
    unittest.main()
