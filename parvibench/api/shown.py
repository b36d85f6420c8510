"""How results are shown: on a terminal, as LaTeX, figure by figure, and beside published ones."""

from parvibench.reporting.doubts import doubts as doubts
from parvibench.reporting.facts.against import beside as beside
from parvibench.reporting.facts.against import published as published
from parvibench.reporting.page.report_files import write_figure as write_figure
from parvibench.reporting.page.reports_index import write_index as write_index
from parvibench.reporting.page.text_tables import print_leaderboard as print_leaderboard
from parvibench.reporting.page.text_tables import to_latex as to_latex
