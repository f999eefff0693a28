"""Training text as one stream of tokens: passes over the corpus in a shuffled mix, cut into windows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

import torch
from tokenizers import Tokenizer
from torch import Tensor

from engine_agent.tools.training.chats import END_OF_TEXT, make_chats, render, small_talk
from engine_agent.tools.training.corpus import Corpus, Document


@dataclass(frozen=True, slots=True)
class Mix:
    """The frequency of each kind of document in a pass, and the small talk beyond that of `make_chats`."""

    topic: float = 4.0
    page: float = 2.0
    source: float = 0.5
    small_talk: int = 0


def mixed(documents: Sequence[Document], random: Random, mix: Mix) -> Iterator[str]:
    """Iterate over each document as often as the mix says; a fraction is a probability."""
    times = {"topic": mix.topic, "page": mix.page, "source": mix.source}
    for document in documents:
        whole, chance = divmod(times[document.kind], 1)
        yield from [document.text] * (int(whole) + (random.random() < chance))


def one_pass(corpus: Corpus, random: Random, mix: Mix) -> list[str]:
    """Return documents and chats in random order."""
    texts = [*mixed(corpus.training, random, mix), *map(render, make_chats(corpus.entries, random))]
    texts += [render(small_talk(random)) for _ in range(mix.small_talk)]
    random.shuffle(texts)
    return texts


def token_stream(corpus: Corpus, tokenizer: Tokenizer, *, seed: int, count: int, mix: Mix) -> Tensor:
    """Return the first `count` tokens of endless passes, each text after an end-of-text token."""
    random, boundary = Random(seed), tokenizer.token_to_id(END_OF_TEXT)
    chunks, token_count = list[Tensor](), 0
    while token_count < count:
        for encoding in tokenizer.encode_batch_fast(one_pass(corpus, random, mix)):
            chunks.append(torch.tensor([boundary, *encoding.ids], dtype=torch.int16))
            token_count += len(chunks[-1])
    return torch.cat(chunks)[:count]


def windows(tokens: Tensor, length: int, generator: torch.Generator) -> Tensor:
    """Return rows of `length` + 1 tokens in random order; a row's last token is the next one's first."""
    rows = tokens.unfold(0, length + 1, length)
    return rows[torch.randperm(len(rows), generator=generator)]
