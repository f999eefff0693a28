"""Rows V1 and V2: the sizes that rows and their workers share. Standard library only."""

OURS, STOCK = "ours", "stock"
NEW_PROMPT, FULL_HIT, STEP = "new prompt", "full hit", "step"
MOST_SEATS = 64
DECODING, DECODED_PROMPT = 32, 256  # answers at once, and the tokens of their prompts

# The trace, every length divided by 16: one of its blocks is one of vLLM's on a CPU.
TRACE_BLOCK_TOKENS, SCALE, SERVED_BLOCK_TOKENS = 512, 1 / 16, 32
CONTEXT_TOKENS = 8192
TOGETHER = 16
SERVED_POOL_BYTES = 64 << 20  # of the demo model's keys and values in bf16
TRACE_HEAD = 32  # requests from the beginning of the trace in a sample
