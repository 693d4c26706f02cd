#!/usr/bin/env python3
"""Routing quality in front of real Dynamo workers: this router, Dynamo's own KV router, and round robin; on request this router by load
alone, which tells what its choice by prefix costs.

Every arm of every round gets a fresh fleet of the same shape and the same conversations; arms take turns at going first. The hit rate
comes from the workers' own events: blocks that they had to compute against the blocks of all prompts and answers. Exits with 1 when this
router's hit rate or p99 of the time to the first token is worse than that of Dynamo's KV router by more than the spread of the rounds.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "e2e"), str(Path(__file__).parent)]

from events import Events, LossyLink  # noqa: E402
from peers import fleet as fleets  # noqa: E402
from peers.fleet import MODEL, Fleet  # noqa: E402
from peers.process import eventually  # noqa: E402
from peers.router import Router, binary, config_for  # noqa: E402
from workload import Shape, conversations  # noqa: E402

ARMS = ("continuum", "dynamo-kv", "round-robin")
OURS = {"continuum": True, "continuum-load": False}
BLOCK = 16


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", default="1.6.1", help="of Dynamo")
    parser.add_argument("--shape", choices=["aggregated", "disaggregated"], default="aggregated")
    parser.add_argument("--workers", type=int, default=4, help="that read prompts; two decode workers come beside them in pairs")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--routers", type=int, default=1, help="of ours, side by side on one fleet")
    parser.add_argument("--speedup", type=float, default=1, help="of the workers against real time")
    parser.add_argument("--disturb", action="store_true", help="replace a worker in the middle of each arm")
    parser.add_argument("--lose", action="store_true", help="drop every fourth batch of block events in the second third of each arm")
    parser.add_argument("--arms", nargs="+", choices=[*ARMS, "continuum-load"], default=list(ARMS))
    parser.add_argument("--out", type=Path, help="write all figures here, as JSON")
    return parser.parse_args()


def start_fleet(options, folder):
    fleet = Fleet(options.version, folder, speedup=options.speedup)
    reads = "agg" if options.shape == "aggregated" else "prefill"
    for _ in range(options.workers):
        fleet.start_worker(reads)
    if reads == "prefill":
        for _ in range(2):
            fleet.start_worker("decode")
    return fleet, reads


def registered(fleet, reads, workers):
    """The workers' own words on their caches, from before the first request on."""
    events = Events(fleet.etcd, {reads})

    def all_there():
        events.follow()
        return events.publishers >= workers

    eventually(all_there, 120, "the workers' publishers are registered")
    return events


def start_arm(options, arm, fleet, folder):
    """The URLs that clients use, and the processes whose time is counted."""
    mode = {"dynamo-kv": "kv", "round-robin": "round-robin"}.get(arm, "direct")
    block = ("--kv-cache-block-size", str(BLOCK)) if mode == "kv" else ()
    frontend = fleet.start_frontend("--router-mode", mode, *block)
    fleet.settle()
    if arm not in OURS:
        return [frontend.url], [frontend.process], []
    file = folder / "artifacts.yaml"
    file.write_text(json.dumps(config_for(fleet)))
    saved = subprocess.run([binary(), "artifacts", "fetch", "--config", file, "--to", folder / "review"], capture_output=True, text=True, timeout=60, check=True)
    pins = re.findall(r'^- "(blake3:[0-9a-f]{64})"', saved.stdout, re.M)
    routers = []
    for number in range(options.routers):
        config = config_for(fleet)
        config["dynamo"]["kv"] = {"enabled": OURS[arm], "pinned_artifacts": pins}
        routers.append(Router(config, folder, f"router{number}").settle(fleet))
    return [router.url for router in routers], [frontend.process, *(router.process for router in routers)], routers


def ask(client, url, messages, most):
    """One streamed answer: (time to the first token or None, text, prompt tokens, completion tokens, status)."""
    body = {"model": MODEL, "messages": messages, "max_tokens": most, "stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True}
    begun, first, words, usage = time.monotonic(), None, [], {}
    try:
        with client.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=120) as answer:
            for line in answer.iter_lines():
                if not line.startswith("data: ") or line == "data: [DONE]":
                    continue
                piece = json.loads(line[6:])
                usage = piece.get("usage") or usage
                for choice in piece.get("choices", []):
                    content = (choice.get("delta") or {}).get("content")
                    if content:
                        first = first or time.monotonic() - begun
                        words.append(content)
            return first, "".join(words), usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0), answer.status_code
    except httpx.HTTPError:
        return None, "", 0, 0, 0


class Work:
    """Closed-loop clients: each takes the conversation that has waited longest, asks its next question, and puts it back.

    So many conversations are under way at once; one that ends makes room for a new one.
    """

    def __init__(self, shape, seed, urls):
        all_of_them = conversations(shape, seed)
        self.waiting, self.rest = all_of_them[: shape.at_once], all_of_them[shape.at_once :]
        self.shape, self.urls = shape, urls
        self.first, self.blocks, self.refused, self.asked = [], 0, 0, 0
        self._lock = threading.Lock()

    def run(self, plan=None):
        """Until every question is answered; `plan` says what happens after which share of them."""
        due = sorted((plan or {}).items())
        begun = time.monotonic()
        threads = [threading.Thread(target=self._client, args=(number,)) for number in range(self.shape.clients)]
        for thread in threads:
            thread.start()
        every = self.shape.conversations * self.shape.turns
        while any(thread.is_alive() for thread in threads):
            time.sleep(0.05)
            while due and self.asked >= due[0][0] * every:
                due.pop(0)[1]()
        return time.monotonic() - begun

    def _client(self, number):
        url = self.urls[number % len(self.urls)]
        with httpx.Client() as client:
            while True:
                with self._lock:
                    if not self.waiting:
                        return
                    talk = self.waiting.pop(0)
                    self.asked += 1
                talk.messages.append({"role": "user", "content": talk.questions.pop(0)})
                first, text, prompt, completion, status = ask(client, url, talk.messages, self.shape.answer_tokens)
                talk.messages.append({"role": "assistant", "content": text or "?"})
                with self._lock:
                    if status == 200 and first is not None:
                        self.first.append(first)
                        self.blocks += (prompt + completion) // BLOCK
                    else:
                        self.refused += 1
                    if talk.questions:
                        self.waiting.append(talk)
                    elif self.rest:
                        self.waiting.append(self.rest.pop(0))


