"""The hub's own key, by which its nodes know it. Only the signer's process holds it and, briefly,
commands run as the folder's owner (`gpudeck token create agent`)."""

import secrets
from pathlib import Path

import msgspec

from gpudeck.contract.wire import Call, Challenge, hub_statement
from gpudeck.network.keys import SigningKey, fingerprint, kept_seed

KEY_FILE = "hub.key"


class HubKey(SigningKey):
    def __init__(self, folder: Path) -> None:
        super().__init__(kept_seed(folder / KEY_FILE))

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.public)

    def challenge(self, call: Call, hub_id: str, epoch: int) -> Challenge:
        """Sign the caller's nonce, so that a recorded answer proves nothing to the next caller."""
        unsigned = Challenge(secrets.token_bytes(32), hub_id, self.public, epoch, b"")
        return msgspec.structs.replace(unsigned, signature=self.sign(hub_statement(call, unsigned)))
