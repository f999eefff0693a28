"""Convert a request's sampling parameters to vLLM's. Imports vLLM."""

from typing import Any

from vllm.sampling_params import RequestOutputKind, SamplingParams

from engine_agent.engine import params as ours
from engine_agent.engine.errors import BadRequest


def vllm_params(asked: ours.SamplingParams, *, max_tokens: int, eos_ids: frozenset[int], extra: Any) -> SamplingParams:
    """Return the parameters of one choice, without stop strings, which we match ourselves. Raises BadRequest."""
    if asked.beam is not None:
        raise BadRequest("use_beam_search", "beams are not computed by this engine")
    ends = sorted({*asked.stop_token_ids, *(() if asked.ignore_eos else eos_ids)})
    try:
        return SamplingParams(
            max_tokens=max_tokens,
            min_tokens=min(asked.min_tokens, max_tokens),
            temperature=asked.temperature,
            top_p=asked.top_p,
            top_k=asked.top_k,
            min_p=asked.min_p,
            presence_penalty=asked.presence_penalty,
            frequency_penalty=asked.frequency_penalty,
            repetition_penalty=asked.repetition_penalty,
            logit_bias=dict(asked.logit_bias) or None,
            seed=asked.seed,
            stop_token_ids=ends,
            ignore_eos=True,  # the tokens above include all end tokens
            logprobs=asked.logprobs,
            output_kind=RequestOutputKind.DELTA,
            extra_args=extra,
        )
    except ValueError as problem:
        raise BadRequest("", f"vLLM refuses it: {problem}") from problem
