#!/usr/bin/env python3
"""Measures LLM relays against each other and against going direct, in one run.

    ./run.py [--rounds 3] [--seconds 4] [--only floor,continuum,nginx] [--scenarios buf1k,sse128]
             [--extra NAME=PORT=COMMAND ...] [--out result.json]

Each round starts every relay in turn (the order rotates from round to round),
runs all scenarios through it, and stops it, so that a slow minute of the machine
does not fall on one relay only. The relay has CPU 0 for itself with one worker
thread; the mock upstream and the load generator share CPU 1. Every answer is
checked by the load generator. All traffic stays on 127.0.0.1.

`continuum` is this project's router with everything on that a fleet needs: a simulated Dynamo fleet in a file
store publishes its load, each request is picked, pinned and booked, backends are health-checked, metrics count.
The mock upstreams stand where the direct-mode frontends would. `--extra` adds any other relay:
    --extra 'mine=9400=/path/to/relay --flags'
"""
import argparse, json, os, secrets, shutil, signal, statistics, subprocess, sys, time, urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.environ.get("BENCH_HOME", os.path.expanduser("~/.cache/continuum-bench"))  # peers' venvs, run files, results
BIN = os.environ.get("BENCH_BIN", os.path.join(HERE, "target", "release"))
CONF = os.path.join(HERE, "peers")
VENV = os.path.join(ROOT, "peers")
RUN = os.path.join(ROOT, "run")
UP = ["http://127.0.0.1:9001", "http://127.0.0.1:9002"]
KEY = "sk-" + secrets.token_hex(16)  # LiteLLM refuses to start without a key; made anew for each run


def sglang(port, policy):
    return [f"{VENV}/venv-sglang/bin/python", "-m", "sglang_router.launch_router", "--host", "127.0.0.1",
            "--port", str(port), "--worker-urls", *UP, "--policy", policy, "--prometheus-host", "127.0.0.1",
            "--prometheus-port", str(20000 + port), "--log-level", "error"]


def vllm(port, policy):
    return [f"{VENV}/venv-vllm/bin/vllm-router", "--host", "127.0.0.1", "--port", str(port), "--worker-urls", *UP,
            "--policy", policy, "--prometheus-host", "127.0.0.1", "--prometheus-port", str(20000 + port),
            "--log-level", "error"]


# The router under test and the fleet that it discovers.
PRODUCT = os.environ.get("CONTINUUM_BIN", os.path.join(HERE, "..", "..", "target", "release"))
FLEET = ["--prefill", "8", "--decode", "8", "--model", "mock-model", "--no-frontends"]


RELAYS = {
    "continuum": (9300, [f"{PRODUCT}/continuum-router", "--config", f"{CONF}/continuum.yaml"]),
    "direct": (9001, None),
    "floor-l4": (9102, [f"{BIN}/floor-proxy", "--listen", "9102", "--mode", "l4"]),
    "floor": (9100, [f"{BIN}/floor-proxy", "--listen", "9100"]),
    "floor-inspect": (9101, [f"{BIN}/floor-proxy", "--listen", "9101", "--mode", "inspect"]),
    "nginx": (9110, ["nginx", "-p", RUN + "/", "-e", "nginx.err", "-c", f"{CONF}/nginx.conf"]),
    "haproxy": (9120, ["haproxy", "-db", "-f", f"{CONF}/haproxy.cfg"]),
    "envoy": (9130, [f"{VENV}/venv-envoy/bin/envoy", "-c", f"{CONF}/envoy.yaml", "--concurrency", "1",
                     "--log-level", "error", "--base-id", "77"]),
    "sglang-rr": (9210, sglang(9210, "round_robin")),
    "sglang-cache": (9211, sglang(9211, "cache_aware")),
    "vllm-rr": (9220, vllm(9220, "round_robin")),
    "vllm-cache": (9221, vllm(9221, "cache_aware")),
    "litellm": (9230, [f"{VENV}/venv-litellm/bin/litellm", "--config", f"{CONF}/litellm.yaml", "--host", "127.0.0.1",
                       "--port", "9230", "--num_workers", "1", "--telemetry", "False"]),
}
ENV = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR", "LITELLM_MODE": "PRODUCTION",
       "LITELLM_MASTER_KEY": KEY, "HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1"}

