"""The MLflow mirror; the only package that talks to MLflow."""
