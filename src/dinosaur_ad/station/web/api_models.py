"""The answers and questions of the API as models, which OpenAPI describes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[str, Field(min_length=1, max_length=200)]
Corner = Annotated[list[float], Field(min_length=2, max_length=2)]
Ids = Annotated[list[int], Field(min_length=1, max_length=1000)]


class Answered(BaseModel):
    """The base of answers: made from rows or dicts."""

    model_config = ConfigDict(from_attributes=True)


class Asked(BaseModel):
    """The base of questions: a field that is not known is a mistake."""

    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)


class Problem(Answered):
    """Every refusal and failure."""

    error: str


class Alive(Answered):
    """The server answers."""

    status: Literal["ok"] = "ok"
    version: str


class Ready(Answered):
    """Whether pictures are judged; ``reason`` says why not."""

    ready: bool
    reason: str = ""


class WhoAmI(Answered):
    """Who the station takes the sender for."""

    name: str
    role: str
    scopes: list[str]
    token: bool


class OneView(Answered):
    """One picture of a part. ``id`` is None until it is recorded; ``inspection`` is the whole result, with regions."""

    id: int | None = None
    key: str
    source: str
    view: str
    verdict: str
    error: str = ""
    ms: dict[str, float | None] = {}
    has_picture: bool = False
    has_map: bool = False
    inspection: dict[str, Any] | None = None


class JudgedAnswer(Answered):
    """A part that was judged just now; it is being recorded under its ``key``."""

    key: str
    taken: str
    verdict: str
    reason: str
    task: str | None
    score: float | None
    threshold: float | None
    p_value: float | None
    missing: list[str]
    views: list[OneView]


class AcceptedPicture(Answered):
    """A picture that survives a crash now and will be judged."""

    key: str
    source: str


class OneFeedback(Answered):
    """What a person said of a part, and what became of it."""

    id: int
    part_id: int
    said: str
    by: str
    answer: str
    product: str | None
    note: str
    state: str
    decided: str | None
    decided_by: str | None
    outcome: str


class OnePart(Answered):
    """A recorded part."""

    id: int
    key: str
    taken: str
    recorded: str
    source: str
    task: str | None
    verdict: str
    reason: str
    score: float | None
    threshold: float | None
    p_value: float | None
    total_ms: float | None
    answer: str | None
    missing: list[str]
    views: list[OneView]
    feedback: list[OneFeedback]


class PartsAnswer(Answered):
    """Parts, the newest first; ``next_before`` continues with ``?before_id=``, None on the last page."""

    parts: list[OnePart]
    next_before: int | None


class MapAnswer(Answered):
    """The distances of the patches, row by row; above ``threshold`` they are anomalous."""

    rows: int
    columns: int
    threshold: float | None
    values: list[list[float | None]]


class FeedbackAsked(Asked):
    """What to say of a part: fine, defect, not sure, other product (then ``product`` may name it)."""

    answer: Literal["fine", "defect", "not sure", "other product"]
    product: Annotated[str, Field(max_length=200)] | None = None
    note: Annotated[str, Field(max_length=2000)] = ""


class DecisionAsked(Asked):
    """Feedback of the tray to teach; ``force`` teaches what the guard refused."""

    feedback: Ids
    force: bool = False


class RefusalAsked(Asked):
    """Feedback of the tray that is not taught, and why."""

    feedback: Ids
    reason: Annotated[str, Field(max_length=2000)] = ""


class OneProduct(Answered):
    """A product; ``damaged`` says why it cannot be used, if so."""

    name: str
    threshold: float | None = None
    false_alarms: float | None = None
    fixed_threshold: bool | None = None
    inspected: float | None = None
    smallest_area: int | None = None
    position: str = ""
    damaged: str = ""
    counts: dict[str, int] = {}


class SettingsAsked(Asked):
    """How strictly a product is inspected; one of the first four, and the smallest region in pixels."""

    sensitivity: Annotated[float, Field(ge=0, le=10)] | None = None
    false_alarms: Annotated[float, Field(gt=0, lt=1)] | None = None
    threshold: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    preset_sensitivity: bool = False
    smallest_area: Annotated[float, Field(ge=0, le=1e9)] | None = None


class ZonesAsked(Asked):
    """Polygons to inspect or to ignore, in pixels of the product's photos; an empty list inspects all."""

    zones: Annotated[
        list[dict[str, list[Annotated[list[float], Field(min_length=2, max_length=2)]]]], Field(max_length=100)
    ]


class RenameAsked(Asked):
    """Another name of a product."""

    name: Name


class PartsAsked(Asked):
    """Recorded parts to learn or calibrate from; ``force`` takes what the guard refused."""

    parts: Ids
    force: bool = False


class OneJob(Answered):
    """Teaching that waits, runs or has ended: ``state`` and ``sentence`` say which and how."""

    id: int
    kind: str
    task: str
    by: str
    state: str
    done: int
    total: int | None
    sentence: str
    result: dict[str, Any] | None = None


class WhatIfAnswer(Answered):
    """What each place of the sensitivity would have done to the parts of the history."""

    task: str
    places: list[dict[str, Any]]


class OneWarning(Answered):
    """A warning of the drift watch, or of a product that is proposed (``kind`` "proposal"); ``task`` is None where it
    is about several."""

    id: int
    raised: str
    kind: str
    task: str | None
    sentence: str
    detail: dict[str, Any]
    parts: list[int]
    closed: str | None
    closed_by: str | None


class OneChange(Answered):
    """Who changed what of a product."""

    id: int
    made: str
    by: str
    task: str
    action: str
    sentence: str
    detail: dict[str, Any]


class OneAccount(Answered):
    """A person who may log in."""

    name: str
    role: str
    active: bool
    language: str
    created: str
    last_login: str | None


class AccountAsked(Asked):
    """A new account."""

    name: Name
    password: Annotated[str, Field(max_length=1000)]
    role: str
    language: str = ""


class AccountChangeAsked(Asked):
    """What is to be changed of an account."""

    role: str | None = None
    active: bool | None = None
    language: str | None = None
    password: Annotated[str, Field(max_length=1000)] | None = None


class PasswordAsked(Asked):
    """One's own password."""

    old: Annotated[str, Field(max_length=1000)]
    new: Annotated[str, Field(max_length=1000)]


class OneToken(Answered):
    """An API token without its secret."""

    id: int
    name: str
    scopes: list[str]
    created: str
    created_by: str
    ends: str | None
    last_used: str | None


class TokenAsked(Asked):
    """A new API token; it ends after ``days``, or not."""

    name: Name
    scopes: Annotated[list[str], Field(min_length=1, max_length=5)]
    days: Annotated[float, Field(gt=0, le=3650)] | None = None


class TokenMade(Answered):
    """The secret of a new token; it cannot be shown again."""

    name: str
    scopes: list[str]
    secret: str


class OneAudit(Answered):
    """A line of the audit log."""

    id: int
    at: str
    by: str
    address: str
    action: str
    detail: str