# Cells during which the rest of the machine used more CPU than this are measured again.
QUIET, TRIES, PATIENCE = 0.30, 1, 2.5
NICE = os.environ.get("BENCH_NICE", "0")  # of all measured processes alike
# Relays so slow that they need fewer connections and more time for whole answers.
SLOW = {"litellm": (4, 2.0)}

# name -> (load arguments, connections, share of --seconds)
SCENARIOS = {
    "buf1k": ("--mode buffered --prompt-bytes 1024 --answer-bytes 1024", 32, 1.0),
    "buf1k-c1": ("--mode buffered --prompt-bytes 1024 --answer-bytes 1024", 1, 0.5),
    "buf64k": ("--mode buffered --prompt-bytes 65536 --answer-bytes 1024", 32, 1.0),
    "sse128": ("--mode sse --tokens 128 --prompt-bytes 1024", 32, 1.0),
    "sse128-2ms": ("--mode sse --tokens 128 --delay-ms 2 --prompt-bytes 1024", 64, 1.0),
}


def start(command, cpu, log):
    return subprocess.Popen(["nice", "-n", NICE, "taskset", "-c", str(cpu), *command], stdout=open(log, "w"), stderr=subprocess.STDOUT,
                            env=ENV, cwd=RUN, start_new_session=True)


def stop(process):
    """Ends one process that this script started, with its own children."""
    for sig, wait in ((signal.SIGTERM, 5), (signal.SIGKILL, 5)):
        try:
            os.killpg(process.pid, sig)
        except ProcessLookupError:
            return
        try:
            process.wait(wait)
            return
        except subprocess.TimeoutExpired:
            pass


def ready(port, seconds=90):
    body = json.dumps({"model": "mock-model", "messages": [{"role": "user", "content": "nonce=0123456789abcdef hi"}]})
    until = time.time() + seconds
    while time.time() < until:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", body.encode(),
                                         {"content-type": "application/json", "authorization": f"Bearer {KEY}"})
        try:
            if b"nonce=0123456789abcdef" in urllib.request.urlopen(request, timeout=3).read():
                return True
        except Exception:
            time.sleep(0.2)
    return False


def wait_for_quiet(limit):
    """Waits up to `limit` seconds until other work (but for niced work) leaves the machine alone."""
    def busy():
        user, _nice, system, _idle, _wait, irq, soft, *_ = map(int, open("/proc/stat").readline().split()[1:])
        return (user + system + irq + soft) / os.sysconf("SC_CLK_TCK")
    until = time.time() + limit
    while time.time() < until:
        before, begun = busy(), time.time()
        time.sleep(0.4)
        if (busy() - before) / (time.time() - begun) < QUIET:
            return


def measure(name, port, pid, mock, scenario, seconds):
    """The least disturbed of up to TRIES samples."""
    best = None
    for _ in range(TRIES):
        wait_for_quiet(PATIENCE)
        sample = measure_once(name, port, pid, mock, scenario, seconds)
        if best is None or sample.get("foreign_cores", 9) < best.get("foreign_cores", 9):
            best = sample
        if best.get("foreign_cores", 9) <= QUIET:
            break
    return best


def measure_once(name, port, pid, mock, scenario, seconds):
    text, connections, share = SCENARIOS[scenario]
    if name in SLOW:
        connections, share = min(connections, SLOW[name][0]), SLOW[name][1]
    command = ["nice", "-n", NICE, "taskset", "-c", "1", f"{BIN}/load", "--port", str(port), *text.split(), "--connections",
               str(connections), "--duration-ms", str(int(seconds * share * 1000)), "--warmup-ms", "500",
               "--bearer", KEY, "--upstream-pid", str(mock)]
    if pid:
        command += ["--pid", str(pid)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 90)
    try:
        return json.loads(done.stdout)
    except ValueError:
        return {"errors": -1, "first_error": (done.stdout + done.stderr)[-300:]}


def cell(samples, path):
    """(mean of the two least disturbed samples, lowest of all, highest of all)"""
    values = []
    for sample in sorted(samples, key=lambda s: s.get("foreign_cores", 9)):
        for key in path:
            sample = sample.get(key) if isinstance(sample, dict) else None
        if isinstance(sample, (int, float)):
            values.append(sample)
    return (statistics.mean(values[:2]), min(values), max(values)) if values else None


