"""The model card: the model, its training data, its quality, its licence."""

import json
from pathlib import Path

CARD = """---
license: apache-2.0
language:
- en
library_name: transformers
pipeline_tag: text-generation
tags:
- llama
- demo
---

# Luminet's demo model

A Llama of {millions:.2f} million parameters ({layers} layers, {hidden} wide, {heads} query heads on {kv_heads} key and
value heads of {head_dim}, {positions:,} positions), so that Luminet can be tried and tested with real text, without a
download and without a GPU. It writes recognisable documentation and code, answers what a function of Python's standard
library does, and is often wrong. It is not an assistant.

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("engine_agent/demo/model")
model = AutoModelForCausalLM.from_pretrained("engine_agent/demo/model")
```

Chats use ChatML (`<|im_start|>`, `<|im_end|>`); a document begins with `<|endoftext|>`.

## Training

`python -m engine_agent.tools.training.train` on what CPython {python} ships: the language
reference of `pydoc_data.topics`, the standard library's docstrings and sources, and chats made of the docstrings.
{tokens:,} tokens in {steps:,} steps,
{cpu_minutes:.0f} minutes of CPU time on two cores, seed {seed}. The corpus has the sha256

    {sha256}

and `training.json` has the rest. {held_out_documents} documents, chosen by a hash of their topic's or module's name,
and every paragraph that others share with them were held out.

## How well it reads held-out text

{bits_per_byte:.3f} bits per byte on `heldout.jsonl` ({by_kind}); perplexity by position, over the long
documents: {by_position}.

## Licence

The weights, the tokenizer and the code that made them: Apache-2.0, as Luminet. The training text: Copyright © 2001
Python Software Foundation, under the PSF License Agreement, `engine_agent/demo/PSF.LICENSE`; so is
`heldout.jsonl`, which quotes it.
"""


def model_card(folder: Path) -> str:
    """Return the card, with all figures from `training.json` and `config.json`."""
    record = json.loads((folder / "training.json").read_text(encoding="utf-8"))
    corpus, training, held_out = record["corpus"], record["training"], record["held_out"]
    shape = training["plan"]["shape"]
    by_kind, by_position = held_out["bits_per_byte_by_kind"], held_out["perplexity_by_position"]
    return CARD.format(
        **{name: shape[name] for name in ("layers", "hidden", "heads", "kv_heads", "head_dim", "positions")},
        millions=training["parameters"] / 1e6,
        python=corpus["python"],
        tokens=sum(stage["tokens"] for stage in training["stages"]),
        steps=sum(stage["steps"] for stage in training["stages"]),
        cpu_minutes=sum(stage["cpu_seconds"] for stage in training["stages"]) / 60,
        seed=training["plan"]["seed"],
        sha256=corpus["sha256"],
        held_out_documents=corpus["held_out_documents"],
        bits_per_byte=held_out["bits_per_byte"],
        by_kind=", ".join(f"{kind} {bits:.3f}" for kind, bits in by_kind.items()),
        by_position=", ".join(f"{positions}: {perplexity:.2f}" for positions, perplexity in by_position.items()),
    )
