"""The files that workers offer: shown, saved for review, and the lines to pin them."""

import json
import re
import subprocess

import pytest

from peers import fleet as fleets
from peers.fleet import MODEL
from peers.router import binary, config_for


@pytest.fixture(scope="module")
def fleet(version, folder):
    found = fleets.disaggregated(version, folder / "fleet", prefill=1, decode=1)
    yield found
    found.stop()


def artifacts(config, folder, *arguments):
    file = folder / "artifacts.yaml"
    file.write_text(json.dumps(config))
    action, *more = arguments
    return subprocess.run([binary(), "artifacts", action, "--config", file, *more], capture_output=True, text=True, timeout=60)


def test_files_are_shown_saved_and_pinned(fleet, tmp_path):
    config = config_for(fleet)
    shown = artifacts(config, tmp_path, "list")
    assert shown.returncode == 0, shown.stderr
    rows = [line.split() for line in shown.stdout.splitlines()]
    assert [row[:3] + row[4:6] for row in rows[1:]] == [
        [MODEL, "tokenizer", "http", "no", "2/2"],
        [MODEL, "prompt_formatter", "http", "no", "2/2"],
    ]

    saved = artifacts(config, tmp_path, "fetch", "--to", tmp_path / "review")
    assert saved.returncode == 0, saved.stderr
    for name in ["tokenizer.json", "tokenizer_config.json"]:
        assert (tmp_path / "review" / MODEL.replace("/", "--") / name).read_bytes() == (fleets.home() / "model" / name).read_bytes()
    pins = re.findall(r'^- "(blake3:[0-9a-f]{64})"', saved.stdout, re.M)
    assert len(pins) == 2

    config["dynamo"]["kv"] = {"pinned_artifacts": pins}
    shown = artifacts(config, tmp_path, "list")
    assert [line.split()[4] for line in shown.stdout.splitlines()[1:]] == ["yes", "yes"]
    again = artifacts(config, tmp_path, "fetch", "--to", tmp_path / "review")
    assert again.returncode == 0 and "pinned already" in again.stdout


def test_what_may_not_be_fetched_or_does_not_exist_fails(fleet, tmp_path):
    config = config_for(fleet)
    config["dynamo"]["kv"] = {"allow_http_artifacts": False}
    refused = artifacts(config, tmp_path, "fetch", "--to", tmp_path / "review")
    assert refused.returncode == 1 and "not allowed" in refused.stderr
    missing = artifacts(config, tmp_path, "fetch", "--to", tmp_path / "review", "--model", "other")
    assert missing.returncode == 1 and "no such model" in missing.stderr
    config["dynamo"]["enabled"] = False
    nothing = artifacts(config, tmp_path, "list")
    assert nothing.returncode == 1 and "dynamo.enabled" in nothing.stderr
