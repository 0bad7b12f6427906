"""The release service: people ask over HTTP, the ledger decides."""
