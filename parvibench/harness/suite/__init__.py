"""Suites, the cells they expand to, and tuned step sizes."""
