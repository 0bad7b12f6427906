"""Pages of the data owner: what is offered and granted, people and their keys, the ledger. Keys of everybody."""

from datetime import date, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse, Response

from shoal.errors import InputError
from shoal.service.access import Sender, Service, Visitor
from shoal.service.keys import ROLES, Key
from shoal.service.pages import Optional, Short, render
from shoal.service.pages_analyst import analyst_page
from shoal.service.people import Caller, NotNow, Unknown
from shoal.service.question_service import QuestionService

router = APIRouter(include_in_schema=False)


@router.get("/")
def home(request: Request, caller: Visitor, service: Service) -> Response:
    return _overview(request, caller, service) if caller.is_owner else analyst_page(request, caller, service)


def _overview(request: Request, caller: Caller, service: QuestionService, **facts: Any) -> Response:
    questions = service.questions(caller)
    return render(
        request,
        caller,
        "owner.html",
        "Questions and grants",
        questions=questions,
        left_out=service.catalog.left_out,
        titles={question["question"]: question["title"] for question in questions},
        grants=service.list_grants(),
        refusals=service.refusals(),
        analysts=[person for person in service.register.people() if person.role == "analyst"],
        **facts,
    )


@router.post("/grants")
def grant(
    request: Request,
    caller: Sender,
    service: Service,
    analyst: Short,
    question: Short,
    epsilon: Optional = "",
    delta: Optional = "",
    expires: Optional = "",
) -> Response:
    try:
        # The day that is named is the last one.
        until = (date.fromisoformat(expires) + timedelta(days=1)).isoformat() if expires else None
        budget = [float(text) if text.strip() else None for text in (epsilon, delta)]
        service.grant(analyst, (question,), *budget, expires=until, by=caller, with_key=False)
    except (InputError, NotNow, Unknown) as error:
        return _overview(request, caller, service, notice=f"Not granted. {error}.")
    except (ValueError, OverflowError):
        return _overview(request, caller, service, notice="Not granted: ε and δ are numbers, and the end is a day.")
    return RedirectResponse("/", status_code=303)


@router.post("/grants/{id}/end")
def end_grant(_: Sender, service: Service, id: str) -> Response:
    service.end_grant(id)
    return RedirectResponse("/", status_code=303)


@router.get("/people")
def people(request: Request, caller: Visitor, service: Service) -> Response:
    return _people(request, caller, service)


def _people(
    request: Request, caller: Caller, service: QuestionService, key: Key | None = None, key_for: str = "", **facts: Any
) -> Response:
    """People and all keys, or an analyst's own keys; a new key is shown on the page that made it, and nowhere else."""
    everybody = service.register.people() if caller.is_owner else [caller.person]
    keys = service.register.list_keys(None if caller.is_owner else caller.person.id)
    return render(
        request,
        caller,
        "people.html" if caller.is_owner else "keys.html",
        "People and keys" if caller.is_owner else "Your keys",
        people=everybody,
        names={person.id: person.name for person in everybody},
        hints={key.id: key.hint for key in keys},
        keys=[key.to_json() for key in keys if key.ended is None],
        roles=sorted(ROLES),
        new_key=None if key is None else key.text,
        key_for=key_for,
        **facts,
    )


@router.post("/people")
def admit(request: Request, caller: Sender, service: Service, name: Short, role: Short) -> Response:
    try:
        _, key = service.register.admit(name.strip(), role, caller)
    except (InputError, NotNow) as error:
        return _people(request, caller, service, notice=f"Not admitted. {error}.")
    return _people(request, caller, service, key, f"{name.strip()}, {role}")


@router.post("/people/{id}/dismiss")
def dismiss(request: Request, caller: Sender, service: Service, id: str) -> Response:
    try:
        service.dismiss(id)
    except NotNow as error:
        return _people(request, caller, service, notice=f"Not dismissed. {error}.")
    return RedirectResponse("/people", status_code=303)


@router.post("/people/{id}/key")
def make_key(request: Request, caller: Sender, service: Service, id: str) -> Response:
    person = next((person for person in service.register.people() if person.id == id), None)
    if person is None:
        raise Unknown("there is no such person")
    _, key = service.register.new_key(person, caller)
    return _people(request, caller, service, key, f"{person.name}, {person.role}")


@router.get("/keys")
def keys(request: Request, caller: Visitor, service: Service) -> Response:
    return _people(request, caller, service)


@router.post("/keys/{id}/end")
def end_key(request: Request, caller: Sender, service: Service, id: str) -> Response:
    try:
        count = service.end_key(id, caller)
    except NotNow as error:
        return _people(request, caller, service, notice=f"Not ended. {error}.")
    if caller.key in {key.id for key in service.register.list_keys() if key.ended is not None}:
        return RedirectResponse("/sign-in", status_code=303)
    ended = "One key has ended." if count == 1 else f"{count} keys have ended: the one, and those made with it."
    return _people(request, caller, service, notice=ended, notice_tone="good")


@router.post("/keys/{id}/replace")
def replace_key(request: Request, caller: Sender, service: Service, id: str) -> Response:
    record, key = service.register.replace_key(id, caller)
    who = next((person.name for person in service.register.people() if person.id == record.person), "")
    return _people(request, caller, service, key, who)


@router.get("/ledger")
def ledger(
    request: Request, caller: Visitor, service: Service, verify: Annotated[int, Query(ge=0, le=1)] = 0
) -> Response:
    return render(
        request,
        caller,
        "ledger.html",
        "Ledger",
        head=service.record.checkpoint(),
        receipts=service.receipts(caller),
        titles={id: question.title for id, question in service.catalog.questions.items()},
        names={person.id: person.name for person in service.register.people()},
        report=service.ledger.verify() if verify else None,
    )
