"""Asks nodes what an action would hit: one Look each, answered by a Preview that the node signs."""

import secrets
from collections.abc import Callable

from gevent.event import AsyncResult
from gevent.timeout import Timeout

from gpudeck.contract.action_table import ShownAction
from gpudeck.contract.actions import ActionParams, AskerKind, Preview, Refusal
from gpudeck.contract.wire import FromHub, Look, preview_statement
from gpudeck.network.keys import fingerprint, is_signed

from ..errors import SignerUnavailableError
from .signer_client import GONE, SignerClient

ANSWER_WITHIN_S = 5.0
MAX_OPEN = 256


class PreviewRequester:
    def __init__(self, signer: SignerClient, send: Callable[[str, FromHub], bool]) -> None:
        self._signer = signer
        self._send = send
        # By the id of the request: the node, the request, and where its answer goes.
        self._open: dict[str, tuple[str, Look, AsyncResult[Preview]]] = {}

    def request(self, node_id: str, task_id: str, action: ShownAction, params: ActionParams,
                asker: AskerKind | None) -> Preview | Refusal:
        """Request a preview and wait for it, though not for long. `asker`: who would order the
        action, if that is known already."""
        if len(self._open) >= MAX_OPEN:
            return Refusal("busy", "this hub is asking too many nodes already; try again")
        try:
            nonce = self._signer.nonce()
        except SignerUnavailableError:
            return GONE
        look = Look(secrets.token_hex(16), nonce, action, params, task_id, asker)
        answer: AsyncResult[Preview] = AsyncResult()
        self._open[look.ask_id] = node_id, look, answer
        try:
            if not self._send(node_id, look):
                return Refusal("offline", "this node is not connected, so nothing can be done "
                               "there; it reconnects automatically")
            preview: Preview = answer.get(timeout=ANSWER_WITHIN_S)  # type: ignore[assignment]
            return preview
        except Timeout:
            return Refusal("offline", f"the node did not answer within {ANSWER_WITHIN_S:.0f} s; "
                           "try again, and look at its reader on the Fleet page")
        finally:
            del self._open[look.ask_id]

    def preview_received(self, node_id: str, preview: Preview) -> None:
        """Accept only an answer to what was requested of that very node, signed by it."""
        open_request = self._open.get(preview.ask_id)
        if open_request is None:
            return
        requested_id, look, answer = open_request
        if requested_id == node_id and _answers(preview, node_id, look):
            answer.set(preview)


def _answers(preview: Preview, node_id: str, look: Look) -> bool:
    return (
        (preview.nonce, preview.action, preview.params, preview.task_id, preview.node_id)
        == (look.nonce, look.action, look.params, look.task_id, node_id)
        and fingerprint(preview.key) == node_id
        and is_signed(preview.key, preview_statement(preview), preview.signature))
