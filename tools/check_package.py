#!/usr/bin/env python3
"""Checks a package that Sealog made for a data subject. Shares no code with Sealog, and needs nothing but Python 3.

    python3 tools/check_package.py PACKAGE.zip [--without TEXT]... [--without-file FILE] [--events N]

What is checked: the package has the files that it should have and no others; each has the size and the SHA-256 that the
manifest says; every byte of the archive belongs to a file that is listed; events.json and events.csv have the same events;
no HTML page has a script or loads anything; no event has its hash or its number. With --without, that a text (an identifier of a member of staff, the log_id of
an excluded event) is nowhere: not in a name, not in a file, in no case and in no form in which HTML or JSON would write it.

Exit code: 0 if all is well, 1 if something is wrong, 2 if the package cannot be read. A package with a password cannot be
read here: check the one without it, which has the same files.
"""

import argparse
import csv
import hashlib
import html
import html.parser
import io
import json
import struct
import sys
import unicodedata
import zipfile

FILES = ["letter.html", "your-data.html", "events.json", "events.csv", "explanation.html", "1-start-here.html", "manifest.json"]
# What an event is sealed with: with it a reader could try values until one fits what is masked.
SEALS = {"hash", "prev_hash", "chain_seq", "proof"}
MANIFEST = "manifest.json"
TYPE = "sealog.disclosure.v1"
# Attributes that load something, and elements that run or load something.
LOADING = {"src", "srcset", "data", "poster", "background", "action", "formaction"}
FORBIDDEN = {"script", "iframe", "object", "embed", "link", "img", "form", "base", "svg", "video", "audio"}


class Unreadable(Exception):
    """It is no package, or one that needs a password."""


class Page(html.parser.HTMLParser):
    """Notes what a page should not have."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.problems = []
        self.months = 0
        self.entries = 0

    def handle_starttag(self, tag, attributes):
        if tag in FORBIDDEN:
            self.problems.append("has an element <%s>" % tag)
        for name, value in attributes:
            if name.startswith("on") or name in LOADING or name == "style":
                self.problems.append("has an attribute %s" % name)
            if name == "href" and not (value or "").startswith("#"):
                self.problems.append("leads elsewhere (%s)" % value)
        self.months += tag == "h2"
        self.entries += tag == "article"


def members(data):
    """The files of the archive, by their names, in their order."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except zipfile.BadZipFile as error:
        raise Unreadable("it is no ZIP: %s" % error) from error
    infos = archive.infolist()
    if any(info.flag_bits & 1 for info in infos):
        raise Unreadable("it has a password; check the package without one")
    try:
        return archive, {info.filename: archive.read(info) for info in infos}
    except (zipfile.BadZipFile, NotImplementedError, OSError) as error:
        raise Unreadable("a file in it cannot be read: %s" % error) from error


def unaccounted(data, archive):
    """Whether the archive has bytes that belong to no file."""
    at = 0
    for info in archive.infolist():
        if info.header_offset != at:
            return "there are bytes before %s that belong to no file" % info.filename
        if info.extra or info.comment:
            return "%s has something beside its content" % info.filename
        name, extra = struct.unpack("<HH", data[at + 26 : at + 30])
        at += 30 + name + extra + info.compress_size
        at += 16 if info.flag_bits & 8 else 0
    if archive.start_dir != at:
        return "there are bytes behind the last file that belong to none"
    if archive.comment:
        return "the archive has a comment"
    return None


