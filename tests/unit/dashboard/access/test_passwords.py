"""The hash that is checked where there is no user."""

from argon2 import PasswordHasher, Type

from dashboard.access.passwords import NOBODY, PasswordService, new_hasher


def test_nobody_takes_as_long_as_a_user() -> None:
    assert not new_hasher().check_needs_rehash(NOBODY)


def test_nobody_has_a_password() -> None:
    quick = PasswordHasher(1, 8, 1, hash_len=32, salt_len=16, type=Type.ID)
    for service in (PasswordService(), PasswordService(quick)):
        assert not service.fits("nobody has this password", None, is_known=True)
