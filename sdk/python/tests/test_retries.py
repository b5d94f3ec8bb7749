"""How long the client waits before the next attempt."""

import unittest

from . import KEY  # noqa: F401  sets the path
from sealog._core import Policy, _retry_after_s


class Waits(unittest.TestCase):
    def longest(self, policy, attempt):
        return max(policy.delay_s(attempt, None) for _ in range(2000))

    def test_waits_double_up_to_eight_times_the_base_and_jitter_covers_all_of_it(self):
        policy = Policy(5, 1.0, 60.0)
        for attempt, bound in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 32), (7, 60), (40, 60)]:
            with self.subTest(attempt):
                waits = [policy.delay_s(attempt, None) for _ in range(2000)]
                self.assertLess(min(waits), bound * 0.1)
                self.assertTrue(bound * 0.9 < max(waits) <= bound, max(waits))
        self.assertLessEqual(self.longest(Policy(9, 1.0, 60.0), 8), 8)

    def test_no_wait_is_shorter_than_retry_after(self):
        policy = Policy(5, 1.0, 60.0)
        self.assertEqual(policy.delay_s(1, 90.0), 90)
        self.assertTrue(all(policy.delay_s(4, 3.0) >= 3 for _ in range(500)))

    def test_a_date_is_measured_by_the_answers_own_date(self):
        later, date = "Wed, 18 Nov 2026 10:00:07 GMT", "Wed, 18 Nov 2026 10:00:00 GMT"
        for after, by, wanted in [(later, date, 7), (later, None, None), ("3", None, 3), ("soon", date, None)]:
            with self.subTest(after):
                headers = {"retry-after": after, **({"date": by} if by else {})}
                self.assertEqual(_retry_after_s(headers), wanted)
