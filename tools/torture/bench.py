"""The programs under test, built from this tree, and what a run of experiments has set up."""

import collections
import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time

from .common import KNOWN, ROOT, CannotRun, child_limits, reap, say
from .oracle import Ledger, check
from .volume import IMAGE_BYTES, Volume

START_SECONDS = 60


class Programs:
    """The writer and the server. Built where the tests are built, so that after `cargo test` there is nothing to build; copied away, since the build with mutants has the
    same names."""

    def __init__(self, home, profile, hammer=None, sealog=None, mutants=None):
        self.home, self.profile = home, profile
        built = {("hammer", False): hammer, ("sealog", False): sealog, ("hammer", True): mutants}
        self.built = {which: path for which, path in built.items() if path}

    def get(self, name, mutants=False):
        if (name, mutants) not in self.built:
            self.built[name, mutants] = self.build(name, mutants)
        return self.built[name, mutants]

    def build(self, name, mutants):
        # As `cargo test` builds them (an example brings in the features that tests have), so that nothing is built twice.
        what = ["--workspace", "--bin", "sealog", "--example", "hammer"]
        command = [os.environ.get("CARGO", "cargo"), "build", "--locked", "--profile", self.profile, "--message-format=json-render-diagnostics"]
        command += what + (["--features", "sealog-store/mutants"] if mutants else [])
        say("building %s%s" % (name, " with mutants" if mutants else ""))
        try:
            done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        except FileNotFoundError:
            raise CannotRun("cargo is not in the PATH; build as yourself and name the program with --%s" % name) from None
        if done.returncode:
            raise CannotRun("%s cannot be built" % name)
        messages = map(json.loads, done.stdout.splitlines())
        built = [m["executable"] for m in messages if m.get("executable") and m["target"]["name"] == name][-1]
        copy = os.path.join(self.home, name + ("-mutants" if mutants else ""))
        shutil.copy(built, copy)
        return copy


class Store:
    """A data directory, and the ledger of what was acknowledged for it."""

    def __init__(self, path, shape="small", ledger=None):
        self.path, self.ledger, self.runs, self.shape = path, ledger or Ledger(), 0, shape

    def check(self, tally):
        return check(self.path, self.ledger, tally)

    def keep(self, home):
        self.ledger.keep(home, os.path.basename(self.path))


class Writer:
    """A running hammer. Its standard output is the ledger, a file that is not on the file system under test."""

    def __init__(self, bench, store, before=(), mutant=None, preexec=child_limits):
        self.store, self.name = store, os.path.join(bench.home, "run-%d" % bench.next_number())
        command = [*before, bench.programs.get("hammer", mutant is not None), store.path, str(store.runs)]
        command += ["large"] if store.shape == "large" else []
        store.runs += 1
        environment = {**os.environ, "SEALOG_MUTANT": mutant} if mutant else None
        with open(self.name + ".out", "wb") as out, open(self.name + ".err", "wb") as err:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, preexec_fn=preexec, start_new_session=True,
                env=environment,
            )
        KNOWN.add(self.process.pid)
        bench.running.append(self)
        self.started, self.seen, self.lines, self.ready_after = time.monotonic(), 0, collections.Counter(), None
        self.known = None

    def look(self):
        """Reads on in what it says."""
        with open(self.name + ".out", "rb") as file:
            file.seek(self.seen)
            data = file.read()
        data = data[: data.rfind(b"\n") + 1]
        self.seen += len(data)
        self.lines.update(line[:5].strip() for line in data.split(b"\n"))
        if self.ready_after is None and self.lines[b"ready"]:
            self.ready_after = time.monotonic() - self.started

    def wait(self, kind, count=1, seconds=START_SECONDS):
        """Until it has said this many lines of a kind, or has ended, or the time is up. Whether it has said them."""
        until = time.monotonic() + seconds
        while True:
            ended = self.process.poll() is not None
            self.look()
            if self.lines[kind] >= count:
                return True
            if ended or time.monotonic() > until:
                return False
            time.sleep(0.002)

    def complaint(self):
        with open(self.name + ".err", encoding="utf-8", errors="replace") as file:
            return file.read().strip()

    def cut(self, volume):
        """Cuts the power under it. What it says from now on is not what anybody would hear."""
        self.known = os.stat(self.name + ".out").st_size
        volume.cut()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def end(self, tally):
        """Kills it and takes what it said into the ledger."""
        self.kill()
        acked = len(self.store.ledger.acked)
        self.store.ledger.read(self.name + ".out", self.known)
        tally.counts["acked"] += len(self.store.ledger.acked) - acked


class Bench:
    """What a run has set up, so that it can be taken down again."""

    def __init__(self, args):
        self.numbers, self.running, self.volumes, self.disks, self.keep = 0, [], [], [], False
        self.home = os.path.realpath(tempfile.mkdtemp(prefix="sealog-torture-"))
        self.programs, self.tally = args.programs, None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def volume(self, fs, size=IMAGE_BYTES):
        if not shutil.which("mkfs." + fs):
            package = {"ext4": "e2fsprogs", "xfs": "xfsprogs"}[fs]
            raise CannotRun("mkfs.%s is missing (Debian: apt-get install %s)" % (fs, package))
        volume = Volume(fs, self.home, "mnt-%d" % self.next_number())
        self.volumes.append(volume)
        volume.create(size)
        return volume

    def next_number(self):
        self.numbers += 1
        return self.numbers

    def store(self, volume, shape="small"):
        return Store(os.path.join(volume.path, "store-%d" % self.next_number()), shape)

    def discard(self, writer):
        """Its files are not needed any more."""
        self.running.remove(writer)
        for kind in (".out", ".err", ".trace"):
            with contextlib.suppress(FileNotFoundError):
                os.remove(writer.name + kind)

    def drop(self, volume):
        """A file system that is not needed any more, unless there is something to look into."""
        volume.unmount()
        self.volumes.remove(volume)
        if not (self.tally and self.tally.problems):
            os.remove(volume.image)

    def close(self):
        for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(sign, signal.SIG_IGN)
        for writer in self.running:
            writer.kill()
        reap()
        for volume in self.volumes:
            volume.unmount()
        for disk in self.disks:
            disk.close()
        if self.keep:
            say("kept, to look into it: %s" % self.home)
        else:
            shutil.rmtree(self.home)
        for sign in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(sign, stop)
        signal.signal(signal.SIGINT, signal.default_int_handler)


def stop(*_):
    raise KeyboardInterrupt
