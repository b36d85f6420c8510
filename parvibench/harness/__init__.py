"""From a suite file to finished cells: expansion, execution, storage, tuning."""
