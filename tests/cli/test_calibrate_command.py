"""``parvibench calibrate`` writes its outcome as text, JSON and a picture, and its exit code says whether the sampler is right."""

from pathlib import Path

import pytest
from command_line import Run

LINE = """import numpy as np
import torch
import parvibench as pb
class Line:
    offset = 0.0
    def prior(rng): return rng.normal(size=1)
    def simulate(slope, rng): return slope * np.arange(1.0, 5.0) + rng.normal(size=4)
    @classmethod
    def model(cls, y):
        t, y = torch.arange(1.0, 5.0, dtype=torch.float64), torch.as_tensor(y)
        return pb.task(lambda x: -x.square().sum() / 2 - (y + cls.offset - x * t).square().sum() / 2, dim=1, name="line")
class Wrong(Line):
    offset = 3.0
class Boom(Line):
    def simulate(slope, rng): raise KeyError("boom")
class Flat(Line):
    def quantities(x, y): return {"q": 3.0}
"""
SCHOOLS = """import numpy as np
import numpyro
import numpyro.distributions as dist
import parvibench as pb
def model(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    numpyro.sample("y", dist.Normal(mu, np.array([1.0, 2.0, 3.0])), obs=y)
MODEL = pb.from_numpyro(model, np.zeros(3), name="schools")
"""
HMC = ("-a", "hmc", "--set", "step_size=0.01", "--set", "leapfrog_steps=2", "--sets", "20", "--evaluations", "40")


def test_a_right_sampler_ends_in_0_with_text_picture_and_record(call: Run) -> None:
    Path("line.py").write_text(LINE)
    answer = call("calibrate", "line.py:Line", *HMC)
    assert (answer.code, answer.out.split(" (")[0]) == (0, "hmc on Line: no fault found")
    assert Path("parvibench-calibration/ranks.png").read_bytes()[:4] == b"\x89PNG"


def test_a_wrong_model_ends_in_1_with_its_faults_and_the_kernels_in_one_document(call: Run) -> None:
    """The document has every number of the text."""
    Path("line.py").write_text(LINE)
    answer = call("calibrate", "line.py:Wrong", *HMC, "--json", "--out", "w")
    found = answer.json
    assert (answer.code, found["verdict"], found["checks"]) == (1, "wrong", "sampler and model")
    assert (found["kernel"]["verdict"], found["kernel"]["data_sets"], found["kernel"]["lost"]) == ("wrong", 100, 0)
    assert [row["name"] for row in found["functions"]] == ["x[0]", "log density"]
    again = call("calibrate", "line.py:Wrong", *HMC, "--out", "w").out
    assert "x[0] is shifted up by" in again
    assert "Chains that start at the true parameters leave the posterior (" in again


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("line.py:torch -a hmc", "it has no prior, simulate, model"),
        ("line.py:Line -a hmc --sets 5", "--sets"),
        ("line.py:Boom -a hmc", "Boom: simulate fails in line.py, line 15: KeyError: 'boom'"),
        ("line.py:Flat -a hmc", "q of 1 points has the shape (), not (1,)"),
        ("line.py:Nope -a hmc", "models there: Line, Wrong, Boom, Flat"),
        ("line.py:Line -a hmc --evaluations 1", "do not suffice for a step"),
    ],
)
def test_wrong_words_end_in_2_and_are_named(words: str, message: str, call: Run) -> None:
    Path("line.py").write_text(LINE)
    answer = call("calibrate", *words.split())
    assert (answer.code, message in answer.err, "Traceback" in answer.err) == (2, True, False), answer.err


def test_a_numpyro_model_brings_prior_and_simulator(call: Run) -> None:
    pytest.importorskip("numpyro", reason="needs NumPyro: pip install '.[jax]'")
    Path("schools.py").write_text(SCHOOLS)
    found = call("calibrate", "schools.py:MODEL", *HMC, "--json").json
    assert (found["model"], found["verdict"], found["checks"], found["kernel"]) == ("schools", "right", "sampler", None)
