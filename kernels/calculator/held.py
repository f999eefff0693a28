"""Bytes that tokens and requests hold in one format, on one GPU or over all of them."""

from dataclasses import dataclass

from kernels.calculator.question import Question
from kernels.formats import BASELINE, KV_FORMATS, ComparedFormat, KvFormat, VectorFormat
from kernels.layout import BLOCK_TOKENS
from kernels.shapes import MOST_TOKENS, Layers, ModelShape


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes of one format on one GPU, or over all of them when `gpus` is 1."""

    question: Question
    kv_format: KvFormat
    gpus: int

    def token_bytes(self, layers: Layers) -> int:
        """Of one token in all these layers."""
        if not layers.keeps_tokens:
            return 0
        heads = up(layers.kv_heads, self.gpus)  # never none: a latent vector, the one head of its layer, is on each GPU
        return layers.count * heads * vectors(self.kv_format, layers)

    def all_token_bytes(self) -> int:
        """Of one token that every layer keeps."""
        return sum(map(self.token_bytes, self.question.shape.layers))

    def state_bytes(self, layers: Layers) -> int:
        return layers.count * up(layers.state_bytes or 0, self.gpus)

    def request_bytes(self, layers: Layers) -> int:
        return self._block_bytes(layers) * _blocks(self.question, layers) + self.state_bytes(layers)

    def shared_bytes(self) -> int:
        """What the shared prefix takes, once for all requests. Only whole blocks of it are shared."""
        return sum(self._block_bytes(one) * _prefix_blocks(self.question, one) for one in self.question.shape.layers)

    def own_bytes(self) -> int:
        """What each request adds to that."""
        return (
            sum(
                self._block_bytes(one) * _own_blocks(self.question, one) + self.state_bytes(one)
                for one in self.question.shape.layers
            )
            + self.residual_bytes()
        )

    def residual_bytes(self) -> int:
        """What a format of others adds by keeping the newest tokens in BF16."""
        if not isinstance(self.kv_format, ComparedFormat) or not self.kv_format.residual_tokens:
            return 0
        plain = Held(self.question, KV_FORMATS[BASELINE], self.gpus)
        tokens = min(self.kv_format.residual_tokens, self.question.context)
        return tokens * (plain.all_token_bytes() - self.all_token_bytes())

    def read_bytes(self) -> int:
        """Of one request, to make one token: what each layer may look at."""
        question = self.question
        return sum(
            self.token_bytes(one) * min(question.context, _limit(question, one)) + self.state_bytes(one)
            for one in question.shape.layers
        )

    def _block_bytes(self, layers: Layers) -> int:
        return BLOCK_TOKENS * self.token_bytes(layers)


def can_store(kv_format: KvFormat, shape: ModelShape) -> bool:
    """Whether every vector of the model has whole bytes and whole groups in this format."""
    return all(
        size * vector.bits % 8 == 0 and (not vector.group or size % vector.group == 0)
        for one in shape.keeping
        for vector, size in ((kv_format.key, one.key_size), (kv_format.value, one.value_size))
    )


def vectors(kv_format: KvFormat, layers: Layers) -> int:
    """One key and its value. A latent vector is stored as a key, and there is no value beside it."""
    return size_of(kv_format.key, layers.key_size) + size_of(kv_format.value, layers.value_size)


def size_of(vector: VectorFormat, size: int) -> int:
    return vector.vector_bytes(size) if size else 0


def up(number: int, parts: int) -> int:
    return -(-number // parts)


def _limit(question: Question, layers: Layers) -> int:
    """The most tokens a layer keeps."""
    return layers.window_tokens if layers.window_tokens and question.respect_windows else MOST_TOKENS


def _blocks(question: Question, layers: Layers) -> int:
    return up(min(question.context, _limit(question, layers)), BLOCK_TOKENS)


def _prefix_blocks(question: Question, layers: Layers) -> int:
    """Of the shared prefix, what a layer keeps for whoever comes next."""
    return min(question.shared_prefix_tokens // BLOCK_TOKENS, up(_limit(question, layers), BLOCK_TOKENS))


def _own_blocks(question: Question, layers: Layers) -> int:
    beyond = up(question.context, BLOCK_TOKENS) - question.shared_prefix_tokens // BLOCK_TOKENS
    return min(_blocks(question, layers), beyond)
