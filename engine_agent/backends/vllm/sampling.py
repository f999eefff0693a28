"""Convert a request's sampling parameters to vLLM's. Imports vLLM."""

from typing import Any

from vllm.sampling_params import RequestOutputKind, SamplingParams

from engine_agent.engine import params as ours
from engine_agent.engine.errors import BadRequest


def vllm_params(params: ours.SamplingParams, *, max_tokens: int, eos_ids: frozenset[int], extra: Any) -> SamplingParams:
    """Return the parameters of one choice, without stop strings, which we match ourselves. Raises BadRequest."""
    if params.beam is not None:
        raise BadRequest("use_beam_search", "beams are not computed by this engine")
    ends = sorted({*params.stop_token_ids, *(() if params.ignore_eos else eos_ids)})
    try:
        return SamplingParams(
            max_tokens=max_tokens,
            min_tokens=min(params.min_tokens, max_tokens),
            temperature=params.temperature,
            top_p=params.top_p,
            top_k=params.top_k,
            min_p=params.min_p,
            presence_penalty=params.presence_penalty,
            frequency_penalty=params.frequency_penalty,
            repetition_penalty=params.repetition_penalty,
            logit_bias=dict(params.logit_bias) or None,
            seed=params.seed,
            stop_token_ids=ends,
            ignore_eos=True,  # the tokens above include all end tokens
            logprobs=params.logprobs,
            output_kind=RequestOutputKind.DELTA,
            extra_args=extra,
        )
    except ValueError as problem:
        raise BadRequest("", f"vLLM refuses it: {problem}") from problem
