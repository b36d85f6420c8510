"""``python -m parvibench``: the command line."""

from parvibench.cli import main

if __name__ == "__main__":
    main()
