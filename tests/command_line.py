"""The command line as tests call it: the types of the fixture ``call``."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple


class Answer(NamedTuple):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The document on standard output."""
        assert self.out, f"exit code {self.code}: {self.err}"
        return json.loads(self.out)


Run = Callable[..., Answer]

#: Arguments of ``run`` of a cell that takes a second.
ONE_CELL = (
    "--task", "banana", "--algorithm", "svgd", "--replicates", "2", "--budget", "iterations=20", "--workers", "0", "--quiet",
)  # fmt: skip
