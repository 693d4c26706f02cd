"""The README's Kubernetes section, command by command, in a cluster that has a Dynamo fleet. Runs last: nothing is installed any more."""

import subprocess
import sys

from peers.release import KIND, ROOT


def test_the_commands_of_the_readme(cluster, fleet):
    fleet.settle(prefill=2, decode=2, frontend=1)
    cluster.kubectl("delete", "crd", KIND, "--ignore-not-found")
    done = subprocess.run(
        [sys.executable, "scripts/readme_commands.py", "README.md", "--cluster"], cwd=ROOT, capture_output=True, text=True, check=False,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
