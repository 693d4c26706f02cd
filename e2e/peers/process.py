"""One child process: started in a session of its own, logged to a file, signalled by its own PID only."""

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

STOP_SECONDS = 15
"""How long a process may take to end after SIGTERM before it is killed."""


class Failed(AssertionError):
    """A peer did not do what the test needs in time."""


def free_port():
    """A TCP port of the loopback device that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def eventually(check, seconds, what, every=0.1):
    """Calls `check` until it returns something true, and returns that. An AssertionError or a connection error counts as 'not yet'."""
    deadline = time.monotonic() + seconds
    last = None
    while True:
        try:
            found = check()
            if found:
                return found
        except (AssertionError, OSError, LookupError, ValueError) as error:
            last = error
        except Exception as error:  # noqa: BLE001 - client libraries have trees of their own
            if type(error).__module__.split(".")[0] not in ("httpx", "httpcore", "json"):
                raise
            last = error
        if time.monotonic() > deadline:
            raise Failed(f"not within {seconds} s: {what}" + (f" ({last!r})" if last else ""))
        time.sleep(every)


class Process:
    """A running command. `name` is for messages and for the log file."""

    def __init__(self, name, command, folder, env=None):
        self.name = name
        self.log = Path(folder) / f"{name}.log"
        with open(self.log, "ab") as out:
            self._child = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                env=env, cwd=folder, start_new_session=True,
            )

    @property
    def pid(self):
        return self._child.pid

    @property
    def alive(self):
        return self._child.poll() is None

    def send(self, which):
        if self.alive:
            os.kill(self.pid, which)

    def kill(self):
        """Ends the process the hard way, as a crash would, and reaps it."""
        self.send(signal.SIGKILL)
        self._child.wait(STOP_SECONDS)

    def terminate(self):
        """Asks the process to end and does not wait."""
        self.send(signal.SIGTERM)

    def wait(self, seconds):
        """Waits for the end; returns the exit status (negative: the signal's number)."""
        try:
            return self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failed(f"{self.name} did not end within {seconds} s\n{self.tail()}") from None

    def stop(self):
        self.terminate()
        try:
            self._child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def text(self):
        return self.log.read_text(errors="replace")

    def tail(self, lines=30):
        return f"--- last lines of {self.log}\n" + "\n".join(self.text().splitlines()[-lines:])

    def must_live(self):
        if not self.alive:
            raise Failed(f"{self.name} ended with {self._child.returncode}\n{self.tail()}")
