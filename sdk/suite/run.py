#!/usr/bin/env python3
"""Runs the scenarios of the behaviour suite against a driver. README.md has the format.

run.py [--only NAME] [--list] [--server SEALOG] [--jobs N] -- DRIVER [ARGUMENT ...]
"""

import argparse
import concurrent.futures
import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import zlib
from pathlib import Path

from server import Server, Service, Upstream

HERE = Path(__file__).resolve().parent
PATIENCE_S = 20  # ends a hang; no scenario needs it
KEYS = {"live": "at_live_" + "A" * 49, "test": "at_test_" + "B" * 49}
DEFAULTS = {"retry_base_ms": 5, "flush_interval_ms": 20, "timeout_ms": 5_000, "adopt_interval_ms": 50}
NAME = re.compile(r"\$(\w+)(-\d+)?\Z")


class Failure(Exception):
    """A scenario is not met; the text says where and how."""


class Driver:
    """A driver process. A thread reads its answers, so that background steps cannot mix up the order."""

    def __init__(self, command, folder):
        self.log = open(folder / "driver.log", "ab")
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            cwd=folder,
            start_new_session=True,
        )
        self.count, self.answers, self.arrived = 0, {}, threading.Condition()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            try:
                answer = json.loads(line)
            except ValueError:
                answer = {"id": None, "garbage": line.decode("utf-8", "replace")}
            with self.arrived:
                self.answers[answer.get("id")] = answer
                self.arrived.notify_all()
        with self.arrived:
            self.answers["end"] = {}
            self.arrived.notify_all()

    def ask(self, step):
        self.count += 1
        request = {
            name: value for name, value in step.items() if name not in ("expect", "expect_error", "driver")
        }
        try:
            self.process.stdin.write(json.dumps({"id": self.count, **request}).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Failure("the driver has ended") from None
        with self.arrived:
            ready = self.arrived.wait_for(lambda: {self.count, None, "end"} & set(self.answers), PATIENCE_S)
            if self.count in self.answers:
                return self.answers.pop(self.count)
            if None in self.answers:
                raise Failure("the driver wrote %r" % self.answers[None]["garbage"])
            raise Failure(
                "the driver has ended" if ready else "the driver gave no answer in %d s" % PATIENCE_S
            )

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        # A driver that has ended took nothing of what was written; closing says so once more.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.log.close()


class Run:
    """One run of one scenario."""

    def __init__(self, scenario, command, other, folder, real):
        self.scenario, self.command, self.other, self.folder = scenario, command, other, folder
        mode = scenario.get("mode", "live")
        self.names = {
            "key": KEYS[mode],
            "spool": str(folder / "spool"),
            "receipts": str(folder / "receipts.jsonl"),
        }
        if real:
            address, make_key = real
            self.names["key"] = make_key(mode)
            service = Upstream(address, self.names["key"])
        else:
            service = Service(self.names["key"])
        if "$vkey" in json.dumps(scenario):
            self.names["vkey"] = service.vkey()
        self.server, self.drivers = Server(self.expand(scenario.get("server", [])), service), {}
        self.names["url"] = self.server.url
        self.names["https_url"] = self.server.url.replace("http:", "https:")

    def run(self):
        with self.server:
            try:
                self.drivers["a"] = Driver(self.command, self.folder)
                for number, step in enumerate(self.scenario["steps"], 1):
                    try:
                        self.step(step)
                    except Failure as failure:
                        raise Failure("step %d %s: %s" % (number, json.dumps(step)[:160], failure)) from None
                if "requests" in self.scenario:
                    self.check_requests()
                self.check_always()
                if "stored" in self.scenario:
                    self.compare("stored", self.scenario["stored"], self.server.service.stored())
            finally:
                for driver in self.drivers.values():
                    driver.kill()

    def step(self, step):
        if "do" in step:
            return self.drive(step)
        ((name, value),) = step.items()
        if name in ("kill", "restart") and value in self.drivers:
            self.drivers.pop(value).kill()
        if name in ("start", "restart"):
            self.drivers[value] = Driver(self.other, self.folder)
        elif name == "server":
            self.server.play(self.expand(value))
        elif name == "open":
            self.server.open(value)
        elif name == "wait_requests":
            if not self.server.wait_requests(value):
                raise Failure("the server has seen %d requests" % len(self.server.requests))
        elif name == "wait_stored":
            self.wait(lambda: len(self.server.service.stored()) >= value, "too few events are stored")
        elif name == "wait_published":
            self.wait(lambda: self.server.service.publish(value), "too few events are in the published tree")
        elif name == "sleep_ms":
            time.sleep(value / 1000)
        elif name == "spool_file":
            self.write_spool(value)
        elif name == "append_to_spool":
            for path in self.spool_files():
                with open(path, "ab") as file:
                    file.write(value.encode("latin-1"))
        elif name == "damage_spool":
            self.damage_spool(value.encode())
        elif name == "vectors":
            for case in json.loads((HERE.parents[1] / "vectors" / value).read_text())["cases"]:
                ask = {"do": "verify_events", "texts": case["events"], "expect": case["result"]}
                try:
                    self.drive(dict(ask, heads=case.get("expect", [])))
                except Failure as failure:
                    raise Failure("%s: %s" % (case["name"], failure)) from None
        elif name == "proof_vectors":
            self.prove(value)
        elif name == "check_spool":
            self.wait(lambda: self.unsettled() == value, lambda: "the spool holds %s" % self.unsettled())
        elif name != "kill":
            raise Failure("unknown step")

    def prove(self, file):
        """Libraries know the log's key alone, so the witnesses of a policy are left out."""
        for case in json.loads((HERE.parents[1] / "vectors" / file).read_text())["cases"]:
            if case["event"] is None:  # of a head
                continue
            (vkey,) = re.findall(r"^log (\S+)", case["policy"], re.M)
            reason = None if case["result"] in ("ok", "quorum") else case["result"]
            expect = {"holds": reason is None, "reason": reason}
            ask = {"do": "verify_proof", "text": case["event"], "proof": case["proof"], "expect": expect}
            try:
                self.drive({**ask, "vkey": vkey})
                if reason not in ("origin", "signature"):
                    self.drive(ask)
            except Failure as failure:
                raise Failure("%s: %s" % (case["name"], failure)) from None

    @staticmethod
    def wait(condition, otherwise):
        end = time.monotonic() + 10
        while not condition():
            if time.monotonic() > end:
                raise Failure(otherwise() if callable(otherwise) else otherwise)
            time.sleep(0.01)

    def drive(self, step):
        step = self.expand(step)
        if step["do"] == "new":
            options = {"url": self.names["url"], "api_key": self.names["key"], **DEFAULTS}
            options.update(self.expand(self.scenario.get("options", {})))
            step["options"] = {**options, **step.get("options", {})}
        answer = self.drivers[step.get("driver", "a")].ask(step)
        if answer.get("unsupported"):
            return
        if "expect_error" in step:
            if "error" not in answer:
                raise Failure("an error was expected, not %s" % json.dumps(answer.get("ok"))[:300])
            self.compare("error", step["expect_error"], answer["error"])
        elif "error" in answer:
            raise Failure("failed with %s" % json.dumps(answer["error"])[:600])
        elif "expect" in step:
            self.compare("ok", step["expect"], answer.get("ok"))

    def expand(self, value):
        """Puts the known names and long texts into what is sent to the driver or the server."""
        if isinstance(value, dict):
            if "$repeat" in value:
                return value["$repeat"][0] * value["$repeat"][1]
            if "$fields" in value:
                return {"field_%d" % number: number for number in range(value["$fields"])}
            kept = ("expect", "expect_error")
            return {name: part if name in kept else self.expand(part) for name, part in value.items()}
        if isinstance(value, list):
            return [self.expand(part) for part in value]
        if isinstance(value, str):
            return re.sub(r"\$(\w+)", lambda match: str(self.names.get(match[1], match[0])), value)
        return value

    # --- Comparison ---

    def compare(self, path, expected, found):
        problem = self.differs(path, expected, found)
        if problem:
            raise Failure(problem)

    def differs(self, path, expected, found):
        if isinstance(expected, dict) and any(name.startswith("$") for name in expected):
            ((name, value),) = expected.items()
            fits = {
                "$contains": lambda: value in found,
                "$matches": lambda: re.search(value, found) is not None,
                "$at_least": lambda: found >= value,
                "$at_most": lambda: found <= value,
            }[name]
            return (
                None
                if found is not None and fits()
                else "%s is %r, expected %s %r" % (path, found, name, value)
            )
        if isinstance(expected, dict):
            if not isinstance(found, dict):
                return "%s is %r, expected an object" % (path, found)
            parts = (
                self.differs("%s.%s" % (path, name), part, found.get(name)) for name, part in expected.items()
            )
            return next((problem for problem in parts if problem), None)
        if isinstance(expected, list):
            if not isinstance(found, list) or len(found) != len(expected):
                return "%s is %s, expected %s" % (path, json.dumps(found)[:600], json.dumps(expected)[:300])
            parts = (self.differs("%s[%d]" % (path, i), *pair) for i, pair in enumerate(zip(expected, found)))
            return next((problem for problem in parts if problem), None)
        if expected == "$any":
            return None if found is not None else "%s is absent" % path
        match = NAME.match(expected) if isinstance(expected, str) else None
        if match:
            return self.bind(path, match[1], match[2], found)
        same = expected == found and isinstance(expected, bool) == isinstance(found, bool)
        return None if same else "%s is %r, expected %r" % (path, found, expected)

    def bind(self, path, name, suffix, found):
        if name not in self.names and not suffix and found is not None:
            if name.startswith("key") and found in [
                value for other, value in self.names.items() if other.startswith("key")
            ]:
                return "%s is %r, which is the key of another request" % (path, found)
            self.names[name] = found
        wanted = str(self.names[name]) + suffix if suffix else self.names.get(name)
        return (
            None
            if found is not None and wanted == found
            else "%s is %r, expected %r ($%s)" % (path, found, wanted, name)
        )

    def check_requests(self):
        seen, wanted = self.server.requests, self.scenario["requests"]
        shown = ["%s %s" % (request["method"], request["path"]) for request in seen]
        if len(seen) != len(wanted):
            raise Failure("%d requests were expected, the server has seen %s" % (len(wanted), shown))
        for number, (expected, request) in enumerate(zip(wanted, seen)):
            found = {request["method"].lower(): request["path"], "headers": request["headers"]}
            found["key"] = request["headers"].get("idempotency-key")
            found["after_ms"] = request["at_ms"] - seen[number - 1]["at_ms"] if number else 0
            if request["body"]:
                found["body"] = body = json.loads(request["body"])
                found["resource"] = body.get("resource")
                found["resources"] = [event.get("resource") for event in body.get("events", [])]
            self.compare("request %d" % (number + 1), expected, found)

    def check_always(self):
        """What holds in every scenario."""
        bodies = {}
        for number, request in enumerate(self.server.requests, 1):
            headers, where = request["headers"], "request %d (%s %s)" % (
                number,
                request["method"],
                request["path"],
            )
            if request["method"] == "?":
                continue  # not HTTP
            if headers.get("authorization") != "Bearer " + self.names["key"] and not self.scenario.get(
                "another_key"
            ):
                raise Failure("%s has Authorization %r" % (where, headers.get("authorization")))
            if not headers.get("user-agent", "").startswith("sealog-"):
                raise Failure("%s has User-Agent %r" % (where, headers.get("user-agent")))
            if request["method"] == "POST":
                key = headers.get("idempotency-key")
                if not key:
                    raise Failure("%s has no Idempotency-Key" % where)
                if headers.get("content-type") != "application/json":
                    raise Failure("%s has Content-Type %r" % (where, headers.get("content-type")))
                content = request["path"], request["body"]
                if self.scenario.get("key_reused") or request["body"] is None:
                    continue
                if bodies.setdefault(key, content) != content:
                    raise Failure("%s repeats a key with another body or path" % where)

    # --- Spool ---

    def spool_files(self):
        return sorted((self.folder / "spool").glob("*.spool"))

    def write_spool(self, file):
        folder = self.folder / "spool"
        folder.mkdir(mode=0o700, exist_ok=True)
        now = int(time.time() * 1000)
        out = b""
        for line in file["lines"]:
            line = re.sub(r"\$now([+-]\d+)?", lambda match: str(now + int(match[1] or 0)), line).encode()
            out += b"%08x %s\n" % (zlib.crc32(line), line)
        name = "%013d-%016x.spool" % (now - 1_000_000 + len(self.spool_files()), 7)
        (folder / name).write_bytes(out + file.get("tail", "").encode("latin-1"))

    def damage_spool(self, text):
        for path in self.spool_files():
            data = bytearray(path.read_bytes())
            at = data.find(text)
            if at >= 0:
                data[at] ^= 1
                path.write_bytes(data)
                return
        raise Failure("no spool file contains %r" % text)

    def unsettled(self):
        """The resources of the events that are not settled, read by the rules of the README and checked
        against them."""
        left = []
        for path in self.spool_files():
            if not re.fullmatch(r"\d{13}-[0-9a-f]{16}\.spool", path.name):
                raise Failure("%s is no name of a spool file" % path.name)
            events, lines = {}, path.read_bytes().split(b"\n")[:-1]
            for number, line in enumerate(lines):
                if b"%08x" % zlib.crc32(line[9:]) != line[:8]:
                    continue
                kind, *rest = line[9:].decode().split(" ", 1)
                if (kind == "H") != (number == 0) or kind == "H" and rest != ["sealog-spool 1"]:
                    raise Failure("line %d of %s is %r" % (number + 1, path.name, line))
                if kind == "E":
                    count, ms, text = rest[0].split(" ", 2)
                    if not re.fullmatch(r"\d{13}", ms) or events and int(count) <= max(events):
                        raise Failure("line %d of %s is %r" % (number + 1, path.name, line[:80]))
                    events[int(count)] = json.loads(text).get("resource")
                elif kind == "D":
                    first, count = map(int, rest[0].split())
                    for settled in range(first, first + count):
                        events[settled] = None
            left += [resource for _, resource in sorted(events.items()) if resource is not None]
        return left


class RealServer:
    """A Sealog of its own, with a project for each scenario."""

    def __init__(self, program, folder):
        self.token, self.folder = "operator-of-the-behaviour-suite", folder
        environment = {"PATH": os.environ.get("PATH", ""), "SEALOG_OPERATOR_TOKEN": self.token}
        arguments = ["serve", "--listen", "127.0.0.1:0", "--data-dir", str(folder / "data")]
        often = ["--trust-interval-s", "1"]
        rates = ["--limits-per-ip-rps", "0", "--limits-live-rps", "0", "--limits-test-rps", "0"]
        self.output = open(folder / "sealog.log", "w+b")
        self.process = subprocess.Popen(
            [program, *arguments, *rates, *often],
            cwd=folder,
            env=environment,
            stdout=self.output,
            stderr=subprocess.STDOUT,
        )
        self.address = self.find_address()
        self.tenant = self.call("/operator/v1/tenants", name="suite")["tenant_id"]

    def find_address(self):
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end and self.process.poll() is None:
            found = re.search(r"127\.0\.0\.1:([1-9]\d*)", (self.folder / "sealog.log").read_text())
            if found:
                return found[0]
            time.sleep(0.05)
        raise SystemExit("the server did not start: " + (self.folder / "sealog.log").read_text()[-2000:])

    def call(self, path, **body):
        headers = {"Authorization": "Bearer " + self.token}
        request = urllib.request.Request("http://" + self.address + path, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
            return json.load(response)

    def make_key(self, mode):
        project = self.call("/operator/v1/tenants/%s/projects" % self.tenant, name="scenario")["project_id"]
        return self.call("/operator/v1/projects/%s/keys" % project, name="suite", mode=mode)["key"]

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.output.close()


def load():
    scenarios = []
    for path in sorted((HERE / "scenarios").glob("*.json")):
        scenarios += json.loads(path.read_text())["scenarios"]
    names = [scenario["name"] for scenario in scenarios]
    assert len(names) == len(set(names)), "two scenarios have one name"
    return scenarios


def with_full_paths(command):
    """Drivers run in another directory. Links stay: the interpreter of a virtual environment is one."""
    return [os.path.abspath(part) if os.path.exists(part) else part for part in command]


def run_one(scenario, command, other, real):
    """Returns None or why the scenario failed, and the seconds that it took."""
    folder, begin = Path(tempfile.mkdtemp(prefix="sealog-suite-")), time.monotonic()
    try:
        Run(scenario, command, other, folder, real).run()
        return None, time.monotonic() - begin
    except Failure as failure:
        log = (
            (folder / "driver.log").read_text(errors="replace")[-1500:]
            if (folder / "driver.log").exists()
            else ""
        )
        return (
            "%s%s" % (failure, "\n    driver: " + log.strip().replace("\n", "\n    ") if log else ""),
            time.monotonic() - begin,
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description="Run the behaviour suite against a driver")
    parser.add_argument("--only", action="append", metavar="NAME", help="scenarios whose name contains this")
    parser.add_argument("--list", action="store_true", help="print the names and rules")
    parser.add_argument("--server", metavar="SEALOG", help="put the scripted server before this real one")
    parser.add_argument(
        "--other", metavar="DRIVER", help="use this one after a restart, and for a second process: as one text"
    )
    parser.add_argument("--jobs", type=int, default=6, help="scenarios at a time [6]")
    parser.add_argument("driver", nargs="*", help="the driver and its arguments")
    options = parser.parse_args()
    scenarios = [
        one for one in load() if not options.only or any(part in one["name"] for part in options.only)
    ]
    if options.list:
        for scenario in scenarios:
            print("%-44s %s" % (scenario["name"], scenario["rule"]))
        return 0
    if not options.driver or not scenarios:
        parser.error("name a driver behind --" if scenarios else "no scenario has this name")
    if options.server:
        scenarios = [scenario for scenario in scenarios if scenario.get("real", True)]
    command = with_full_paths(options.driver)
    other = with_full_paths(shlex.split(options.other)) if options.other else command
    begin, failed = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="sealog-suite-") as folder:
        server = RealServer(str(Path(options.server).resolve()), Path(folder)) if options.server else None
        try:
            real = (server.address, server.make_key) if server else None
            with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
                running = {pool.submit(run_one, scenario, command, other, real): scenario for scenario in scenarios}
                for done in concurrent.futures.as_completed(running):
                    problem, seconds = done.result()
                    if problem:
                        failed += 1
                        print(
                            "FAILED %s (%.1f s): %s\n    %s"
                            % (running[done]["name"], seconds, running[done]["rule"], problem)
                        )
        finally:
            if server:
                server.stop()
    print(
        "%d of %d scenarios passed in %.1f s"
        % (len(scenarios) - failed, len(scenarios), time.monotonic() - begin)
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
