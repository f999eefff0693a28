"""Tokenizers of the kinds that models ship, small and made anew."""

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

DEMO = Path(__file__).parents[3] / "engine_agent" / "demo" / "model"
WORDS = ("▁", "▁the", "▁cat", "s", "at", "▁sat", "a", "b", "c", "t", "h", "e", ".", ",", "▁▁", "�", "日", "é", "▁é")


def make_words(folder: Path, **config: Any) -> Path:
    """As SentencePiece's: words with `▁`, and bytes for the rest. `<s>` begins a text."""
    specials = ["<unk>", "<s>", "</s>"]
    names = [*specials, *(f"<0x{byte:02X}>" for byte in range(256)), *WORDS]
    vocab = {name: number for number, name in enumerate(names)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in specials])
    return _saved(
        tokenizer, folder, {"bos_token": "<s>", "eos_token": {"__type": "AddedToken", "content": "</s>"}} | config
    )


def make_metaspace(folder: Path, **config: Any) -> Path:
    names = ["<unk>", *WORDS]
    tokenizer = Tokenizer(models.BPE(vocab={name: number for number, name in enumerate(names)}, merges=[]))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    return _saved(tokenizer, folder, config)


def _saved(tokenizer: Tokenizer, folder: Path, config: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    whole = {"tokenizer_class": "PreTrainedTokenizerFast", **config}
    (folder / "tokenizer_config.json").write_text(json.dumps(whole), encoding="utf-8")
    return folder
