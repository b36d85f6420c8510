"""The command line: parses arguments, calls ``parvibench.api``, prints. Results go to stdout, messages to stderr."""

import errno
import sys
from typing import Annotated, NoReturn

import typer

from parvibench.core.errors import DataMissingError, DiskError, ParVIBenchError, RefusedError, printable
from parvibench.harness.workers.interrupts import ended_in_order

from . import checking, evaluation, lookup, references, running, sharing
from .shared import EXIT_FAILED, EXIT_USAGE, note

app = typer.Typer(
    name="parvibench",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Benchmark samplers of unnormalised densities: metered budgets, certified references, calibrated verdicts.",
    epilog="First run: `parvibench run --suite quick`",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for group in (running, checking, evaluation, lookup, sharing):
    app.add_typer(group.app)
app.add_typer(lookup.data, name="data")
app.add_typer(references.app, name="reference")


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"parvibench {version('parvibench')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


#: A disk that is full, over its quota, read-only, not ours or failing.
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}


def main() -> NoReturn:
    """Entry point: user errors become one message and exit code 2, missing data and full disks exit code 1."""
    try:
        with ended_in_order():
            code = app(standalone_mode=False)
    except ParVIBenchError as error:
        note(f"parvibench: {error}", style="red")
        sys.exit(EXIT_FAILED if isinstance(error, DataMissingError | DiskError | RefusedError) else EXIT_USAGE)
    except OSError as error:
        if error.errno not in _DISK:
            raise
        place = f"{error.filename}: " if error.filename else ""
        note(f"parvibench: {place}cannot write ({error.strerror}); what was finished stands", style="red")
        sys.exit(EXIT_FAILED)
    except typer.Exit as error:  # raised by callbacks that run before a command
        sys.exit(error.exit_code)
    except typer.Abort:  # a prompt without an answer
        note("parvibench: aborted, nothing was written (--yes writes without asking)", style="red")
        sys.exit(EXIT_USAGE)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        error.message = printable(str(error.message))  # type: ignore[attr-defined]
        error.show()  # type: ignore[attr-defined]
        sys.exit(EXIT_USAGE)
    sys.exit(code if isinstance(code, int) else 0)
