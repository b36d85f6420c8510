"""Writes docs/results.md: what the published boards say, in findings with the numbers behind them.

    python tests/studies/results_page.py reports docs/results.md

Numbers are medians over replicates of the values in ``results.parquet``, a lost replicate the worst, over the median of exact
draws where there is one; nothing of ParVIBench is imported. A finding that a board no longer bears is an error: it must be
rewritten, not left out.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from board_again import three

HEAD = """# What the boards say

Findings of the [published boards](reports/index.md), each with its numbers and with what can be said against it. Unless another
unit is named, a number is the median over replicates of the board's distance to the posterior, divided by that of as many exact
draws: 1 is as good as exact draws, and *near* means at most 1.5. The page is written, and tested, by
`python tests/studies/results_page.py reports docs/results.md`.
"""
NEAR = 1.5


class Board:
    """Numbers of one published board."""

    def __init__(self, folder: Path) -> None:
        self.name, self.rows = folder.name, pd.read_parquet(folder / "results.parquet")

    def over_floor(self, methods: Sequence[str], tasks: Sequence[str]) -> pd.DataFrame:
        """Median of each method (rows) on each task (columns) by its primary metric, over its floor."""
        own = self.rows[self.rows["primary"].fillna(False).astype(bool)]
        return self._medians(own.assign(value=own["value"] / own["floor"]), methods, tasks)

    def medians(self, metric: str, methods: Sequence[str], tasks: Sequence[str]) -> pd.DataFrame:
        """Median of each method on each task by a metric of which less is better."""
        return self._medians(self.rows[self.rows["metric"] == metric], methods, tasks)

    def _medians(self, rows: pd.DataFrame, methods: Sequence[str], tasks: Sequence[str]) -> pd.DataFrame:
        rows = rows.assign(value=rows["value"].astype(float).fillna(np.inf))
        return rows.groupby(["label", "task"])["value"].median().unstack().loc[list(methods), list(tasks)]

    @property
    def cells(self) -> pd.DataFrame:
        """One row per method and task."""
        return self.rows.drop_duplicates(["task", "label"])


@dataclass(frozen=True)
class Finding:
    """One finding: its title, the board, the methods and tasks of its table, what they say, what can be objected."""

    title: str
    board: str
    methods: tuple[str, ...]
    tasks: tuple[str, ...]
    say: Callable[[pd.DataFrame, Board], str]
    objection: str
    metric: str = ""  #: in place of the ratio to the floor

    def numbers(self, board: Board) -> pd.DataFrame:
        """The table of the finding."""
        if self.metric:
            return board.medians(self.metric, self.methods, self.tasks)
        return board.over_floor(self.methods, self.tasks)

    def text(self, board: Board) -> str:
        """The finding in Markdown."""
        x = self.numbers(board)
        head = [f"| {self.metric or 'over the floor'} | {' | '.join(x.columns)} |", "|---" * (1 + len(x.columns)) + "|"]
        body = [f"| {m} | {' | '.join(map(three, row))} |" for m, row in zip(x.index, x.to_numpy(), strict=True)]
        table = "\n".join(head + body)
        end = f'*Objection:* {self.objection} Board: <a href="reports/{self.board}/index.html">{self.board}</a>.'
        said, end = (textwrap.fill(part, 130, break_on_hyphens=False) for part in (self.say(x, board), end))
        return f"## {self.title}\n\n{said}\n\n{table}\n\n{end}\n"


def hold(claim: bool | np.bool_) -> None:
    """``ValueError`` where the boards no longer bear what is written."""
    if not claim:
        raise ValueError("the boards no longer bear this finding: write it anew")


def span(values: object) -> str:
    """The smallest and the largest of some numbers."""
    flat = np.ravel(np.asarray(values, float))
    return " to ".join(dict.fromkeys((three(float(flat.min())), three(float(flat.max())))))


def _long_chains(x: pd.DataFrame, board: Board) -> str:
    long, short = x.loc[["adjusted-mclmc-4", "nuts-4"]], x.loc["nuts"]
    hold((long <= NEAR).all(axis=None) and (short > NEAR).sum() >= 2 and (x.loc["map"] > 3).all())
    return (
        f"Four long chains are near the posterior of a network's predictions on all three sets ({span(long)}); twenty chains of "
        f"the same total are not on {int((short > NEAR).sum())} of the three (nuts: {span(short)}). The mode alone (map) is at "
        f"{span(x.loc['map'])}."
    )


def _likelihood(x: pd.DataFrame, board: Board) -> str:
    first = board.medians("nll", board.rows["label"].unique(), x.columns).idxmin()
    ratios = board.over_floor(["deep-ensemble"], x.columns).loc["deep-ensemble"]
    hold((first == "deep-ensemble").all() and (ratios > NEAR).all())
    return (
        f"Of all methods of the board a deep ensemble has the lowest negative log likelihood on each of the three sets, and its "
        f"predictions are {span(ratios)} times as far from the exact posterior's as exact draws. Likelihood ranks predictors, not "
        f"samplers."
    )


def _repulsion(x: pd.DataFrame, board: Board) -> str:
    worse = [t for t in x.columns if x.loc["srld", t] > x.loc["ld", t]]
    hold(len(worse) == 2)
    other = next(t for t in x.columns if t not in worse)
    return (
        f"Both tuned alike, repulsion (srld) takes predictions further from the posterior than the same chain without it (ld) on "
        f"{' and '.join(worse)}, and nearer on {other}: {three(x.loc['srld', other])} against {three(x.loc['ld', other])}."
    )


def _beyond_exact(x: pd.DataFrame, board: Board) -> str:
    single, mixture = ["multimodal", "x-shaped", "correlated-2d"], ["gmm5-2d", "gmm2-20d"]
    hold((x.loc["gfsf", single] < 0.6).all() and (x.loc["gfsf", mixture] > 2).all())
    weights = board.medians("mode_weight_tv", ["gfsf", "exact"], mixture)
    hold((weights.loc["gfsf"] > 2 * weights.loc["exact"]).all())
    return (
        f"A hundred interacting particles represent a law in the plane better than a hundred exact draws: gfsf is at "
        f"{span(x.loc['gfsf', single])} on {', '.join(single)}. On mixtures whose modes are separate it is at "
        f"{span(x.loc['gfsf', mixture])}, and the weights of its modes are wrong by {span(weights.loc['gfsf'])} in total variation "
        f"(exact draws: {span(weights.loc['exact'])}); parallel-tempering is at {span(x.loc['parallel-tempering'])} on all five."
    )


def _tuning(x: pd.DataFrame, board: Board) -> str:
    cells = board.cells[board.cells["tuning_evaluations"].notna()]
    times = cells["tuning_evaluations"] / cells["score_evaluations"]
    hold((x.loc["adjusted-mclmc"] <= 2.1).all() and times.median() > 5)
    return (
        f"A step size that is searched for on a grid costs {three(times.median())} times the run itself (median of {len(times)} "
        f"cells). Methods that tune themselves within their budget need none of it: adjusted-mclmc is at "
        f"{span(x.loc['adjusted-mclmc'])}, tuned mala at {span(x.loc['mala'])}."
    )


def _nuts_fails(x: pd.DataFrame, board: Board) -> str:
    nuts, smc = x.loc["nuts"], x.loc["smc"]
    good, bad = ["gmm5-2d", "diffusion-50"], ["funnel-10d"]
    hold((nuts > 2).all() and (smc[good] < NEAR).all() and (smc[bad] > nuts[bad]).all() and (x[bad] > 2).all(axis=None))
    judged = board.cells[board.cells["label"] == "nuts"]
    passed = int((judged["verdict"] == "indistinguishable").sum())
    return (
        f"With two thousand evaluations a chain NUTS cannot be told from exact draws on {passed} of {len(judged)} targets. It "
        f"fails on a narrow curve, on separate modes, on a varying scale and on a path with two ways to go: {span(nuts)} times the "
        f"floor. smc is at {span(smc[good])} on {' and '.join(good)}; on {bad[0]} it is worse than NUTS, and the nearest of these, "
        f"{x[bad[0]].idxmin()}, is at {three(x[bad[0]].min())}."
    )


def _base(x: pd.DataFrame, board: Board) -> str:
    plane, wide = x.loc[["smc", "parallel-tempering"], "gmm40-2d"], x.loc[["smc-wide", "tempering-wide"]]
    own, far = x.loc["smc", "gmm40-50d"], x.loc["tempering-wide", "gmm40-50d"]
    others = ["brownian-32", "phi4-100", "student-mixture-50d"]
    hold((plane <= NEAR).all() and far <= NEAR and own > 3 and (wide[others] > 3).all(axis=None))
    return (
        f"Annealed methods find the modes that their base covers. In the plane a base fitted in a warm-up does: smc and "
        f"parallel-tempering are at {span(plane)} on gmm40-2d. In fifty dimensions smc is at {three(own)} from it, and tempering from a "
        f"base as wide as the target (tempering-wide) at {three(far)}. On {', '.join(others)} the wide base is at "
        f"{three(float(wide[others].min(axis=None)))} or more."
    )


def _log_z(x: pd.DataFrame, board: Board) -> str:
    claimed = board.medians("log_z_se", x.index, x.columns)
    good, jump = ["gmm40-2d", "pines-900"], "phase-transition-20d"
    hold((x.loc["smc", good] < 0.3).all() and (x.loc[["smc", "parallel-tempering"], jump] > 20 * 0.1).all())
    hold(x.loc["parallel-tempering", "brownian-32"] > 20 * claimed.loc["parallel-tempering", "brownian-32"])
    return (
        f"smc is off by {span(x.loc['smc', good])} nats on gmm40-2d and on the log Gaussian Cox process of the Finnish pines in 900 "
        f"dimensions. Across a first-order phase transition both annealed estimates are {span(x.loc[['smc', 'parallel-tempering'], jump])} "
        f"nats off and state an error of {span(claimed.loc[['smc', 'parallel-tempering'], jump])}; parallel-tempering on brownian-32 is "
        f"{three(x.loc['parallel-tempering', 'brownian-32'])} off and states {three(claimed.loc['parallel-tempering', 'brownian-32'])}."
    )


def _open(x: pd.DataFrame, board: Board) -> str:
    every = board.over_floor(board.cells["label"][board.cells["rank"].notna()].unique(), x.columns)
    mmd = board.medians("mmd2", ["svgd", "initial", "pathfinder"], ["phase-transition-20d"]).iloc[:, 0]
    hold((every > NEAR).all(axis=None) and mmd["initial"] > mmd["svgd"] > 0.9 * mmd["initial"])
    told = " and ".join(f"{every[task].idxmin()} is first on {task}, at {three(every[task].min())}" for task in x)
    return (
        f"None of {len(every)} methods is near on these: {told}. By squared MMD svgd is hardly nearer there than the start "
        f"({three(mmd['svgd'])} and {three(mmd['initial'])}); pathfinder is at {three(mmd['pathfinder'])}."
    )


def _ladder(x: pd.DataFrame, board: Board) -> str:
    chains = x.loc[["sghmc-1", "ld"]]
    hold((x.loc["nuts", "diffusion-50"] > 5) and (chains["diffusion-50"] < NEAR).all())
    return (
        f"One chain of all evaluations mixes where a hundred short ones do not: sghmc-1 and ld are at "
        f"{span(chains['diffusion-50'])} on diffusion-50, which nuts (hundred chains) leaves at "
        f"{three(x.loc['nuts', 'diffusion-50'])}; on blr-breast-cancer both ways are near ({span(x['blr-breast-cancer'])})."
    )


def _regressions(x: pd.DataFrame, board: Board) -> str:
    ranked = board.cells[board.cells["rank"].notna()]["label"].unique()
    first = board.medians("nll", ranked, x.columns).idxmin().value_counts()
    stuck = x.columns[(x.loc["initial"] - x.loc["nuts"] < 0.2) & (x.loc["initial"] - x.loc["svgd"] > 0.2)]
    hold(list(first.index[:2]) == ["deep-ensemble", "sghmc-1"] and len(stuck) >= 3)
    moving = board.cells["convergence"].isin(["transient", "still improving"]).mean()
    return (
        f"Of {len(ranked)} methods the lowest negative log likelihood of test rows is that of "
        f"{', '.join(f'{label} on {n}' for label, n in first.items())} of ten sets. For nuts, each of whose steps is a pass over all "
        f"rows, the passes that the others have end within 0.2 of the start on {', '.join(stuck)}. {moving:.0%} of the cells are transient or "
        f"still improving."
    )


def _models(x: pd.DataFrame, board: Board) -> str:
    tasks = sorted(board.rows["task"].unique())
    every = board.over_floor(x.index, tasks).assign(**{task: x[task] for task in x})
    near = (every <= NEAR).sum(axis=1)
    own = ["nuts", "nuts-dense", "adjusted-mclmc"]
    hold((near[own] == len(tasks) - 1).all())
    first = ", ".join(f"{m} (all but {every.loc[m].idxmax()}, {three(every.loc[m].max())})" for m in own)
    ran = int(every.loc[["numpyro-nuts", "blackjax-nuts"]].notna().all().sum())
    others = ", ".join(f"{label} on {near[label]}" for label in ("meads", "chees-hmc", "smc", "pathfinder", "laplace"))
    return (
        f"Four chains of 60,000 evaluations from Stan's start, their warm-up included, are near on {len(tasks) - 1} of {len(tasks)} "
        f"posteriors: {first}. For as many evaluations, {others}. NUTS of NumPyro and of BlackJAX, whose chains adapt each by itself, in a "
        f"quarter of the budget, is near on {near['numpyro-nuts']} and on {near['blackjax-nuts']} of the {ran} on which both were run."
    )


def _starts(x: pd.DataFrame, board: Board) -> str:
    near = x.loc[["meads-pathfinder", "nuts", "nuts-pathfinder"]] <= NEAR
    hold((x.loc["meads"] > 100).all() and near.all(axis=None))
    return (
        f"On regressions in raw units MEADS, which has no warm-up, hardly leaves Stan's start ({span(x.loc['meads'])}); from draws of "
        f"Pathfinder it is at {span(x.loc['meads-pathfinder'])}. NUTS needs no such start: {span(x.loc['nuts'])} without, "
        f"{span(x.loc['nuts-pathfinder'])} with it, {span(x.loc['nuts-warm'])} from a reference draw."
    )


def _gold_draws(x: pd.DataFrame, board: Board) -> str:
    tasks = sorted(board.rows["task"].unique())
    every = board.over_floor(x.index, tasks)
    near, passed = (every <= NEAR).sum(axis=1), board.cells["verdict"] == "indistinguishable"
    passed = board.cells[passed].groupby("label").size()
    spent = board.rows[board.rows["reached"].notna()].groupby(["label", "task"])["reached"].median()
    spent = spent.groupby("label").median()
    nobody = [f"{t} ({every[t].idxmin()} {three(every[t].min())})" for t in tasks if every[t].min() > NEAR]
    hold(near["nuts"] > len(tasks) / 2 and near["meads"] < near["nuts"] and near.max() < len(tasks) and not nobody)
    unknown = board.cells[board.cells["marks"].str.contains("convergence unknown", na=False)].groupby("label").size()
    on = {label: f"{label} on {near[label]} (indistinguishable on {passed.get(label, 0)})" for label in x.index}
    long = on.pop("stan-nuts-long")
    told = ", ".join(on.values())
    return (
        f"Of the {len(tasks)} posteriors, from Stan's start and with 60,000 evaluations, near are {told}; with 240,000 {long}. Where they come near, nuts needs "
        f"{spent['nuts']:,.0f} evaluations in the median, pathfinder {spent['pathfinder']:,.0f}, laplace {spent['laplace']:,.0f}. "
        f"The convergence of stan-nuts is unknown on {unknown['stan-nuts']} ({unknown['stan-nuts-long']} with 240,000): where its "
        "warm-up does not end within the budget, its start is judged."
    )


FINDINGS = (
    Finding(
        "A model of a probabilistic program", "models",
        ("nuts", "adjusted-mclmc", "nuts-dense", "numpyro-nuts", "blackjax-nuts", "meads", "chees-hmc", "smc", "pathfinder", "laplace"),
        ("eight-schools-centered", "garch11", "dogs", "kidscore", "mesquite", "diamonds"), _models,
        "posteriors of at most some thirty dimensions with one mode; near is not indistinguishable, which fewer are; users of NumPyro "
        "and BlackJAX often warm up for 500 transitions or more, here for 200 at most.",
    ),
    Finding(
        "Posteriors with gold draws: some method is near on each, none on all", "posteriordb",
        ("nuts", "adjusted-mclmc", "stan-nuts", "stan-nuts-long", "chees-hmc", "meads", "pathfinder", "laplace"),
        (
            "arma-arma11", "garch-garch11", "eight_schools-eight_schools_centered", "gp_pois_regr-gp_pois_regr",
            "kidiq-kidscore_momhsiq", "earnings-logearn_height", "earnings-earn_height", "kilpisjarvi_mod-kilpisjarvi",
        ),
        _gold_draws,
        "four times the evaluations end more warm-ups; Stan's own is made for 1,000 transitions, whatever they cost.",
    ),
    Finding(
        "What a start is worth", "models", ("meads", "meads-pathfinder", "nuts", "nuts-pathfinder", "nuts-warm"),
        ("kidscore", "mesquite", "nes1996", "sblri", "wells"), _starts,
        "scaled predictors would do the same; on the centred eight schools Pathfinder's paths climb into the funnel and spend the budget.",
    ),
    Finding(
        "A network's posterior: few long chains", "uci-posterior",
        ("adjusted-mclmc-4", "nuts-4", "nuts", "sghmc-1", "mean-field", "map"), ("bnn-boston", "bnn-wine-red", "bnn-yacht"), _long_chains,
        "three sets with one hidden layer, three splits each, forty thousand passes over the data: more than practice spends.",
    ),
    Finding(
        "The best likelihood is not the nearest posterior", "uci-posterior",
        ("deep-ensemble", "adjusted-mclmc-4", "nuts-4", "ld", "svgd"), ("bnn-boston", "bnn-wine-red", "bnn-yacht"), _likelihood,
        "who wants predictions only may take the ensemble.", metric="nll",
    ),
    Finding(
        "Repulsion helps a chain on one set of three", "uci-posterior",
        ("srld", "srld-at-ld", "ld"), ("bnn-boston", "bnn-wine-red", "bnn-yacht"), _repulsion,
        "step sizes are chosen by likelihood, as in the paper, not by this distance.",
    ),
    Finding(
        "In the plane particles beat exact draws, until modes are separate", "toy",
        ("gfsf", "mied", "svgd", "parallel-tempering"), ("correlated-2d", "multimodal", "x-shaped", "gmm5-2d", "gmm2-20d"), _beyond_exact,
        "the distance rewards even spacing; expectations of functions that oscillate gain less.",
    ),
    Finding(
        "What tuning costs", "toy", ("adjusted-mclmc", "meads", "mala", "sgld"),
        ("banana", "correlated-2d", "gmm2-20d", "gmm5-2d", "multimodal", "x-shaped"), _tuning,
        "a step size found once serves for many runs of one model.",
    ),
    Finding(
        "Where NUTS fails", "exactness", ("nuts", "adjusted-mclmc", "meads", "smc", "parallel-tempering"),
        ("banana", "gmm5-2d", "funnel-10d", "diffusion-50"), _nuts_fails,
        "a thousand chains of two thousand evaluations; four chains with all of them mix within a mode, not between modes.",
    ),
    Finding(
        "Annealing is as good as its base", "multimodal", ("smc", "smc-wide", "parallel-tempering", "tempering-wide"),
        ("gmm40-2d", "gmm40-50d", "brownian-32", "phi4-100", "student-mixture-50d"), _base,
        "who knows the width of a target knows much of it.",
    ),
    Finding(
        "log Z: a small stated error is no proof", "multimodal", ("smc", "parallel-tempering", "pathfinder"),
        ("gmm40-2d", "pines-900", "phase-transition-20d", "brownian-32"), _log_z,
        "other methods and replicates that disagree would tell; the pines' value is that of published runs.", metric="log_z_error",
    ),
    Finding(
        "What nobody samples yet", "multimodal",
        ("nuts", "chees-hmc", "mala", "smc", "parallel-tempering", "svgd", "full-rank", "iaf", "realnvp", "pathfinder"),
        ("many-well-32", "phase-transition-20d"), _open, "two thousand evaluations a point; flows have their default sizes.",
    ),
    Finding(
        "One long chain or many short ones", "posteriors", ("sghmc-1", "ld", "nuts", "adjusted-mclmc"),
        ("diffusion-50", "diffusion-100", "blr-waveform", "blr-breast-cancer"), _ladder,
        "the long chains' steps were tuned; nuts tunes itself.",
    ),
    Finding(
        "Who predicts best on ten regressions", "uci", ("deep-ensemble", "sghmc-1", "ld", "map", "svgd", "ksivi", "nuts", "initial"),
        ("bnn-boston", "bnn-concrete", "bnn-energy", "bnn-kin8nm", "bnn-naval", "bnn-power", "bnn-protein", "bnn-wine-red", "bnn-wine-white", "bnn-yacht"), _regressions,
        "networks with one hidden layer and a budget in passes; longer chains may still gain.", metric="nll",
    ),
)  # fmt: skip


def page(reports: Path) -> str:
    """The whole page."""
    boards = {name: Board(reports / name) for name in dict.fromkeys(finding.board for finding in FINDINGS)}
    return "\n".join([HEAD, *(finding.text(boards[finding.board]) for finding in FINDINGS)])


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(page(Path(sys.argv[1])), encoding="utf-8")