def folded(text):
    """A text as it is compared: without case, and with letters and their accents together."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).casefold())


def spellings(text):
    """A text as files may hold it, folded."""
    plain = {text, html.escape(text), html.escape(text, quote=False), json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}
    return {folded(spelled) for spelled in plain}


def check(data, without=(), events=None):
    """What is wrong with a package, in words."""
    archive, files = members(data)
    problems = []
    names = [info.filename for info in archive.infolist()]
    if names != FILES:
        problems.append("it has the files %s instead of %s" % (names, FILES))
    problem = unaccounted(data, archive)
    if problem:
        problems.append(problem)
    manifest = read_manifest(files.get(MANIFEST, b""), problems)
    problems += check_digests(manifest, files)
    problems += check_events(manifest, files, events)
    for name, content in files.items():
        if name.endswith(".html"):
            problems += ["%s %s" % (name, problem) for problem in check_page(content)]
    for text in without:
        for name, content in list(files.items()) + [("the names of files", "\n".join(names).encode())]:
            if any(spelled in folded(content.decode("utf-8", "replace")) for spelled in spellings(text)):
                problems.append("%r is in %s" % (text, name))
    return problems


def read_manifest(content, problems):
    try:
        manifest = json.loads(content)
    except ValueError as error:
        problems.append("the manifest is no JSON: %s" % error)
        return {}
    if not isinstance(manifest, dict) or manifest.get("type") != TYPE:
        problems.append("the manifest is not of the type %s" % TYPE)
        return {}
    return manifest


def check_digests(manifest, files):
    listed = {entry.get("name"): entry for entry in manifest.get("files", [])}
    problems = []
    if sorted(listed) != sorted(name for name in files if name != MANIFEST):
        problems.append("the manifest lists %s" % sorted(listed))
    for name, content in files.items():
        if name == MANIFEST or name not in listed:
            continue
        if listed[name].get("bytes") != len(content):
            problems.append("%s has %d bytes, and the manifest says %s" % (name, len(content), listed[name].get("bytes")))
        if listed[name].get("sha256") != hashlib.sha256(content).hexdigest():
            problems.append("%s has another SHA-256 than the manifest says" % name)
    return problems


def check_events(manifest, files, expected):
    """The same events in JSON, in CSV and in the page for people."""
    problems = []
    try:
        listed = json.loads(files.get("events.json", b""))
        as_json = [event["reference"] for event in listed]
    except (ValueError, KeyError, TypeError) as error:
        return ["events.json cannot be read: %r" % error]
    problems += ["events.json has %s of an event" % name for name in sorted(SEALS.intersection(set().union(*listed)))]
    csv.field_size_limit(1 << 30)
    rows = list(csv.DictReader(io.StringIO(files.get("events.csv", b"").decode("utf-8-sig"), newline="")))
    if [row.get("reference") for row in rows] != as_json:
        problems.append("events.csv and events.json have other events")
    for row in rows:
        cells = [cell for cell in row.values() if isinstance(cell, str)]
        if any(cell.lstrip()[:1] in ("=", "+", "-", "@") for cell in cells if cell.strip()):
            problems.append("a cell of events.csv is a formula to a spreadsheet (%s)" % row.get("reference"))
    page = Page()
    page.feed(files.get("your-data.html", b"").decode())
    if page.entries != len(as_json):
        problems.append("your-data.html has %d entries, and events.json %d" % (page.entries, len(as_json)))
    wanted = [manifest.get("events")] + ([expected] if expected is not None else [])
    problems += ["there are %d events instead of %s" % (len(as_json), count) for count in wanted if count != len(as_json)]
    return problems


def check_page(content):
    page = Page()
    page.feed(content.decode())
    page.close()
    problems = page.problems
    if b"default-src 'none'" not in content:
        problems.append("has no policy that keeps scripts from running")
    return problems


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("package")
    parser.add_argument("--without", action="append", default=[], metavar="TEXT", help="a text that must be nowhere in it")
    parser.add_argument("--without-file", metavar="FILE", help="such texts, one in each line")
    parser.add_argument("--events", type=int, metavar="N", help="how many events it must have")
    given = parser.parse_args(arguments)
    without = list(given.without)
    if given.without_file:
        with open(given.without_file, encoding="utf-8") as lines:
            without += [line.strip() for line in lines if line.strip()]
    try:
        with open(given.package, "rb") as file:
            problems = check(file.read(), without, given.events)
    except (Unreadable, OSError) as error:
        print("cannot check %s: %s" % (given.package, error), file=sys.stderr)
        return 2
    for problem in problems:
        print("wrong: %s" % problem)
    if not problems:
        print("the package is as its manifest says; %d texts are nowhere in it" % len(without))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
