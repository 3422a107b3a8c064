"""Keys, their files, and the token that is one."""

import os
import random
import stat
from pathlib import Path

import pytest

from agent.link.identity import HUB_FILE, forget_hub, node_key, pinned_hub
from gpudeck.errors import CommandError, ExitCode
from gpudeck.network import keys
from gpudeck.network.keys import (
    EnrolmentToken,
    SigningKey,
    derived_seed,
    fingerprint,
    is_signed,
    kept_seed,
)


def test_a_key_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "agent.key"
    seed = kept_seed(path)
    assert kept_seed(path) == seed
    assert len(seed) == 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["agent.key"]
    assert kept_seed(tmp_path / "other") != seed


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o660, 0o604])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "agent.key"
    kept_seed(path)
    path.chmod(mode)
    with pytest.raises(CommandError, match="chmod 600") as error:
        kept_seed(path)
    assert error.value.code == ExitCode.CANNOT_START


@pytest.mark.parametrize("target", ["real", "nowhere"])
def test_a_link_is_not_followed(tmp_path: Path, target: str) -> None:
    seed = kept_seed(tmp_path / "real")
    (tmp_path / "agent.key").symlink_to(tmp_path / target)
    with pytest.raises(CommandError, match=r"agent\.key"):
        kept_seed(tmp_path / "agent.key")
    assert (tmp_path / "real").read_bytes() == seed
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("content", [b"", b"x" * 31, b"x" * 33])
def test_half_a_key_is_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "agent.key"
    path.touch(0o600)
    path.write_bytes(content)
    with pytest.raises(CommandError, match="not a key"):
        kept_seed(path)


def test_a_signature_is_of_one_statement_by_one_key() -> None:
    key, other = SigningKey(random.randbytes(32)), SigningKey(random.randbytes(32))
    statement = random.randbytes(40)
    signature = key.sign(statement)
    assert is_signed(key.public, statement, signature)
    assert not is_signed(other.public, statement, signature)
    assert not is_signed(key.public, statement + b"x", signature)
    for at in random.sample(range(64), 8):
        wrong = bytearray(signature)
        wrong[at] ^= 1 << random.randrange(8)
        assert not is_signed(key.public, statement, bytes(wrong))
    assert not is_signed(b"no key at all", statement, signature)


@pytest.mark.parametrize("point", sorted(keys._SMALL_ORDER))
@pytest.mark.parametrize("sign", [0, 0x80])
def test_what_fits_any_statement_is_no_key(point: bytes, sign: int) -> None:
    public = point[:31] + bytes([point[31] | sign])
    forged = point[:31] + bytes([point[31]]) + bytes(32)
    assert not any(is_signed(public, random.randbytes(40), signature)
                   for _ in range(40) for signature in (forged, bytes(64), b"\1" + bytes(63)))


def test_simulated_nodes_have_keys_of_their_own(tmp_path: Path) -> None:
    names = ["", "n001", "n002", "n01"]
    publics = [node_key(tmp_path, name).public for name in names]
    assert len(set(publics)) == len(names)
    assert publics == [node_key(tmp_path, name).public for name in names]
    assert derived_seed(b"a" * 32, "n") != derived_seed(b"b" * 32, "n")


def test_tokens_are_read_as_they_are_written() -> None:
    hub = fingerprint(SigningKey(random.randbytes(32)).public)
    token = EnrolmentToken.new(hub)
    assert EnrolmentToken.read(f" {token.text}\n") == token
    assert token.text.startswith("gdk1.")
    secret = token.text.split(".")[2]
    assert secret not in repr(token)
    assert EnrolmentToken.new(hub).seed != token.seed


def test_a_hub_is_pinned_from_the_token_and_kept(tmp_path: Path) -> None:
    hub, other = "ab" * 16, "cd" * 16
    with pytest.raises(CommandError, match="gpudeck token create agent") as error:
        pinned_hub(tmp_path, None)
    assert error.value.code == ExitCode.CANNOT_START
    assert pinned_hub(tmp_path, hub) == hub
    assert pinned_hub(tmp_path, None) == hub
    assert pinned_hub(tmp_path, hub) == hub
    with pytest.raises(CommandError, match="--forget-hub"):
        pinned_hub(tmp_path, other)
    assert pinned_hub(tmp_path, None) == hub
    forget_hub(tmp_path)
    assert pinned_hub(tmp_path, other) == other
    (tmp_path / HUB_FILE).write_text("rubbish")
    with pytest.raises(CommandError, match="--forget-hub"):
        pinned_hub(tmp_path, None)
