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
        return json.loads(self.out)


Run = Callable[..., Answer]
