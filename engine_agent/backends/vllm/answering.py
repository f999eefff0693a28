"""Turn one choice's tokens from vLLM into a backend's outputs: text, stop strings, ends. Does not import vLLM."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engine_agent.engine.detokenizer import Detokenizer
from engine_agent.engine.outputs import Delta, FinishReason, Logprob, TokenLogprobs
from engine_agent.engine.params import SamplingParams
from engine_agent.engine.stops import StopStrings


@dataclass(slots=True, eq=False)
class Choice:
    number: int
    params: SamplingParams
    eos_ids: frozenset[int]
    text: Detokenizer
    stops: StopStrings
    generated: int = 0
    is_over: bool = False

    def push(
        self, tokens: Sequence[int], logprobs: Sequence[TokenLogprobs] | None, finish: FinishReason | None
    ) -> Iterator[Delta]:
        """Iterate over the choice's outputs. A stop string ends the choice here, even if vLLM would continue."""
        for index, token in enumerate(tokens):
            token_logprobs = logprobs[index] if logprobs else None
            is_last = index == len(tokens) - 1
            yield self._said(token, token_logprobs, finish if is_last else None)
            if self.is_over:
                return
        if finish is not None and not self.is_over:
            self.is_over = True
            yield Delta(self.number, None, self._rest()[0], None, finish)

    def _said(self, token: int, logprobs: TokenLogprobs | None, finish: FinishReason | None) -> Delta:
        self.generated += 1
        is_eos = token in self.eos_ids and not self.params.ignore_eos
        if finish == "stop" and (is_eos or token in self.params.stop_token_ids):
            self.is_over = True
            return Delta(self.number, token, self._rest()[0], logprobs, "stop", None if is_eos else token)
        text, matched = self.stops.push(self.text.push(token))
        if matched is None and finish is not None:
            remaining_text, matched = self._rest()
            text += remaining_text
        if matched is not None:
            finish = "stop"
        self.is_over = finish is not None
        return Delta(self.number, token, text, logprobs, finish, matched)

    def _rest(self) -> tuple[str, str | None]:
        """Return the pending text, and the stop string that its last letters complete."""
        text, matched = self.stops.push(self.text.finish())
        return (text, matched) if matched is not None else (text + self.stops.finish(), None)


def logprobs_of(ids: Sequence[Sequence[int]], values: Sequence[Sequence[float]], top: int) -> list[TokenLogprobs]:
    """Convert vLLM's rows, which have the chosen token first and then the likeliest."""
    rows = []
    for row, numbers in zip(ids, values, strict=True):
        logprobs = [Logprob(int(token), float(value)) for token, value in zip(row, numbers, strict=True)]
        rows.append(TokenLogprobs(logprobs[0], tuple(logprobs[1 : top + 1])))
    return rows
