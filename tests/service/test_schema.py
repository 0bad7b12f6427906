"""What /openapi.json says against what the service does, by requests that schemathesis makes up."""

from __future__ import annotations

import pytest

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
from hypothesis import HealthCheck, Phase, given, settings  # noqa: E402
from schemathesis import checks  # noqa: E402

from shoal.product.service.application import make_application  # noqa: E402
from shoal.product.service.questions import QuestionService  # noqa: E402

#: All that does not contradict the contract: what is forbidden looks like what is not there, and an end in
#: the past or half a budget is refused although its form is right.
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.response_headers_conformance,
    checks.negative_data_rejection,
    checks.ignored_auth,
]


@pytest.mark.parametrize("role", ["owner", "analyst"])
def test_no_surprises(desk: QuestionService, role: str) -> None:
    app = make_application(desk)
    desk.register.first_key()
    key = desk.register.admit_person("tester", role)[1].text
    if role == "analyst":
        desk.grant("tester", list(desk.catalog.questions), 4.0, 1e-5, with_key=False)
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    for result in schema.get_all_operations():
        operation = result.ok()

        @settings(
            max_examples=12,
            derandomize=True,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def conforms(case: schemathesis.Case) -> None:
            case.call_and_validate(headers={"Authorization": f"Bearer {key}"}, checks=CHECKS)

        conforms()
