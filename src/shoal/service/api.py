"""Calls under ``/v1``: people, keys, grants, questions, answers and the record."""

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from shoal.service.access import GuardedRoute, KeyHolder, TheDesk
from shoal.service.people import Unknown, instant

Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
Identifier = Annotated[str, Field(min_length=1, max_length=100)]
Instant = Annotated[datetime, Field(strict=False)]

router = APIRouter(prefix="/v1", route_class=GuardedRoute)


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class GrantBody(Body):
    """Who may ask what, within which budget; no budget for what is never charged."""

    analyst: Name
    question: Identifier | list[Identifier]
    epsilon: Annotated[float, Field(ge=0, le=1000)] | None = None
    delta: Annotated[float, Field(ge=0, lt=1)] | None = None
    expires: Instant | None = None
    new: bool = Field(False, description="Admit the analyst, who is not known yet.")


class PersonBody(Body):
    name: Name
    role: Literal["owner", "analyst"]
    expires: Instant | None = None


class KeyBody(Body):
    """A further key for oneself, or for somebody by an owner; or one in the place of another."""

    person: Identifier | None = None
    replaces: Identifier | None = None
    expires: Instant | None = None


class QuoteBody(Body):
    question: Identifier


class ReleaseBody(Body):
    """One answer; without a handle the whole table."""

    question: Identifier
    handle: Identifier | None = None


def _end(expires: datetime | None) -> str | None:
    return None if expires is None else instant(expires.isoformat())


@router.post("/people", status_code=201)
def admit(caller: KeyHolder, desk: TheDesk, body: PersonBody) -> dict[str, Any]:
    person, key = desk.register.admit(body.name, body.role, caller, _end(body.expires))
    return vars(person) | {"key": key.text}


@router.get("/people")
def people(_: KeyHolder, desk: TheDesk) -> list[dict[str, Any]]:
    return [vars(person) for person in desk.register.people()]


@router.delete("/people/{id}", status_code=204)
def dismiss(_: KeyHolder, desk: TheDesk, id: str) -> Response:
    desk.dismiss(id)
    return Response(status_code=204)


@router.get("/keys")
def keys(caller: KeyHolder, desk: TheDesk) -> list[dict[str, Any]]:
    """All keys, with the key that each was made with; an analyst's own."""
    listed = desk.register.list_keys(None if caller.is_owner else caller.person.id)
    return [vars(key) | {"in_force": key.in_force, "current": key.id == caller.key} for key in listed]


@router.post("/keys", status_code=201)
def make_key(caller: KeyHolder, desk: TheDesk, body: KeyBody | None = None) -> dict[str, Any]:
    asked = body or KeyBody()
    if asked.replaces is not None:
        record, key = desk.register.replace_key(asked.replaces, caller)
    else:
        known = desk.register.people() if caller.is_owner else [caller.person]
        person = next((person for person in known if person.id == (asked.person or caller.person.id)), None)
        if person is None:
            raise Unknown("there is no such person")
        record, key = desk.register.new_key(person, caller, _end(asked.expires))
    return {"id": record.id, "key": key.text, "expires": record.expires}


@router.delete("/keys", status_code=204)
def end_own_key(caller: KeyHolder, desk: TheDesk) -> Response:
    """End the key of this very call, with the keys made with it."""
    desk.end_key(caller.key or "", caller)
    return Response(status_code=204)


@router.delete("/keys/{id}", status_code=204)
def end_key(caller: KeyHolder, desk: TheDesk, id: str) -> Response:
    """End a key with the keys made with it."""
    desk.end_key(id, caller)
    return Response(status_code=204)


@router.post("/grants", status_code=201)
def grant(caller: KeyHolder, desk: TheDesk, body: GrantBody) -> dict[str, Any]:
    questions = body.question if isinstance(body.question, list) else [body.question]
    granted, key = desk.grant(
        body.analyst, questions, body.epsilon, body.delta, expires=_end(body.expires), by=caller, new=body.new
    )
    return {"grant": granted.id, "key": None if key is None else key.text, "expires": granted.expires}


@router.get("/grants")
def grants(_: KeyHolder, desk: TheDesk) -> list[dict[str, Any]]:
    return desk.list_grants()


@router.delete("/grants/{id}", status_code=204)
def end_grant(_: KeyHolder, desk: TheDesk, id: str) -> Response:
    desk.end_grant(id)
    return Response(status_code=204)


@router.get("/questions")
def questions(caller: KeyHolder, desk: TheDesk) -> list[dict[str, Any]]:
    """What there is; with handles where it was granted to this key."""
    return desk.questions(caller)


@router.post("/quotes")
def quote(caller: KeyHolder, desk: TheDesk, body: QuoteBody) -> dict[str, Any]:
    return desk.quote(caller.person, body.question)


@router.post("/releases")
def release(
    caller: KeyHolder,
    desk: TheDesk,
    body: ReleaseBody,
    idempotency_key: Annotated[str, Header(min_length=1, max_length=200)],
) -> Response:
    content = desk.release(caller.person, body.question, body.handle, idempotency_key)
    return Response(content, media_type="application/json")


@router.get("/receipts")
def receipts(caller: KeyHolder, desk: TheDesk) -> list[dict[str, Any]]:
    return desk.receipts(caller)


@router.get("/receipts/{id}/proof")
def proof(
    caller: KeyHolder, desk: TheDesk, id: str, size: Annotated[int | None, Query(ge=1, le=2**53)] = None
) -> dict[str, Any]:
    return desk.proof(caller, id, size)


@router.get("/ledger/head")
def head(_: KeyHolder, desk: TheDesk) -> dict[str, Any]:
    return desk.record.checkpoint()


@router.get("/ledger/consistency")
def consistency(
    _: KeyHolder,
    desk: TheDesk,
    first: Annotated[int, Query(ge=1, le=2**53)],
    second: Annotated[int | None, Query(ge=1, le=2**53)] = None,
) -> dict[str, Any]:
    return desk.record.consistency(first, second)


@router.get("/ledger/verify")
def verify(_: KeyHolder, desk: TheDesk) -> dict[str, Any]:
    report = desk.ledger.verify()
    return {"intact": bool(report), "entries": report.entries, "problem": report.problem, "head": str(report.head)}
