"""Published results, one folder per suite; the wheel ships each results.parquet."""
