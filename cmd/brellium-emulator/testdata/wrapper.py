"""Calls the emulator by the rules of the API guide's wrapper.

A token bucket of 100 that refills by 5 a second; up to 5 attempts in 60 s; a 429
is retried after Retry-After and up to half a second; a 5xx or a lost connection
only where the call may run twice, with full jitter; a 403 without JSON never.
"""

import json
import random
import sys
import time
import urllib.error
import urllib.request

base, token, audit, user = sys.argv[1:]
tokens, filled = 100.0, time.monotonic()


class Failure(Exception):
    pass


def take():
    global tokens, filled
    while True:
        now = time.monotonic()
        tokens, filled = min(100.0, tokens + 5 * (now - filled)), now
        if tokens >= 1:
            tokens -= 1
            return
        time.sleep((1 - tokens) / 5)


def send(method, path, body):
    """Returns status, headers and body; status 0 is a lost connection."""
    headers = {"Authorization": "Bearer " + token}
    data = None
    if body is not None:
        headers["Content-Type"] = "application/json"
        data = json.dumps(body).encode()
    request = urllib.request.Request(base + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, response.headers, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()
    except (OSError, urllib.error.URLError):
        return 0, {}, b""


def call(method, path, body=None, idempotent=False):
    started = time.monotonic()
    for attempt in range(5):
        take()
        status, headers, data = send(method, path, body)
        is_json = "application/json" in headers.get("content-type", "")
        if 200 <= status < 300:
            if headers.get("ratelimit-remaining") == "0":
                time.sleep(0.2)
            return json.loads(data) if data else None
        if status == 403 and not is_json:
            raise Failure("blocked")
        unknown = status == 0 or status >= 500
        if status != 429 and not (unknown and (method == "GET" or idempotent)):
            code = json.loads(data)["error"]["code"] if is_json else "HTTP_ERROR"
            has_id = bool(headers.get("x-request-id"))
            raise Failure(f"{status} {code} {'with' if has_id else 'without'} a request id")
        wait = random.uniform(0, min(20.0, 0.5 * 2**attempt))
        if status == 429:
            asked = headers.get("retry-after") or headers.get("ratelimit-reset")
            wait = float(asked) + random.uniform(0, 0.5)
        left = 60 - (time.monotonic() - started)
        if left <= 0:
            break
        time.sleep(min(wait, left))
    raise Failure("exhausted")


def outcome(*args, **kwargs):
    try:
        return call(*args, **kwargs)
    except Failure as failure:
        return str(failure)


begun = time.monotonic()
found = call("GET", "/v2/audits/" + audit)
waited = time.monotonic() - begun
print(json.dumps({
    "audit": found["audit_id"],
    "waited": waited,
    "flags": call("PATCH", "/v2/audits/" + audit, {"flags": ["Failed"]}, idempotent=True)["flags"],
    "created": outcome("POST", "/v2/users", {"email": "casey@example.test"}),
    "blocked": outcome("GET", "/v2/documents"),
    "missing": outcome("GET", "/v2/users/none"),
    "deleted": outcome("DELETE", "/v2/users/" + user),
}))
