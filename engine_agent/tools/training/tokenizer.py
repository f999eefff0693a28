"""The demo model's tokenizer: byte-level BPE, so that every text has tokens and every token maps back to text."""

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from engine_agent.tools.training.chats import END, END_OF_TEXT, START

SPECIAL = (END_OF_TEXT, START, END)


def train_tokenizer(texts: Iterable[str], vocab: int) -> Tokenizer:
    """Train a vocabulary of `vocab` tokens: the special ones, the 256 bytes, and the most frequent combinations."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer
