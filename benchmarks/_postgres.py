"""A private PostgreSQL server in a temporary folder, reachable through a unix socket only."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path


def binaries() -> Path | None:
    """The folder that holds ``initdb``, newest version first; None where PostgreSQL is not installed."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]), reverse=True)
    return installed[0].parent if installed else None


@contextlib.contextmanager
def server(bin_dir: Path) -> Iterator[str]:
    """Start a server with its default, durable settings; yields its address."""
    root = os.geteuid() == 0
    user = "postgres" if root else None  # initdb refuses to run as root
    folder = Path(tempfile.mkdtemp(prefix="shoal-pg-"))
    try:
        if user:
            shutil.chown(folder, user)

        def call(*command: str) -> None:
            subprocess.run(
                command, check=True, user=user, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )

        data, log = folder / "data", folder / "log"
        call(f"{bin_dir}/initdb", "-D", str(data), "-U", "shoal", "--auth=trust", "--encoding=UTF8", "--locale=C")
        options = f"-k {folder} -c listen_addresses= -c max_connections=60"
        call(f"{bin_dir}/pg_ctl", "-D", str(data), "-l", str(log), "-o", options, "-w", "start")
        try:
            yield f"postgresql://shoal@/postgres?host={folder}"
        finally:
            call(f"{bin_dir}/pg_ctl", "-D", str(data), "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def database(address: str, name: str) -> str:
    """An empty place for one ledger, a schema of its own; returns its URL."""
    import psycopg

    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f'CREATE SCHEMA "{name}"')
    return f"{address}&options=-csearch_path%3D{name}"
