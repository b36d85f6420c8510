"""Credentials of addresses stay out of what is shown, whatever characters they hold."""

import pytest

from parvibench.harness.store.secrets import of_address, shown_address, without_secrets

#: Address -> as it is shown; "hunter2" is part of every secret.
ADDRESSES = {
    "http://user:hunter2@host:5000": "http://host:5000",
    "https://host/path?api_key=hunter2": "https://host/path",
    "https://host/path?x=hunter2&token=a": "https://host/path",
    "https://host/#hunter2": "https://host/",
    "postgresql://user:hun/ter2hunter2@host/db": "postgresql://host/db",
    "postgresql://user:hunter2@x@host/db": "postgresql://host/db",
    "postgresql+psycopg2://user:hunter2%40@host:5432/db?sslmode=require": "postgresql+psycopg2://host:5432/db",
    "mysql+pymysql://:hunter2@host/db": "mysql+pymysql://host/db",
    "mysql://user:hunter2?x@host/db": "mysql://host/db",
    "mysql://user:hunter2#x@host/db": "mysql://host/db",
    "mssql://user:hun:ter2hunter2@host/db?driver=ODBC": "mssql://host/db",
    "http://hunter2@host": "http://host",
    "sqlite:////home/me/a@b/mlflow.db?key=hunter2": "sqlite:////home/me/a@b/mlflow.db",
    "sqlite+pysqlcipher://:hunter2@/file.db": "sqlite+pysqlcipher:///file.db",
}


@pytest.mark.parametrize(("uri", "shown"), ADDRESSES.items())
def test_an_address_is_shown_without_credentials(uri: str, shown: str) -> None:
    assert shown_address(uri) == shown
    text = without_secrets(f"cannot reach {uri}, trying again")
    assert "hunter2" not in text
    assert text.startswith("cannot reach ")


@pytest.mark.parametrize("uri", ADDRESSES)
@pytest.mark.parametrize(
    "message", ["cannot reach {}", "could not translate host name {rest}", "OperationalError: user {user}"]
)
def test_messages_of_drivers_lose_all_parts_of_the_credentials(uri: str, message: str) -> None:
    """Drivers quote what they took for the host, the user or the password, which need not be what it is."""
    rest = uri.partition("://")[2]
    text = of_address(message.format(uri, rest=rest, user=rest.rpartition("@")[0]), uri)
    assert "hunter2" not in text


@pytest.mark.parametrize(
    "text", ["sqlite:///runs/mlflow.db", "databricks", "/a/folder", "a sentence: with = signs @ all"]
)
def test_what_holds_no_secret_stays(text: str) -> None:
    assert without_secrets(text) == text


@pytest.mark.parametrize(
    "text", ["MLFLOW_TRACKING_TOKEN=hunter2", "--password hunter2", "api_key: hunter2", "AWS_SECRET=hunter2;x"]
)
def test_named_secrets_are_cut(text: str) -> None:
    assert "hunter2" not in without_secrets(text)
