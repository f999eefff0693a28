"""Make prompts from hash ids: equal ids give equal blocks, different ids different ones, so real hashing can run."""

from engine_agent.tools.replay.trace import LARGEST_ID, Request

LEAST_BLOCK_TOKENS = 2  # an id is two tokens
TOKEN_BITS, TOKEN_MASK = 32, 2**32 - 1


def prompt_tokens(request: Request, number: int, block_tokens: int) -> list[int]:
    """Return a prompt in which each block repeats its id. A rest without an id is unique to the request."""
    times, has_half = divmod(block_tokens, 2)
    tokens: list[int] = []
    for hash_id in request.hash_ids:
        low = hash_id & TOKEN_MASK
        tokens += [low, hash_id >> TOKEN_BITS] * times
        if has_half:
            tokens.append(low)
    del tokens[request.input_tokens :]
    return tokens + answer_tokens(number, request.input_tokens - len(tokens))


def answer_tokens(number: int, count: int) -> list[int]:
    """Return the answer of request `number`, unique to it because the trace names no blocks for answers."""
    answer_id = LARGEST_ID + 1 + number
    return ([answer_id & TOKEN_MASK, answer_id >> TOKEN_BITS] * (count // 2 + 1))[:count]
