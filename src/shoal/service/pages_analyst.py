"""Pages of an analyst: what may be asked, one question with its answers, and downloads."""

import json
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from markupsafe import Markup

from shoal.service.access import Sender, Service, Visitor
from shoal.service.drawing import answer_plot
from shoal.service.pages import Optional, render
from shoal.service.people import Caller
from shoal.service.question_service import QuestionService, Refused

router = APIRouter(include_in_schema=False)


def analyst_page(request: Request, caller: Caller, service: QuestionService) -> Response:
    every = service.questions(caller)
    granted = [q | {"quote": service.quote(caller.person, q["question"])} for q in every if q["granted"]]
    others = [q for q in every if not q["granted"]]
    return render(request, caller, "analyst.html", "Your questions", questions=granted, others=others)


def _question_page(request: Request, caller: Caller, service: QuestionService, id: str, **facts: Any) -> Response:
    quote = service.quote(caller.person, id)
    question = next(q for q in service.questions(caller) if q["question"] == id)
    table = service.catalog.questions[id].table
    return render(
        request, caller, "question.html", question["title"], q=question, quote=quote, has_table=table is not None,
        **facts,
    )  # fmt: skip


@router.get("/questions/{id}")
def question(request: Request, caller: Visitor, service: Service, id: str) -> Response:
    return _question_page(request, caller, service, id)


@router.post("/questions/{id}/ask")
def ask(request: Request, caller: Sender, service: Service, id: str, handle: Optional = "") -> Response:
    try:
        body = json.loads(service.release(caller.person, id, handle or None, f"page {id} {handle}"))
    except Refused as refused:
        return _question_page(request, caller, service, id, notice=f"Refused: {refused}.")
    if not handle:
        return _question_page(request, caller, service, id)
    picture = Markup(answer_plot(body["answer"], body["error"], body["unit"], body["times"]))
    return _question_page(request, caller, service, id, answer=body, handle=handle, picture=picture)


@router.get("/questions/{id}/answers.csv")
def answers(caller: Visitor, service: Service, id: str) -> Response:
    return _csv(service.sheet(caller.person, id).csv(), "answers.csv")


@router.get("/questions/{id}/table.csv")
def table(caller: Visitor, service: Service, id: str) -> Response:
    return _csv(service.sheet(caller.person, id).csv(public=True), "table.csv")


def _csv(text: str, name: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(text, media_type="text/csv", headers=headers)
