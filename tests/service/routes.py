"""Every route of the service, and who may call it."""

from __future__ import annotations

OWNER, ANALYST, ANYONE = frozenset({"owner"}), frozenset({"analyst"}), None
BOTH = OWNER | ANALYST

#: (method, path) -> roles that may call it; nothing else is there.
ROUTES: dict[tuple[str, str], frozenset[str] | None] = {
    ("GET", "/healthz"): ANYONE,
    ("GET", "/openapi.json"): ANYONE,
    ("POST", "/v1/people"): OWNER,
    ("GET", "/v1/people"): OWNER,
    ("DELETE", "/v1/people/{id}"): OWNER,
    ("POST", "/v1/keys"): BOTH,
    ("GET", "/v1/keys"): BOTH,
    ("DELETE", "/v1/keys/{id}"): BOTH,
    ("POST", "/v1/grants"): OWNER,
    ("GET", "/v1/grants"): OWNER,
    ("DELETE", "/v1/grants/{id}"): OWNER,
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
    ("GET", "/questions/{id}/{name}.csv"): ANALYST,
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
