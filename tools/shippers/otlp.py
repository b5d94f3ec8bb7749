"""Sends audit records with the OpenTelemetry SDK for Python: URL and key from the environment, compression as the argument."""

import os
import sys

from opentelemetry._logs import SeverityNumber
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.resources import Resource

exporter = OTLPLogExporter(
    endpoint=os.environ["SEALOG_URL"] + "/ingest/otlp/v1/logs",
    headers={"Authorization": "Bearer " + os.environ["SEALOG_API_KEY"]},
    compression=Compression(sys.argv[1]),
)
provider = LoggerProvider(resource=Resource.create({"service.name": "shop"}))
provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
logger = provider.get_logger("shop.audit", "1.2")
for number in range(3):
    logger.emit(
        timestamp=1_794_657_601_250_000_000 + number,
        severity_number=SeverityNumber.WARN,
        body="signed in",
        attributes={
            "audit.action": "user.login",
            "audit.actor": "u-%d" % number,
            "audit.resource": "session/1",
            "n": number,
            "tags": ["a", "é"],
            "ok": True,
        },
    )
# What is no audit record is rejected by itself.
logger.emit(severity_number=SeverityNumber.INFO, body="cache is warm")
provider.shutdown()