def cpu_seconds(process):
    """User and system time of a process, in seconds."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run_arm(options, arm, number, folder):
    fleet, reads = start_fleet(options, folder)
    routers, link = [], None
    try:
        events = registered(fleet, reads, options.workers)
        link = LossyLink(fleet.etcd, {reads}) if options.lose else None
        urls, processes, routers = start_arm(options, arm, fleet, folder)
        shape = Shape()
        warm = Work(Shape(systems=1, conversations=8, turns=1, system_words=8, clients=2), 1_000 + number, urls)
        warm.run()
        if OURS.get(arm):
            eventually(lambda: all(scored(router, urls) for router in routers), 30, "prompts are scored")
        time.sleep(0.5)  # the workers' last events
        before, shares, busy = events.stored, dict(events.by_worker), [cpu_seconds(process) for process in processes]

        def replace_a_worker():
            victim = fleet.living(reads)[0]
            victim.process.terminate()
            fleet.start_worker(reads)
            threading.Timer(3, events.follow).start()

        plan = {}
        if options.disturb:
            plan[1 / 2] = replace_a_worker
        if link:
            plan |= {1 / 3: link.losing.set, 2 / 3: link.losing.clear}
        work = Work(shape, number, urls)
        took = work.run(plan)
        time.sleep(0.5)
        stored = events.stop() - before
        busy = [cpu_seconds(process) - spent for process, spent in zip(processes, busy, strict=True)]
        first = sorted(work.first)
        busiest = max(blocks - shares.get(worker, 0) for worker, blocks in events.by_worker.items())
        asked = len(first) + work.refused
        return {
            "hit rate %": 100 * (1 - stored / max(1, work.blocks)),
            "TTFT p50 ms": 1000 * first[len(first) // 2],
            "TTFT p99 ms": 1000 * first[min(len(first) - 1, int(len(first) * 0.99))],
            "busiest worker %": 100 * busiest / max(1, stored),
            "answers/s": len(first) / took,
            "refused": work.refused,
            "routing CPU ms": 1000 * sum(busy) / max(1, asked),
            "of it ours": 1000 * sum(busy[1:]) / max(1, asked),
            "events broken": events.broken,
            "batches lost": link.lost if link else 0,
        }
    finally:
        if link:
            link.stop()
        for router in routers:
            router.stop()
        fleet.stop()


def scored(router, urls):
    with httpx.Client() as client:
        ask(client, router.url, [{"role": "user", "content": "hello"}], 2)
    return sum(router.metric("continuum_dynamo_kv_selection_total", result=name) for name in ("overlap", "no_overlap")) > 0


def show(found):
    columns = list(next(iter(found.values()))[0])
    print(f"{'':14}" + "".join(f"{column:>28}" for column in columns))
    for arm, rounds in found.items():
        cells = []
        for column in columns:
            values = [one[column] for one in rounds]
            cells.append(f"{statistics.median(values):.1f} ({min(values):.1f} .. {max(values):.1f})")
        print(f"{arm:14}" + "".join(f"{cell:>28}" for cell in cells))


def spread(rounds, column):
    values = [one[column] for one in rounds]
    return max(values) - min(values)


def judge(found):
    """What is worse than Dynamo's KV router by more than the rounds differ among themselves."""
    if not {"continuum", "dynamo-kv"} <= set(found):
        return []
    ours, theirs = found["continuum"], found["dynamo-kv"]
    worse = []
    for column, sign in (("hit rate %", 1), ("TTFT p99 ms", -1)):
        lead = sign * (statistics.median(one[column] for one in ours) - statistics.median(one[column] for one in theirs))
        if lead < -max(spread(ours, column), spread(theirs, column)):
            worse.append(f"{column}: {-lead:.1f} worse than dynamo-kv, beyond the spread")
    if sum(one["refused"] for one in ours) > sum(one["refused"] for one in theirs) and max(one["refused"] for one in ours) > 1:
        worse.append("more requests refused than by dynamo-kv")
    return worse


def main():
    options = arguments()
    found = {arm: [] for arm in options.arms}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds):
            turn = number % len(options.arms)
            for arm in options.arms[turn:] + options.arms[:turn]:
                result = run_arm(options, arm, number, Path(folder) / f"{number}-{arm}")
                found[arm].append(result)
                print(f"round {number + 1} {arm}: " + ", ".join(f"{name} {value:.1f}" for name, value in result.items()), flush=True)
    print(f"\nDynamo {options.version}, {options.shape}, {options.workers} workers, {options.rounds} rounds: median (least .. most)")
    show(found)
    if options.out:
        options.out.write_text(json.dumps(found, indent=1))
    worse = judge(found)
    for line in worse:
        print(f"GATE: {line}")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
