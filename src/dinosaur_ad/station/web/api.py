"""The API, ``/api/v1``: what programs can ask and do; ``/api/v1/openapi.json`` describes it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.openapi.utils import get_openapi
from starlette.requests import Request

from dinosaur_ad.station.web import (
    api_inspect,
    api_parts,
    api_people,
    api_plant,
    api_products,
    api_proposals,
    api_teaching,
)
from dinosaur_ad.station.web.access import Viewer

PREFIX = "/api/v1"
_DESCRIPTION = (
    "Log in with an API token: `Authorization: Bearer dino_...`. Every refusal is a JSON object with one sentence: "
    '`{"error": "..."}`.'
)

router = APIRouter()
for _part in (api_plant, api_inspect, api_parts, api_products, api_proposals, api_teaching, api_people):
    router.include_router(_part.router, prefix=PREFIX)
router.include_router(api_plant.metrics_router)


@router.get(f"{PREFIX}/openapi.json", include_in_schema=False)
def description(request: Request, person: Viewer) -> dict[str, Any]:
    """The API as OpenAPI describes it."""
    app = request.app
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, description=_DESCRIPTION, routes=app.routes)
        schema.setdefault("components", {})["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        schema["security"] = [{"token": []}]
        app.openapi_schema = schema
    found: dict[str, Any] = app.openapi_schema
    return found
