"""What widely used chat templates make of a set of conversations: by Hugging Face's transformers, and by a real frontend.

    scripts/make-prompt-goldens.sh [VERSION [TEMPLATE ...]]

Writes crates/io/prompt/tests/fixtures/templates/<template>.jsonl, which a test of that crate compares its own renderings with. The
templates come from scripts/install-templates.sh and are not copied. Every model has the tokenizer of the test model: only the text matters.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from peers import fleet as fleets  # noqa: E402
from peers.process import eventually  # noqa: E402

LLAMA = ("<|begin_of_text|>", "<|eot_id|>")
TEMPLATES = {
    "Qwen-Qwen3-0.6B": (None, "<|im_end|>"),
    "Qwen-Qwen2.5-7B-Instruct": (None, "<|im_end|>"),
    "Qwen-QwQ-32B": (None, "<|im_end|>"),
    "meta-llama-Llama-3.1-8B-Instruct": LLAMA,
    "meta-llama-Llama-3.2-3B-Instruct": LLAMA,
    "meta-llama-Llama-3.3-70B-Instruct": LLAMA,
    "google-gemma-2-2b-it": ("<bos>", "<eos>"),
    "mistralai-Mistral-Nemo-Instruct-2407": ("<s>", "</s>"),
    "Mistral-Small-3.2-24B-Instruct-2506": ("<s>", "</s>"),
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    "openai-gpt-oss-120b": ("<|startoftext|>", "<|return|>"),
    "microsoft-Phi-3.5-mini-instruct": ("<s>", "<|endoftext|>"),
    "moonshotai-Kimi-K2": ("[BOS]", "[EOS]"),
    "ibm-granite-granite-3.3-2B-Instruct": ("<|end_of_text|>", "<|end_of_text|>"),
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": LLAMA,
    "MiniMax-M2": ("]~!b[", "[e~["),
    "google-gemma-4-31B-it": ("<bos>", "<turn|>"),
    "google-gemma-4-31B-it-interleaved": ("<bos>", "<turn|>"),
    "GLM-4.6": (None, "<|endoftext|>"),
    "GLM-4.7-Flash": (None, "<|endoftext|>"),
    "Qwen3-Coder": (None, "<|im_end|>"),
    "Qwen3.5-4B": (None, "<|im_end|>"),
    "deepseek-ai-DeepSeek-V3.1": ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    "Kimi-K2-Thinking": ("[BOS]", "[EOS]"),
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": ("<s>", "<|im_end|>"),
}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def system(text):
    return {"role": "system", "content": text}


TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Get the <weather> of \"a\" city's", "parameters": {
        "type": "object", "properties": {
            "city": {"type": "string", "description": "도시"}, "days": {"type": "integer", "minimum": 1, "default": 3},
            "units": {"type": "array", "items": {"type": "string", "enum": ["c", "f"]}}, "exact": {"type": "boolean", "default": False}},
        "required": ["city"]}}},
    {"type": "function", "function": {"name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}}}},
]
CALL = assistant("", tool_calls=[{"id": "call_a1b2", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\": \"Seoul\", \"days\": 2}"}}])
RESULT = {"role": "tool", "tool_call_id": "call_a1b2", "content": "{\"c\": 21}"}
CASES = {
    "plain": {"messages": [user("hello there")]},
    "system": {"messages": [system("You are terse."), user("hi")]},
    "turns": {"messages": [system("s"), user("a"), assistant("b"), user("c"), assistant("d"), user("e")]},
    "unicode": {"messages": [user("안녕 🙂 'x' \"y\" <z> &\n\ttab")]},
    "spaces": {"messages": [user("  lead and trail  \n\n"), assistant("\n x \n"), user("y")]},
    "parts": {"messages": [user([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}])]},
    "tools": {"messages": [user("weather?")], "tools": TOOLS},
    "tools-system": {"messages": [system("You are terse."), user("weather?")], "tools": TOOLS},
    "tool-call": {"messages": [user("weather?"), CALL, RESULT], "tools": TOOLS},
    "tool-call-then": {"messages": [user("weather?"), CALL, RESULT, assistant("21 degrees"), user("thanks")], "tools": TOOLS},
    "tool-call-untold": {"messages": [user("weather?"), CALL, RESULT]},
    "tool-fractions": {"messages": [user("x")], "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {
        "type": "object", "properties": {"x": {"type": "number", "minimum": 0.5, "maximum": 1e16, "default": 1e-06, "multipleOf": 1.0}}}}}]},
    "tool-bare": {"messages": [user("x")], "tools": [{"type": "function", "function": {"name": "f"}}]},
    "thought": {"messages": [user("q"), assistant("<think>\nwhy\n</think>\n\nanswer"), user("again")]},
    "reasoning": {"messages": [user("q"), assistant("answer", reasoning_content="why"), user("again")]},
    "thinking-off": {"messages": [user("hi")], "chat_template_kwargs": {"enable_thinking": False}},
    "thinking-on": {"messages": [user("hi")], "chat_template_kwargs": {"enable_thinking": True}},
    "thinking-mode": {"messages": [user("hi")], "chat_template_kwargs": {"thinking_mode": "chat"}},
    "reasoning-call": {"messages": [user("weather?"), {**CALL, "reasoning_content": "why"}, RESULT], "tools": TOOLS},
    "effort": {"messages": [user("hi")], "reasoning_effort": "high"},
    "systems": {"messages": [system("a"), system("b"), user("c")]},
    "late-system": {"messages": [system("a"), user("b"), assistant("c"), system("d"), user("e")]},
    "users": {"messages": [user("a"), user("b")]},
    "developer": {"messages": [{"role": "developer", "content": "dev"}, user("c")]},
    "left-open": {"messages": [user("say"), assistant("Sure, ")], "add_generation_prompt": False, "continue_final_message": True},
    "no-prompt": {"messages": [user("say"), assistant("Sure.")], "add_generation_prompt": False},
}

HUGGING_FACE = '''
import copy, json, sys
from transformers.utils.chat_template_utils import render_jinja_template
job = json.load(sys.stdin)
for name, case in job["cases"].items():
    messages = copy.deepcopy(case["messages"])
    # Hugging Face documents arguments as objects; servers parse the text that clients send.
    for message in messages:
        for call in message.get("tool_calls") or []:
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    # What the OpenAI protocol calls a parameter is a variable of the template.
    more = dict(case.get("chat_template_kwargs") or {})
    if "reasoning_effort" in case:
        more["reasoning_effort"] = case["reasoning_effort"]
    try:
        texts, _ = render_jinja_template([messages], chat_template=job["template"], tools=case.get("tools"),
            add_generation_prompt=case.get("add_generation_prompt", True), continue_final_message=case.get("continue_final_message", False),
            **job["tokens"], **more)
        print(json.dumps({name: texts[0]}))
    except Exception as error:
        print(json.dumps({name: None, "error": f"{type(error).__name__}: {error}"[:200]}))
'''


def hugging_face(python, template, tokens):
    job = json.dumps({"template": template, "tokens": tokens, "cases": CASES})
    lines = subprocess.run([python, "-c", HUGGING_FACE], input=job, capture_output=True, text=True, check=True).stdout.splitlines()
    found = {}
    for line in lines:
        found |= {name: text for name, text in json.loads(line).items() if name != "error"}
    return found


def frontend(url, instance, model, case):
    body = {"model": model, "max_tokens": 1, "stream": True, "nvext": {"annotations": ["formatted_prompt"]}, **case}
    answer = httpx.post(f"{url}/v1/chat/completions", json=body, headers={"x-dynamo-worker-instance-id": str(instance)}, timeout=60)
    found = re.search(r"event: formatted_prompt\n: (.*)\n", answer.text)
    return json.loads(found.group(1)) if found else None


BATCH = 5
"""Models that one fleet has: each takes a worker, and a frontend reads all of their tokenizers at once."""


def write(version, python, templates, out, names):
    folder = Path(tempfile.mkdtemp())
    fleet = fleets.Fleet(version, folder / "fleet")
    try:
        workers = {}
        for number, name in enumerate(names):
            bos, eos = TEMPLATES[name]
            model = folder / name
            shutil.copytree(fleets.home() / "model", model)
            config = {"tokenizer_class": "Qwen2Tokenizer", "bos_token": bos, "eos_token": eos,
                      "chat_template": (templates / f"{name}.jinja").read_text()}
            (model / "tokenizer_config.json").write_text(json.dumps(config))
            # A component has one model.
            endpoint = f"dyn://{fleets.NAMESPACE}.agg{number}.generate"
            workers[name] = fleet.start_worker("agg", model=name, arguments=("--model-path", model, "--endpoint", endpoint))
            fleet.settle(listed=False)
        front = fleet.start_frontend()
        for name, worker in workers.items():
            eventually(lambda name=name: fleet.lists(front, name), 120, f"{name} is listed")
            bos, eos = TEMPLATES[name]
            template = (templates / f"{name}.jinja").read_text()
            theirs = hugging_face(python, template, {"bos_token": bos, "eos_token": eos})
            with open(out / f"{name}.jsonl", "w", encoding="utf-8") as file:
                head = {"version": version, "bos": bos, "eos": eos, "now": int(time.time())}
                print(json.dumps(head, ensure_ascii=False), file=file)
                for case, body in CASES.items():
                    row = {"case": case, "request": body, "huggingface": theirs[case], "frontend": frontend(front.url, worker.instance, name, body)}
                    print(json.dumps(row, ensure_ascii=False), file=file)
            print(name, "done", flush=True)
    finally:
        fleet.stop()
        shutil.rmtree(folder, ignore_errors=True)


def main(version, python, templates, out, *names):
    names = names or list(TEMPLATES)
    for start in range(0, len(names), BATCH):
        write(version, python, Path(templates), Path(out), names[start : start + BATCH])


main(*sys.argv[1:])
