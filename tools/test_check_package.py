"""Tests of check_package.py. Packages are built by hand here, with zipfile.

    python3 -m unittest discover -s tools -p 'test_*.py'
"""

import hashlib
import io
import json
import os
import sys
import tempfile
import unittest
import zipfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check_package as cp  # noqa: E402

POLICY = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'\">"


def page(body):
    return ("<!doctype html><html><head>%s</head><body>%s</body></html>" % (POLICY, body)).encode()


def contents(**changed):
    files = {
        "letter.html": page("<p>Dear Jane</p>"),
        "your-data.html": page("<h2>November 2026</h2><article>one</article><article>two</article>"),
        "events.json": json.dumps([{"reference": "A1", "note": "by a staff member"}, {"reference": "A2"}]).encode(),
        "events.csv": "\ufeffreference,note\r\n\"A1\",\"'=1\"\r\n\"A2\",\"\"\r\n".encode(),
        "explanation.html": page("<h1>Rights</h1>"),
        "1-start-here.html": page("<h1>What we found</h1>"),
    }
    files.update({name.replace("__", "."): content for name, content in changed.items()})
    return files


def package(files, manifest=None, names=None, raw=None):
    listed = [{"name": name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()} for name, content in files.items()]
    whole = dict(files)
    whole["manifest.json"] = json.dumps({"type": cp.TYPE, "events": 2, "files": listed, **(manifest or {})}).encode()
    if raw:
        whole.update(raw)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names or cp.FILES:
            archive.writestr(name, whole[name])
    return out.getvalue()


class CheckPackage(unittest.TestCase):
    def assertWrong(self, data, part, **given):
        problems = cp.check(data, **given)
        self.assertTrue(any(part in problem for problem in problems), problems)

    def test_a_package_as_it_should_be_has_nothing_wrong(self):
        self.assertEqual(cp.check(package(contents()), without=["usr_4821"], events=2), [])

    def test_a_changed_file_is_found_by_its_size_and_its_digest(self):
        data = package(contents(), raw={"letter.html": page("<p>Dear Joan</p>")})
        self.assertWrong(data, "letter.html has another SHA-256")
        data = package(contents(), raw={"letter.html": page("<p>Dear</p>")})
        self.assertWrong(data, "bytes, and the manifest says")

    def test_a_hash_or_a_number_of_an_event_is_found(self):
        for name in ["hash", "prev_hash", "chain_seq"]:
            listed = json.dumps([{"reference": "A1"}, {"reference": "A2", name: "9"}]).encode()
            self.assertWrong(package(contents(events__json=listed)), "events.json has %s of an event" % name)

    def test_a_file_too_many_or_too_few_is_found(self):
        files = contents(evil__txt=b"x")
        self.assertWrong(package(files, names=cp.FILES + ["evil.txt"]), "it has the files")
        self.assertWrong(package(contents(), names=[name for name in cp.FILES if name != "letter.html"]), "it has the files")

    def test_a_text_that_must_not_be_there_is_found_in_every_file_and_every_spelling(self):
        for text, content in [
            ("usr_4821", b"by USR_4821 x"),
            ('a"b', b'{"x":"a\\"b"}'),
            ("<weiss>", b"&lt;Weiss&gt;"),
            ("m\u00fcller", "m\u00fcller".encode()),
            ("m\u00fcller", "M\u00dcLLER".encode()),
            ("m\u00fcller", "mu\u0308ller".encode()),
            ("Stra\u00dfe", b"STRASSE"),
        ]:
            data = package(contents(explanation__html=page("") + content))
            self.assertWrong(data, "is in explanation.html", without=[text])
        self.assertWrong(package(contents(events__json=b'[{"reference":"A1"},{"reference":"A2","n":"usr_4821"}]')), "", without=["usr_4821"])

    def test_a_page_with_a_script_or_with_something_to_load_is_found(self):
        for body in ["<script>x</script>", "<img src=x>", "<p onclick=x>", "<a href='https://example.org'>x</a>", "<form></form>"]:
            self.assertWrong(package(contents(letter__html=page(body))), "letter.html")
        self.assertWrong(package(contents(letter__html=b"<p>no policy</p>")), "no policy")

    def test_files_with_other_events_than_each_other_are_found(self):
        self.assertWrong(package(contents(events__csv=b"reference\r\nA1\r\n")), "other events")
        self.assertWrong(package(contents(), manifest={"events": 3}), "instead of 3")
        self.assertWrong(package(contents()), "instead of 5", events=5)

    def test_a_formula_in_the_table_is_found(self):
        self.assertWrong(package(contents(events__csv="\ufeffreference,note\r\nA1, =1\r\nA2,\r\n".encode())), "formula")

    def test_bytes_that_belong_to_no_file_are_found(self):
        data = package(contents())
        self.assertWrong(b"secret" + data, "bytes before letter.html")
        with io.BytesIO(data) as file, zipfile.ZipFile(file, "a") as archive:
            archive.comment = b"usr_4821"
            archive.close()
            self.assertWrong(file.getvalue(), "comment")

    def test_what_is_no_package_or_needs_a_password_cannot_be_checked(self):
        encrypted = bytearray(package(contents()))
        at = encrypted.index(b"PK\x01\x02")
        encrypted[at + 8] |= 1
        with tempfile.TemporaryDirectory() as folder:
            for name, data, expected in [("no.zip", b"x", 2), ("locked.zip", bytes(encrypted), 2), ("good.zip", package(contents()), 0)]:
                path = os.path.join(folder, name)
                with open(path, "wb") as file:
                    file.write(data)
                with open(os.devnull, "w") as quiet:
                    stderr, sys.stderr, stdout, sys.stdout = sys.stderr, quiet, sys.stdout, quiet
                    try:
                        self.assertEqual(cp.main([path]), expected, name)
                    finally:
                        sys.stderr, sys.stdout = stderr, stdout


if __name__ == "__main__":
    unittest.main()
