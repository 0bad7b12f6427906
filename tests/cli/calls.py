"""Calling the command inside the test process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from typer.testing import CliRunner

from shoal.product.cli.main import app

#: Twelve households, a short horizon and a small model: the whole job in seconds.
SMALL = ["--crowd", "4", "--horizon", "4", "--set", "order=2,1"]
#: The same under an ε.
CHARGED = [*SMALL, "--method", "center", "--epsilon", "1", "--delta", "1e-5"]


@dataclass(frozen=True)
class Called:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        content = json.loads(self.out)
        assert isinstance(content, dict)
        return content


def call(*arguments: Any) -> Called:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Called(result.exit_code, result.stdout, result.stderr)