def show(value, digits=0):
    if value is None:
        return "-"
    middle, low, high = value
    spread = f" ±{(high - low) / 2 / middle * 100:.0f}%" if middle and high > low else ""
    return f"{middle:.{digits}f}{spread}"


def report(results, scenarios, out=sys.stdout):
    for scenario in scenarios:
        rows = {name: by[scenario] for name, by in results.items() if by.get(scenario)}
        if not rows:
            continue
        floor = cell(rows.get("floor", []), ["relay", "cpu_us_per_request"])
        direct = rows.get("direct", [])
        print(f"\n### {scenario}: {SCENARIOS[scenario][0]} ({SCENARIOS[scenario][1]} connections)\n", file=out)
        print("| relay | req/s | CPU µs/req | user/sys | × floor | relay cores | added p50 µs | added p99 µs | gap p99 µs "
              "| RSS peak MiB | errors |", file=out)
        print("|---|---|---|---|---|---|---|---|---|---|---|", file=out)
        for name, samples in rows.items():
            cpu = cell(samples, ["relay", "cpu_us_per_request"])
            user, system = (cell(samples, ["relay", f"{k}_us_per_request"]) for k in ("user", "system"))
            rss = cell(samples, ["relay", "rss_peak_kib"])
            added = []
            for q in ("p50_us", "p99_us"):
                key = ["first_byte", q] if scenario.startswith("sse") else ["latency", q]
                # Round by round, so that both sides saw the same state of the machine.
                pairs = [(cell([a], key), cell([b], key)) for a, b in zip(samples, direct)]
                diffs = [a[0] - b[0] for a, b in pairs if a and b]
                added.append((min(diffs, key=abs) if len(diffs) < 2 else statistics.median(diffs), min(diffs), max(diffs)) if diffs and name != "direct" else None)
            base = cell(samples, ["latency", "p50_us"])
            print("|", " | ".join([
                name, show(cell(samples, ["requests_per_second"])), show(cpu, 1),
                f"{user[0]:.1f}/{system[0]:.1f}" if user and system else "-",
                f"{cpu[0] / floor[0]:.2f}" if cpu and floor else "-",
                show(cell(samples, ["relay", "cores"]), 2),
                f"{added[0][0]:.0f} [{added[0][1]:.0f}..{added[0][2]:.0f}]" if added[0] else f"(is {base[0]:.0f})" if base else "-",
                f"{added[1][0]:.0f} [{added[1][1]:.0f}..{added[1][2]:.0f}]" if added[1] else "-",
                show(cell(samples, ["gap", "p99_us"])) if scenario.startswith("sse") else "-",
                f"{rss[1] / 1024:.1f}..{rss[2] / 1024:.1f}" if rss else "-",
                str(sum(s.get("errors", 0) for s in samples)),
            ]), "|", file=out)


def start_fleet():
    """A fleet in a fresh file store; it sits beside the mock upstream on CPU 1."""
    store = f"{RUN}/fleet"
    shutil.rmtree(store, ignore_errors=True)
    return start([f"{PRODUCT}/fleet-sim", "--store", store, *FLEET], 1, f"{RUN}/fleet.log")


# scenario, what is read of it, unit, kind (ratio to the floor's, or absolute), gate, aim
BARS = [
    ("buf1k", ["relay", "cpu_us_per_request"], "CPU per 1 KiB buffered request", "ratio", 1.6, 1.3),
    ("buf64k", ["relay", "cpu_us_per_request"], "CPU per 64 KiB prompt", "ratio", 1.7, 1.4),
    ("sse128-2ms", ["relay", "cpu_us_per_request"], "CPU per paced stream", "ratio", 1.25, 1.0),
    ("buf1k-c1", ["latency", "p50_us"], "added p50 at one connection", "added ratio", 1.5, 1.2),
    ("sse128-2ms", ["first_byte", "p50_us"], "added TTFT p50, paced, ms", "added ms", 1.0, 0.3),
    ("sse128-2ms", ["gap", "p99_us"], "gap p99 beyond direct's, paced, ms", "added ms", 10.0, 1.0),
    ("buf64k", ["relay", "rss_peak_kib"], "RSS peak at 64 KiB prompts, MiB", "mib", 40.0, 25.0),
    ("sse128-2ms", ["relay", "rss_peak_kib"], "RSS peak with 64 streams, MiB", "mib", 40.0, 25.0),
]


