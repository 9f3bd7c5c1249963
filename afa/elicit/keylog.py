"""Keeping an endpoint's key out of the logs of the packages that carry it, should the endpoint send it back."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from afa.elicit.endpoint import Endpoint

CARRIERS = ("openai", "httpx", "httpcore")


@dataclass(frozen=True)
class _Redacting:
    """A filter of log records, added once for each endpoint and key."""

    endpoint: Endpoint
    of_key: int

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        redacted = self.endpoint.redacted(message)
        if redacted != message:
            record.msg, record.args = redacted, None
        return True


def keep_out_of_logs(endpoint: Endpoint) -> None:
    """Redact what the carriers' loggers write; at DEBUG they show the headers of replies, though none of requests."""
    redacting = _Redacting(endpoint, hash(endpoint.key))
    for name, logger in list(logging.Logger.manager.loggerDict.items()):
        if name.startswith(CARRIERS) and isinstance(logger, logging.Logger):
            logger.addFilter(redacting)
