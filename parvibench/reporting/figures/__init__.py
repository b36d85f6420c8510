"""Figures of the page: each function returns drawings, which hold their images and their data."""
