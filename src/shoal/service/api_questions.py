"""Calls about questions, answers and the record."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response

from shoal.service.access import KeyHolder, Service
from shoal.service.api_people import Body, Identifier

router = APIRouter(prefix="/v1")


class QuoteBody(Body):
    question: Identifier


class ReleaseBody(Body):
    """One answer; without a handle the whole table."""

    question: Identifier
    handle: Identifier | None = None


@router.get("/questions")
def questions(caller: KeyHolder, service: Service) -> list[dict[str, Any]]:
    """What there is; with handles where it was granted to this key."""
    return service.questions(caller)


@router.post("/quotes")
def quote(caller: KeyHolder, service: Service, body: QuoteBody) -> dict[str, Any]:
    return service.quote(caller.person, body.question)


@router.post("/releases")
def release(
    caller: KeyHolder,
    service: Service,
    body: ReleaseBody,
    idempotency_key: Annotated[str, Header(min_length=1, max_length=200)],
) -> Response:
    content = service.release(caller.person, body.question, body.handle, idempotency_key)
    return Response(content, media_type="application/json")


@router.get("/receipts")
def receipts(caller: KeyHolder, service: Service) -> list[dict[str, Any]]:
    return service.receipts(caller)


@router.get("/receipts/{id}/proof")
def proof(
    caller: KeyHolder, service: Service, id: str, size: Annotated[int | None, Query(ge=1, le=2**53)] = None
) -> dict[str, Any]:
    return service.proof(caller, id, size)


@router.get("/ledger/head")
def head(_: KeyHolder, service: Service) -> dict[str, Any]:
    return service.record.checkpoint()


@router.get("/ledger/consistency")
def consistency(
    _: KeyHolder,
    service: Service,
    first: Annotated[int, Query(ge=1, le=2**53)],
    second: Annotated[int | None, Query(ge=1, le=2**53)] = None,
) -> dict[str, Any]:
    return service.record.consistency(first, second)


@router.get("/ledger/verify")
def verify(_: KeyHolder, service: Service) -> dict[str, Any]:
    report = service.ledger.verify()
    return {"intact": bool(report), "entries": report.entries, "problem": report.problem, "head": str(report.head)}
