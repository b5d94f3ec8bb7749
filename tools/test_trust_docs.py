"""Holds docs/format.md, section 8, and the walk of docs/verify-it-yourself.md to the vectors and to what programs print.

    python3 -m unittest discover -s tools -p 'test_*.py'

A block `text example` of format.md is computed here with hashlib alone: its right-hand sides say how the bytes are made.
A block `text vector FILE / CASE / FIELD` is that field of that case, character by character.
"""

import base64
import hashlib
import hmac
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

TOOLS = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(TOOLS)
sys.path.insert(0, TOOLS)
import sealog_trust as st  # noqa: E402
from test_go_proof import ENVIRONMENT, find_go  # noqa: E402


def page(name):
    with open(os.path.join(ROOT, "docs", name), encoding="utf-8") as file:
        return file.read()


def section(text, heading):
    """From a heading to the next one of the same depth."""
    start = text.index("\n" + heading)
    end = text.find("\n" + heading.split(" ")[0] + " ", start + 1)
    return text[start : end if end >= 0 else len(text)]


def blocks(text):
    """What stands behind each opening fence, and what is in the block."""
    return re.findall(r"^```([^\n]+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def vectors(name):
    with open(os.path.join(ROOT, "vectors", "trust", name + ".json"), encoding="utf-8") as file:
        return {case["name"]: case for case in json.load(file)["cases"]}


# --- What the examples compute ----------------------------------------------------------------------------

TOKEN = re.compile(
    r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*")|(?P<call>[A-Za-z][A-Za-z0-9-]*)\(|(?P<bytes>(?:[0-9a-f]{2})+)(?![0-9A-Za-z_])"""
    r"""|(?P<name>[a-z_][a-z0-9_]*)|(?P<cut>\[\d+\.\.\d+\])|(?P<sign>[(),]))"""
)


def key_at(key, bits):
    """The key that is reached from another one by the bits, most significant first."""
    for bit in "".join(f"{byte:08b}" for byte in bits):
        children = hashlib.sha256(b"\5" + key).digest()
        key = children[16:] if bit == "1" else children[:16]
    return key


CALLS = {
    "SHA-256": lambda data=b"": hashlib.sha256(data).digest(),
    "HMAC-SHA-256": lambda key, data: hmac.new(key, data, hashlib.sha256).digest(),
    "KEY-AT": key_at,
    "base64": base64.b64encode,
    "bytes": lambda text: base64.b64decode(text, validate=True),
}


class Sum:
    """The bytes of an expression: parts that follow each other are put together."""

    def __init__(self, text, names):
        self.tokens, at = [], 0
        while text[at:].strip():
            token = TOKEN.match(text, at)
            if not token:
                raise ValueError(f"no expression: {text[at:]!r}")
            self.tokens.append((token.lastgroup, token.group(token.lastgroup)))
            at = token.end()
        self.names = names

    def all(self):
        data = self.parts()
        if self.tokens:
            raise ValueError(f"left over: {self.tokens}")
        return data

    def parts(self):
        data = b""
        while self.tokens and self.tokens[0] not in (("sign", ")"), ("sign", ",")):
            kind, text = self.tokens.pop(0)
            if kind == "text":
                part = json.loads(text).encode()
            elif kind == "bytes":
                part = bytes.fromhex(text)
            elif kind == "name":
                part = self.names[text]
            elif kind == "call":
                part = CALLS[text](*self.arguments())
            else:
                raise ValueError(f"not here: {text}")
            if self.tokens and self.tokens[0][0] == "cut":
                first, last = map(int, self.tokens.pop(0)[1][1:-1].split(".."))
                part = part[first:last]
            data += part
        return data

    def arguments(self):
        values = []
        while True:
            if self.tokens[0] == ("sign", ")") and not values:
                self.tokens.pop(0)
                return values
            values.append(self.parts())
            if self.tokens.pop(0) == ("sign", ")"):
                return values


def examples(text):
    """Name, expression and shown value of each example. A value follows the last ` = ` at the start of a line."""
    for info, block in blocks(text):
        if info == "text example":
            for name, rest in re.findall(r"^(\w+) +(=.*\n(?:^ +.*\n)*)", block, re.MULTILINE):
                expression, *values = re.split(r"^ *= ", rest, flags=re.MULTILINE)[1:]
                yield name, expression, values


def run_examples(text):
    """The bytes of each example. The error names the one that is wrong."""
    found = {}
    for name, expression, values in examples(text):
        if name in found:
            raise ValueError(f"{name} comes twice")
        try:
            found[name] = Sum(expression, found).all()
            shown = [Sum(value, found).all() for value in values]
        except (KeyError, IndexError, TypeError) as error:
            raise ValueError(f"{name}: {error!r}") from error
        if any(value != found[name] for value in shown):
            raise ValueError(f"{name} is {found[name].hex()}")
    return found


def extra_of(proof):
    return base64.b64decode(re.search(r"^extra (.*)$", proof, re.MULTILINE)[1])


def vector(reference):
    """The text that `FILE / CASE / FIELD` names. `extra` is the data in a proof file, `checkpoint` what follows its path."""
    file, case, field = reference.split(" / ")
    case = vectors(file)[case]
    if field == "extra":
        return extra_of(case["proof"]).decode()
    if field == "checkpoint":
        return case["proof"].split("\n\n", 1)[1]
    for part in field.split(": "):
        case = case[part]
    text = "\n".join(case) if isinstance(case, list) else case
    return text if text.endswith("\n") else text + "\n"


def values():
    """What each example has to be, from the vectors."""
    leaf, sizes, trees = vectors("leaves")["event 1, live"], vectors("sizes"), vectors("trees")
    salts, blind, notes = vectors("salts"), vectors("heads")["blind 9"], vectors("notes")
    proofs, tiles = vectors("proofs"), vectors("tiles")
    head = dict(line.split(" ", 1) for line in extra_of(proofs["a head"]["proof"]).decode().split("\n")[1:4])
    entry = proofs["an event"]["entry"]
    last_key = salts["281474976710655 to 281474976710655, one key"]["punctured"][0]
    unbase = base64.b64decode
    return {
        "empty": unbase(sizes["0"]["root"]),
        "two": unbase(sizes["2"]["root"]),
        "third": unbase(trees["leaf 2 of 3: fits"]["leaf"]),
        "three": unbase(sizes["3"]["root"]),
        "tag": bytes.fromhex(leaf["tag"]),
        "root_key": bytes.fromhex(salts["salt 2, one key"]["keys"][0].split(" ")[3]),
        "left": bytes.fromhex(last_key.split(" ")[3]),
        "salt": bytes.fromhex(salts["salt 2, one key"]["salt"]),
        "private": bytes.fromhex(leaf["private"]),
        "leaf": bytes.fromhex(leaf["leaf"]),
        "leaf_hash": unbase(leaf["leaf_hash"]),
        "root": unbase(head["root"]),
        "blind": bytes.fromhex(blind["blind"]),
        "hidden": None,  # no vector has it alone: it is held by trie_root
        "trie_leaf": None,
        "trie_root": unbase(entry.split("\n")[2]),
        "entry": entry.encode(),
        "key_id": unbase(notes["a note is signed"]["note"].rsplit(" ", 1)[1])[:4],
        "vkey": proofs["an event"]["policy"].split("\n")[0].split(" ")[1].encode(),
        "bundle": unbase(tiles["bundle: three entries, one of them empty"]["bundle"]),
    }


class Format(unittest.TestCase):
    def setUp(self):
        self.text = section(page("format.md"), "## 8. ")

    def test_every_example_comes_out_as_it_is_shown_and_is_that_of_the_vectors(self):
        found, wanted = run_examples(self.text), values()
        self.assertEqual(list(found), list(wanted))
        for name, value in wanted.items():
            if value is not None:
                self.assertEqual(found[name], value, name)

    def test_every_line_of_an_example_belongs_to_one(self):
        for info, block in blocks(self.text):
            if info == "text example":
                pieces = re.findall(r"^\w+ +=.*\n(?:^ +.*\n)*", block, re.MULTILINE)
                self.assertEqual("".join(pieces), re.sub(r"^\n", "", block, flags=re.MULTILINE))

    def test_every_text_is_that_of_its_vector(self):
        shown = [(info[len("text vector ") :], block) for info, block in blocks(self.text) if info.startswith("text vector ")]
        self.assertGreaterEqual(len(shown), 12)
        for reference, block in shown:
            self.assertEqual(block, vector(reference), reference)

    def test_every_block_is_checked(self):
        for info, _ in blocks(self.text):
            self.assertTrue(info == "text example" or info.startswith("text vector "), info)

    def test_the_cosigned_text_is_what_the_witness_signed(self):
        case = vectors("proofs")["an event"]
        line = [line for line in case["proof"].split("\n") if line.startswith("— w0.example ")][0]
        signature = base64.b64decode(line.split(" ")[2])[4:]
        key = base64.b64decode(case["policy"].split("\n")[1].split(" ")[2].split("+", 2)[2])[1:]
        shown = re.search(r"`(cosignature/v1\\ntime \d+\\nlog\.example\\n70\\n[^`]*)`", self.text)[1].replace("\\n", "\n")
        self.assertEqual(int.from_bytes(signature[:8], "big"), int(re.search(r"time (\d+)", shown)[1]))
        self.assertTrue(st.ed25519_verify(key, shown.encode(), signature[8:]))

    def test_the_limits_are_those_of_the_readers(self):
        with open(st.__file__, encoding="utf-8") as file:
            reader = file.read()
        for limit in (1_048_576, 65_536, 1_179_648, 65_535, 262_144):
            self.assertIn(f"{limit:,}", self.text)
            self.assertIn(f"{limit} bytes", reader)

    def test_a_wrong_example_is_noticed(self):
        good = "```text example\ntwo = SHA-256(00 \"0\")\n    = 5feceb66\n```\n"
        right = good.replace("5feceb66", hashlib.sha256(b"\0000").hexdigest())
        self.assertEqual(run_examples(right), {"two": hashlib.sha256(b"\0000").digest()})
        self.assertRaises(ValueError, run_examples, good)
        for name in values():
            value = re.search(rf"^{name} +=.*\n(?:^ +.*\n)*", self.text, re.MULTILINE)
            digit = re.search(r"[0-9a-f]", self.text[value.start() + len(name) :].split("= ", 1)[1])
            at = self.text.index("= ", value.start()) + 2 + digit.start()
            changed = self.text[:at] + ("1" if self.text[at] == "0" else "0") + self.text[at + 1 :]
            with self.assertRaises((ValueError, AssertionError), msg=name):
                self.assertEqual(list(run_examples(changed).items()), list(run_examples(self.text).items()))


# --- The walk ---------------------------------------------------------------------------------------------


class Walk(unittest.TestCase):
    # docs.rs runs the page, too, but for the blocks `sh go`.
    def test_the_proof_by_hand_comes_out_in_sha256sum_python_and_go(self):
        go = find_go()
        script, shown = "set -euo pipefail\n", []
        walk = blocks(section(page("verify-it-yourself.md"), "## 9. "))
        for at, (info, text) in enumerate(walk):
            words = info.split(" ")
            if words[0] != "sh" or "go" in words and not go:
                continue
            script += "printf '\\036'\n"
            script += f"if ( {text}\n); then echo 'it was to fail' >&2; exit 9; fi\n" if "fails" in words else text
            follows = walk[at + 1] if at + 1 < len(walk) else ("", "")
            shown.append(follows[1] if follows[0] == "text" else None)
        self.assertGreaterEqual(len(shown), 8)
        with tempfile.TemporaryDirectory() as folder:
            for name in ("tools", "vectors"):
                os.symlink(os.path.join(ROOT, name), os.path.join(folder, name))
            done = subprocess.run(["bash", "-c", script], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        printed = done.stdout.split("\x1e")[1:]
        self.assertEqual(len(printed), len(shown))
        for want, got in zip(shown, printed):
            if want and want.endswith("…\n"):
                self.assertEqual(got[: len(want) - 2], want[:-2])
            elif want:
                self.assertEqual(got, want)
        self.assertEqual(sum(want is not None for want in shown), 9 if go else 7, "the steps that show what they print")


if __name__ == "__main__":
    unittest.main()
