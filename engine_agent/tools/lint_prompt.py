"""`luminet lint-prompt`: find what varies inside otherwise equal prompts. Nothing leaves this machine."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from engine_agent.divergence.chunks import chunk_places
from engine_agent.divergence.linting import Excerpt, Lint, Tokenise, lint
from engine_agent.divergence.prompt_texts import NoPrompt, PromptText, prompts_of_file
from engine_agent.process.commands import run
from engine_agent.tools.options import new_parser

ABOUT = "Find what varies inside prompts that are otherwise the same, and what moving it to the end would be worth."
EXAMPLES = """examples:
  luminet lint-prompt request1.json request2.json request3.json
  luminet lint-prompt requests.jsonl --model models/my-model
  pbpaste | luminet lint-prompt -

A file holds a body of the OpenAI API, a list of them, one on each line, or just a prompt's text. Give prompts in the
order in which they are sent. Status 2: something varies that should stand at the end.
"""
MOST_BYTES = 64 * 2**20


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    return run(lambda: _linted(options), NoPrompt, UnicodeDecodeError, ModuleNotFoundError)


def _linted(options: argparse.Namespace) -> int:
    prompts = [prompt for file in options.files for prompt in _prompts(file)]
    linted = lint(prompts, _tokenise(options.model))
    print(json.dumps(asdict(linted)) if options.json else report(linted, is_estimated=options.model is None))
    return 2 if linted.findings else 0


def parser() -> argparse.ArgumentParser:
    top = new_parser("luminet lint-prompt", ABOUT, EXAMPLES)
    top.add_argument("files", nargs="+", metavar="FILE", help="- is what comes in")
    top.add_argument("--model", type=Path, metavar="DIR", help="count by this model's tokenizer.json, not by words")
    top.add_argument("--json", action="store_true", help="for programs")
    return top


def _prompts(file: str) -> list[PromptText]:
    data = sys.stdin.buffer.read(MOST_BYTES) if file == "-" else Path(file).read_bytes()
    try:
        return prompts_of_file(data.decode())
    except NoPrompt as problem:
        raise NoPrompt(f"{file}: {problem}") from None


def _tokenise(folder: Path | None) -> Tokenise:
    if folder is None:
        return chunk_places
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
    return lambda text, most: tokenizer.encode(text, add_special_tokens=False).offsets[:most]


def report(linted: Lint, *, is_estimated: bool) -> str:
    prompts = "1 prompt" if linted.prompts == 1 else f"{linted.prompts:,} prompts"
    headline = f"{prompts}, {'about ' if is_estimated else ''}{linted.tokens:,} tokens"
    lines = [headline]
    for finding in linted.findings:
        lines += ["", finding.advice, *(_line(excerpt) for excerpt in finding.excerpts)]
    if linted.suspects:
        lines += ["", "These look as if they were others in the next prompt; near the beginning that costs hits:"]
        lines += [
            f"  token {suspect.token:,} looks like {suspect.looks_like}\n{_line(suspect.excerpt)}"
            for suspect in linted.suspects
        ]
    if not linted.findings and not linted.suspects:
        lines.append("Nothing varies inside what is otherwise the same.")
    if linted.prompts == 1:
        lines.append("Give several prompts, and what differs between them is proved.")
    return "\n".join(lines)


def _line(excerpt: Excerpt) -> str:
    before, text, after = (ascii(part)[1:-1] if not part.isprintable() else part for part in _parts(excerpt))
    return (
        f"  prompt {excerpt.prompt}, {excerpt.where}, line {excerpt.line}, column {excerpt.column}: "
        f"{before}[{text}]{after}"
    )


def _parts(excerpt: Excerpt) -> tuple[str, str, str]:
    return excerpt.before, excerpt.text, excerpt.after


if __name__ == "__main__":
    sys.exit(main())
