"""Decisions of pawl.Job about its ranks, without servers."""

import unittest

from pawl import errors
from pawl.job import Job
from pawl.rank import Rank
from pawl.torch.optimizer import _Rates


class FakeFuture:
    """A call that has ended, or not."""

    def __init__(self, ended=True):
        self.ended = ended

    def done(self, timeout=0.0):
        del timeout
        return self.ended

    def wait(self):
        assert self.ended


class FakeClient:
    """Records the calls of the C interface."""

    job = {"consistency": {"mode": "SYNC"}}
    handle = None

    def __init__(self):
        self.calls = []

    def call(self, name, *arguments, **options):
        del options
        self.calls.append((name, arguments[0] if name != "pawl_give_up_ranks" else arguments[0][0]))
        return FakeFuture()


class FakeSession:
    """Of a rank."""

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
        self.assertEqual(self.job._progress()["loss"], 0.5)


class RatesTest(unittest.TestCase):
    def test_rank_that_is_far_behind_gets_the_rates_of_its_step(self):
        rates = _Rates([1.0])
        by_step = [1.0, 1.0, 0.5, 0.5, 0.25]
        now = iter(by_step + [0.25] * 100)
        rates.advance(100, lambda: [next(now)])
        changes = [rates.changed_at(step)[0] for step in range(5)]
        self.assertEqual(changes, [None, None, 0.5, None, 0.25])


if __name__ == "__main__":
    unittest.main()
