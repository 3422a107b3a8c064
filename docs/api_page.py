"""Page of the REST interface, for docs/make_reference.py."""

import re

from dashboard.access.policy import TABLE, Permission
from dashboard.openapi.document import document

ABOUT = """\
All that the pages show and do comes from this interface, and programs may use it alike. What each
operation takes and gives, field by field, is the OpenAPI 3.1 document of your hub at
`/api/v1/openapi.json`.

A program shows a token (`gpudeck token create api`, or Settings); it sees and does what the
token's role and scope allow. Below, `$GPUDECK_URL` is the hub's address and `$GPUDECK_TOKEN` the
token:

```sh
curl -s -H "Authorization: Bearer $GPUDECK_TOKEN" "$GPUDECK_URL/api/v1/gpus?filter=util<5&limit=10"
```

- **Times** are UTC: seconds since 1970, or RFC 3339 (`2026-11-20T08:00:00Z`) where a parameter is
  a time.
- **What is not known** is `null` or not there, with the reason under `missing`; never 0.
- **Lists** come in pages: `limit` (100 unless said, at most 1,000), and the answer's `next` is the
  next page's `cursor`. No `next`: that was the last. `filter` takes what the
  [filter field](filters.md) of the pages takes.
- **Unchanged answers** need not be sent again: an answer carries an `ETag`; sent back as
  `If-None-Match`, what has not changed is a 304 without a body.
- **A refusal** is an `application/problem+json` (RFC 9457) whose `detail` says why and what to do.

```sh
curl -s -H "Authorization: Bearer $GPUDECK_TOKEN" "$GPUDECK_URL/api/v1/gpus?limit=none"
```

## Concurrent changes

A PUT of a rule or a quota takes the place of whatever there is. With `If-None-Match: *` it is only
a new one; with `If-Match: "7"` it is a change of that version alone, by the `number` of the rule or
the `generation` of the quota. Where somebody was quicker the answer is 412, and nothing has
changed. The pages ask so each time.

## Idempotency

Every POST takes an `Idempotency-Key`: a new one for each request, such as a UUID. If the answer
is lost on the way, try again with the same key and the same body: what was done is not done
again, and the answer is the first one, with `Idempotency-Replayed: true`.

```sh
key=$(cat /proc/sys/kernel/random/uuid)
for attempt in 1 2; do
  curl -s -H "Authorization: Bearer $GPUDECK_TOKEN" -H "Idempotency-Key: $key" \\
    -H 'Content-Type: application/json' --data '{"group": "lab"}' "$GPUDECK_URL/api/v1/enrolments"
done
```

The same key with another body is refused with 422, and while the first is still being done with
409. A refusal is kept as any answer, except 429 and 503, which say that nothing was done. Keys
are a credential's own and are known for a day, 200 at least of each, in memory: **a restarted
hub does not know them**. That does not open a way to act twice: a command serves a preview, and
a preview serves once and does not outlive the hub either. `gpudeck` and the pages send a key
with every POST, and ask once more when an answer is lost.

An action is always two requests, a preview and the order: see [sending actions](commands.md).
"""

HEAD = "| method | path | does | least role |\n| --- | --- | --- | --- |"
ROLES_ABOUT = ("`+` after a role: a person must have given their password in the last five "
               "minutes; a token need not. What a scope hides is answered as if it were not there.")


def page(note: str) -> str:
    return "\n\n".join(["# REST", note, ABOUT.rstrip(), "## All operations", ROLES_ABOUT,
                        "\n".join([HEAD, *_rows()])]) + "\n"


def _rows() -> list[str]:
    rights = {_bare(verb): row for verb, row in TABLE.items() if " /api/v1/" in verb}
    return [f"| {method.upper()} | `{path.removeprefix('/api/v1/')}` | "
            f"{_cell(operation['summary'])} | {_role(rights[_bare(f'{method.upper()} {path}')])} |"
            for path, operations in sorted(document()["paths"].items())
            for method, operation in operations.items()]


def _bare(verb: str) -> str:
    """`/users/<name>` and `/users/{name}` are one."""
    return re.sub("<[^>]*>|{[^}]*}", "*", verb)


def _role(row: Permission) -> str:
    return row.role.name.lower() + ("+" if row.is_fresh else "")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
