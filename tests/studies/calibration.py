"""How far the verdicts can be trusted: ``python tests/studies/calibration.py [--out DIR] [--trials N] [--workers W]``.

How often exact draws are called distinguishable, how often altered draws are, the error of the equivalent sample size
of exact draws, and the coverage of intervals. Writes CSV tables, a figure and a page into ``reports/calibration``;
takes an hour or two on two cores.
"""

import argparse
from pathlib import Path
from typing import Any

import pandas as pd
from calibration_trials import ALTERATIONS, EQUIVALENT_COLUMNS, LARGE, VERDICT, N, Study, limit, run_study
from markdown_tables import table

from parvibench.metrics.floors import ALPHA

REPORT = Path(__file__).parents[2] / "reports" / "calibration"


def write(study: Study, out: Path) -> None:
    """Write ``power.csv``, ``equivalent.csv``, ``coverage.csv``, ``power.svg`` and ``README.md``."""
    out.mkdir(parents=True, exist_ok=True)
    study.power.to_csv(out / "power.csv", index=False)
    study.equivalent.to_csv(out / "equivalent.csv", index=False, float_format="%.6g")
    study.coverage.to_csv(out / "coverage.csv", index=False, float_format="%.4g")
    draw_power(study.power, out / "power.svg")
    (out / "README.md").write_text(page(study))


def read(folder: Path) -> Study:
    """Read the tables that ``write`` wrote."""
    return Study(*(pd.read_csv(folder / f"{name}.csv") for name in ("power", "equivalent", "coverage")))


def page(study: Study) -> str:
    """The study in Markdown."""
    power = study.power
    false = power[power["alteration"] == "exact"]
    worst = false.iloc[int((false["found"] / false["trials"]).argmax())]
    above = false[false["found"] > false["trials"].map(limit)]
    lines = [
        "# Can the verdicts be trusted?",
        "",
        "Made by `python tests/studies/calibration.py`. Targets: two Gaussians of equal",
        "weight four sds apart, neighbouring coordinates correlated by 0.5, in 2, 22 and 100 dimensions; references of",
        "10,000 draws and floors made as those of any task. Shifts and scales are of every coordinate.",
        "",
        # until the whole study is run again
        "The rows of the verdict on this page were measured with equal weights, without `tail_error` and with interpolated floors;",
        "[verdicts.md](verdicts.md) has those of today, on shipped tasks.",
        "",
        "## False alarms",
        "",
        f"Share of sets of exact draws called distinguishable at {100 * ALPHA:g}%. Chance alone explains up to "
        f"{limit(400)} of 400 (99.9%).",
        f"Worst of all: {worst['metric']} in {worst['dim']} dimensions at n = {worst['n']}, "
        f"{worst['found']} of {worst['trials']}. Above the limit: "
        f"{'none' if above.empty else ', '.join(_case(row) for _, row in above.iterrows())}.",
        "",
        *_table(_shares(false, ["dim", "n"])),
        "",
        "n = 250 lies between the stored sizes: there floors of single metrics are interpolated (not those of c2st, which",
        "meets other reference rows at every n), and the verdict is that of 200 evenly thinned draws; so is it of 2,000 at",
        "n = 10,000.",
        "",
        f"## Power at n = {N}",
        "",
        "![Power of every metric](power.svg)",
        "",
        "Share of altered sets called distinguishable, in percent, in 2 / 22 / 100 dimensions.",
        "",
        *_table(_triples(power[(power["n"] == N) & (power["alteration"] != "exact")])),
        "",
        f"At n = {LARGE:,} a shift of 0.05 sd is found by",
        "",
        *_table(_shares(power[(power["n"] == LARGE) & (power["alteration"] != "exact")], ["dim"])),
        "",
        "## Equivalent sample size of exact draws",
        "",
        "`size` pools all sets and should be `truth`; `error` is its standard error. `covered` is the share of sets whose",
        "own 95% interval holds the truth. The AR(1) chain's truth is n over its integrated autocorrelation time; a Gaussian",
        "kernel sees functions that decorrelate faster, and its truth follows from E k at every lag.",
        "",
        *_table(_rounded(study.equivalent[EQUIVALENT_COLUMNS])),
        "",
        "## Intervals and tests",
        "",
        "Share of simulated data sets whose interval holds the truth (or whose test rejects, for levels).",
        "",
        *_table(_rounded(study.coverage)),
    ]
    return "\n".join(lines) + "\n"


