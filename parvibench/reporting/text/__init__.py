"""Sentences that several parts of a report share or that it assembles: from numbers and names to text."""
