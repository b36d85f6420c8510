"""Golden values: every stored trace is what the code gives, and every trace of the code is stored."""

import shlex
from collections.abc import Iterator

import pytest
import torch

from parvibench.core.errors import DataMissingError

from . import stored
from .catalogue import Subject, subject_of, subjects, surroundings, traces_of
from .trace import taken

STORED = stored.load()

# Each trace is taken where it is compared; pytest sets its own filters for every test.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True, scope="module")
def fixed_noise_and_data() -> Iterator[None]:
    with surroundings():
        yield


def accept(name: str) -> str:
    return f"make traces ONLY={shlex.quote(name)}"


def compare(name: str) -> None:
    """Fail where the trace differs from the stored one."""
    subject = subject_of(name)
    trace = traces_of(subject).get(name) if subject else None
    if trace is None:
        pytest.fail(f"{name}: there is no such trace any more; to remove it: {accept(name)}", pytrace=False)
    try:
        now = taken(trace)
    except DataMissingError as missing:
        pytest.skip(f"needs data on disk: {str(missing).splitlines()[0]}")
    if moved := stored.differences(STORED[name], now):
        pytest.fail(f"{stored.report(name, moved)}\nif this is meant: {accept(name)}", pytrace=False)


@pytest.mark.parametrize("name", STORED)
def test_trace(name: str) -> None:
    compare(name)


@pytest.mark.parametrize("subject", subjects(), ids=" ".join)
def test_every_trace_is_stored(subject: Subject) -> None:
    if new := [name for name in traces_of(subject) if name not in STORED]:
        pytest.fail(f"not stored yet: {', '.join(new)}\nto store: make traces", pytrace=False)


@pytest.mark.slow
def test_two_threads_move_nothing() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for name in STORED:
            compare(name)
    finally:
        torch.set_num_threads(before)
