"""Who may call what: one table, and nothing that is not in it.

Everybody may look at what holds nothing: whether the service is up, its description, the sign-in page. A key that may
not make a call is told what an unknown address is told.
"""

from __future__ import annotations

OWNER, APPROVER, ANALYST, AUDITOR = "owner", "approver", "analyst", "auditor"
ANYONE = "anyone"
EVERY = frozenset({OWNER, APPROVER, ANALYST, AUDITOR})
DECIDE = frozenset({OWNER, APPROVER})
INSPECT = frozenset({OWNER, AUDITOR})
NOBODY_IN_PARTICULAR = frozenset({ANYONE})

#: (method, path) -> roles that may call it.
ROUTES: dict[tuple[str, str], frozenset[str]] = {
    ("GET", "/healthz"): NOBODY_IN_PARTICULAR,
    ("GET", "/openapi.json"): NOBODY_IN_PARTICULAR,
    ("GET", "/metrics"): INSPECT,
    ("POST", "/v1/people"): frozenset({OWNER}),
    ("GET", "/v1/people"): INSPECT,
    ("DELETE", "/v1/people/{id}"): frozenset({OWNER}),
    ("POST", "/v1/keys"): EVERY,
    ("DELETE", "/v1/keys"): EVERY,
    ("POST", "/v1/grants"): frozenset({OWNER}),
    ("GET", "/v1/grants"): frozenset({OWNER, APPROVER, AUDITOR}),
    ("DELETE", "/v1/grants/{id}"): frozenset({OWNER}),
    ("GET", "/v1/questions"): EVERY,
    ("POST", "/v1/quotes"): frozenset({ANALYST}),
    ("POST", "/v1/releases"): frozenset({ANALYST}),
    ("GET", "/v1/receipts"): frozenset({OWNER, ANALYST, AUDITOR}),
    ("GET", "/v1/receipts/{id}/proof"): frozenset({OWNER, ANALYST, AUDITOR}),
    ("GET", "/v1/ledger/head"): EVERY,
    ("GET", "/v1/ledger/consistency"): EVERY,
    ("GET", "/v1/ledger/verify"): INSPECT,
    ("POST", "/v1/requests"): frozenset({ANALYST}),
    ("GET", "/v1/requests"): frozenset({OWNER, APPROVER, ANALYST}),
    ("POST", "/v1/requests/{id}/approve"): DECIDE,
    ("POST", "/v1/requests/{id}/deny"): DECIDE,
    ("GET", "/sign-in"): NOBODY_IN_PARTICULAR,
    ("POST", "/sign-in"): NOBODY_IN_PARTICULAR,
    ("GET", "/sign-in/provider"): NOBODY_IN_PARTICULAR,
    ("GET", "/sign-in/return"): NOBODY_IN_PARTICULAR,
    ("GET", "/style.css"): NOBODY_IN_PARTICULAR,
    ("POST", "/sign-out"): EVERY,
    ("GET", "/"): EVERY,
    ("GET", "/questions/{id}"): frozenset({ANALYST}),
    ("POST", "/questions/{id}/ask"): frozenset({ANALYST}),
    ("GET", "/questions/{id}/answers.csv"): frozenset({ANALYST}),
    ("POST", "/questions/{id}/request"): frozenset({ANALYST}),
    ("POST", "/grants"): frozenset({OWNER}),
    ("POST", "/grants/{id}/end"): frozenset({OWNER}),
    ("POST", "/people"): frozenset({OWNER}),
    ("POST", "/requests/{id}/decide"): DECIDE,
    ("GET", "/ledger"): INSPECT,
}


def may(role: str, method: str, path: str) -> bool:
    """Whether a role may call a route; what is not in the table nobody may."""
    allowed = ROUTES.get((method, path), frozenset())
    return ANYONE in allowed or role in allowed
