"""What every table of a cluster description has in common: immutable, no unknown key, nothing negative."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

MAY_BE_NEGATIVE = {"status_max_images"}


class Part(BaseModel):
    """Immutable; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _not_negative(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, int | float) and value < 0 and info.field_name not in MAY_BE_NEGATIVE:
            raise ValueError("must not be negative")
        return value


class Rate(Part):
    """A client-side rate limit; qps 0 means none."""

    qps: float = Field(ge=0, le=1e6, description="calls per second")
    burst: int = Field(ge=0, le=1_000_000, description="calls saved up at most")
