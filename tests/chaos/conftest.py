"""A real MLflow server and a real MLflow database for each test."""

from tests.tracking.conftest import server, servers, store

__all__ = ["server", "servers", "store"]
