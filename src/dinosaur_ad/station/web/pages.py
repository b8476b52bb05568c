"""All pages of the station, server-rendered; a module each, put together here."""

from __future__ import annotations

from fastapi import APIRouter

from dinosaur_ad.station.web import (
    pages_live,
    pages_login,
    pages_parts,
    pages_people,
    pages_pictures,
    pages_products,
    pages_proposals,
    pages_system,
    pages_teach,
    pages_trends,
)

router = APIRouter(include_in_schema=False)
for _each in (
    pages_pictures,  # asked for most: routes are tried in this order
    pages_live,
    pages_login,
    pages_parts,
    pages_teach,
    pages_proposals,
    pages_products,
    pages_trends,
    pages_system,
    pages_people,
):
    router.include_router(_each.router)
