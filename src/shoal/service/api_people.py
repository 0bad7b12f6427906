"""Calls about people, keys and grants."""

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from shoal.service.access import KeyHolder, Service
from shoal.service.people import Person, Unknown, instant

Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
Identifier = Annotated[str, Field(min_length=1, max_length=100)]
Instant = Annotated[datetime, Field(strict=False)]

router = APIRouter(prefix="/v1")


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


def _end(expires: datetime | None) -> str | None:
    return None if expires is None else instant(expires.isoformat())


@router.post("/people", status_code=201)
def admit(caller: KeyHolder, service: Service, body: PersonBody) -> dict[str, Any]:
    person, key = service.register.admit(body.name, body.role, caller, _end(body.expires))
    return vars(person) | {"key": key.text}


@router.get("/people")
def people(_: KeyHolder, service: Service) -> list[dict[str, Any]]:
    return [vars(person) for person in service.register.people()]


@router.delete("/people/{id}", status_code=204)
def dismiss(_: KeyHolder, service: Service, id: str) -> Response:
    service.dismiss(id)
    return Response(status_code=204)


@router.get("/keys")
def keys(caller: KeyHolder, service: Service) -> list[dict[str, Any]]:
    """All keys, with the key that each was made with; an analyst's own."""
    listed = service.register.list_keys(None if caller.is_owner else caller.person.id)
    return [key.to_json() | {"current": key.id == caller.key} for key in listed]


@router.post("/keys", status_code=201)
def make_key(caller: KeyHolder, service: Service, body: KeyBody | None = None) -> dict[str, Any]:
    asked = body or KeyBody()
    if asked.replaces is not None:
        record, key = service.register.replace_key(asked.replaces, caller)
    else:
        person = caller.person if asked.person is None else _person(service.register.people(), asked.person)
        if person != caller.person and not caller.is_owner:
            raise Unknown("there is no such person")
        record, key = service.register.new_key(person, caller, _end(asked.expires))
    return {"id": record.id, "key": key.text, "expires": record.expires}


def _person(people: list[Person], id: str) -> Person:
    person = next((person for person in people if person.id == id), None)
    if person is None:
        raise Unknown("there is no such person")
    return person


@router.delete("/keys", status_code=204)
def end_own_key(caller: KeyHolder, service: Service) -> Response:
    """End the key of this very call, with the keys made with it."""
    service.end_key(caller.key or "", caller)
    return Response(status_code=204)


@router.delete("/keys/{id}", status_code=204)
def end_key(caller: KeyHolder, service: Service, id: str) -> Response:
    """End a key with the keys made with it."""
    service.end_key(id, caller)
    return Response(status_code=204)


@router.post("/grants", status_code=201)
def grant(caller: KeyHolder, service: Service, body: GrantBody) -> dict[str, Any]:
    questions = body.question if isinstance(body.question, list) else [body.question]
    granted, key = service.grant(
        body.analyst, questions, body.epsilon, body.delta, expires=_end(body.expires), by=caller, new=body.new
    )
    return {"grant": granted.id, "key": None if key is None else key.text, "expires": granted.expires}


@router.get("/grants")
def grants(_: KeyHolder, service: Service) -> list[dict[str, Any]]:
    return service.list_grants()


@router.delete("/grants/{id}", status_code=204)
def end_grant(_: KeyHolder, service: Service, id: str) -> Response:
    service.end_grant(id)
    return Response(status_code=204)


@router.get("/refusals")
def refusals(_: KeyHolder, service: Service) -> list[dict[str, Any]]:
    """What was refused, to whom and why."""
    return service.refusals()
