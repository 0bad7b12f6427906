"""Who may call what: one table, and nothing that is not in it.

Everybody may look at what holds nothing: whether the service is up, its description, the sign-in page. A key that may
not make a call is told what an unknown address is told.
"""

from __future__ import annotations

OWNER, ANALYST, ANYONE = frozenset({"owner"}), frozenset({"analyst"}), frozenset({"anyone"})
BOTH = OWNER | ANALYST

#: (method, path) -> roles that may call it.
ROUTES: dict[tuple[str, str], frozenset[str]] = {
    ("GET", "/healthz"): ANYONE,
    ("GET", "/openapi.json"): ANYONE,
    ("GET", "/metrics"): OWNER,
    ("POST", "/v1/people"): OWNER,
    ("GET", "/v1/people"): OWNER,
    ("DELETE", "/v1/people/{id}"): OWNER,
    ("POST", "/v1/keys"): BOTH,
    ("GET", "/v1/keys"): BOTH,
    ("DELETE", "/v1/keys"): BOTH,
    ("DELETE", "/v1/keys/{id}"): BOTH,
    ("POST", "/v1/grants"): OWNER,
    ("GET", "/v1/grants"): OWNER,
    ("DELETE", "/v1/grants/{id}"): OWNER,
    ("GET", "/v1/refusals"): OWNER,
    ("GET", "/v1/questions"): BOTH,
    ("POST", "/v1/quotes"): ANALYST,
    ("POST", "/v1/releases"): ANALYST,
    ("GET", "/v1/receipts"): BOTH,
    ("GET", "/v1/receipts/{id}/proof"): BOTH,
    ("GET", "/v1/ledger/head"): BOTH,
    ("GET", "/v1/ledger/consistency"): BOTH,
    ("GET", "/v1/ledger/verify"): OWNER,
    ("GET", "/sign-in"): ANYONE,
    ("POST", "/sign-in"): ANYONE,
    ("GET", "/style.css"): ANYONE,
    ("POST", "/sign-out"): BOTH,
    ("GET", "/"): BOTH,
    ("GET", "/questions/{id}"): ANALYST,
    ("POST", "/questions/{id}/ask"): ANALYST,
    ("GET", "/questions/{id}/answers.csv"): ANALYST,
    ("GET", "/questions/{id}/table.csv"): ANALYST,
    ("POST", "/grants"): OWNER,
    ("POST", "/grants/{id}/end"): OWNER,
    ("GET", "/people"): OWNER,
    ("POST", "/people"): OWNER,
    ("POST", "/people/{id}/dismiss"): OWNER,
    ("POST", "/people/{id}/key"): OWNER,
    ("GET", "/keys"): BOTH,
    ("POST", "/keys/{id}/end"): BOTH,
    ("POST", "/keys/{id}/replace"): BOTH,
    ("GET", "/ledger"): OWNER,
}


def may(role: str, method: str, path: str) -> bool:
    """Whether a role may call a route; what is not in the table nobody may."""
    allowed = ROUTES.get((method, path), frozenset())
    return allowed == ANYONE or role in allowed
