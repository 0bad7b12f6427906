"""Calls under ``/v1``: people, keys, grants, questions, answers and the record."""

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Header, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from shoal.product.service.access import BEARER, Service, Visitor, guarded_router
from shoal.product.service.register import ROLES

Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
Identifier = Annotated[str, Field(min_length=1, max_length=100)]
Instant = Annotated[datetime, Field(strict=False)]
Size = Annotated[int, Query(ge=1, le=2**53)]

CALLS: dict[str, Any] = {"prefix": "/v1", "dependencies": [BEARER]}
owners, analysts = guarded_router("owner", **CALLS), guarded_router("analyst", **CALLS)
members = guarded_router(*ROLES, **CALLS)
ROUTERS = owners, analysts, members


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class GrantBody(Body):
    """A grant as it is posted: analyst, question and budget; no budget for what is never charged."""

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


@owners.post("/people", status_code=201)
def admit_person(caller: Visitor, service: Service, body: PersonBody) -> dict[str, Any]:
    person, key = service.register.admit_person(body.name, body.role, caller, body.expires)
    return vars(person) | {"key": key.text}


@owners.get("/people")
def list_people(_: Visitor, service: Service) -> list[dict[str, Any]]:
    return [vars(person) for person in service.register.people()]


@owners.delete("/people/{id}", status_code=204)
def dismiss_person(_: Visitor, service: Service, id: str) -> None:
    service.register.dismiss_person(id)


@members.get("/keys")
def list_keys(caller: Visitor, service: Service) -> list[dict[str, Any]]:
    """All keys, with the key that each was made with; an analyst's own."""
    listed = service.register.list_keys(caller)
    return [vars(key) | {"in_force": key.in_force, "current": key.id == caller.key} for key in listed]


@members.post("/keys", status_code=201)
def make_key(caller: Visitor, service: Service, body: KeyBody | None = None) -> dict[str, Any]:
    terms = body or KeyBody()
    if terms.replaces is not None:
        record, key = service.register.replace_key(terms.replaces, caller)
    else:
        record, key = service.register.new_key(terms.person or caller.person.id, caller, terms.expires)
    return {"id": record.id, "key": key.text, "expires": record.expires}


@members.delete("/keys/{id}", status_code=204)
def end_key(caller: Visitor, service: Service, id: str) -> None:
    """End a key with the keys made with it."""
    service.register.end_key(id, caller)


@owners.post("/grants", status_code=201)
def make_grant(caller: Visitor, service: Service, body: GrantBody) -> dict[str, Any]:
    questions = body.question if isinstance(body.question, list) else [body.question]
    terms = {"expires": body.expires, "by": caller, "new": body.new}
    granted, key = service.grant(body.analyst, questions, body.epsilon, body.delta, **terms)
    return {"grant": granted.id, "key": None if key is None else key.text, "expires": granted.expires}


@owners.get("/grants")
def list_grants(_: Visitor, service: Service) -> list[dict[str, Any]]:
    return service.list_grants()


@owners.delete("/grants/{id}", status_code=204)
def end_grant(_: Visitor, service: Service, id: str) -> None:
    service.register.end_grant(id)


@members.get("/questions")
def list_questions(caller: Visitor, service: Service) -> list[dict[str, Any]]:
    """The questions there are; with handles where it was granted to this key."""
    return service.questions(caller)


@analysts.post("/quotes")
def quote_question(caller: Visitor, service: Service, body: QuoteBody) -> dict[str, Any]:
    return service.quote(caller.person, body.question)


@analysts.post("/releases")
def release_answer(
    caller: Visitor,
    service: Service,
    body: ReleaseBody,
    idempotency_key: Annotated[str, Header(min_length=1, max_length=200)],
) -> Response:
    content = service.release(caller.person, body.question, body.handle, idempotency_key)
    return Response(content, media_type="application/json")


@members.get("/receipts")
def list_receipts(caller: Visitor, service: Service) -> list[dict[str, Any]]:
    return service.receipts(caller)


@members.get("/receipts/{id}/proof")
def receipt_proof(caller: Visitor, service: Service, id: str, size: Size | None = None) -> dict[str, Any]:
    return service.proof(caller, id, size)


@members.get("/ledger/head")
def newest_checkpoint(_: Visitor, service: Service) -> dict[str, Any]:
    return service.record.checkpoint()


@owners.get("/ledger/verify")
def verify_ledger(_: Visitor, service: Service) -> dict[str, Any]:
    report = service.ledger.verify()
    return {"intact": bool(report), "entries": report.entries, "problem": report.problem, "head": str(report.head)}
