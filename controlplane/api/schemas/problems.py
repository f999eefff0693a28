"""The body of every refusal (RFC 9457)."""

from pydantic import BaseModel, ConfigDict


class ProblemField(BaseModel):
    field: str
    message: str


class Problem(BaseModel):
    """What went wrong, and which fields are to blame."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "/api/v1/docs#problem-invalid",
                    "title": "Some fields cannot be accepted",
                    "status": 422,
                    "detail": "policy.ttl_seconds: Input should be less than or equal to 604800",
                    "errors": [
                        {"field": "policy.ttl_seconds", "message": "Input should be less than or equal to 604800"}
                    ],
                    "request_id": "4f6d3c1c9b8e4a0f",
                }
            ]
        }
    )

    type: str
    title: str
    status: int
    detail: str
    errors: list[ProblemField]
    request_id: str | None
