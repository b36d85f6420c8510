"""What every command needs before it runs anything: defaults, places of outputs, numbers as text."""

from parvibench.harness.execution import DEFAULT_STORE as DEFAULT_STORE
from parvibench.harness.execution import DEFAULT_TIMEOUT_S as DEFAULT_TIMEOUT_S
from parvibench.harness.execution import Execution as Execution
from parvibench.harness.store.files import output_place as output_place
from parvibench.reporting.formatting import count as count
from parvibench.reporting.formatting import interval as interval
from parvibench.reporting.formatting import number as number
