"""Runs the marked commands of a Markdown file: see readme-commands.sh."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time

BLOCK = re.compile(r"^<!-- ci\b(?P<options>[^\n]*)-->\n+```(?:sh|bash|console|shell)\n(?P<script>.*?)^```", re.M | re.S)
OPTION = re.compile(r'(\w+)(?:=(?:"([^"]*)"|(\S+)))?')
GRACE_SECONDS = 60
"""How long a command may take to end after Ctrl-C."""


def blocks(text):
    for found in BLOCK.finditer(text):
        options = {name: quoted or bare for name, quoted, bare in OPTION.findall(found["options"])}
        line = text.count("\n", 0, found.start("script")) + 1
        yield line, options, found["script"]


def run(script, options):
    """Runs one block. Returns None, or what went wrong."""
    until = options.get("until")
    deadline = time.monotonic() + float(options.get("seconds", 300))
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", script],
            stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
        )

        def printed():
            return os.pread(out.fileno(), 1 << 20, 0).decode("utf8", "replace")

        try:
            while process.poll() is None and time.monotonic() < deadline and not (until and until in printed()):
                time.sleep(0.1)
            if process.poll() is None and until and until in printed():
                os.killpg(process.pid, signal.SIGINT)
                process.wait(GRACE_SECONDS)
                return None
            if process.poll() is None:
                return f"did not end in time\n{printed()}"
            if process.returncode != 0:
                return f"ended with {process.returncode}\n{printed()}"
            if until and until not in printed():
                return f"never printed {until!r}\n{printed()}"
            return None
        except subprocess.TimeoutExpired:
            return f"did not end after Ctrl-C\n{printed()}"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def main():
    # Who is started in the background ignores Ctrl-C, and so would the commands.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    path, in_cluster = sys.argv[1], "--cluster" in sys.argv[2:]
    with open(path, encoding="utf8") as file:
        found = [block for block in blocks(file.read()) if ("cluster" in block[1]) == in_cluster]
    failed = 0
    for line, options, script in found:
        begun = time.monotonic()
        wrong = run(script, options)
        print(f"{path}:{line}: {'failed: ' + wrong if wrong else 'ok'} ({time.monotonic() - begun:.0f} s)", flush=True)
        failed += wrong is not None
    if not found:
        print(f"{path}: no command is marked with <!-- ci{' cluster' if in_cluster else ''} -->")
        failed = 1
    print(f"{len(found) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
