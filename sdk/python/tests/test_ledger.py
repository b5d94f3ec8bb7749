"""A small ledger: few kills. `ledger.py` has the recipe for many."""

import os
import unittest

from . import ledger


@unittest.skipUnless(os.environ.get("SEALOG_BIN"), "SEALOG_BIN names no server")
class Ledger(unittest.TestCase):
    def test_nothing_is_lost_stored_twice_or_out_of_order_over_kills(self):
        seed = int(os.environ.get("SEALOG_SEED", os.getpid()))
        counts = ledger.run(os.path.abspath(os.environ["SEALOG_BIN"]), 3, 2, seed)
        wrong = {name: counts[name] for name in ledger.ZERO if counts[name]}
        self.assertEqual(wrong, {}, "SEALOG_SEED=%d" % seed)
        self.assertTrue(counts["chain_valid"])
        self.assertGreater(counts["acknowledged"], 0)


if __name__ == "__main__":
    unittest.main()
