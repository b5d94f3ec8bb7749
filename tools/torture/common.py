"""What all experiments use: how they end, what they say, and processes that leave nothing behind."""

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIBC = ctypes.CDLL(None, use_errno=True)


class CannotRun(Exception):
    """Something that the experiment needs is missing: exit code 2."""


class Failed(Exception):
    """Something did not hold: exit code 1."""


def say(text):
    print(text, file=sys.stderr, flush=True)


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    return done.returncode, done.stdout.strip()


def child_limits():
    LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it ends with this program, whatever ends that
    resource.setrlimit(resource.RLIMIT_CPU, (300, 300))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def reap():
    """Waits until the processes that were left to this one by others are gone."""
    until = time.monotonic() + 5
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < until:
            if not any_left_behind():
                return
            time.sleep(0.002)


KNOWN = set()  # Processes that are waited for where they were started.


def any_left_behind():
    with open("/proc/self/task/%d/children" % os.getpid(), encoding="ascii") as file:
        children = [int(word) for word in file.read().split()]
    left = [pid for pid in children if pid not in KNOWN]
    for pid in left:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return left


def wait_until(condition, seconds, pause=0.005):
    """Whether the condition came true in time."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(pause)
    return True
