"""Conversations that share system prompts and grow turn by turn, the same for every arm of a round."""

import random
from dataclasses import dataclass, field

WORDS = [f"{a}{b}" for a in ("ka", "lo", "mi", "ne", "pu", "ra", "si", "to") for b in ("ban", "del", "fir", "gos", "hum", "lek", "mor", "nip")]


@dataclass
class Shape:
    """How much is asked. Lengths in words, which are about two tokens each."""

    systems: int = 8
    conversations: int = 172
    at_once: int = 43
    turns: int = 6
    system_words: int = 200
    question_words: int = 120
    answer_tokens: int = 16
    clients: int = 8


@dataclass
class Conversation:
    messages: list
    questions: list
    answers: int = 0
    log: list = field(default_factory=list)


def text(chance, words):
    return " ".join(chance.choice(WORDS) for _ in range(words))


def conversations(shape, seed):
    """Fresh conversations of one round, in the order in which clients take them."""
    chance = random.Random(seed)
    systems = [text(chance, shape.system_words) for _ in range(shape.systems)]
    made = []
    for number in range(shape.conversations):
        # Some system prompts are asked for much more than others.
        system = systems[min(int(chance.expovariate(0.6)), shape.systems - 1)]
        questions = [text(chance, shape.question_words) for _ in range(shape.turns)]
        made.append(Conversation([{"role": "system", "content": f"{system}"}], [f"{number}. {q}" for q in questions]))
    return made
