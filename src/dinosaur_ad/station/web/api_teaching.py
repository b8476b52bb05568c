"""The API for teaching: the tray of feedback, and the jobs that learn, update and recalibrate."""

from __future__ import annotations

from fastapi import APIRouter

router = APIRouter(tags=["teaching"])
