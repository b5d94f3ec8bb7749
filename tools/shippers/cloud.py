"""Sends an event with the CloudEvents SDK for Python in each mode; reads events as CloudEvents from standard input with it, and prints their types."""

import os
import sys
import urllib.request

from cloudevents.core.bindings.http import to_binary, to_structured
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent


def send(message):
    headers = {**message.headers, "Authorization": "Bearer " + os.environ["SEALOG_API_KEY"]}
    url = os.environ["SEALOG_URL"] + "/ingest/cloudevents"
    with urllib.request.urlopen(urllib.request.Request(url, message.body, headers)) as answer:
        assert answer.status == 202, answer.status


def event(mode):
    attributes = {
        "specversion": "1.0",
        "id": "a-" + mode,
        "source": "/shop",
        "type": "user.login",
        "subject": "session/ü 1",
        "datacontenttype": "application/json",
        "authtype": "user",
        "authid": "u-" + mode,
    }
    return CloudEvent(attributes, {"method": "sso", "é": [1, None]})


if sys.argv[1:] == ["read"]:
    for line in sys.stdin:
        read = JSONFormat().read(CloudEvent, line)
        print(read.get_type(), read.get_source(), read.get_data()["hash"])
else:
    send(to_structured(event("structured"), JSONFormat()))
    send(to_binary(event("binary"), JSONFormat()))
