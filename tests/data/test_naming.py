"""Names of columns against names that are wanted: a permutation, or both lists."""

import pytest

from parvibench.data.draws.naming import match

LONG = "p" * 300

#: Found, wanted, which found column is each wanted one, and what is said.
MATCHED: dict[str, tuple[list[str], list[str], list[int], str]] = {
    "the same": (["mu", "tau"], ["mu", "tau"], [0, 1], "by name"),
    "another order": (["tau", "mu"], ["mu", "tau"], [1, 0], "by name"),
    "brackets and points": (["theta.2", "theta.1"], ["theta[1]", "theta[2]"], [1, 0], "by name"),
    "from 0 and from 1": (["a[0]", "a[1]", "mu"], ["mu", "a[1]", "a[2]"], [2, 0, 1], "counted from"),
    "from 0 and in another order": (["a[1]", "a[0]"], ["a[1]", "a[2]"], [1, 0], "counted from"),
    "matrices by columns": (["L.1.1", "L.2.1", "L.1.2", "L.2.2"], ["L[0,0]", "L[0,1]", "L[1,0]", "L[1,1]"], [0, 2, 1, 3], "counted from"),
    "pandas' tuples": (["('mu', '')", "('theta', 1)", "('theta', 0)"], ["theta[0]", "theta[1]", "mu"], [2, 1, 0], "by name"),
    "labels": (["theta[Deerfield]", "theta[Choate]"], ["theta[Choate]", "theta[Deerfield]"], [1, 0], "by name"),
    "more columns": (["mu", "log_lik[1]", "log_lik[2]", "tau"], ["tau", "mu"], [3, 0], "left out: log_lik[1], log_lik[2]"),
    "no names": ([], ["mu", "tau"], [0, 1], "by place"),
    "nothing wanted": (["mu", "tau"], [], [0, 1], "by place"),
    "R's default names": (["V1", "V2"], ["mu", "tau"], [0, 1], "by place"),
    "one component": (["mu[1]", "tau"], ["tau", "mu"], [1, 0], "by name"),
    "300 characters": ([LONG + "b", LONG + "a"], [LONG + "a", LONG + "b"], [1, 0], "by name"),
    "spaces": ([" tau", "mu "], ["mu", "tau"], [1, 0], "by name"),
    "round brackets": (["x(2)", "x(1)"], ["x[1]", "x[2]"], [1, 0], "by name"),
    "two brackets": (["x[1][0]", "x[0][0]"], ["x[1,1]", "x[2,1]"], [1, 0], "counted from"),
    "underscores": (["beta_2", "beta_1", "s_y"], ["s_y", "beta[1]", "beta[2]"], [2, 1, 0], "by name"),
    "ArviZ's groups": (["('posterior', 'tau')", "('sample_stats', 'lp')", "('posterior', 'mu')"], ["mu", "tau"], [2, 0], "left out"),
    "a range of integers": (["0", "1", "2"], ["a", "b", "c"], [0, 1, 2], "by place"),
}  # fmt: skip

REFUSED: dict[str, tuple[list[str], list[str], str]] = {
    "others": (["a", "b"], ["mu", "tau"], r"the samples have a, b; the reference has mu, tau"),
    "one of them": (["mu", "sigma"], ["mu", "tau"], r"the samples have mu, sigma; the reference has mu, tau"),
    "too few": (["mu"], ["mu", "tau"], r"the samples have mu; the reference has mu, tau"),
    "other components": (["t[2]", "t[3]"], ["t[1]", "t[2]"], r"the samples have t\[2\], t\[3\]"),
    "more components": (["t[1]", "t[2]", "t[3]"], ["t[1]", "t[2]"], r"more components of t"),
    "many": ([f"a{i}" for i in range(90)], [f"b{i}" for i in range(90)], r"a5, \.\.\. \(90\); the reference has b0"),
    "300 characters": ([LONG], ["mu"], r"the samples have p{20,50}\.\.\.; the reference has mu"),
    "capitals": (["Mu", "tau"], ["mu", "tau"], "Mu, tau"),
    "two columns for one": (["mu[1]", "mu.1", "tau"], ["mu[1]", "tau"], "two columns"),
    "default names in another order": (["V2", "V1"], ["mu", "tau"], "V2, V1"),
    "mixed beginnings": (["a[0]", "b[1]"], ["a[1]", "b[1]"], r"the samples have a\[0\], b\[1\]"),
}  # fmt: skip


@pytest.mark.parametrize("kind", MATCHED)
def test_names_decide(kind: str) -> None:
    found, wanted, order, said = MATCHED[kind]
    matched = match(found, wanted, "the samples", "the reference", len(found) or len(wanted))
    assert matched[0] == order
    assert said in matched[1]


@pytest.mark.parametrize("kind", REFUSED)
def test_names_that_do_not_match_are_refused_with_both_lists(kind: str) -> None:
    found, wanted, told = REFUSED[kind]
    with pytest.raises(ValueError, match=told) as refused:
        match(found, wanted, "the samples", "the reference", len(found))
    assert len(str(refused.value)) < 700
    assert "\n" not in str(refused.value)
