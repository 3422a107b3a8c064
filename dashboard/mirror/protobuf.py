"""The few shapes of protobuf that a mirror writes. Pure."""


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def block(field: int, content: bytes) -> bytes:
    """A string, bytes or a message."""
    return varint(field << 3 | 2) + varint(len(content)) + content


def number_in(message: bytes, field: int) -> int:
    """The varint at the beginning of a message; 0: it begins with another field."""
    if not message or message[0] != field << 3:
        return 0
    found = 0
    for at, byte in enumerate(message[1:]):
        found |= (byte & 0x7F) << 7 * at
        if byte < 0x80:
            break
    return found
