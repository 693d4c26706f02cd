"""The README's Kubernetes section, command by command, in a cluster that has a Dynamo fleet. Runs last: nothing is installed any more."""

import os
import subprocess
import sys

import pytest

from peers.release import KIND, ROOT


@pytest.mark.skipif(not os.environ.get("E2E_UNPROVEN"), reason="not proven yet; runs with E2E_UNPROVEN=1")
def test_the_commands_of_the_readme(cluster, fleet):
    fleet.settle(prefill=2, decode=2, frontend=1)
    cluster.kubectl("delete", "crd", KIND, "--ignore-not-found")
    done = subprocess.run(
        [sys.executable, "scripts/readme_commands.py", "README.md", "--cluster"], cwd=ROOT, capture_output=True, text=True, check=False,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
