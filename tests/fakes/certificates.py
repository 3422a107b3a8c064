"""A certificate authority for tests, and certificates with faults."""

import datetime
import ipaddress
import random
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    cert: Path
    key: Path

    @property
    def flags(self) -> list[str]:
        return ["--tls-cert", str(self.cert), "--tls-key", str(self.key)]


class Authority:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _subject(f"test authority {random.random()}")
        self._cert = self._signed(self._name, self._key, -30, 30, True)
        self.file = folder / "ca.pem"
        self.file.write_bytes(_pem(self._cert))

    def issue(self, name: str, from_day: int = -1, to_day: int = 10, host: str = "127.0.0.1"
              ) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        cert = self._signed(_subject(name), key, from_day, to_day, False, host)
        return self._write(name, cert, key)

    def self_signed(self, name: str) -> Pair:
        other = Authority.__new__(Authority)
        other._folder, other._name = self._folder, _subject(name)
        other._key = ec.generate_private_key(ec.SECP256R1())
        cert = other._signed(other._name, other._key, -1, 10, False, "127.0.0.1")
        return self._write(name, cert, other._key)

    def _signed(self, name: x509.Name, key: ec.EllipticCurvePrivateKey, from_day: int, to_day: int,
                is_authority: bool, host: str = "") -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder().subject_name(name).issuer_name(self._name).public_key(
            key.public_key()).serial_number(x509.random_serial_number()).not_valid_before(
            now + from_day * DAY).not_valid_after(now + to_day * DAY).add_extension(
            x509.BasicConstraints(is_authority, None), True)
        if host:
            builder = builder.add_extension(x509.SubjectAlternativeName([_san(host)]), False)
        return builder.sign(self._key, hashes.SHA256())

    def _write(self, name: str, cert: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
        pair = Pair(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        pair.cert.write_bytes(_pem(cert))
        pair.key.touch(0o600)
        pair.key.write_bytes(key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption()))
        return pair


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _san(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(cert: x509.Certificate) -> bytes:
    return cert.public_bytes(serialization.Encoding.PEM)
