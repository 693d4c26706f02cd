"""A worker on Dynamo's own bindings, run by the python of a Dynamo version: `bindings_worker.py '<JSON of Settings>'`.

Its engine is a prefix cache and nothing else. It stores every full block of each prompt under the adapter and the salt that the request
carries, and hands tokens, adapter and salt to Dynamo's publisher, which makes the hashes: as engines do. The mocker does not keep salts
apart and has no adapters.
"""

import asyncio
import hashlib
import json
import os
import sys

from dynamo.common.utils.runtime import create_runtime
from dynamo.llm import KvEventPublisher, ModelInput, ModelRuntimeConfig, ModelType, WorkerMetricsPublisher, WorkerType, register_model


class Engine:
    """Blocks that are kept, for each adapter and salt apart."""

    def __init__(self, publisher, block_size, eagle):
        self._publisher, self._size, self._eagle = publisher, block_size, eagle
        self._kept = set()

    def read(self, tokens, adapter, salt):
        """Keeps the blocks of a prompt, and tells of those that are new."""
        # A speculative head wants to see the token after a block: without it the block is not complete.
        ahead = 1 if self._eagle else 0
        parent, first, fresh = None, None, []
        for start in range(0, len(tokens) - self._size - ahead + 1, self._size):
            block = tokens[start : start + self._size + ahead]
            name = hashlib.blake2b(repr((parent, block, adapter, salt)).encode(), digest_size=8)
            name = int.from_bytes(name.digest(), "big", signed=True)
            if name not in self._kept:
                first = (start, parent) if first is None else first
                fresh.append(name)
                self._kept.add(name)
            parent = name
        if fresh:
            start, parent = first
            stored = tokens[start : start + len(fresh) * self._size + ahead]
            more = {"lora_name": adapter, "cache_salt": salt} | ({"is_eagle": True} if self._eagle else {})
            self._publisher.publish_stored(stored, [self._size] * len(fresh), fresh, parent, **more)


async def main(settings):
    runtime, _ = create_runtime(settings["discovery"], "tcp", "zmq")
    endpoint = runtime.endpoint(settings["endpoint"])
    print("instance", endpoint.connection_id(), flush=True)
    config = ModelRuntimeConfig()
    config.total_kv_blocks, config.max_num_seqs, config.max_num_batched_tokens = 4096, 64, 8192
    config.enable_eagle = settings["eagle"]
    metrics = WorkerMetricsPublisher()
    await metrics.create_endpoint(endpoint)
    size = settings["block_size"]
    engine = Engine(KvEventPublisher(endpoint, kv_block_size=size, dp_rank=0, enable_local_indexer=True), size, settings["eagle"])

    async def answer(request, context=None):
        routing = request.get("routing") or {}
        asked = {"tokens": len(request["token_ids"]), "adapter": routing.get("lora_name"), "salt": routing.get("cache_salt")}
        print("asked", json.dumps(asked), flush=True)
        engine.read(request["token_ids"], asked["adapter"], asked["salt"])
        wanted = (request.get("stop_conditions") or {}).get("max_tokens") or 1
        for number in range(wanted):
            yield {"token_ids": [9707], "finish_reason": "length" if number == wanted - 1 else None}

    serving = asyncio.ensure_future(endpoint.serve_endpoint(answer))
    await asyncio.sleep(0.2)
    kind = ModelType.Chat | ModelType.Completions
    common = {"worker_type": WorkerType.Aggregated, "kv_cache_block_size": size, "runtime_config": config}
    await register_model(ModelInput.Tokens, kind, endpoint, settings["model_path"], settings["model"], **common)
    for adapter in settings["adapters"]:
        more = common | {"lora_name": adapter, "base_model_path": settings["model_path"]}
        await register_model(ModelInput.Tokens, kind, endpoint, settings["model_path"], settings["model"], **more)
    metrics.publish(0, 0, 0)
    print("registered", flush=True)
    await serving


if __name__ == "__main__":
    try:
        asyncio.run(main(json.loads(sys.argv[1])))
    finally:
        os._exit(0)