def draw_power(power: pd.DataFrame, file: Path) -> None:
    """Heat maps, metrics by alterations, one for each dimension."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt
    import seaborn as sns

    rows = power[power["n"] == N].assign(share=lambda d: d["found"] / d["trials"])
    dims = sorted(rows["dim"].unique())
    order = list(dict.fromkeys(rows["metric"]))
    with mpl.rc_context({"svg.hashsalt": "parvibench", "svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans"]}):
        size = (3 + 3.4 * len(dims), 1.6 + 0.28 * len(order))
        figure, axes = plt.subplots(1, len(dims), figsize=size, sharey=True, layout="constrained", squeeze=False)
        for axis, dim in zip(axes[0], dims, strict=True):
            shares = rows[rows["dim"] == dim].pivot_table(index="metric", columns="alteration", values="share")
            shares = shares.reindex(index=order, columns=list(ALTERATIONS))
            sns.heatmap(
                100 * shares, ax=axis, vmin=0, vmax=100, cmap="cividis", annot=True, fmt=".0f",
                annot_kws={"size": 7}, rasterized=True, cbar=dim == dims[-1], cbar_kws={"label": "called distinguishable, %"},
            )  # fmt: skip
            axis.set(title=f"{dim} dimensions", xlabel="", ylabel="")
        figure.savefig(file, metadata={"Date": None})
        plt.close(figure)


def _case(row: pd.Series) -> str:
    return f"{row['metric']} ({row['dim']}-d, n = {row['n']}: {row['found']}/{row['trials']})"


def _shares(rows: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """Percent called, metrics as rows."""
    shares = rows.assign(share=100 * rows["found"] / rows["trials"])
    wide = shares.pivot_table(index="metric", columns=columns, values="share").reindex(_last_verdict(rows))
    cases = [c if isinstance(c, tuple) else (c,) for c in wide.columns]
    wide.columns = [", ".join(f"{name} = {v:,}" for name, v in zip("dn", c, strict=False)) for c in cases]
    return wide.reset_index()


def _triples(rows: pd.DataFrame) -> pd.DataFrame:
    shares = rows.assign(share=100 * rows["found"] / rows["trials"])
    wide = shares.pivot_table(index="metric", columns=["alteration", "dim"], values="share")
    wide = wide.reindex(_last_verdict(rows))
    joined = {
        name: [" / ".join("–" if pd.isna(v) else f"{v:.0f}" for v in row) for row in wide[name].to_numpy()]
        for name in ALTERATIONS
        if name in wide.columns.get_level_values(0)
    }
    return pd.DataFrame({"metric": wide.index, **joined})


def _last_verdict(rows: pd.DataFrame) -> list[str]:
    names = [m for m in dict.fromkeys(rows["metric"]) if m != VERDICT]
    return [*names, VERDICT]


def _rounded(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.map(lambda v: f"{v:.3g}" if isinstance(v, float) and abs(v) < 1000 else v)


def _table(frame: pd.DataFrame) -> list[str]:
    body = [[_text(v) for v in row] for row in frame.to_numpy().tolist()]
    return table([*frame.columns], body)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return "–" if pd.isna(value) else f"{value:.4g}"
    return str(value)


def main() -> None:
    """Run the study and write its tables, figure and page."""
    parser = argparse.ArgumentParser(description="Measure the calibration of the verdicts.")
    parser.add_argument("--out", type=Path, default=REPORT, help="folder of the tables")
    parser.add_argument("--trials", type=int, default=50, help="sets of altered draws")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cache", type=Path, help="where references are kept (default: OUT/cache)")
    options = parser.parse_args()
    study = run_study(options.trials, options.workers, options.cache or options.out / "cache")
    write(study, options.out)


if __name__ == "__main__":
    main()
