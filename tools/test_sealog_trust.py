"""Tests of sealog_trust.py: Ed25519 against RFC 8032, trees against their definition, and the shared vectors.

    python3 -m unittest discover -s tools -p 'test_*.py'
"""

import contextlib
import io
import json
import os
import sys
import tempfile
import unittest
import unittest.mock

TOOLS = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, TOOLS)
import sealog_trust as st  # noqa: E402
import sealog_verify as sv  # noqa: E402

VECTORS = os.path.join(TOOLS, "..", "vectors", "trust")


def mth(leaves):
    """RFC 6962, 2.1, as it is written there."""
    if len(leaves) < 2:
        return leaves[0] if leaves else st.sha256()
    half = 1
    while half * 2 < len(leaves):
        half *= 2
    return st.node_hash(mth(leaves[:half]), mth(leaves[half:]))


class Ed25519(unittest.TestCase):
    # RFC 8032, 7.1, tests 1 to 3: seed, public key, message, signature.
    RFC = (
        ("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
         "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
         "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46b"
         "d25bf5f0595bbe24655141438e7a100b"),
        ("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
         "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
         "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c"
         "387b2eaeb4302aeeb00d291612bb0c00"),
        ("c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
         "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
         "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc659"
         "4a7c15e9716ed28dc027beceea1ec40a"),
    )  # fmt: skip

    def test_signatures_are_those_of_the_rfc(self):
        for row in self.RFC:
            seed, key, message, signature = (bytes.fromhex(text) for text in row)
            self.assertEqual(st.ed25519_secret(seed)[2], key)
            self.assertEqual(st.ed25519_sign(seed, message), signature)
            self.assertTrue(st.ed25519_verify(key, message, signature))

    def test_no_changed_bit_of_a_signature_verifies(self):
        _, key, message, signature = (bytes.fromhex(text) for text in self.RFC[2])
        for bit in range(0, 512, 37):
            changed = bytearray(signature)
            changed[bit // 8] ^= 1 << bit % 8
            self.assertFalse(st.ed25519_verify(key, message, bytes(changed)), bit)
        self.assertFalse(st.ed25519_verify(key, message + b"x", signature))
        self.assertFalse(st.ed25519_verify(key, message, signature[:63]))

    def test_a_scalar_above_the_group_order_is_refused(self):
        _, key, message, signature = (bytes.fromhex(text) for text in self.RFC[2])
        scalar = int.from_bytes(signature[32:], "little") + st.ORDER
        self.assertFalse(st.ed25519_verify(key, message, signature[:32] + scalar.to_bytes(32, "little")))

    def test_points_of_small_order_are_no_public_keys(self):
        found = 0
        for y in (0, 1, st.P - 1, *self.eighths()):
            for sign in (0, 1):
                data = (y | sign << 255).to_bytes(32, "little")
                found += st.decompress(data) is not None
                self.assertIsNone(st.public_point(data))
        self.assertEqual(found, 8, "the group has eight points of small order")

    def eighths(self):
        """The y of the points of order 8: a double has y = 0."""
        y = int.from_bytes(bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"), "little")
        point = st.decompress(y.to_bytes(32, "little"))
        self.assertEqual(st.add(point, point)[1] % st.P, 0)
        return y, st.P - y


class Trees(unittest.TestCase):
    def test_roots_and_proofs_follow_the_definition(self):
        leaves = [st.leaf_hash(b"%d" % number) for number in range(40)]
        tree = st.Tree(leaves)
        for size in range(1, 41):
            root = mth(leaves[:size])
            self.assertEqual(tree.root(0, size), root)
            for index in range(size):
                st.verify_inclusion(leaves[index], index, size, root, tree.inclusion(index, size))
                st.verify_consistency(index + 1, mth(leaves[: index + 1]), size, root, tree.consistency(index + 1, size))

    def test_a_path_of_64_hashes_is_refused_for_every_size(self):
        for size in (1, 2**62, 2**63 - 1):
            with self.assertRaises(st.Refused) as refused:
                st.root_from_path(bytes(32), 0, size, [bytes(32)] * 64)
            self.assertEqual(refused.exception.reason, "too long")


class Vectors(unittest.TestCase):
    def run_vectors(self, directory):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = st.run_vectors(directory)
        return code, out.getvalue().splitlines()

    def test_every_case_passes(self):
        code, lines = self.run_vectors(VECTORS)
        self.assertEqual((code, len(lines)), (0, 1), lines)

    def test_a_wrong_result_in_any_file_is_noticed(self):
        with tempfile.TemporaryDirectory() as directory:
            for name in st.FILES:
                with open(os.path.join(VECTORS, name + ".json"), encoding="utf-8") as file:
                    case = json.load(file)["cases"][-1]
                for field in ("result", "root", "leaf"):
                    if field in case:
                        case[field] = "AAAA" if field == "root" and "result" not in case else "wrong"
                        break
                with open(os.path.join(directory, name + ".json"), "w", encoding="utf-8") as file:
                    json.dump({"cases": [case]}, file)
            code, lines = self.run_vectors(directory)
        self.assertEqual((code, lines[-1]), (10, "0 passed, %d failed" % len(st.FILES)))


class Verdicts(unittest.TestCase):
    """The cases of verify.json: files, arguments, exit code and words."""

    @classmethod
    def setUpClass(cls):
        with open(os.path.join(VECTORS, "verify.json"), encoding="utf-8") as file:
            cls.cases = json.load(file)["cases"]

    def fails(self, case):
        """What the program says, if that is not what the case says; its files are in the current directory."""
        for name, text in case["files"].items():
            with open(name, "w", encoding="utf-8", newline="") as file:
                file.write(text)
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            with unittest.mock.patch.object(sys, "argv", ["sealog_verify.py", *case["arguments"]]):
                try:
                    code = sv.main()
                except Exception as error:  # of a mutant
                    return repr(error)
        said = "sealog_verify: %s\n" % case["text"] if case["exit"] == 2 else case["text"]
        return (out.getvalue() + err.getvalue(), code) != (said, case["exit"]) and out.getvalue() + err.getvalue()

    def run_in_directory(self, check):
        with tempfile.TemporaryDirectory() as directory:
            before = os.getcwd()
            os.chdir(directory)
            try:
                check()
            finally:
                os.chdir(before)

    def test_every_case_has_its_exit_code_and_words(self):
        def check():
            for case in self.cases:
                self.assertFalse(self.fails(case), case["name"])

        self.run_in_directory(check)

    def test_a_verifier_that_leaves_out_a_step_fails_a_case(self):
        def check():
            for step in st.STEPS:
                others = [one for one in st.STEPS if one != step]
                with unittest.mock.patch.object(st, "STEPS", others):
                    self.assertTrue(any(map(self.fails, self.cases)), step[0])

        self.run_in_directory(check)

    def test_a_verifier_that_leaves_out_a_check_below_fails_a_case(self):
        nothing = lambda *_: None
        mutants = {
            "ed25519_verify": lambda *_: True, "check_place": nothing, "check_length": nothing,
            "verify_consistency": nothing, "verify_inclusion": nothing, "public_point": lambda _: True,
            "is_name": lambda _: True, "differing": nothing, "trie_climb": lambda _tag, end, _path: end,
            "commitment": lambda salt, _: salt * 2, "printable": str,
        }  # fmt: skip

        def check():
            for name, mutant in mutants.items():
                with unittest.mock.patch.object(st, name, mutant):
                    self.assertTrue(any(map(self.fails, self.cases)), name)

        self.run_in_directory(check)

    def test_no_changed_bit_of_a_proof_or_an_event_passes(self):
        case = next(case for case in self.cases if case["name"] == "an event and its proof")

        def check():
            self.assertFalse(self.fails(case))
            for name, text in case["files"].items():
                for bit in range(3, 8 * len(text.encode()) - 8, 97):  # not the last line feed of the events
                    data = bytearray(text.encode())
                    data[bit // 8] ^= 1 << bit % 8
                    with open(name, "wb") as file:
                        file.write(data)
                    argv = ["sealog_verify.py", *case["arguments"]]
                    with unittest.mock.patch.object(sys, "argv", argv), contextlib.redirect_stdout(io.StringIO()):
                        with contextlib.redirect_stderr(io.StringIO()):
                            self.assertIn(sv.main(), (2, 10), (name, bit))
                with open(name, "w", encoding="utf-8", newline="") as file:
                    file.write(text)

        self.run_in_directory(check)


if __name__ == "__main__":
    unittest.main()
