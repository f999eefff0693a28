"""Operations for models and the size of their KV caches. The calculator is arithmetic: it reads and writes nothing."""

from controlplane.api.paging import Cursor, Limit, page_of
from controlplane.api.routing import Answer, Call, Group
from controlplane.api.schemas.base import Page
from controlplane.api.schemas.calculator import CacheCounted, CacheQuestion, ModelListed
from kernels.calculator.asked import asked, described, document
from kernels.calculator.calculating import calculate
from kernels.models.presets import PRESETS, preset_shape
from tenants import access

group = Group("Models")


@group.get("/models", access.ANYONE, Page[ModelListed])
def models_list(call: Call, limit: Limit = 50, cursor: Cursor = None) -> Answer:
    """List models the calculator knows by name.

    Their shapes are those of their published configs. Ordered by slug.
    """
    models = {slug: ModelListed(slug=slug, **described(preset_shape(slug))) for slug in PRESETS}
    return page_of(models, kind="models", limit=limit, cursor=cursor)


@group.post("/calculator/kv", access.ANYONE, CacheCounted, status=200, changes_nothing=True)
def calculator_kv(call: Call, body: CacheQuestion) -> Answer:
    """Count a KV cache.

    Bytes for each KV format, by token, request and GPU; with an accelerator also the tokens and requests that fit, and
    upper bounds of tokens a second: bandwidth over the weights and cache that a step reads. Changes nothing.
    """
    question = asked(**body.model_dump())
    return Answer(CacheCounted(**document(question.shape, calculate(question))))
