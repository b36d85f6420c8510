"""Models of users run in double precision, and a log density too large for single precision is flagged."""

from pathlib import Path

import parvibench as pb

TASK = """
import parvibench as pb

far = pb.task(lambda x: -0.5 * (x - 3000.0).square().sum(), dim=2, name="far")
"""
SUITE = """
name: mine
tasks: ["target.py:far"]
algorithms: [mala, {name: svgd, settings: {step_size: 0.1}}]
particles: 4
replicates: 2
dtype: DTYPE
budget: {iterations: 5}
"""


def test_models_of_users_run_in_double_precision(tmp_path: Path) -> None:
    own = pb.task(lambda x: -0.5 * x.square().sum(), dim=2, name="mine")
    common = {"algorithms": ["ula"], "budget": {"iterations": 5}, "particles": 4, "replicates": 2, "workers": 0}
    (ours,) = pb.run(tasks=["banana"], out=tmp_path, **common).cells
    (users,) = pb.run(tasks=[own], out=tmp_path, **common).cells
    assert (ours.spec.dtype, users.spec.dtype) == ("float32", "float64")


def test_rounded_log_densities_are_flagged_for_chains(tmp_path: Path) -> None:
    (tmp_path / "target.py").write_text(TASK)
    flagged = {}
    for dtype in ("float32", "float64"):
        (file := tmp_path / f"{dtype}.yaml").write_text(SUITE.replace("DTYPE", dtype))
        cells = pb.run(suite=str(file), out=tmp_path / dtype, allow_plugins=True, workers=0).cells
        flagged |= {(dtype, c.algorithm): any("rounded to 1 in single" in f for f in c.flags) for c in cells}
    assert [key for key, yes in flagged.items() if yes] == [("float32", "mala")]
