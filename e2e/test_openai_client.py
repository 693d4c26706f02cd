"""The official `openai` client against the router: what an application sees."""

import openai
import pytest

from peers.fleet import MODEL

SAY = [{"role": "user", "content": "Say something."}]
TOOLS = [{
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a place.",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
    },
}]


@pytest.fixture(scope="module")
def client(disagg, module_router):
    router = module_router(disagg)
    with openai.OpenAI(base_url=f"{router.url}/v1", api_key="unused", max_retries=0, timeout=60) as found:
        yield found


def test_chat(client):
    answer = client.chat.completions.create(model=MODEL, messages=SAY, max_tokens=8)
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason in ("length", "stop")
    assert answer.usage.completion_tokens <= 8


def test_stream(client):
    pieces = list(client.chat.completions.create(
        model=MODEL, messages=SAY, max_tokens=16, stream=True, stream_options={"include_usage": True},
    ))
    assert len(pieces) > 2
    assert pieces[-1].usage.total_tokens > 0
    assert any(piece.choices and piece.choices[0].finish_reason for piece in pieces)


def test_a_stream_that_the_client_leaves(client):
    stream = client.chat.completions.create(model=MODEL, messages=SAY, max_tokens=5000, stream=True)
    for _, _ in zip(range(3), stream):
        pass
    stream.close()
    assert client.chat.completions.create(model=MODEL, messages=SAY, max_tokens=2).choices


def test_completions(client):
    assert client.completions.create(model=MODEL, prompt="Once", max_tokens=4).choices[0].finish_reason
    assert list(client.completions.create(model=MODEL, prompt="Once", max_tokens=4, stream=True))


def test_tools_and_a_whole_conversation(client):
    messages = [
        {"role": "system", "content": "You are terse."},
        {"role": "user", "content": "The weather in Seoul?"},
        {"role": "assistant", "content": "", "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"place": "Seoul"}'}},
        ]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny ☀️ 24 °C"},
    ]
    for stream in (False, True):
        answer = client.chat.completions.create(
            model=MODEL, messages=messages, tools=TOOLS, tool_choice="auto", max_tokens=8, stream=stream,
        )
        assert list(answer) if stream else answer.choices


def test_models(client):
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL


def test_an_unknown_model_raises_not_found(client):
    with pytest.raises(openai.NotFoundError) as raised:
        client.chat.completions.create(model="nope", messages=SAY)
    assert raised.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nope")


def test_a_bad_request_raises_bad_request(client):
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model=MODEL, messages=SAY, max_tokens=0)
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model=MODEL, messages=SAY, extra_body={"nvext": {"bogus": 1}})


def test_many_at_once(disagg, module_router):
    import asyncio

    router = module_router(disagg)

    async def all_of_them():
        async with openai.AsyncOpenAI(base_url=f"{router.url}/v1", api_key="unused", max_retries=0, timeout=60) as client:
            async def one(n):
                stream = await client.chat.completions.create(model=MODEL, messages=SAY, max_tokens=20 + n, stream=True)
                return [piece async for piece in stream]
            return await asyncio.gather(*(one(n) for n in range(50)))

    answers = asyncio.run(all_of_them())
    assert len(answers) == 50 and all(len(pieces) > 10 for pieces in answers)
