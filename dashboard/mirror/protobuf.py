"""The few protobuf encodings that a mirror needs. Pure."""


def varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def block(field: int, content: bytes) -> bytes:
    """Encode a field that is a string, bytes or a message."""
    return varint(field << 3 | 2) + varint(len(content)) + content


def number_in(message: bytes, field: int) -> int:
    """Decode the varint field at the start of a message; 0: it starts with another field."""
    if not message or message[0] != field << 3:
        return 0
    number = 0
    for at, byte in enumerate(message[1:]):
        number |= (byte & 0x7F) << 7 * at
        if byte < 0x80:
            break
    return number
