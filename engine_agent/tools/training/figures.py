"""Figures about a training run: its data, its machine, and the loss on held-out text."""

import platform
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version

from tokenizers import Tokenizer

from engine_agent.tools.training.corpus import HELD_OUT_PERCENT, SALT, Corpus
from engine_agent.tools.training.folder import rounded
from engine_agent.tools.training.heldout import HeldOut, bits_per_byte, perplexity_by_position
from engine_agent.tools.training.network import Llama


def corpus_figures(corpus: Corpus) -> dict[str, object]:
    characters = Counter[str]()
    for document in corpus.training:
        characters[document.kind] += len(document.text)
    return {
        "sha256": corpus.digest,
        "python": platform.python_version(),
        "training_documents": len(corpus.training),
        "training_characters": dict(sorted(characters.items())),
        "docstrings": len(corpus.entries),
        "held_out_documents": len(corpus.held_out),
        "held_out_rule": f"sha256 of '{SALT} <origin>', first 32 bits, modulo 100, below {HELD_OUT_PERCENT}",
    }


def machine_figures() -> dict[str, object]:
    libraries = {name: version(name) for name in ("torch", "tokenizers", "safetensors")}
    return {"system": platform.system(), "architecture": platform.machine(), **libraries}


def held_out_figures(model: Llama, tokenizer: Tokenizer, documents: Sequence[HeldOut]) -> dict[str, object]:
    """Return the loss with the stored weights, and the effect of rounding them to bfloat16."""
    stored = rounded(model)
    kinds = sorted({document.kind for document in documents})
    return {
        "documents": len(documents),
        "bits_per_byte": round(bits_per_byte(stored, tokenizer, documents), 4),
        "bits_per_byte_before_rounding": round(bits_per_byte(model, tokenizer, documents), 4),
        "bits_per_byte_by_kind": {
            kind: round(
                bits_per_byte(stored, tokenizer, [document for document in documents if document.kind == kind]), 4
            )
            for kind in kinds
        },
        "perplexity_by_position": perplexity_by_position(stored, tokenizer, documents),
    }
