"""The API, ``/api/v1``: what programs can ask and do."""

from __future__ import annotations

from fastapi import APIRouter

router = APIRouter()
