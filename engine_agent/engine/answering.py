"""Processing of sampled tokens: emit and store them, end a choice, or continue a beam search."""

from collections.abc import Callable

from torch import Tensor

from engine_agent.engine.detokenizer import Detokenizer
from engine_agent.engine.errors import EngineFailed
from engine_agent.engine.outputs import Delta, FinishReason, TokenLogprobs
from engine_agent.engine.request import Branch, Request
from engine_agent.engine.sampler import Sampled, sample_batch

NOT_FINITE = "the model's output is no finite number: its weights, or this prompt, overflow"


class Answering:
    """Turns sampled tokens into outputs. `speak` makes a detokenizer for beams, whose text is decoded at their end."""

    def __init__(self, *, eos_ids: frozenset[int], speak: Callable[[bool], Detokenizer]) -> None:
        self._eos_ids = eos_ids
        self._speak = speak
        self.generated_tokens = 0

    def sample(self, drawing: list[tuple[Request, Branch]], logits: Tensor, rows: list[int]) -> list[Sampled | None]:
        """Sample one token for each branch from its row of logits; None where the row is not finite."""
        if not drawing:
            return []
        outcomes = sample_batch([branch.sampler for _, branch in drawing], logits[rows])
        return [outcome if isinstance(outcome, Sampled) else None for outcome in outcomes]

    def take(self, request: Request, branch: Branch, sampled: Sampled) -> None:
        """Emit the token, and end the choice if this was its last token."""
        token = sampled.token
        branch.generated.append(token)
        self.generated_tokens += 1
        params = request.params
        is_eos = token in self._eos_ids and not params.ignore_eos
        if (is_eos or token in params.stop_token_ids) and len(branch.generated) > params.min_tokens:
            stopped_by = None if is_eos else token
            self._end(request, branch, token, branch.rest(), sampled.logprobs, "stop", stopped_by)
            return
        text, matched = branch.say(token)
        if matched is not None:
            self._end(request, branch, token, text, sampled.logprobs, "stop", matched)
        elif len(branch.generated) >= request.most_tokens:
            last_text, matched = branch.rest_or_stop()
            reason: FinishReason = "length" if matched is None else "stop"
            self._end(request, branch, token, text + last_text, sampled.logprobs, reason, matched)
        else:
            request.job.sink.delta(Delta(request.choice(branch), token, text, sampled.logprobs))

    def end(self, request: Request, branch: Branch, reason: FinishReason) -> None:
        """End the choice without another token."""
        self._end(request, branch, None, branch.rest(), None, reason, None)

    def _end(
        self,
        request: Request,
        branch: Branch,
        token: int | None,
        text: str,
        logprobs: TokenLogprobs | None,
        reason: FinishReason,
        stopped_by: str | int | None,
    ) -> None:
        branch.finish = reason
        request.job.sink.delta(Delta(request.choice(branch), token, text, logprobs, reason, stopped_by))

    def say_beams(self, request: Request) -> None:
        """Emit the best hypotheses as choices, all at once."""
        assert request.search is not None
        for index, hypothesis in enumerate(request.search.best()):
            text = self._speak(request.params.skip_special_tokens)
            last = len(hypothesis.tokens) - 1
            for at, token in enumerate(hypothesis.tokens):
                piece = text.push(token) if at < last or hypothesis.finish != "stop" else ""  # the last one is not text
                piece += text.finish() if at == last else ""
                logprobs = hypothesis.logprobs[at] if hypothesis.logprobs else None
                reason: FinishReason | None = hypothesis.finish if at == last else None
                request.job.sink.delta(Delta(request.first_choice + index, token, piece, logprobs, reason))
            self.generated_tokens += len(hypothesis.tokens)


def not_finite() -> EngineFailed:
    return EngineFailed("", NOT_FINITE)