def verdict(results):
    """Our bars against what was measured; says by how much a bar is missed."""
    def value(name, scenario, path):
        found = cell(results.get(name, {}).get(scenario, []), path)
        return found[0] if found else None
    print("\n### The router's bars\n\n| bar | measured | gate | aim | |\n|---|---|---|---|---|")
    for scenario, path, label, kind, gate, aim in BARS:
        ours, floor, direct = (value(name, scenario, path) for name in ("continuum", "floor", "direct"))
        if ours is None or (kind == "ratio" and not floor) or (kind.startswith("added") and direct is None):
            continue
        if kind == "added ratio" and (floor is None or floor <= direct):
            continue
        got = {"ratio": lambda: ours / floor, "added ratio": lambda: (ours - direct) / (floor - direct),
               "added ms": lambda: (ours - direct) / 1000, "mib": lambda: ours / 1024}[kind]()
        said = "aim met" if got <= aim else "gate met" if got <= gate else f"misses the gate by {got - gate:.2f}"
        print(f"| {label} | {got:.2f} | {gate} | {aim} | {said} |")


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that "finally" stops what was started
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--only", default="")
    parser.add_argument("--scenarios", default=",".join(SCENARIOS))
    parser.add_argument("--extra", action="append", default=[])
    parser.add_argument("--out", default=os.path.join(ROOT, "result.json"))
    args = parser.parse_args()
    relays = dict(RELAYS)
    for extra in args.extra:
        name, port, command = extra.split("=", 2)
        relays[name] = (int(port), command.split())
    if args.only:
        keep = args.only.split(",") + [extra.split("=")[0] for extra in args.extra]
        relays = {name: relays[name] for name in relays if name in keep}
    scenarios = args.scenarios.split(",")
    os.makedirs(RUN, exist_ok=True)
    results = {name: {s: [] for s in scenarios} for name in relays}
    startup = {name: [] for name in relays}
    mock = start([f"{BIN}/mock-upstream", "--ports", "9001,9002"], 1, f"{RUN}/mock.log")
    fleet = start_fleet() if "continuum" in relays else None
    try:
        assert ready(9001, 10), "the mock upstream does not answer"
        names = list(relays)
        for number in range(args.rounds):
            shift = number * max(1, len(names) // args.rounds) % len(names)
            for name in names[shift:] + names[:shift]:
                port, command = relays[name]
                process = start(command, 0, f"{RUN}/{name}.log") if command else None
                begun = time.time()
                try:
                    if not ready(port):
                        print(f"{name}: not ready", file=sys.stderr)
                        continue
                    startup[name].append(round(time.time() - begun, 2))
                    for scenario in scenarios:
                        sample = measure(name, port, process.pid if process else None, mock.pid, scenario, args.seconds)
                        sample["load_average"] = os.getloadavg()[0]
                        results[name][scenario].append(sample)
                        print(f"[{number + 1}] {name:14} {scenario:11} {sample.get('requests_per_second', 0):9.0f}/s "
                              f"cpu {(sample.get('relay') or {}).get('cpu_us_per_request', 0):8.1f} us "
                              f"p50 {sample.get('latency', {}).get('p50_us', 0):8.0f} errors {sample.get('errors')} foreign {sample.get('foreign_cores')} "
                              f"{sample.get('first_error') or ''}", file=sys.stderr, flush=True)
                finally:
                    if process:
                        stop(process)
            with open(args.out, "w") as file:
                json.dump({"results": results, "startup_seconds": startup}, file)
    finally:
        stop(mock)
        if fleet:
            stop(fleet)
    report(results, scenarios)
    if "continuum" in results and "floor" in results:
        verdict(results)
    print("\nstart-up seconds (median):", {n: statistics.median(v) for n, v in startup.items() if v})


if __name__ == "__main__":
    main()
