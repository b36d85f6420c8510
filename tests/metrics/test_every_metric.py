"""What every metric owes: a test against a known answer, and a floor or a reason for none.

A new metric gets a line in ``KNOWN_ANSWERS``: the test that compares it with a closed form, a hand computation or another
program.
"""

import re
from pathlib import Path

import pytest

from parvibench.core import registry

#: Metric -> file of this folder, and the test in it.
KNOWN_ANSWERS = {
    "sliced_w2": "test_transport.py::test_a_shift_of_the_reference_itself",
    "w2": "test_transport.py::test_w2_agrees_with_pot",
    "w1": "test_transport.py::test_w1_agrees_with_scipy",
    "w2sq_window_5": "test_transport.py::test_only_the_window_counts",
    "w2sq_window_8": "test_transport.py::test_only_the_window_counts",
    "w2sq_window_10": "test_transport.py::test_only_the_window_counts",
    "mmd2": "test_mmd.py::test_against_whole_kernel_matrices",
    "mmd2_u": "test_mmd.py::test_against_whole_kernel_matrices",
    "mmd2_u_fixed": "test_mmd.py::test_against_whole_kernel_matrices",
    "energy_distance": "test_energy.py::test_agrees_with_scipy_in_one_dimension",
    "kl_knn": "test_divergence.py::test_agrees_with_sklearn",
    "kl_projected": "test_projected.py::test_a_wrong_law_along_the_line_agrees_with_quadrature",
    "c2st": "test_classifier.py::test_exact_draws_are_guessed",
    "ks_marginal": "test_moments_and_modes.py::test_marginals_agree_with_scipy",
    "w1_marginal": "test_moments_and_modes.py::test_marginals_agree_with_scipy",
    "mean_error": "test_moments_and_modes.py::test_errors_are_in_units_of_the_target",
    "sd_error": "test_moments_and_modes.py::test_errors_are_in_units_of_the_target",
    "worst_coordinate": "test_moments_and_modes.py::test_the_worst_coordinate_by_hand",
    "correlation_error": "test_moments_and_modes.py::test_correlations_against_numpy",
    "modes_found": "test_moments_and_modes.py::test_a_mode_needs_two_percent_within_three_sds",
    "mode_weight_tv": "test_moments_and_modes.py::test_mode_weights_by_hand",
    "tail_error": "test_tails.py::test_it_is_its_definition",
    "ksd": "test_stein.py::test_against_autograd",
    "amari": "test_unmixing.py::test_against_loops",
    "ess_bulk": "test_chains.py::test_ess_of_an_autoregression_is_not_cut_at_its_length",
    "ess_tail": "test_chains.py::test_tail_sizes_of_independent_draws",
    "ess_autocorrelation": "test_chains.py::test_size_by_autocorrelations_of_an_autoregression",
    "ess_per_evaluation": "test_chains.py::test_rates_divide_the_bulk_size",
    "ess_per_second": "test_chains.py::test_rates_divide_the_bulk_size",
    "autocorrelation": "test_chains.py::test_chains_apart_are_correlated_and_stuck_ones_fully",
    "rhat": "test_chains.py::test_nested_rhat_is_the_papers_formula",
    "path_primary": "test_whole_path.py::test_equivalent_n_of_independent_and_of_repeated_states",
    "path_equivalent_n": "test_whole_path.py::test_equivalent_n_of_independent_and_of_repeated_states",
    "rmse": "test_predictive.py::test_against_the_mixture_written_out",
    "nll": "test_predictive.py::test_against_the_mixture_written_out",
    "crps": "test_predictive.py::test_one_normal_prediction_has_closed_forms",
    "coverage": "test_predictive.py::test_one_normal_prediction_has_closed_forms",
    "predictive_mean_error": "../reference/test_predictive_reference.py::test_errors_are_in_units_of_the_certified_sd",
    "predictive_sd_error": "../reference/test_predictive_reference.py::test_errors_are_in_units_of_the_certified_sd",
    "predictive_w2": "test_certified_predictions.py::test_a_posterior_moved_by_a_known_amount_has_the_distances_that_theory_gives",
    "predictive_nll_error": "test_certified_predictions.py::test_a_posterior_moved_by_a_known_amount_has_the_distances_that_theory_gives",
    "predictive_coverage_error": "test_certified_predictions.py::test_collapsed_and_spread_samples_are_apart",
    "regret": "test_decisions_and_motion.py::test_regret_by_hand",
    "regret_percent": "test_decisions_and_motion.py::test_regret_by_hand",
    "contexts": "test_decisions_and_motion.py::test_regret_by_hand",
    "displacement": "test_decisions_and_motion.py::test_displacement_by_hand",
    "acceptance": "test_decisions_and_motion.py::test_reports_are_passed_on_under_their_own_names",
    "divergences": "test_decisions_and_motion.py::test_reports_are_passed_on_under_their_own_names",
    "tree_depth": "test_decisions_and_motion.py::test_reports_are_passed_on_under_their_own_names",
    "refit_loss": "test_decisions_and_motion.py::test_reports_are_passed_on_under_their_own_names",
    "log_z": "../baselines/test_annealed_smc.py::test_log_z_of_a_gaussian_within_its_standard_error",
    "log_z_se": "../baselines/test_annealed_smc.py::test_log_z_of_a_gaussian_within_its_standard_error",
    "log_z_doubt": "../baselines/test_annealed_smc.py::test_few_ancestors_put_log_z_in_doubt",
    "log_z_deviation": "test_decisions_and_motion.py::test_errors_of_log_z_are_absolute",
    "log_z_error": "test_decisions_and_motion.py::test_errors_of_log_z_are_absolute",
    "seconds": "test_chains.py::test_costs_are_those_recorded",
    "score_evaluations": "test_chains.py::test_costs_are_those_recorded",
    "peak_memory": "test_chains.py::test_costs_are_those_recorded",
}


@pytest.mark.parametrize("name", registry.metrics())
def test_a_known_answer_is_tested(name: str) -> None:
    place = KNOWN_ANSWERS.get(name, "")
    assert place, f"add {name} to KNOWN_ANSWERS in {__file__}, with the test that compares it with a known answer"
    file, _, test = place.partition("::")
    source = (Path(__file__).parent / file).read_text("utf-8")
    assert re.search(rf"^def {test}\(", source, flags=re.M), f"KNOWN_ANSWERS[{name!r}]: there is no {place}"


def test_the_known_answers_are_of_registered_metrics() -> None:
    assert set(KNOWN_ANSWERS) <= set(registry.metrics())
