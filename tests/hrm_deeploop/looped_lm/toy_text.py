"""A toy text."""


def toy_documents() -> list[bytes]:
    """Lines that a small model learns something about at once."""
    return [f"{n} and {n} make {2 * n}; ".encode() * (1 + n % 3) for n in range(60)]
